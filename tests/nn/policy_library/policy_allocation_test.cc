// libtroop_policy allocates no memory after a session is created.
#include <gtest/gtest.h>

#include <cstdlib>
#include <limits>
#include <memory>
#include <string>

#include "nn/policy_library/troop_policy.h"
#include "tests/nn/policy_cases.h"
#include "tests/testing/allocation_count.h"

namespace troop {
namespace {

// The count itself: without this a count that stays 0 would pass every test below.
TEST(PolicyAllocationTest, CountSeesEveryAllocation) {
  const auto counted = [](const auto& allocate) {
    const std::int64_t before = AllocationsOfThread();
    allocate();
    return AllocationsOfThread() - before;
  };
  // Volatile: the compiler may otherwise remove the pair.
  void* volatile kept = nullptr;
  const auto keep = [&](void* memory) {
    kept = memory;
    std::free(kept);
  };
  EXPECT_EQ(counted([&] { keep(std::malloc(8)); }), 1);
  EXPECT_EQ(counted([&] { keep(std::calloc(2, 8)); }), 1);
  EXPECT_EQ(counted([&] { keep(std::realloc(nullptr, 8)); }), 1);
  EXPECT_EQ(counted([&] { keep(std::aligned_alloc(64, 64)); }), 1);
  EXPECT_EQ(counted([&] { std::string(100, 'x').swap(*std::make_unique<std::string>()); }), 2);
  EXPECT_EQ(counted([] {}), 0);
}

class PolicyAllocationCaseTest : public testing::TestWithParam<PolicyCase> {
 protected:
  static constexpr std::int64_t kStreams = 70;  // more than the rows of one group
};

TEST_P(PolicyAllocationCaseTest, CallsOfASessionAllocateNothing) {
  const PolicyBench bench(GetParam().setup, GetParam().env);
  const Buffer file = bench.File();
  const troop_policy_source source{.size = sizeof source,
                                   .abi = TROOP_POLICY_ABI,
                                   .bytes = file.bytes().data(),
                                   .byte_count = file.size()};
  troop_policy* policy = nullptr;
  ASSERT_EQ(troop_policy_load(&source, &policy), TROOP_POLICY_OK);
  troop_policy_session* session = nullptr;
  std::int64_t before = AllocationsOfThread();
  ASSERT_EQ(troop_policy_session_create(policy, kStreams, &session), TROOP_POLICY_OK);
  EXPECT_GT(AllocationsOfThread(), before) << "the count does not reach the library";
  // Everything of the caller is allocated before the calls.
  const bool discrete = bench.env().action.discrete();
  const std::int64_t actions = troop_policy_action_at(policy, 0)->count;
  const Tensor observations = bench.Observations(kStreams, 2);
  std::vector<float> values(std::size_t(kStreams * actions)), bounded(values.size());
  std::vector<std::int32_t> chosen(std::size_t{kStreams});
  const std::vector<std::uint8_t> mask(values.size(), 1), none(values.size(), 0);
  const void* const seen[] = {observations.bytes().data()};
  const std::uint8_t *const masks[] = {mask.data()}, *const forbidden[] = {none.data()};
  void* const out[] = {discrete ? static_cast<void*>(chosen.data())
                                : static_cast<void*>(bounded.data())};
  const troop_policy_call plain{
      .size = sizeof plain, .count = kStreams, .observations = seen, .actions = out};
  troop_policy_call full = plain, refused = plain;
  if (discrete) full.masks = masks, full.values = values.data();
  refused.masks = forbidden;  // also refused for continuous actions

  before = AllocationsOfThread();
  int failed = 0;
  for (int step = 0; step < 5; ++step) {
    failed += troop_policy_act(session, &plain) != TROOP_POLICY_OK;
    failed += troop_policy_act(session, &full) != TROOP_POLICY_OK;
    failed += troop_policy_act(session, &refused) != TROOP_POLICY_INVALID_ARGUMENT;
    failed += troop_policy_session_message(session)[0] == 0;
    failed += troop_policy_reset(session, step) != TROOP_POLICY_OK;
    failed += troop_policy_reset(session, -1) != TROOP_POLICY_OK;
  }
  EXPECT_EQ(AllocationsOfThread() - before, 0);
  EXPECT_EQ(failed, 0);
  troop_policy_session_destroy(session);
  troop_policy_unload(policy);
}

INSTANTIATE_TEST_SUITE_P(Policies, PolicyAllocationCaseTest, testing::ValuesIn(PolicyCases()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace troop
