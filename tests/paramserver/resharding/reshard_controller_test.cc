#include "paramserver/resharding/reshard_controller.h"

#include <gtest/gtest.h>

#include "core/base/philox.h"
#include "core/storage/memory_storage.h"
#include "paramserver/replication/shard_snapshots.h"
#include "paramserver/resharding/reshard_receiver.h"
#include "tests/paramserver/shard_fleet.h"

namespace troop {
namespace {

// Two shards, each served by the process of its slot; learner 5 takes part.
class ShardMoverTest : public testing::Test {
 protected:
  void SetUp() override {
    for (std::int32_t slot : {0, 1}) Come(slot);
  }
  void Come(std::int32_t slot) {
    const std::uint64_t incarnation = ++number_;
    terms_.RecordHeartbeat(now_, slot, incarnation, 0);
    std::erase_if(present_.servers, [slot](const auto& p) { return p.index == slot; });
    present_.servers.push_back({slot, incarnation, 0});
  }
  ReshardController::LiveProcess& Server(std::int32_t slot) {
    return *std::ranges::find(present_.servers, slot, &ReshardController::LiveProcess::index);
  }
  void Begin(std::int32_t shards) { ASSERT_TRUE(mover_.Begin(now_, shards, ++number_).ok()); }
  std::optional<Status> Update() { return mover_.Update(now_, present_); }
  ShardMoveStage stage() const { return mover_.move().stage; }
  // To where shards hand over.
  void HandOver(std::int32_t shards) {
    Begin(shards);
    for (std::int32_t slot = 2; slot < shards; ++slot) Come(slot);
    Update();
    present_.learners[0].move = mover_.move().number;
    Update();
    ASSERT_EQ(stage(), ShardMoveStage::kHandingOver);
  }
  void Prepare() {
    for (auto& server : present_.servers) server.move = mover_.move().number;
  }

