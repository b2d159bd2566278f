#pragma once

// A policy file in libtroop_policy, and its comparison with the module that it was written from.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "nn/policy_library/troop_policy.h"
#include "tests/nn/policy_cases.h"

namespace troop {

// A loaded policy and a session of it.
class LoadedPolicy {
 public:
  explicit LoadedPolicy(const Buffer& file, std::int64_t streams = 1) {
    char message[256] = "";
    const troop_policy_source source{.size = sizeof source,
                                     .abi = TROOP_POLICY_ABI,
                                     .bytes = file.bytes().data(),
                                     .byte_count = file.size(),
                                     .message = message,
                                     .message_bytes = sizeof message};
    code_ = troop_policy_load(&source, &policy_);
    message_ = message;
    if (policy_ != nullptr) {
      EXPECT_EQ(troop_policy_session_create(policy_, streams, &session_), TROOP_POLICY_OK);
    }
  }
  LoadedPolicy(const LoadedPolicy&) = delete;
  LoadedPolicy& operator=(const LoadedPolicy&) = delete;
  ~LoadedPolicy() {
    if (session_ != nullptr) troop_policy_session_destroy(session_);
    troop_policy_unload(policy_);
  }

  int code() const { return code_; }
  const std::string& message() const { return message_; }
  const troop_policy* policy() const { return policy_; }
  troop_policy_session* session() const { return session_; }

  struct Call {
    std::int64_t first = 0, count = 1;
    const void* observations = nullptr;
    const std::uint8_t* mask = nullptr;
    void* actions = nullptr;
    float* values = nullptr;
    bool stacked = false;  // observations are whole stacks
  };
  int Act(const Call& call) const {
    const std::uint8_t* const masks[] = {call.mask};
    void* const actions[] = {call.actions};
    const troop_policy_call all{.size = sizeof all,
                                .first = call.first,
                                .count = call.count,
                                .observations = &call.observations,
                                .masks = masks,
                                .actions = actions,
                                .values = call.values};
    return call.stacked ? troop_policy_act_stacked(session_, &all)
                        : troop_policy_act(session_, &all);
  }

 private:
  troop_policy* policy_ = nullptr;
  troop_policy_session* session_ = nullptr;
  int code_ = 0;
  std::string message_;
};

// The library computes from the file what the bench's module computes: streams whose stacks are
// filled by the session, frame by frame.
inline void ExpectEqualsModule(const PolicyCase& c, const PolicyBench& bench, const Buffer& file) {
  constexpr std::int64_t kStreams = 70;  // more than the rows of one group
  const LoadedPolicy loaded(file, kStreams);
  ASSERT_EQ(loaded.code(), TROOP_POLICY_OK) << loaded.message();
  const Tensor stacks = bench.Observations(kStreams, 11);
  const std::vector<float> want = bench.Reference(stacks);
  // The session receives the frames of each stack in turn; the last call sees whole stacks.
  const std::int64_t stack = c.setup.frame_stack, actions = std::int64_t(want.size()) / kStreams;
  const std::size_t frame = std::size_t(c.env.observation.bytes());
  std::vector<float> values(want.size()), continuous(want.size());
  std::vector<std::int32_t> discrete(std::size_t{kStreams});
  const bool is_discrete = c.env.action.discrete();
  for (std::int64_t s = 0; s < stack; ++s) {
    std::vector<std::byte> frames;
    for (std::int64_t i = 0; i < kStreams; ++i) {
      const auto from = stacks.bytes().subspan(std::size_t(i * stack + s) * frame, frame);
      frames.insert(frames.end(), from.begin(), from.end());
    }
    ASSERT_EQ(loaded.Act({.count = kStreams,
                          .observations = frames.data(),
                          .actions = is_discrete ? static_cast<void*>(discrete.data())
                                                 : static_cast<void*>(continuous.data()),
                          .values = is_discrete ? values.data() : nullptr}),
              TROOP_POLICY_OK)
        << troop_policy_session_message(loaded.session());
  }
  const std::vector<float>& got = is_discrete ? values : continuous;
  for (std::size_t i = 0; i < want.size(); ++i)
    ASSERT_NEAR(got[i], want[i], 1e-5 * std::max(1.0f, std::abs(want[i]))) << i;
  for (std::int64_t i = 0; is_discrete && i < kStreams; ++i) {
    const auto row = values.begin() + i * actions;
    EXPECT_EQ(discrete[std::size_t(i)], std::max_element(row, row + actions) - row);
  }
}

}  // namespace troop
