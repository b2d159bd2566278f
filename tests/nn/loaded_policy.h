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
    float* states = nullptr;
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
                                .values = call.values,
                                .states = call.states};
    return call.stacked ? troop_policy_act_stacked(session_, &all)
                        : troop_policy_act(session_, &all);
  }

 private:
  troop_policy* policy_ = nullptr;
  troop_policy_session* session_ = nullptr;
  int code_ = 0;
  std::string message_;
};

// The library computes from the file what the bench's module computes. Streams receive their frames
// one after another; `stacked` calls of a recurrent policy receive the states as well.
inline void ExpectEqualsModule(const PolicyCase& c, const PolicyBench& bench, const Buffer& file) {
  constexpr std::int64_t kStreams = 70;  // more than the rows of one group
  const LoadedPolicy loaded(file, kStreams);
  ASSERT_EQ(loaded.code(), TROOP_POLICY_OK) << loaded.message();
  const std::int64_t episode = test::EpisodeOf(c.setup), stack = c.setup.frame_stack;
  const Tensor stacks = bench.Observations(kStreams * episode, 11);
  const std::vector<float> want = bench.Reference(stacks);
  const auto actions = std::int64_t(want.size()) / kStreams / episode;
  const std::size_t frame = std::size_t(c.env.observation.bytes());
  std::vector<float> values(std::size_t(kStreams * actions)), continuous(values.size());
  std::vector<std::int32_t> discrete(std::size_t{kStreams});
  const bool is_discrete = c.env.action.discrete();
  std::vector<float> states(std::size_t(kStreams) * troop_policy_state_size(loaded.policy()));
  EXPECT_EQ(!states.empty(), episode > 1);
  // One call: step t of all streams, frame s of its stack.
  const auto act = [&](std::int64_t t, std::int64_t s, float* given) {
    std::vector<std::byte> frames;
    for (std::int64_t i = 0; i < kStreams; ++i) {
      const auto from =
          stacks.bytes().subspan(std::size_t((i * episode + t) * stack + s) * frame, frame);
      frames.insert(frames.end(), from.begin(), from.end());
    }
    ASSERT_EQ(loaded.Act({.count = kStreams,
                          .observations = frames.data(),
                          .actions = is_discrete ? static_cast<void*>(discrete.data())
                                                 : static_cast<void*>(continuous.data()),
                          .values = is_discrete ? values.data() : nullptr,
                          .stacked = given != nullptr,
                          .states = given}),
              TROOP_POLICY_OK)
        << troop_policy_session_message(loaded.session());
  };
  const auto compare = [&](std::int64_t t) {
    const std::vector<float>& got = is_discrete ? values : continuous;
    for (std::int64_t i = 0; i < kStreams; ++i) {
      const auto row = std::size_t((i * episode + t) * actions);
      for (std::size_t a = 0; a < std::size_t(actions); ++a) {
        const float x = want[row + a];
        ASSERT_NEAR(got[std::size_t(i * actions) + a], x, 1e-5 * std::max(1.0f, std::abs(x)))
            << i << " " << t;
      }
      if (!is_discrete) continue;
      const auto q = values.begin() + i * actions;
      EXPECT_EQ(discrete[std::size_t(i)], std::max_element(q, q + actions) - q);
    }
  };
  for (std::int64_t t = 0; t < episode; ++t) {
    for (std::int64_t s = 0; s < stack; ++s) act(t, s, nullptr);
    compare(t);
  }
  for (std::int64_t t = 0; t < episode && episode > 1; ++t) {
    act(t, 0, states.data());
    compare(t);
  }
}

}  // namespace troop