  std::uint64_t number_ = 100;
  Time now_{Seconds(1)};
  PrimaryElection terms_{{.shards = 2, .next_term = [this] { return ++number_; }}};
  Status disk_;
  std::vector<ShardEpoch> written_;
  ReshardController mover_{{.commit =
                                [this](const auto& epochs) {
                                  written_ = epochs;
                                  return disk_;
                                }},
                           {{2, 0}},
                           &terms_};
  ReshardController::LiveProcesses present_{.servers = {}, .learners = {{.index = 5}}};
};

TEST_F(ShardMoverTest, AdvancesStagesOnceAllArePresent) {
  Begin(3);
  EXPECT_EQ(mover_.servers(), 3);
  EXPECT_FALSE(Update());
  EXPECT_EQ(stage(), ShardMoveStage::kGathering);
  Come(2);
  EXPECT_FALSE(Update());
  EXPECT_EQ(stage(), ShardMoveStage::kPausing);
  present_.learners[0].move = mover_.move().number - 1;  // of another move
  EXPECT_FALSE(Update());
  EXPECT_EQ(stage(), ShardMoveStage::kPausing);
  present_.learners[0].move = mover_.move().number;
  EXPECT_FALSE(Update());
  EXPECT_EQ(stage(), ShardMoveStage::kHandingOver);
  Prepare();
  Server(1).move = 0;
  EXPECT_FALSE(Update());
  EXPECT_TRUE(written_.empty());
  const std::uint64_t number = Server(1).move = mover_.move().number;
  const auto over = Update();
  ASSERT_TRUE(over.has_value());
  EXPECT_TRUE(over->ok()) << over->ToString();
  EXPECT_EQ(mover_.move().number, 0u);
  EXPECT_EQ(written_, (std::vector<ShardEpoch>{{2, 0}, {3, number}}));
  ASSERT_EQ(terms_.terms().size(), 3u);
  for (std::int32_t k = 0; k < 3; ++k) {
    EXPECT_EQ(terms_.terms()[std::size_t(k)].from, number);
    EXPECT_EQ(terms_.terms()[std::size_t(k)].primary, k);
    EXPECT_EQ(terms_.terms()[std::size_t(k)].primary_incarnation, Server(k).incarnation);
  }
  EXPECT_FALSE(Update());
}

TEST_F(ShardMoverTest, RemovesShardOnceOthersHaveItsShare) {
  HandOver(1);
  EXPECT_EQ(mover_.servers(), 2);
  Server(0).move = mover_.move().number;
  EXPECT_TRUE(Update()->ok());
  EXPECT_EQ(mover_.servers(), 1);
  EXPECT_EQ(terms_.terms().size(), 1u);
  // Still running, but not a server any longer.
  terms_.RecordHeartbeat(now_, 1, Server(1).incarnation, 0);
  terms_.RecordExit(1, Server(1).incarnation);
}

TEST_F(ShardMoverTest, AbortsOnTimeoutAndReportsCause) {
  const auto late = [&](Duration patience) {
    now_ += patience - Seconds(1);
    EXPECT_FALSE(Update());
    now_ += Seconds(1);
    const auto over = Update();
    EXPECT_TRUE(over.has_value());
    EXPECT_EQ(mover_.move().number, 0u);
    EXPECT_EQ(mover_.shards(), 2);
    return over ? over->message() : std::string();
  };
  Begin(3);
  EXPECT_NE(late(Seconds(30)).find("paramserver-2 is not running"), std::string::npos);
  Begin(1);
  Update();
  EXPECT_NE(late(Seconds(15)).find("learner-5 has not left"), std::string::npos);
  HandOver(1);
  EXPECT_NE(late(Seconds(15)).find("paramserver-0 has not received its ranges"), std::string::npos);
  EXPECT_TRUE(written_.empty());
}

TEST_F(ShardMoverTest, ChangeOfPrimaryAbortsMove) {
  Begin(1);
  Update();
  terms_.RecordExit(1, Server(1).incarnation);
  std::erase_if(present_.servers, [](const auto& p) { return p.index == 1; });
  EXPECT_EQ(Update()->code(), Code::kUnavailable);  // its state went with it
  Come(1);
  HandOver(1);
  Prepare();
  terms_.RecordExit(1, Server(1).incarnation);
  Come(1);  // another life of it serves, which has what was on the disk
  EXPECT_EQ(Update()->code(), Code::kUnavailable);
  EXPECT_TRUE(written_.empty());
  EXPECT_EQ(terms_.terms().size(), 2u);
}

TEST_F(ShardMoverTest, FailedWriteStartsNoEpoch) {
  HandOver(3);
  Prepare();
  disk_ = ResourceExhausted("no space");
  EXPECT_EQ(Update()->code(), Code::kResourceExhausted);
  EXPECT_EQ(mover_.epochs().size(), 1u);
  EXPECT_EQ(terms_.terms().size(), 2u);
}

TEST_F(ShardMoverTest, RejectsConcurrentOrUnchangedMove) {
  EXPECT_EQ(mover_.Begin(now_, 2, ++number_).code(), Code::kInvalidArgument);
  Begin(3);
  EXPECT_EQ(mover_.Begin(now_, 4, ++number_).code(), Code::kFailedPrecondition);
}

TEST(ShardEpochsTest, RoundTripsAndRejectsDamage) {
  const auto storage = MakeMemoryStorage();
  EXPECT_TRUE(ReadShardEpochs(storage.get())->empty());
  const std::vector<ShardEpoch> epochs{{2, 0}, {3, 17}, {1, 29}};
  ASSERT_TRUE(WriteShardEpochs(storage.get(), epochs).ok());
  EXPECT_EQ(*ReadShardEpochs(storage.get()), epochs);
  for (const std::string text :
       {"", "shards move\n", "shards move\n2 0\n3 17", "shards move\n2 1\n",
        "shards move\n2 0\n3 0\n", "shards move\n2 0\n0 9\n", "2 0\n", "shards move\n2 0\n3 9 \n",
        "shards move\n2 0\n9999 9\n"}) {
    ASSERT_TRUE(storage->WriteAtomic("paramserver/epochs", text).ok());
    EXPECT_EQ(ReadShardEpochs(storage.get()).status().code(), Code::kDataLoss) << text;
  }
}

TEST(ShardEpochsTest, RemovesStatesOfOtherMaps) {
  const auto storage = MakeMemoryStorage();
  const auto bytes = Buffer::Copy(std::as_bytes(std::span("state")));
  for (const std::uint64_t move : {0, 7, 9}) {
    ASSERT_TRUE(ShardSnapshots(storage.get(), 1, move).Save(20, bytes).ok());
  }
  ASSERT_TRUE(WriteShardEpochs(storage.get(), {{2, 0}, {3, 9}}).ok());
  ASSERT_TRUE(RemoveOtherShardStates(storage.get(), 9).ok());
  EXPECT_TRUE(ShardSnapshots(storage.get(), 1, 0).List()->empty());
  EXPECT_TRUE(ShardSnapshots(storage.get(), 1, 7).List()->empty());
  EXPECT_EQ(ShardSnapshots(storage.get(), 1, 9).List()->size(), 1u);
  EXPECT_TRUE(storage->Exists("paramserver/epochs"));
}

// An owner that does not stand still at first, and gives its state in small pieces.
class Owner final : public Service {
 public:
  Owner(Buffer state, std::uint64_t lineage) : state_(std::move(state)), lineage_(lineage) {}
  void Handle(Message message, Reply reply) override {
    const auto body = DecodeBody<ShardFetchBody>(message.body);
    ASSERT_TRUE(body.ok());
    EXPECT_EQ(body->shard, 5);
    if (++asked_ == 1 || asked_ == 4) return reply.Fail(Unavailable("not yet"));
    Message answer{
        .type = MessageType::kShardFetchReply,
        .body = EncodeBody(ShardStateBody{body->move, lineage_, body->offset, state_.size()})};
    answer.parts.push_back(
        state_.Slice(body->offset, std::min<std::size_t>(1000, state_.size() - body->offset)));
    reply.Send(std::move(answer));
  }

