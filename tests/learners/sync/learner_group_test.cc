#include "learners/sync/learner_group.h"

#include <gtest/gtest.h>

#include "core/base/executor.h"
#include "core/metrics/metrics.h"
#include "net/transport/sim_network.h"
#include "tests/testing/coordinator_fake.h"

namespace troop {
namespace {

// One that waits for another asks the coordinator some fifty times a second, and not as often as
// it gets an answer: a fleet that waits for one who was killed has the processors for who comes.
TEST(LearnerGroupTest, LimitsHeartbeatRateWhileWaiting) {
  const auto hub = MakeSimHub();
  CoordinatorFake coordinator(hub.get());
  coordinator.reply.fleet.learners = 2;
  const auto network = hub->MakeNetwork();
  const auto member = coordinator.Member(network.get(), Role::kLearner, 7);
  SimRendezvousFactory lobbies;
  const auto rendezvous = lobbies.Make();
  InlineExecutor executor;
  LearnerGroup group({.learners = 2,
                      .wait = Seconds(60),
                      .rendezvous = rendezvous.get(),
                      .member = member.get(),
                      .executor = &executor});
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
