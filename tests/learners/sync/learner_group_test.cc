#include "learners/sync/learner_group.h"

#include <gtest/gtest.h>

#include "core/base/executor.h"
#include "core/metrics/metrics.h"
#include "net/transport/sim_network.h"
#include "tests/learners/dqn_testing.h"
#include "tests/testing/coordinator_fake.h"

namespace troop {
namespace {

// A learner that waits for another sends about fifty heartbeats a second, not one after each reply.
// A fleet that waits for a restarted learner thus leaves the processors to it.
TEST(LearnerGroupTest, LimitsHeartbeatRateWhileWaiting) {
  const auto hub = MakeSimHub();
  CoordinatorFake coordinator(hub.get());
  coordinator.reply.fleet.learners = 2;
  const auto network = hub->MakeNetwork();
  const auto member = coordinator.Member(network.get(), Role::kLearner, 7);
  SimRendezvousFactory lobbies;
  const auto rendezvous = lobbies.Make();
  InlineExecutor executor;
  const auto algorithm = Make(SmallConfig());
  LearnerGroup group({.learners = 2,
                      .wait = Seconds(60),
                      .rendezvous = rendezvous.get(),
                      .member = member.get(),
                      .executor = &executor,
                      .algorithm = algorithm.get()});
  Metrics metrics;
  Time now{};
  for (int ms = 0; ms < 4000; ++ms) {  // four steps a millisecond, as messages come
    now += Duration(250'000);
    network->Pump(now);
    coordinator.Pump(now);
    member->Poll(now, metrics);
    group.Poll(now);
    EXPECT_EQ(group.in_step(), nullptr);
  }
  EXPECT_GT(coordinator.beats, 20);
  EXPECT_LT(coordinator.beats, 80);
}

}  // namespace
}  // namespace troop
