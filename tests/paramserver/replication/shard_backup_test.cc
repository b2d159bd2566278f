#include "paramserver/replication/shard_backup.h"

#include <gtest/gtest.h>

#include "net/wire/codec.h"
#include "tests/paramserver/shard_testing.h"

namespace troop {
namespace {

// Process 3, which backs up shard 1 of processes 2 and 3; the primary of term 7 is process 2.
class ShardBackupTest : public testing::Test {
 protected:
  ShardBackupTest() {
    options_.keep_sums = true;
    primary_ = MakeWhole(options_);
    backup_.BeginEpoch(options_, std::size_t{1} << 20);
  }
  Message StateAt(std::uint64_t term) {
    const Buffer state = primary_->Snapshot();
    Message message{.type = MessageType::kShardState,
                    .origin = origin_,
                    .body = EncodeBody(ShardStateBody{term, 5, 0, state.size()})};
    message.parts.push_back(state);
    return message;
  }
  // The primary's next update, as it is replicated.
  Message UpdateAt(std::uint64_t term, std::uint64_t step) {
    const Floats gradient = GradientAt(primary_->value(), 0, step);
    Push(primary_.get(), PushOf({.learner = 0, .incarnation = 1, .sequence = step + 1},
                                primary_->version(), gradient));
    const auto update = primary_->ApplyNext();
    EXPECT_TRUE(update.has_value());
    Message message{.type = MessageType::kShardUpdate,
                    .origin = origin_,
                    .body = EncodeBody(ShardUpdateBody{term, *update})};
    message.parts.push_back(update->sum);
    return message;
  }
  Code CodeOf(const Message& message) {
    return backup_.Handle(message, assignment_).status().code();
  }

  Origin origin_{.role = Role::kParamServer, .index = 2, .incarnation = 40};
  ShardBackup::Assignment assignment_{
      .term = {.term = 7, .since = 7, .primary = 2, .backup = 3, .primary_incarnation = 40},
      .may_follow = true};
  ParameterShard::Options options_ = OptionsOf({.mode = SyncMode::kBsp, .learners = 1}, "adam");
  std::unique_ptr<ParameterShard> primary_;
  ShardBackup backup_{{.index = 3, .shard = 1, .servers_per_shard = 2}};
};

TEST_F(ShardBackupTest, FollowsPrimaryBitwise) {
  const auto held = backup_.Handle(StateAt(7), assignment_);
  ASSERT_TRUE(held.ok()) << held.status().ToString();
  EXPECT_EQ(*held, 7u);
  for (std::uint64_t step = 0; step < 3; ++step) {
    const auto update = backup_.Handle(UpdateAt(7, step), assignment_);
    ASSERT_TRUE(update.ok()) << update.status().ToString();
    EXPECT_EQ(*update, 0u);
  }
  auto replica = backup_.TakeReplica(7);
  ASSERT_TRUE(replica.has_value());
  EXPECT_EQ(replica->lineage, 5u);
  EXPECT_EQ(replica->shard->version(), primary_->version());
  EXPECT_TRUE(SameBytes(replica->shard->value(), primary_->value()));
  EXPECT_EQ(backup_.replica(), nullptr);
}

TEST_F(ShardBackupTest, RejectsUpdateWithoutStateOfItsTerm) {
  EXPECT_EQ(CodeOf(UpdateAt(7, 0)), Code::kFailedPrecondition);
  ASSERT_EQ(CodeOf(StateAt(7)), Code::kOk);
  assignment_.term.term = 8;
  EXPECT_EQ(CodeOf(UpdateAt(8, 1)), Code::kFailedPrecondition);
}

TEST_F(ShardBackupTest, RejectsProcessesThatAreNotThePrimary) {
  origin_.incarnation = 39;
  EXPECT_EQ(CodeOf(StateAt(7)), Code::kInvalidArgument);
  for (const std::int32_t index : {1, 3, 4}) {  // other shards, and itself
    origin_ = {.role = Role::kParamServer, .index = index, .incarnation = 40};
    EXPECT_EQ(CodeOf(StateAt(7)), Code::kInvalidArgument) << index;
  }
  origin_ = {.role = Role::kLearner, .index = 2, .incarnation = 40};
  EXPECT_EQ(CodeOf(StateAt(7)), Code::kInvalidArgument);
}

TEST_F(ShardBackupTest, AcceptsOnlyTermsOfTheCoordinatorThatDoNotDecrease) {
  EXPECT_EQ(CodeOf(StateAt(8)), Code::kUnavailable);
  EXPECT_EQ(backup_.newest_term(), 0u);
  assignment_.may_follow = false;
  EXPECT_EQ(CodeOf(StateAt(7)), Code::kUnavailable);
  assignment_.may_follow = true;
  EXPECT_EQ(CodeOf(StateAt(7)), Code::kOk);
  EXPECT_EQ(backup_.newest_term(), 7u);
  backup_.ObserveTerm(9);
  EXPECT_EQ(CodeOf(StateAt(7)), Code::kAborted);
}

TEST_F(ShardBackupTest, HandsOverOnlyReplicaOfTheGivenTerm) {
  EXPECT_FALSE(backup_.TakeReplica(0).has_value());
  ASSERT_EQ(CodeOf(StateAt(7)), Code::kOk);
  EXPECT_NE(backup_.replica(), nullptr);
  EXPECT_FALSE(backup_.TakeReplica(6).has_value());
  EXPECT_EQ(backup_.replica(), nullptr) << "a replica of another term is kept";
}

TEST_F(ShardBackupTest, RejectsMessagesWithWrongParts) {
  Message state = StateAt(7);
  state.parts.clear();
  EXPECT_EQ(CodeOf(state), Code::kDataLoss);
  ASSERT_EQ(CodeOf(StateAt(7)), Code::kOk);
  Message update = UpdateAt(7, 0);
  update.parts.push_back(update.parts[0]);
  EXPECT_EQ(CodeOf(update), Code::kDataLoss);
}

}  // namespace
}  // namespace troop
