#include "replay/serving/sampler_clients.h"

#include <gtest/gtest.h>

namespace troop {
namespace {

Origin Learner(std::uint64_t incarnation, std::int32_t index = 0) {
  return {.role = Role::kLearner, .index = index, .incarnation = incarnation};
}

RateLimiter Limiter() {
  return *RateLimiter::Make(
      {.samples_per_insert = 4, .samples_per_insert_tolerance_rate = 1, .min_items = 1});
}

TEST(SamplerClientsTest, DeliversWhatTheOwnerTook) {
  RateLimiter limiter = Limiter();
  SamplerClients clients(&limiter);
  clients.NoteTaken(Learner(1), 0);
  EXPECT_EQ(clients.Reserve(Learner(1), 10), 10u);
  EXPECT_EQ(clients.Reserve(Learner(1), 5), 15u);
  clients.NoteTaken(Learner(1), 6);
  EXPECT_EQ(limiter.reserved(), 9);
  EXPECT_EQ(limiter.samples(), 6);
  clients.NoteTaken(Learner(1), 4);   // an older report
  clients.NoteTaken(Learner(1), 99);  // beyond what was reserved
  EXPECT_EQ(limiter.reserved(), 0);
  EXPECT_EQ(limiter.samples(), 15);
}

TEST(SamplerClientsTest, RestartReleasesReservationAndFencesOldIncarnation) {
  RateLimiter limiter = Limiter();
  SamplerClients clients(&limiter);
  clients.NoteTaken(Learner(1), 0);
  clients.Reserve(Learner(1), 10);
  clients.NoteTaken(Learner(2), 0);
  EXPECT_EQ(limiter.reserved(), 0);
  EXPECT_EQ(limiter.samples(), 0);
  EXPECT_TRUE(clients.Fenced(Learner(1)));
  EXPECT_FALSE(clients.Fenced(Learner(2)));
  EXPECT_FALSE(clients.Fenced(Learner(1, 1)));
}

TEST(SamplerClientsTest, ForgetsOnlyClientsThatStayAway) {
  RateLimiter limiter = Limiter();
  SamplerClients clients(&limiter);
  const Time start = Time() + Seconds(1);
  for (const std::int32_t index : {0, 1}) {
    clients.NoteTaken(Learner(1, index), 0);
    clients.Reserve(Learner(1, index), 10);
    clients.NotePeer(Learner(1, index), PeerState::kDown, start);
  }
  clients.NotePeer(Learner(1, 0), PeerState::kDown, start + Seconds(30));  // the first time counts
  clients.NotePeer(Learner(1, 1), PeerState::kUp, start + Seconds(30));
  EXPECT_TRUE(clients.Forget(start + Seconds(60)).empty());
  const auto forgotten = clients.Forget(start + Seconds(61));
  ASSERT_EQ(forgotten.size(), 1u);
  EXPECT_EQ(forgotten[0], SamplerClients::Key(Role::kLearner, 0));
  EXPECT_EQ(limiter.reserved(), 10);
}

}  // namespace
}  // namespace troop
