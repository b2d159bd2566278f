// An updater whose jobs follow each other without a pause.
#include <gtest/gtest.h>

#include "core/base/executor.h"
#include "core/metrics/metrics.h"
#include "learners/sync/updater.h"
#include "net/transport/sim_network.h"
#include "tests/learners/dqn_testing.h"
#include "tests/testing/coordinator_fake.h"

namespace troop {
namespace {

TEST(AllReduceUpdaterTest, BusyLearnerAdmitsNewLearner) {
  const auto hub = MakeSimHub();
  CoordinatorFake coordinator(hub.get());
  coordinator.reply.fleet.learners = 1;
  const auto network = hub->MakeNetwork();
  const auto member = coordinator.Member(network.get(), Role::kLearner, 7);
  SimRendezvousFactory lobbies;
  const auto rendezvous = lobbies.Make();
  InlineExecutor executor;
  const auto algorithm = Make(SmallConfig());
  const auto updater = MakeAllReduceUpdater({.rendezvous = rendezvous.get(),
                                             .member = member.get(),
                                             .executor = &executor,
                                             .algorithm = algorithm.get()});
  Metrics metrics;
  Time now{};
  // Polls for `ms` milliseconds, each time with a job in progress if the updater takes one.
  // Returns how often it took none.
  const auto run = [&](int ms) {
    int idle = 0;
    for (int i = 0; i < ms; ++i) {
      now += Milliseconds(1);
      network->Pump(now);
      coordinator.Pump(now);
      member->Poll(now, metrics);
      while (updater->Collect() != nullptr) {
      }
      if (updater->CanTake()) {
        auto job = std::make_unique<UpdateJob>();
        job->batches.push_back(EmptyBatch(4, 1));
        updater->Take(std::move(job));
      } else if (!updater->busy()) {
        ++idle;
      }
      EXPECT_TRUE(updater->Poll(now).ok());
    }
    return idle;
  };
  run(500);
  ASSERT_EQ(updater->learners(), 1);
  ASSERT_GT(algorithm->updates(), 100u);
  ASSERT_EQ(run(100), 0) << "the group of one is stable";
  coordinator.reply.fleet.learners = 2;
  coordinator.reply.peers[PeerName(Role::kLearner, 1)] = {"sim://newcomer", 9};
  EXPECT_GT(run(500), 0) << "the group was not ended for the new learner";
}

}  // namespace
}  // namespace troop
