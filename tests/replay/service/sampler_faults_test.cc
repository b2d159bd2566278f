#include <gtest/gtest.h>

#include <cfloat>
#include <cmath>
#include <set>
#include <string>

#include "net/wire/codec.h"
#include "replay/codec/encoded_batch.h"
#include "replay/service/messages.h"
#include "tests/replay/relay.h"
#include "tests/replay/replay_world.h"

namespace troop {
namespace {

ReplayServer::Options Tiny() {
  ReplayServer::Options options = SmallOptions();
  options.tables[0].table.min_items = 1;
  return options;
}

// Stream s, which goes to shard s, with 30 items of one priority.
template <class World>
void FillAll(World* world, ReplayWriter* writer, std::size_t shards) {
  for (std::uint64_t s = 0; s < shards; ++s) {
    ASSERT_TRUE(writer->Push({MakeChunk(s, 0, 31)}, MakeItems(s, 0, 30)).ok());
    world->Pump();
    writer->Poll(world->now());
  }
  ASSERT_EQ(writer->acked_items(), 30 * shards);
}

template <class World>
Result<std::optional<SampleBatch>> Next(World* world, ReplaySampler* sampler) {
  sampler->Poll(world->now());
  world->Pump();
  sampler->Poll(world->now());
  return sampler->Next();
}

template <class World>
Result<std::optional<SampleBatch>> WaitFor(World* world, ReplaySampler* sampler) {
  for (int i = 0; i < 400; ++i) {
    auto batch = Next(world, sampler);
    if (!batch.ok() || batch->has_value()) return batch;
    world->Advance(Milliseconds(1));
  }
  return std::optional<SampleBatch>();
}

std::set<std::uint32_t> ShardsOf(const SampleBatch& batch) {
  std::set<std::uint32_t> shards;
  for (const ItemKey& key : batch.key) shards.insert(key.shard);
  return shards;
}

// A part that a dead shard had answered lost its share, and its items their chance.
TEST(ReplaySamplerFaultsTest, RowsOfShardThatDiedKeepTheirProbability) {
  ReplayWorld world(Tiny(), 3);
  ASSERT_NO_FATAL_FAILURE(FillAll(&world, world.Writer().get(), 3));
  const auto sampler = world.Sampler({.batch_size = 12, .prefetch = 1});
  for (int i = 0; i < 5; ++i) {
    ASSERT_TRUE(Next(&world, sampler.get()).ok());
    world.Advance(Milliseconds(1));
  }
  world.Hang(1, true);
  world.Hang(2, true);
  for (int i = 0; i < 6; ++i) {  // the first has answered, the others have not
    ASSERT_TRUE(Next(&world, sampler.get()).ok());
    world.Advance(Milliseconds(1));
  }
  world.StopServer(0);
  world.StopServer(1);
  world.Hang(2, false);
  const auto batch = WaitFor(&world, sampler.get());
  ASSERT_TRUE(Took(batch)) << batch.status().ToString();
  EXPECT_EQ(ShardsOf(**batch), (std::set<std::uint32_t>{0, 2}));
  for (const double p : (*batch)->probability) EXPECT_NEAR(p, 1.0 / 60, 1e-8);
}

// The probabilities are also correct if all shards of the first plan are gone and the totals are
// computed again.
TEST(ReplaySamplerFaultsTest, RowsOfDeadAndReturnedShardsHaveTheirProbabilities) {
  ReplayWorld world(Tiny(), 2);
  ASSERT_NO_FATAL_FAILURE(FillAll(&world, world.Writer().get(), 2));
  const auto sampler = world.Sampler({.batch_size = 12, .prefetch = 1});
  for (int i = 0; i < 5; ++i) {
    ASSERT_TRUE(Next(&world, sampler.get()).ok());
    world.Advance(Milliseconds(1));
  }
  world.Hang(1, true);
  for (int i = 0; i < 6; ++i) {
    ASSERT_TRUE(Next(&world, sampler.get()).ok());
    world.Advance(Milliseconds(1));
  }
  world.StopServer(0);
  world.StopServer(1);
  world.Hang(1, false);
  for (int i = 0; i < 20; ++i) {
    world.Advance(Milliseconds(1));
    ASSERT_TRUE(Next(&world, sampler.get()).ok());
  }
  world.StartServer(1);
  const auto writer = MakeReplayWriter(world.Connect(Role::kActor, 5, 1, 32, 1), SmallSpec(), {});
  ASSERT_TRUE(writer->Push({MakeChunk(1, 0, 16)}, MakeItems(1, 0, 15)).ok());
  world.Pump();
  writer->Poll(world.now());
  ASSERT_EQ(writer->acked_items(), 15u);
  const auto batch = WaitFor(&world, sampler.get());
  ASSERT_TRUE(Took(batch)) << batch.status().ToString();
  EXPECT_EQ(ShardsOf(**batch), (std::set<std::uint32_t>{0, 1}));
  for (const double p : (*batch)->probability) EXPECT_NEAR(p, 1.0 / 45, 1e-8);
}

// Regression: unusable totals in the shards' replies aborted the learner, since probabilities
// became 0.
TEST(ReplaySamplerFaultsTest, RejectsUnusableTotals) {
  for (const double total : {DBL_MAX, 1e101, -1.0, std::nan(""), HUGE_VAL}) {
    RelayWorld world(Tiny(), 2);
    const auto writer = MakeReplayWriter(world.ConnectAll(Role::kActor), SmallSpec(), {});
    ASSERT_NO_FATAL_FAILURE(FillAll(&world, writer.get(), 2));
    for (std::size_t k = 0; k < 2; ++k) {
      world.relay(k).edit = [total](Message* message) {
        if (message->type != MessageType::kSampleReply) return;
        SampleReplyBody body = *DecodeBody<SampleReplyBody>(message->body);
        body.total = total;
        message->body = EncodeBody(body);
      };
    }
    const auto sampler =
        MakeReplaySampler(world.ConnectAll(Role::kLearner), SmallSpec(),
                          {.batch_size = 12, .prefetch = 1, .view = {.length_max = 3}});
    const auto batch = WaitFor(&world, sampler.get());
    EXPECT_EQ(batch.status().code(), Code::kDataLoss) << total << batch.status().ToString();
  }
}

TEST(ReplaySamplerFaultsTest, RejectsVanishingProbabilities) {
  for (const bool least : {false, true}) {
    RelayWorld world(Tiny(), 2);
    const auto writer = MakeReplayWriter(world.ConnectAll(Role::kActor), SmallSpec(), {});
    ASSERT_NO_FATAL_FAILURE(FillAll(&world, writer.get(), 2));
    world.relay(1).edit = [least](Message* message) {
      if (message->type != MessageType::kSampleReply || message->parts.empty()) return;
      EncodedBatch drawn;
      ASSERT_TRUE(
          ParseEncodedBatch(message->parts[0], SmallSpec(), {.length_max = 3}, Codec::kNone, &drawn)
              .ok());
      (least ? drawn.probability_min : drawn.probability[0]) = DBL_MIN;
      message->parts[0] = PackEncodedBatch(drawn, SmallSpec(), {.length_max = 3}, Codec::kNone);
    };
    const auto sampler =
        MakeReplaySampler(world.ConnectAll(Role::kLearner), SmallSpec(),
                          {.batch_size = 12, .prefetch = 1, .view = {.length_max = 3}});
    const auto batch = WaitFor(&world, sampler.get());
    EXPECT_EQ(batch.status().code(), Code::kDataLoss) << batch.status().ToString();
  }
}

// Former fault: while both limiters waited for inserts, the sampler requested the credit of each
// without a pause, until the channels accepted no further call. Then the drain could not be sent,
// and the learner waited at the end of the run for good.
TEST(ReplaySamplerFaultsTest, DrainsAfterLongWaitForInserts) {
  RelayWorld world(Limited(), 2);
  const auto writer = MakeReplayWriter(world.ConnectAll(Role::kActor), SmallSpec(), {});
  ASSERT_NO_FATAL_FAILURE(FillAll(&world, writer.get(), 2));
  int questions = 0;
  for (std::size_t k = 0; k < 2; ++k) {
    world.relay(k).ask = [&questions](const Message& message, Reply*) {
      if (message.type == MessageType::kSample)
        questions += DecodeBody<SampleBody>(message.body)->batches == 0 ? 1 : 0;
      return false;
    };
  }
  const auto sampler =
      MakeReplaySampler(world.ConnectAll(Role::kLearner), SmallSpec(),
                        {.batch_size = 12, .prefetch = 2, .view = {.length_max = 3}});
  int batches = 0;
  for (int i = 0; i < 5000; ++i) {
    const auto batch = Next(&world, sampler.get());
    ASSERT_TRUE(batch.ok());
    batches += batch->has_value() ? 1 : 0;
    world.Advance(Milliseconds(1));
  }
  // Both ratios are exhausted: 2 (30 - 10) samples for each shard, and the band.
  EXPECT_GE(batches, 6);
  EXPECT_LE(batches, 9);
  EXPECT_LT(questions, 100);  // 5 s with pauses of 20 ms to 2 s
  EXPECT_EQ(sampler->shards_alive(), 2);
  sampler->Drain();
  auto last = WaitFor(&world, sampler.get());
  while (last.ok() && last->has_value()) last = WaitFor(&world, sampler.get());
  EXPECT_EQ(last.status().code(), Code::kOutOfRange) << last.status().ToString();
}

// A window that stays full, as it does with a lost call, must not hide the drain for good.
TEST(ReplaySamplerFaultsTest, DrainsWithoutRoomForTheDrain) {
  RelayWorld world(Limited(), 2);
  const auto writer = MakeReplayWriter(world.ConnectAll(Role::kActor), SmallSpec(), {});
  ASSERT_NO_FATAL_FAILURE(FillAll(&world, writer.get(), 2));
  // Room for the two parked requests of each shard alone.
  const auto sampler =
      MakeReplaySampler(world.ConnectAll(Role::kLearner, 2), SmallSpec(),
                        {.batch_size = 12, .prefetch = 2, .view = {.length_max = 3}});
  for (int i = 0; i < 1000; ++i) {
    ASSERT_TRUE(Next(&world, sampler.get()).ok());
    world.Advance(Milliseconds(1));
  }
  sampler->Drain();
  Status end;
  for (int i = 0; i < 20000 && end.ok(); ++i) {
    end = Next(&world, sampler.get()).status();
    world.Advance(Milliseconds(1));
  }
  EXPECT_EQ(end.code(), Code::kOutOfRange) << end.ToString();
}

// The patience with an unanswered waiver began before there was room to send one.
TEST(ReplaySamplerFaultsTest, UnsentWaiverDoesNotMarkShardDead) {
  RelayWorld world(Tiny(), 2);
  const auto writer = MakeReplayWriter(world.ConnectAll(Role::kActor), SmallSpec(), {});
  ASSERT_NO_FATAL_FAILURE(FillAll(&world, writer.get(), 2));
  const auto sampler =
      MakeReplaySampler(world.ConnectAll(Role::kLearner, 1), SmallSpec(),
                        {.batch_size = 12, .prefetch = 2, .view = {.length_max = 3}});
  ASSERT_TRUE(Took(WaitFor(&world, sampler.get())));
  std::vector<Reply> held;  // requests for rows, as a limiter holds them
  world.relay(1).ask = [&held](const Message& message, Reply* reply) {
    if (message.type != MessageType::kSample) return false;
    held.push_back(std::move(*reply));
    return true;
  };
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(Next(&world, sampler.get()).ok());
    world.Advance(Milliseconds(100));
  }
  EXPECT_FALSE(held.empty());
  EXPECT_EQ(sampler->shards_alive(), 2);
}

}  // namespace
}  // namespace troop
