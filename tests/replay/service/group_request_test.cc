#include "replay/service/group_request.h"

#include <gtest/gtest.h>

#include "tests/replay/scripted_channel.h"

namespace troop {
namespace {

constexpr GroupRequest::Size kSize{.rows = 4, .batches = 2, .charge = 8};

// A group of two shards with two rows and half the charge each.
GroupRequest Halves(ScriptedShards* world) {
  GroupRequest group(kSize, &world->shards);
  for (std::size_t k = 0; k < 2; ++k) {
    group.set_used(k, 1);
    group.AddRows(k, 2);
    group.AddCharge(k, 4);
  }
  return group;
}

SampleReplyBody Whole() {
  return {
      .batch_size = 2, .batches = 2, .charged = 4, .reserved = 4, .total = 1, .rows = {2, 1, 1}};
}

TEST(GroupRequestTest, IsReadyOnceAllShardsAnswered) {
  ScriptedShards world({{.total = 1}, {.total = 1}});
  GroupRequest group = Halves(&world);
  ASSERT_TRUE(group.Send(Time(), false).ok());
  EXPECT_EQ(world.Asked(0).batch_size, 2u);
  EXPECT_EQ(world.Asked(0).charge, 4u);
  EXPECT_TRUE(group.WaitsFor(1));
  world.Answer(0, Whole());
  ASSERT_TRUE(group.Poll(Time()).ok());
  EXPECT_FALSE(group.ready());
  world.Answer(1, Whole());
  ASSERT_TRUE(group.Poll(Time()).ok());
  EXPECT_TRUE(group.ready());
  EXPECT_FALSE(group.WaitsFor(1));
  EXPECT_EQ(group.parts()[0].first, (std::vector<int>{0, 1, 3}));
  EXPECT_EQ(world.shards[0].credit(), 0);  // no charge is in flight
}

TEST(GroupRequestTest, RowsOfEmptyShardAreMissing) {
  ScriptedShards world({{.total = 1}, {.total = 1}});
  GroupRequest group = Halves(&world);
  ASSERT_TRUE(group.Send(Time(), false).ok());
  world.Answer(1, {});
  const auto waived = group.Poll(Time());
  ASSERT_TRUE(waived.ok());
  EXPECT_EQ(*waived, 4);  // the shard charged nothing
  EXPECT_EQ(group.missing(), 2);
  EXPECT_EQ(group.charge_missing(), 0);
  EXPECT_TRUE(group.shut(1));
  EXPECT_FALSE(group.HasRows(1));
}

TEST(GroupRequestTest, LostReplyIsRequestedAgainFromTheSameShard) {
  ScriptedShards world({{.total = 1}, {.total = 1}});
  GroupRequest group = Halves(&world);
  ASSERT_TRUE(group.Send(Time(), false).ok());
  world.channel[0]->answers.emplace(Ticket(1), Unavailable("the connection was lost"));
  ASSERT_TRUE(group.Poll(Time()).ok());
  EXPECT_FALSE(group.incomplete());
  ASSERT_TRUE(group.Send(Time(), true).ok());
  EXPECT_EQ(world.channel[0]->sent.size(), 2u);
  EXPECT_EQ(world.channel[1]->sent.size(), 1u);
  EXPECT_TRUE(world.Asked(0).drain);
}

TEST(GroupRequestTest, ClosedShardReturnsItsRowsAndCharge) {
  ScriptedShards world({{.total = 1}, {.total = 1}});
  GroupRequest group = Halves(&world);
  ASSERT_TRUE(group.Send(Time(), false).ok());
  world.channel[0]->answers.emplace(Ticket(1), OutOfRange("drained"));
  ASSERT_TRUE(group.Poll(Time()).ok());
  EXPECT_TRUE(world.shards[0].closed());
  EXPECT_EQ(group.missing(), 2);
  EXPECT_EQ(group.charge_missing(), 4);
  EXPECT_FALSE(group.shut(0));  // it may still give rows without a charge
}

TEST(GroupRequestTest, GivesUpOpenPartsOfDeadShard) {
  ScriptedShards world({{.total = 1}, {.total = 1}});
  GroupRequest group = Halves(&world);
  ASSERT_TRUE(group.Send(Time(), false).ok());
  world.Answer(0, Whole());
  ASSERT_TRUE(group.Poll(Time()).ok());
  group.GiveUpShard(0);  // its reply is here
  EXPECT_TRUE(group.HasRows(0));
  group.GiveUpShard(1);
  EXPECT_FALSE(group.HasRows(1));
  EXPECT_TRUE(world.channel[1]->forgotten.contains(Ticket(1)));
  EXPECT_EQ(group.missing(), 2);
}

TEST(GroupRequestTest, RejectsRepliesThatDoNotMatchTheRequest) {
  const auto status_of = [](SampleReplyBody reply) {
    ScriptedShards world({{.total = 1}, {.total = 1}});
    GroupRequest group = Halves(&world);
    EXPECT_TRUE(group.Send(Time(), false).ok());
    world.Answer(0, std::move(reply));
    return group.Poll(Time()).status();
  };
  EXPECT_TRUE(status_of(Whole()).ok());
  SampleReplyBody wrong = Whole();
  wrong.batch_size = 3;
  EXPECT_EQ(status_of(wrong).code(), Code::kDataLoss);
  wrong = Whole();
  wrong.charged = 5;
  EXPECT_EQ(status_of(wrong).code(), Code::kDataLoss);
  wrong = Whole();
  wrong.rows = {2, 3};
  EXPECT_EQ(status_of(wrong).code(), Code::kDataLoss);
  wrong = Whole();
  wrong.rows = {2};
  EXPECT_EQ(status_of(wrong).code(), Code::kDataLoss);
  wrong = Whole();
  wrong.total = -1;
  EXPECT_EQ(status_of(wrong).code(), Code::kDataLoss);
}

TEST(GroupRequestTest, CountsChargeAsItsBatchesAreTaken) {
  ScriptedShards world({{.total = 1}, {.total = 1}});
  GroupRequest group = Halves(&world);
  ASSERT_TRUE(group.Send(Time(), false).ok());
  world.Answer(0, Whole());
  world.Answer(1, Whole());
  ASSERT_TRUE(group.Poll(Time()).ok());
  group.NoteTaken();
  EXPECT_FALSE(group.all_taken());
  ASSERT_TRUE(*world.shards[0].SendUpdates(false, false));
  EXPECT_EQ(DecodeBody<UpdateBody>(world.channel[0]->sent.back().body)->taken, 2u);
  group.NoteTaken();
  EXPECT_TRUE(group.all_taken());
  ASSERT_TRUE(*world.shards[0].SendUpdates(false, false));
  EXPECT_EQ(DecodeBody<UpdateBody>(world.channel[0]->sent.back().body)->taken, 4u);
}

}  // namespace
}  // namespace troop
