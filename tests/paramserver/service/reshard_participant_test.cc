#include "paramserver/service/reshard_participant.h"

#include <gtest/gtest.h>

#include "tests/paramserver/shard_fleet.h"

namespace troop {
namespace {

// A second participant of process 0, with its own server of shard 0. The fleet goes from 2 to 3
// shards, and stays in the stage in which shards are handed over.
class ReshardParticipantTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(fleet_.Await([&] { return !member()->shard_epochs().empty(); }));
    ASSERT_TRUE(layout_.Adopt(member()->shard_epochs()).ok());
    const ParameterShard::Options options = layout_.OptionsFor(layout_.map());
    Floats value;
    for (const ParamRange& range : options.ranges) {
      const Floats first = fleet_.FirstOfRun();
      value.insert(value.end(), first.begin() + range.begin, first.begin() + range.end);
    }
    server_ = std::make_unique<ShardServer>(Make(options, value), ShardServer::Options{});
  }
  void BeginHandover() {
    fleet_.Freeze(1, true);  // never ready, so the stage does not end
    ASSERT_TRUE(fleet_.BeginMove(3).ok());
    ASSERT_TRUE(
        fleet_.Await([&] { return member()->shard_move().stage == ShardMoveStage::kHandingOver; }));
  }
  FleetMember* member() { return fleet_.slots_[0].member.get(); }
  Message Request(std::uint64_t move, std::int32_t shard, std::uint64_t offset = 0,
                  Role role = Role::kParamServer) {
    return {.type = MessageType::kShardFetch,
            .origin = {.role = role, .index = shard, .incarnation = 1},
            .body = EncodeBody(ShardFetchBody{move, shard, offset})};
  }
  Code CodeOf(const Message& message) {
    return participant_.Fetch(message, server_.get()).status().code();
  }

  ShardFleet fleet_{ShardConfigFor(2, false)};
  InlineExecutor executor_;
  std::unique_ptr<Storage> storage_ = MakeMemoryStorage();
  ShardLayout layout_ = *ShardLayout::Make(fleet_.config_, fleet_.module_.get(), 0, nullptr);
  ReshardParticipant participant_{{.network = fleet_.slots_[0].network.get(),
                                   .member = member(),
                                   .executor = &executor_,
                                   .run = storage_.get(),
                                   .layout = &layout_}};
  std::unique_ptr<ShardServer> server_;
};

TEST_F(ReshardParticipantTest, NothingIsHandedOverWithoutPause) {
  participant_.Follow(fleet_.now_, server_.get());
  EXPECT_FALSE(server_->is_paused());
  EXPECT_EQ(CodeOf(Request(1, 2)), Code::kUnavailable);
  BeginHandover();
  const std::uint64_t move = member()->shard_move().number;
  EXPECT_EQ(CodeOf(Request(move, 2)), Code::kUnavailable) << "this stage is not followed yet";
  participant_.Follow(fleet_.now_, server_.get());
  EXPECT_TRUE(server_->is_paused());
  EXPECT_EQ(CodeOf(Request(move, 2)), Code::kOk);
  EXPECT_EQ(CodeOf(Request(move + 1, 2)), Code::kUnavailable);
}

TEST_F(ReshardParticipantTest, HandsOverRangesOfTheTargetOnly) {
  BeginHandover();
  participant_.Follow(fleet_.now_, server_.get());
  const std::uint64_t move = member()->shard_move().number;
  EXPECT_EQ(CodeOf(Request(move, 0)), Code::kInvalidArgument);  // itself
  EXPECT_EQ(CodeOf(Request(move, 3)), Code::kInvalidArgument);
  EXPECT_EQ(CodeOf(Request(move, 2, 1 << 30)), Code::kInvalidArgument);
  EXPECT_EQ(CodeOf(Request(move, 2, 0, Role::kLearner)), Code::kInvalidArgument);
  const auto answer = participant_.Fetch(Request(move, 2), server_.get());
  ASSERT_TRUE(answer.ok()) << answer.status().ToString();
  std::vector<ParamRange> ranges;
  for (const auto& part : ShardMap::Moves(layout_.map(), *layout_.MapAfterMove({move, 3}))) {
    if (part.from == 0) ranges.push_back(part.range);
  }
  ASSERT_EQ(answer->parts.size(), 1u);
  EXPECT_EQ(answer->parts[0].text(), server_->Snapshot(ranges).text());
}

// Shard 0 only gives, so its next shard is complete at once.
TEST_F(ReshardParticipantTest, ReportsSuccessorOnceItIsOnDisk) {
  BeginHandover();
  member()->report().shard_move = 0;
  const std::uint64_t move = member()->shard_move().number;
  participant_.Follow(fleet_.now_, server_.get());
  ASSERT_TRUE(participant_.preparing());
  EXPECT_EQ(member()->report().shard_move, 0u);
  EXPECT_TRUE(participant_.CollectPrepared());
  EXPECT_EQ(member()->report().shard_move, move);
  EXPECT_EQ(ShardSnapshots(storage_.get(), 0, move).List()->size(), 1u);
  EXPECT_FALSE(participant_.TakeSuccessor(0).has_value());
  EXPECT_FALSE(participant_.TakeSuccessor(move + 1).has_value());
  const auto successor = participant_.TakeSuccessor(move);
  ASSERT_TRUE(successor.has_value());
  EXPECT_EQ(successor->shard->epoch(), 2u);
  EXPECT_FALSE(participant_.TakeSuccessor(move).has_value());
}

TEST_F(ReshardParticipantTest, CancelDropsSuccessorAndEndsPause) {
  BeginHandover();
  const std::uint64_t move = member()->shard_move().number;
  participant_.Follow(fleet_.now_, server_.get());
  ASSERT_TRUE(participant_.CollectPrepared());
  fleet_.mover_.Cancel();
  ASSERT_TRUE(fleet_.Await([&] { return member()->shard_move().number == 0; }));
  participant_.Follow(fleet_.now_, server_.get());
  EXPECT_FALSE(server_->is_paused());
  EXPECT_EQ(CodeOf(Request(move, 2)), Code::kUnavailable);
  EXPECT_FALSE(participant_.TakeSuccessor(move).has_value());
}

}  // namespace
}  // namespace troop
