#include "paramserver/service/shard_node.h"

#include <gtest/gtest.h>

#include "tests/paramserver/shard_fleet.h"

namespace troop {
namespace {

TEST(ShardNodeTest, UpdatesMatchReferenceBitwise) {
  for (const int shards : {1, 3}) {
    for (const bool backup : {false, true}) {
      ShardConfig config = ShardConfigFor(shards, backup);
      config.workers = 2;
      config.optimizer.type = OptimizerType::kAdam;
      ShardFleet fleet(config);
      auto* a = fleet.AddLearner(0);
      auto* b = fleet.AddLearner(1);
      for (std::uint64_t t = 0; t < 10; ++t) {
        ASSERT_TRUE(fleet.Pull(a));
        ASSERT_TRUE(fleet.Pull(b));
        EXPECT_EQ(a->version, t + 1);
        fleet.Push(a, t);
        fleet.Push(b, t);
      }
      ASSERT_TRUE(fleet.Pull(a));
      EXPECT_TRUE(SameBytes(a->value, fleet.Plain(2, 10))) << shards << " " << backup;
    }
  }
}

TEST(ShardNodeTest, BackupTakesOverWithEveryAcknowledgedPush) {
  ShardFleet fleet(ShardConfigFor(2, true));
  auto* learner = fleet.AddLearner(0);
  const auto in_sync = [&] { return fleet.InSync(0) && fleet.InSync(1); };
  ASSERT_TRUE(fleet.Await(in_sync));
  std::uint64_t step = 0;
  for (int kills = 0; kills < 6; ++kills) {
    for (int i = 0; i < 5; ++i, ++step) {
      ASSERT_TRUE(fleet.Pull(learner)) << learner->client->error().ToString();
      EXPECT_EQ(learner->version, step + 1);
      fleet.Push(learner, step);
      // Here and there it is under way when the primary dies.
      if (i == 2) {
        if (kills % 2 == 0) fleet.Pump(kills);
        const std::int32_t victim = fleet.PrimaryOf(kills % 2);
        fleet.Kill(victim);
        const Time then = fleet.now_;
        ASSERT_TRUE(fleet.Await([&] { return fleet.PrimaryOf(kills % 2) >= 0; }));
        EXPECT_LT(fleet.now_ - then, Seconds(1));
        fleet.Start(victim);
      }
    }
    ASSERT_TRUE(fleet.Await(in_sync));  // the restarted process is the new backup
  }
  ASSERT_TRUE(fleet.Pull(learner));
  EXPECT_EQ(learner->version, step + 1);
  EXPECT_TRUE(SameBytes(learner->value, fleet.Plain(1, step)));
}

TEST(ShardNodeTest, FirstPushInFlightCountsAfterFailover) {
  ShardFleet fleet(ShardConfigFor(1, true));
  auto* learner = fleet.AddLearner(0);
  ASSERT_TRUE(fleet.Await([&] { return fleet.InSync(0); }));
  ASSERT_TRUE(fleet.Pull(learner));  // no update has reached the backup
  fleet.Kill(fleet.PrimaryOf(0));
  fleet.Push(learner, 0);
  ASSERT_TRUE(fleet.Pull(learner));
  EXPECT_EQ(learner->client->refused(), 0u);
  EXPECT_EQ(learner->version, 2u);
  EXPECT_TRUE(SameBytes(learner->value, fleet.Plain(1, 1)));
}

TEST(ShardNodeTest, WaitsForSlowLearnerAfterFailover) {
  ShardConfig config = ShardConfigFor(1, true);
  config.workers = 2;
  ShardFleet fleet(config);
  auto* quick = fleet.AddLearner(0);
  auto* slow = fleet.AddLearner(1);
  ASSERT_TRUE(fleet.Await([&] { return fleet.InSync(0); }));
  for (std::uint64_t t = 0; t < 2; ++t) {
    ASSERT_TRUE(fleet.Pull(quick));
    ASSERT_TRUE(fleet.Pull(slow));
    if (t == 1) {
      fleet.Kill(fleet.PrimaryOf(0));
      fleet.Pump(10000);
    }
    fleet.Push(quick, t);
    fleet.Push(slow, t);
  }
  ASSERT_TRUE(fleet.Pull(quick));
  EXPECT_TRUE(SameBytes(quick->value, fleet.Plain(2, 2)));
}

TEST(ShardNodeTest, PrimaryContinuesWithoutBackupAndLosesNothing) {
  ShardFleet fleet(ShardConfigFor(1, true));
  auto* learner = fleet.AddLearner(0);
  ASSERT_TRUE(fleet.Await([&] { return fleet.InSync(0); }));
  ASSERT_TRUE(fleet.Pull(learner));
  const std::int32_t backup = 1 - fleet.PrimaryOf(0);
  fleet.Push(learner, 0);
  fleet.Kill(backup);
  ASSERT_TRUE(fleet.Pull(learner));
  fleet.Push(learner, 1);
  ASSERT_TRUE(fleet.Pull(learner));
  fleet.Start(backup);
  ASSERT_TRUE(fleet.Await([&] { return fleet.InSync(0); }));
  fleet.Kill(1 - backup);
  ASSERT_TRUE(fleet.Pull(learner));
  EXPECT_EQ(learner->version, 3u);
  EXPECT_TRUE(SameBytes(learner->value, fleet.Plain(1, 2)));
}

TEST(ShardNodeTest, AcknowledgesOnlyWhatBackupHas) {
  ShardFleet fleet(ShardConfigFor(1, true));
  auto* learner = fleet.AddLearner(0);
  auto* reader = fleet.AddReader();
  ASSERT_TRUE(fleet.Await([&] { return fleet.InSync(0) && !reader->got.empty(); }));
  ASSERT_TRUE(fleet.Pull(learner));
  fleet.Freeze(1 - fleet.PrimaryOf(0), true);
  const std::size_t before = reader->got.size();
  fleet.Push(learner, 0);
  fleet.Pump(200);
  EXPECT_EQ(learner->client->applied(), 0u);
  EXPECT_EQ(reader->got.size(), before);  // readers get no update that could still be lost
  // Silent for too long, it is left out.
  ASSERT_TRUE(fleet.Await([&] { return learner->client->applied() == 1; }, 8000));
  EXPECT_EQ(fleet.terms_.terms()[0].backup, -1);
}

// A backup followed any peer with the largest term, and took nothing from its primary any more.
TEST(ShardNodeTest, RejectsTermNotStartedByCoordinator) {
  ShardFleet fleet(ShardConfigFor(1, true));
  auto* learner = fleet.AddLearner(0);
  ASSERT_TRUE(fleet.Await([&] { return fleet.InSync(0); }));
  ASSERT_TRUE(fleet.Pull(learner));
  const std::int32_t primary = fleet.PrimaryOf(0);
  const auto network = fleet.hub_->MakeNetwork();
  const std::uint64_t term = fleet.terms_.terms()[0].term;
  for (const std::uint64_t wrong : {~std::uint64_t{0}, term}) {
    const Origin origin{.role = Role::kParamServer,
                        .index = wrong == term ? 1 - primary : primary,
                        .incarnation = fleet.slots_[primary].incarnation};
    const auto channel =
        *network->Connect(fmt::format("inproc://slot-{}", 1 - primary), {.origin = origin});
    Message message{.type = MessageType::kShardUpdate, .body = EncodeBody(ShardUpdateBody{wrong})};
    const Ticket ticket = *channel->Send(message, kForever);
    std::optional<Result<Message>> answer;
    ASSERT_TRUE(fleet.Await([&] {
      network->Pump(fleet.now_);
      if (!answer) answer = channel->Poll(ticket);
      return answer.has_value();
    }));
    EXPECT_FALSE(answer->ok());
  }
  fleet.Push(learner, 0);
  ASSERT_TRUE(fleet.Await([&] { return learner->client->applied() == 1; }));
  EXPECT_EQ(fleet.terms_.terms()[0].term, term) << "the backup was given up";
}

TEST(ShardNodeTest, ThawedOldPrimaryAcknowledgesNothing) {
  ShardFleet fleet(ShardConfigFor(1, true, SyncMode::kAsync));
  auto* learner = fleet.AddLearner(0);
  ASSERT_TRUE(fleet.Await([&] { return fleet.InSync(0); }));
  ASSERT_TRUE(fleet.Pull(learner));
  fleet.Push(learner, 0);
  ASSERT_TRUE(fleet.Pull(learner));
  const std::int32_t old = fleet.PrimaryOf(0);
  // The learner has no address of a successor; its push waits in the frozen one's socket.
  fleet.Freeze(old, true);
  fleet.Push(learner, 1);
  ASSERT_TRUE(fleet.Await([&] { return fleet.slots_[1 - old].node->server() != nullptr; }, 8000));
  ASSERT_TRUE(fleet.Await([&] { return learner->client->applied() == 2; }));
  fleet.Freeze(old, false);
  fleet.Pump(1000);
  EXPECT_EQ(fleet.slots_[old].node->server(), nullptr);
  EXPECT_TRUE(fleet.InSync(0));
  EXPECT_EQ(learner->client->applied(), 2u);
  ASSERT_TRUE(fleet.Pull(learner));
  EXPECT_EQ(learner->version, 3u);
}

TEST(ShardNodeTest, ShardResumesFromSavedStateAndAdoptsPeerVersions) {
  ShardConfig config = ShardConfigFor(2, false);
  config.snapshot_every_s = 0.5;
  ShardFleet fleet(config);
  auto* learner = fleet.AddLearner(0);
  auto* reader = fleet.AddReader();
  std::uint64_t step = 0;
  const auto learn = [&](int steps) {
    for (int i = 0; i < steps; ++i, ++step) {
      ASSERT_TRUE(fleet.Pull(learner)) << learner->client->error().ToString();
      fleet.Push(learner, step);
    }
  };
  learn(4);
  fleet.Pump(600);  // saved
  learn(3);
  fleet.Pump(10);
  fleet.Kill(1);
  fleet.Pump(10);
  fleet.Start(1);
  ASSERT_TRUE(fleet.Pull(learner));
  EXPECT_EQ(fleet.slots_[1].node->server()->shard().version(), 5u);
  EXPECT_EQ(fleet.slots_[0].node->server()->shard().version(), 8u);
  learn(1);
  ASSERT_TRUE(fleet.Pull(learner));
  EXPECT_EQ(fleet.slots_[0].node->server()->shard().version(), 9u);
  EXPECT_EQ(fleet.slots_[1].node->server()->shard().version(), 9u);
  const std::size_t before = reader->got.size();
  learn(2);
  ASSERT_TRUE(fleet.Await([&] { return reader->got.size() > before; }));
  for (std::size_t i = 1; i < reader->got.size(); ++i) {
    EXPECT_GT(reader->got[i].version, reader->got[i - 1].version);
  }
}

TEST(ShardNodeTest, NextRunResumesFromLastState) {
  Floats value;
  std::unique_ptr<Storage> storage;
  {
    ShardFleet fleet(ShardConfigFor(2, true));
    auto* learner = fleet.AddLearner(0);
    for (std::uint64_t t = 0; t < 3; ++t) {
      ASSERT_TRUE(fleet.Pull(learner));
      fleet.Push(learner, t);
    }
    ASSERT_TRUE(fleet.Pull(learner));
    value = learner->value;
    fleet.phase_ = Phase::kDone;
    ASSERT_TRUE(fleet.Await([&] { return fleet.done_.size() == 4; }));
    for (const auto& [slot, status] : fleet.done_) EXPECT_TRUE(status.ok()) << status.ToString();
    storage = std::move(fleet.storage_);
  }
  ShardFleet fleet(ShardConfigFor(2, false));
  for (std::int32_t i : {0, 1}) fleet.Kill(i);
  fleet.storage_ = std::move(storage);
  fleet.numbers_ = 1000;
  for (std::int32_t i : {0, 1}) fleet.Start(i);
  auto* learner = fleet.AddLearner(0);
  ASSERT_TRUE(fleet.Pull(learner));
  EXPECT_EQ(learner->version, 4u);
  EXPECT_TRUE(SameBytes(learner->value, value));
}

TEST(ShardNodeTest, DamagedStateFailsStart) {
  ShardFleet fleet(ShardConfigFor(1, false));
  fleet.Kill(0);
  ShardSnapshots store(fleet.storage_.get(), 0);
  ASSERT_TRUE(store.Save(7, Buffer::Copy(std::as_bytes(std::span("damaged")))).ok());
  fleet.Start(0);
  ASSERT_TRUE(fleet.Await([&] { return !fleet.done_.empty(); }));
  EXPECT_EQ(fleet.done_[0].code(), Code::kDataLoss);
  EXPECT_NE(fleet.done_[0].message().find("--overwrite"), std::string::npos)
      << fleet.done_[0].message();
}

TEST(ShardStoreTest, IgnoresStateOfReplacedPrimary) {
  const auto storage = MakeMemoryStorage();
  ShardSnapshots store(storage.get(), 3);
  const auto bytes = [](const std::string& text) {
    return Buffer::Copy(std::as_bytes(std::span(text)));
  };
  ASSERT_TRUE(store.Save(9, bytes("older")).ok());
  ASSERT_TRUE(store.Save(10, bytes("newer")).ok());
  ASSERT_TRUE(store.Save(9, bytes("late")).ok());
  const auto names = *store.List();
  ASSERT_EQ(names.size(), 3u);  // two of the old term are behind it
  EXPECT_EQ(store.Read(names[0])->text(), "newer");
  ASSERT_TRUE(store.Save(10, bytes("newest")).ok());
  EXPECT_EQ(*store.List(), (std::vector<std::string>{names[0], names[0] + ".before"}));
}

// Two of them, so that one that is damaged costs the updates between, and not the run.
TEST(ShardStoreTest, KeepsPreviousSnapshot) {
  const auto storage = MakeMemoryStorage();
  ShardSnapshots store(storage.get(), 0, 7);
  const auto kept = [&] {
    std::vector<std::string> texts;
    const auto names = store.List();
    for (const std::string& name : *names) texts.emplace_back(store.Read(name)->text());
    return texts;
  };
  using Texts = std::vector<std::string>;
  const auto save = [&](std::uint64_t since, const std::string& text) {
    ASSERT_TRUE(store.Save(since, Buffer::Copy(std::as_bytes(std::span(text)))).ok());
  };
  save(9, "a");
  EXPECT_EQ(kept(), Texts({"a"}));
  save(9, "b");
  EXPECT_EQ(kept(), Texts({"b", "a"}));
  save(10, "c");
  EXPECT_EQ(kept(), Texts({"c", "b"}));
  save(10, "d");
  EXPECT_EQ(kept(), Texts({"d", "c"}));
  save(10, "e");
  EXPECT_EQ(kept(), Texts({"e", "d"}));
  EXPECT_EQ(DamagedShardStates(storage.get())->size(), 2u);
}

TEST(ShardNodeTest, FallsBackToPreviousSnapshotThenCheckpoint) {
  ShardFleet fleet(ShardConfigFor(1, false));
  const auto shard = [&] { return &fleet.slots_[0].node->server()->shard(); };
  auto* learner = fleet.AddLearner(0);
  ASSERT_TRUE(fleet.Pull(learner));
  fleet.Push(learner, 0);
  ASSERT_TRUE(fleet.Pull(learner));
  fleet.slots_[0].node->Drain();  // it saves, and ends
  ASSERT_TRUE(fleet.Await([&] { return !fleet.done_.empty(); }));
  ShardSnapshots store(fleet.storage_.get(), 0);
  const Buffer damaged = Buffer::Copy(std::as_bytes(std::span("damaged")));
  const auto restart = [&] {
    fleet.Kill(0);
    fleet.Start(0);
    return fleet.Await([&] { return fleet.PrimaryOf(0) == 0; });
  };
  const std::uint64_t since = std::stoull(store.List()->front());
  ASSERT_TRUE(store.Save(since, damaged).ok());
  EXPECT_EQ(DamagedShardStates(fleet.storage_.get())->size(), 1u);
  ASSERT_TRUE(restart());
  EXPECT_EQ(shard()->version(), 2u);
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(store.Save(since, damaged).ok());
  fleet.checkpoint_weights_ = [](std::span<float> value) -> Result<std::uint64_t> {
    std::ranges::fill(value, 0.5F);
    return 41;
  };
  ASSERT_TRUE(restart());
  EXPECT_EQ(shard()->version(), 42u);
  EXPECT_EQ(shard()->value()[0], 0.5F);
}

}  // namespace
}  // namespace troop