 private:
  const Buffer state_;
  const std::uint64_t lineage_;
  int asked_ = 0;
};

TEST(ShardIntakeTest, JoinsPiecesOfSeveralOwnersWithRetainedRange) {
  const Floats value = FirstValue();
  const auto part = [&](ParamRange range) {
    auto options = OptionsOf({.mode = SyncMode::kAsync}, "adam");
    options.ranges = {range};
    return Make(options, std::span(value).subspan(std::size_t(range.begin), range.size()));
  };
  const auto stays = part({0, 320}), one = part({320, 640}), two = part({640, kParameters});
  Owner owners[] = {{one->Snapshot(), 7}, {two->Snapshot(), 3}};
  const auto hub = MakeSimHub();
  const auto server = hub->MakeNetwork(), client = hub->MakeNetwork();
  std::vector<std::unique_ptr<Listener>> listeners;
  std::vector<std::unique_ptr<Channel>> channels;
  for (const int i : {0, 1}) {
    const std::string name = "inproc://owner-" + std::to_string(i);
    listeners.push_back(*server->Listen(name, &owners[i]));
    channels.push_back(*client->Connect(
        name, {.origin = {.role = Role::kParamServer, .index = 5, .incarnation = 1}}));
  }
  ReshardReceiver intake(9, 5, std::move(channels), ShardStateBytesMax(kParameters, 2));
  Time now{Seconds(1)};
  for (int i = 0; i < 300 && !intake.complete(); ++i) {
    now += Milliseconds(1);
    server->Pump(now);
    client->Pump(now);
    intake.Poll(now);
  }
  ASSERT_TRUE(intake.complete());
  EXPECT_EQ(intake.bytes(), one->Snapshot().size() + two->Snapshot().size());
  auto options = OptionsOf({.mode = SyncMode::kAsync}, "adam");
  options.epoch = 2;
  const auto shard = intake.Finish(options, stays->Snapshot(), 5);
  ASSERT_TRUE(shard.ok()) << shard.status().ToString();
  EXPECT_EQ(intake.lineage(), 7u);
  EXPECT_TRUE(SameBytes((*shard)->value(), value));
}

// ---- Whole shards ------------------------------------------------------------------------------

void Learn(ShardFleet* fleet, ShardFleet::Learner* learner, std::uint64_t* step, int steps) {
  for (int i = 0; i < steps; ++i, ++*step) {
    ASSERT_TRUE(fleet->Pull(learner)) << learner->client->error().ToString();
    fleet->Push(learner, *step);
  }
}

TEST(ShardMoveTest, UpdatesMatchReferenceBitwiseAfterMoves) {
  for (const bool backup : {false, true}) {
    ShardConfig config = ShardConfigFor(2, backup);
    config.optimizer.type = OptimizerType::kAdam;
    ShardFleet fleet(config);
    auto* learner = fleet.AddLearner(0);
    auto* reader = fleet.AddReader();
    std::uint64_t step = 0;
    for (const std::int32_t shards : {3, 1, 5, 2}) {
      Learn(&fleet, learner, &step, 4);
      const Status moved = fleet.Move(shards);
      ASSERT_TRUE(moved.ok()) << moved.ToString();
    }
    Learn(&fleet, learner, &step, 4);
    ASSERT_TRUE(fleet.Pull(learner));
    EXPECT_EQ(learner->version, step + 1);
    EXPECT_EQ(learner->client->refused(), 0u);
    EXPECT_TRUE(SameBytes(learner->value, fleet.Plain(1, step))) << backup;
    const auto all_in_sync = [&] { return !backup || (fleet.InSync(0) && fleet.InSync(1)); };
    EXPECT_TRUE(fleet.Await(all_in_sync));
    ASSERT_TRUE(fleet.Await(
        [&] { return SameBytes(reader->got.back().value.as<float>(), learner->value); }));
    for (std::size_t i = 1; i < reader->got.size(); ++i) {
      EXPECT_GT(reader->got[i].version, reader->got[i - 1].version);
    }
    EXPECT_TRUE(fleet.Await([&] {  // processes of shards that went are gone
      return std::ranges::all_of(fleet.slots_, [&](const auto& slot) {
        return (slot.second.node != nullptr) == (slot.first < fleet.terms_.slots());
      });
    }));
  }
}

// Steps of 1 and a rate of 2^-7 add up exactly: each element shows its number of pushes.
TEST(ShardMoveTest, EachPushCountsOncePerElementInEveryMode) {
  for (const SyncMode mode :
       {SyncMode::kAsync, SyncMode::kBsp, SyncMode::kSsp, SyncMode::kKOfN, SyncMode::kLocalSgd}) {
    ShardConfig config = ShardConfigFor(2, false, mode);
    config.workers = 2;
    config.paramserver.k = 1;
    if (mode == SyncMode::kSsp) config.paramserver.staleness = 3;
    ShardFleet fleet(config);
    ShardFleet::Learner* const learners[] = {fleet.AddLearner(0), fleet.AddLearner(1)};
    ASSERT_TRUE(fleet.Pull(learners[0]) && fleet.Pull(learners[1]));
    std::uint64_t pushes = 0;
    for (const std::int32_t shards : {4, 1, 2}) {
      for (int i = 0; i < 5; ++i) {
        for (auto* learner : learners) {
          const Floats ones(learner->value.size(), mode == SyncMode::kLocalSgd ? 0.5f : 1.0f);
          ASSERT_TRUE(fleet.Await([&] { return learner->client->CanPush(); }));
          ASSERT_TRUE(learner->client->Push(fleet.now_, ones, 0x1p-7f, 1).ok());
          ++pushes;
        }
        // Where others are waited for, both ask at once.
        for (auto* learner : learners) ASSERT_TRUE(learner->client->RequestPull(fleet.now_).ok());
        ASSERT_TRUE(fleet.Await(
            [&] { return !learners[0]->client->pulling() && !learners[1]->client->pulling(); }));
      }
      const Status moved = fleet.Move(shards);
      ASSERT_TRUE(moved.ok()) << EnumName(mode) << ": " << moved.ToString();
      ASSERT_TRUE(fleet.Pull(learners[0]) && fleet.Pull(learners[1]));
    }
    for (auto* learner : learners) {
      EXPECT_TRUE(learner->client->error().ok()) << learner->client->error().ToString();
      EXPECT_EQ(learner->client->refused(), 0u) << EnumName(mode);
    }
    const Floats first = fleet.FirstOfRun();
    const Floats& value = learners[0]->value;
    const float each = mode == SyncMode::kBsp || mode == SyncMode::kSsp ? 0x1p-8f : 0x1p-7f;
    for (std::size_t i = 0; i < value.size(); ++i) {
      const float want = mode == SyncMode::kLocalSgd ? 0.5f : first[i] - each * float(pushes);
      ASSERT_NEAR(value[i], want, 1e-5f) << EnumName(mode) << " " << i;
    }
  }
}

TEST(ShardMoveTest, CodecResidualMovesWithItsElements) {
  for (const bool moves : {false, true}) {
    ShardConfig config = ShardConfigFor(2, false);
    config.paramserver.compression = GradientCodec::kBf16;
    ShardFleet fleet(config);
    auto* learner = fleet.AddLearner(0);
    static Floats without;
    std::uint64_t step = 0;
    for (const std::int32_t shards : {3, 1, 2}) {
      Learn(&fleet, learner, &step, 3);
      if (moves) {
        ASSERT_TRUE(fleet.Move(shards).ok());
      }
    }
    Learn(&fleet, learner, &step, 3);
    ASSERT_TRUE(fleet.Pull(learner));
    if (!moves) without = learner->value;
    EXPECT_TRUE(SameBytes(learner->value, without));
  }
}

// kill -9 of a source, a target, or a shard that only stays, at every moment of a move: the map is
// the old one or the new one, and with backups no push is lost.
TEST(ShardMoveTest, KillDuringMoveLeavesOldOrNewMap) {
  int old_maps = 0, new_maps = 0;
  Rng rng({3, Purpose::kTest});
  for (int round = 0; round < 40; ++round) {
    const bool backup = round % 2 == 0, grows = round % 4 < 2;
    ShardConfig config = ShardConfigFor(2, backup);
    config.snapshot_every_s = 0.2;
    ShardFleet fleet(config);
    auto* learner = fleet.AddLearner(0);
    std::uint64_t step = 0;
    Learn(&fleet, learner, &step, 3);
    const auto in_sync = [&] { return fleet.InSync(0) && fleet.InSync(1); };
    if (backup) {
      ASSERT_TRUE(fleet.Await(in_sync));
    }
    ASSERT_TRUE(fleet.Pull(learner));
    fleet.Pump(400);  // saved
    const std::int32_t shards = grows ? 3 : 1;
    ASSERT_TRUE(fleet.BeginMove(shards).ok());
    const auto stage = ShardMoveStage(rng.Below(3));
    ASSERT_TRUE(fleet.Await([&] { return fleet.mover_.move().stage >= stage || fleet.moved_; }));
    fleet.Pump(int(rng.Below(60)));
    const auto slots = std::uint32_t(fleet.mover_.servers());
    const auto victim = std::int32_t(rng.Below(slots));
    fleet.Kill(victim);
    fleet.Pump(20);
    fleet.Start(victim);
    ASSERT_TRUE(fleet.Await([&] { return fleet.moved_.has_value(); }, 60000)) << round;
    (fleet.moved_->ok() ? new_maps : old_maps) += 1;
    EXPECT_EQ(fleet.mover_.shards(), fleet.moved_->ok() ? shards : 2);
    Learn(&fleet, learner, &step, 3);
    ASSERT_TRUE(fleet.Pull(learner)) << round << " " << learner->client->error().ToString();
    // Everything was settled and on disk when it died, so that even without a backup no update is
    // lost.
    EXPECT_TRUE(SameBytes(learner->value, fleet.Plain(1, step))) << round << " " << victim;
  }
  EXPECT_GT(old_maps, 5);
  EXPECT_GT(new_maps, 5);
}

TEST(ShardMoveTest, ResumesWithSavedMapAfterRunEndedDuringMove) {
  for (int after = 0; after <= 420; after += 20) {
    std::unique_ptr<Storage> storage;
    Floats value;
    {
      ShardConfig config = ShardConfigFor(2, false);
      config.snapshot_every_s = 0.05;
      ShardFleet fleet(config);
      auto* learner = fleet.AddLearner(0);
      std::uint64_t step = 0;
      Learn(&fleet, learner, &step, 3);
      ASSERT_TRUE(fleet.Pull(learner));
      value = learner->value;
      fleet.Pump(100);
      ASSERT_TRUE(fleet.BeginMove(3).ok());
      fleet.Pump(after);  // the machine goes off
      storage = std::move(fleet.storage_);
    }
    ShardFleet fleet(ShardConfigFor(2, false));
    for (std::int32_t i : {0, 1}) fleet.Kill(i);
    fleet.storage_ = std::move(storage);
    fleet.numbers_ = 1000;
    fleet.Resume();
    auto* learner = fleet.AddLearner(0);
    ASSERT_TRUE(fleet.Pull(learner));
    EXPECT_TRUE(SameBytes(learner->value, value)) << after;
    if (after == 0) {
      EXPECT_EQ(fleet.mover_.shards(), 2);
    } else if (after == 420) {
      EXPECT_EQ(fleet.mover_.shards(), 3);
    }
  }
}

TEST(ShardMoveTest, LearnerThatStaysAbortsMoveWithoutLoss) {
  ShardConfig config = ShardConfigFor(2, false, SyncMode::kAsync);
  ShardFleet fleet(config);
  auto* learner = fleet.AddLearner(0);
  std::uint64_t step = 0;
  Learn(&fleet, learner, &step, 3);
  learner->stays = true;
  const Status moved = fleet.Move(3);
  EXPECT_EQ(moved.code(), Code::kDeadlineExceeded);
  Learn(&fleet, learner, &step, 3);
  ASSERT_TRUE(fleet.Pull(learner));
  EXPECT_TRUE(SameBytes(learner->value, fleet.Plain(1, step)));
  EXPECT_TRUE(fleet.Await([&] { return !fleet.slots_[2].node; }));  // the new shard is not needed
}

// A learner that was stopped and given up resumes.
TEST(ShardMoveTest, RejectsOpenPushesOfLearnerThatMissedMove) {
  ShardFleet fleet(ShardConfigFor(2, false, SyncMode::kAsync));
  auto* learner = fleet.AddLearner(0);
  std::uint64_t step = 0;
  Learn(&fleet, learner, &step, 3);
  ASSERT_TRUE(fleet.Pull(learner));
  auto stopped = std::move(fleet.learners_);
  fleet.learners_.clear();
  ASSERT_TRUE(fleet.Move(3).ok());
  fleet.learners_ = std::move(stopped);
  learner->stays = true;
  Floats noise(learner->value.size(), 1e3f);
  ASSERT_TRUE(learner->client->Push(fleet.now_, noise, 0.01f, 1).ok());
  ASSERT_TRUE(fleet.Pull(learner)) << learner->client->error().ToString();
  EXPECT_EQ(learner->client->refused(), 2u) << "a part for each of the two shards";
  EXPECT_EQ(learner->client->pushes_open(), 0u);
  Learn(&fleet, learner, &step, 3);
  ASSERT_TRUE(fleet.Pull(learner));
  EXPECT_TRUE(SameBytes(learner->value, fleet.Plain(1, step)));
}

TEST(ShardMoveTest, MovesOnlyShareOfNewShard) {
  ShardFleet fleet(ShardConfigFor(3, false));
  auto* learner = fleet.AddLearner(0);
  ASSERT_TRUE(fleet.Pull(learner));
  ASSERT_TRUE(fleet.Move(4).ok());
  ASSERT_TRUE(fleet.Pull(learner));
  double moved = 0;
  for (auto& [index, slot] : fleet.slots_) {
    const auto metrics = slot.node->metrics().snapshot();
    moved += metrics.at("paramserver/moved_bytes").value;
    EXPECT_EQ(metrics.at("paramserver/map_epoch").value, 2);
  }
  const double share = double(fleet.map_.parameters()) * sizeof(float) / 4;
  EXPECT_GE(moved, 0.9 * share);
  EXPECT_LE(moved, 1.1 * share + 3 * 1024);  // and what is not of an element, of each source
}

}  // namespace
}  // namespace troop
