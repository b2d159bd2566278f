#include "replay/replica/delta_sampler.h"
#include "core/config/enum_names.h"

#include <gtest/gtest.h>

#include "core/base/executor.h"
#include "core/storage/memory_storage.h"
#include "net/wire/codec.h"
#include "replay/service/messages.h"
#include "tests/replay/feed_copy.h"
#include "tests/replay/relay.h"
#include "tests/replay/replay_world.h"

namespace troop {
namespace {

ReplayServer::Options Fed(double samples_per_insert = 0) {
  ReplayServer::Options options = SmallOptions();
  options.tables[0].table.feed = true;
  options.tables[0].samples_per_insert = samples_per_insert;
  return options;
}

std::unique_ptr<ReplaySampler> MirrorOf(ReplayWorld* world, std::uint64_t incarnation = 1,
                                        int prefetch = 1, int batches_per_request = 1) {
  const Table::Options& table = world->options().tables[0].table;
  return MakeDeltaSampler(world->Connect(Role::kLearner, 0, incarnation), world->spec(),
                          {.batch_size = 4,
                           .prefetch = prefetch,
                           .batches_per_request = batches_per_request,
                           .view = table.view,
                           .codec = table.codec});
}

// Applies a batch's table delta to a copy.
void TakeInto(const SampleBatch& batch, FeedCopy* copy) {
  for (const auto& experience : batch.experience) {
    if (experience->anew) copy->Clear();
    const TableDelta& feed = experience->feed;
    std::vector<std::pair<float, float>> observation;
    for (std::int64_t i = 0; i < feed.frames(); ++i) {
      const float* const at =
          reinterpret_cast<const float*>(experience->observation.bytes().data()) +
          i * std::int64_t(experience->observation.bytes().size() / 4) / feed.frames();
      observation.emplace_back(at[0], at[1]);
    }
    copy->Take(feed, experience->oldest, observation);
  }
}

// Polls and takes all that is there, into a copy. Returns the updates that may be made.
int TakeAll(ReplayWorld* world, ReplaySampler* mirror, FeedCopy* copy, int rounds = 8) {
  int updates = 0;
  for (int i = 0; i < rounds; ++i) {
    auto batch = Take(world, mirror);
    while (Took(batch)) {
      TakeInto(**batch, copy);
      EXPECT_TRUE((*batch)->key.empty() || (*batch)->key.size() == 4);
      updates += (*batch)->key.empty() ? 0 : 1;
      batch = mirror->Next();
    }
    EXPECT_TRUE(batch.ok() || batch.status().code() == Code::kOutOfRange)
        << batch.status().ToString();
  }
  return updates;
}

// All items of stream 1 from frame `first` on, but those at the borders of pushes.
void ExpectItems(const FeedCopy& copy, std::size_t count) {
  EXPECT_EQ(copy.items().size(), count);
  for (const FeedCopy::Item& item : copy.items()) {
    const auto frames = copy.FramesOf(item);
    ASSERT_EQ(frames.size(), 2u);
    EXPECT_EQ(frames[0].number, item.policy_version);  // MakeItems says so
    EXPECT_EQ(frames[1].number, item.policy_version + 1);
    EXPECT_EQ(frames[0].action, std::int32_t(10 + item.policy_version));
    EXPECT_EQ(frames[0].reward, float(item.policy_version) + 0.5f);
  }
}

TEST(ReplayMirrorTest, GrantsUpdatesWithinRateLimit) {
  ReplayWorld world(Fed(2));  // 2 samples an insert, batches of 4, from 10 items on
  const auto writer = world.Writer();
  const auto mirror = MirrorOf(&world);
  FeedCopy copy;
  Push(&world, writer.get(), 1, 0, 9);
  EXPECT_EQ(TakeAll(&world, mirror.get(), &copy), 0);
  Push(&world, writer.get(), 1, 10, 1);
  const int first = TakeAll(&world, mirror.get(), &copy);
  EXPECT_GE(first, 1);
  ExpectItems(copy, 10);
  std::uint64_t frame = 12;
  int updates = first;
  for (int i = 0; i < 100; ++i, frame += 11) {
    Push(&world, writer.get(), 1, frame, 10);
    updates += TakeAll(&world, mirror.get(), &copy);
  }
  // 10 items begin, 1,000 come; two samples each; four an update. What is on its way: one update.
  EXPECT_NEAR(updates, 1000 * 2 / 4, 2);
  EXPECT_EQ(world.Metric("replay/samples"), 4 * updates);
  ExpectItems(copy, 1000);  // all that the table holds
}

TEST(ReplayMirrorTest, CountsUpdatesAsTheyAreTaken) {
  ReplayWorld world(Fed());
  const auto writer = world.Writer();
  Push(&world, writer.get(), 1, 0, 20);
  const auto mirror = MirrorOf(&world, 1, 2, 5);
  FeedCopy copy;
  mirror->Poll(world.now());
  EXPECT_EQ(mirror->ready_batches(), 0);
  for (int i = 0; i < 6 && mirror->ready_batches() < 10; ++i) {
    world.Pump();
    mirror->Poll(world.now());
    if (i == 0) TakeAll(&world, mirror.get(), &copy, 1);
  }
  EXPECT_EQ(mirror->ready_batches(), 10);  // prefetch · batches_per_request, and no more
  for (int i = 0; i < 4; ++i) world.Pump(), mirror->Poll(world.now());
  EXPECT_EQ(mirror->ready_batches(), 10);
  const double before = world.Metric("replay/samples");
  ASSERT_TRUE(Took(mirror->Next()));
  ASSERT_TRUE(Took(mirror->Next()));
  EXPECT_EQ(mirror->ready_batches(), 8);
  const ItemKey nothing{};
  const float priority = 1;
  mirror->UpdatePriorities({&nothing, 1}, {&priority, 1});  // takes the count along
  mirror->Poll(world.now());
  world.Pump();
  EXPECT_EQ(world.Metric("replay/samples") - before, 8);
}

TEST(ReplayMirrorTest, SendsNewPrioritiesToReplay) {
  ReplayWorld world(Fed());
  const auto writer = world.Writer();
  Push(&world, writer.get(), 1, 0, 20);
  const auto mirror = MirrorOf(&world);
  FeedCopy copy;
  TakeAll(&world, mirror.get(), &copy);
  std::vector<ItemKey> keys;
  std::vector<float> priorities;
  for (const FeedCopy::Item& item : copy.items()) {
    EXPECT_EQ(item.priority, 1 + 1e-6f);
    keys.push_back({.slot = std::uint32_t(item.key), .generation = std::uint32_t(item.key >> 32)});
    priorities.push_back(float(item.number + 2));
  }
  mirror->UpdatePriorities(keys, priorities);
  TakeAll(&world, mirror.get(), &copy);
  EXPECT_EQ(world.Metric("replay/updates"), 20);
  // The next learner starts with these priorities.
  const auto next = MirrorOf(&world, 2);
  FeedCopy again;
  TakeAll(&world, next.get(), &again);
  ASSERT_EQ(again.items().size(), 20u);
  for (const FeedCopy::Item& item : again.items())
    EXPECT_FLOAT_EQ(item.priority, float(item.number + 2));
}

// More than one reply holds: it comes without updates until all of it is there, and never more at
// once than the owner is promised.
TEST(ReplayMirrorTest, LateLearnerCatchesUpBeforeUpdates) {
  ReplayServer::Options options = Fed();
  options.tables[0].table.capacity_items = 20000;
  ReplayWorld world(options);
  const auto writer = world.Writer();
  for (std::uint64_t first = 0; first < 12000; first += 1001)
    Push(&world, writer.get(), 1, first, 1000);
  const auto mirror = MirrorOf(&world);
  FeedCopy copy;
  int feeds = 0;
  for (bool caught_up = false; !caught_up; ++feeds) {
    ASSERT_LT(feeds, 50);
    const auto batch = Take(&world, mirror.get());
    ASSERT_TRUE(batch.ok()) << batch.status().ToString();
    if (!batch->has_value()) continue;
    TakeInto(**batch, &copy);
    caught_up = !(*batch)->key.empty();
    EXPECT_EQ(copy.items().size() == 12000, caught_up);
  }
  EXPECT_GE(feeds, 3);
  ExpectItems(copy, 12000);
}

TEST(ReplayMirrorTest, RecopiesRestartedReplay) {
  for (const bool durable : {false, true}) {
    ReplayServer::Options options = Fed();
    MemoryStorage disk;
    InlineExecutor executor;
    if (durable) {
      options.storage = &disk;
      options.executor = &executor;
      options.journal.commit_bytes = 1;
    }
    ReplayWorld world(options);
    const auto writer = world.Writer();
    Push(&world, writer.get(), 1, 0, 20);
    const auto mirror = MirrorOf(&world, 1, 4);
    FeedCopy copy;
    EXPECT_GT(TakeAll(&world, mirror.get(), &copy), 0);
    world.Advance(Milliseconds(50));
    world.options().incarnation = 1;
    world.RestartServer();
    for (int i = 0; i < 20; ++i) {
      world.Advance(Milliseconds(200));
      writer->Poll(world.now());
      TakeAll(&world, mirror.get(), &copy, 1);
    }
    Push(&world, writer.get(), 1, 40, 30);
    for (int i = 0; i < 5; ++i) {
      world.Advance(Milliseconds(200));
      writer->Poll(world.now());
    }
    EXPECT_GT(TakeAll(&world, mirror.get(), &copy), 0) << durable;
    ExpectItems(copy, durable ? 50 : 30);
  }
}

// Updates of the learner count for the replay's soft capacity, and evictions reach the replica.
TEST(ReplayMirrorTest, LearnerUpdatesTrimReplay) {
  ReplayServer::Options options = Fed();
  options.tables[0].table.capacity_items = 100;
  options.tables[0].table.trim_every_samples = 8;
  ReplayWorld world(options);
  const auto writer = world.Writer();
  Push(&world, writer.get(), 1, 0, 110);
  EXPECT_EQ(world.Metric("replay/items"), 110);
  const auto mirror = MirrorOf(&world);
  FeedCopy copy;
  EXPECT_GT(TakeAll(&world, mirror.get(), &copy), 2);
  EXPECT_EQ(world.Metric("replay/items"), 100);
  ExpectItems(copy, 100);
}

TEST(ReplayMirrorTest, EndsWhenReplayIsDrained) {
  ReplayWorld world(Fed(1));
  const auto writer = world.Writer();
  Push(&world, writer.get(), 1, 0, 20);
  const auto mirror = MirrorOf(&world);
  FeedCopy copy;
  const int updates = TakeAll(&world, mirror.get(), &copy);
  EXPECT_GT(updates, 0);
  EXPECT_FALSE(Took(mirror->Next()));  // it waits for the limiter
  mirror->Drain();
  TakeAll(&world, mirror.get(), &copy);
  EXPECT_EQ(mirror->Next().status().code(), Code::kOutOfRange);
}

TEST(ReplayMirrorTest, ReportsErrorWhenReplayServesNoFeed) {
  ReplayWorld world(SmallOptions());
  const auto mirror = MirrorOf(&world);
  FeedCopy copy;
  const auto batch = Take(&world, mirror.get());
  EXPECT_EQ(batch.status().code(), Code::kFailedPrecondition);
  EXPECT_NE(batch.status().message().find("replay.placement"), std::string::npos);
}

TEST(ReplayMirrorTest, RejectsInvalidRequests) {
  ReplayWorld world(Fed());
  const auto channel = world.Connect(Role::kLearner);
  const auto call = [&](TableDeltaBody body) {
    return world.Call(channel.get(), {.type = MessageType::kTableDelta, .body = EncodeBody(body)})
        .status()
        .code();
  };
  EXPECT_EQ(call({.items_max = 1}), Code::kOk);
  EXPECT_EQ(call({.life = 9, .start = 5, .next = 7, .items_max = ~0u}), Code::kOk);
  EXPECT_EQ(call({.life = 1, .start = 0, .next = ~std::uint64_t{0}, .items_max = 1}), Code::kOk);
  EXPECT_EQ(call({}), Code::kInvalidArgument);
  EXPECT_EQ(call({.start = 2, .next = 1, .items_max = 1}), Code::kInvalidArgument);
  EXPECT_EQ(call({.sample = {.batch_size = 1, .batches = 1}, .items_max = 1}),
            Code::kInvalidArgument);
  EXPECT_EQ(call({.sample = {.batches = 65}, .items_max = 1}), Code::kInvalidArgument);
  EXPECT_EQ(call({.sample = {.charge = 1}, .items_max = 1}), Code::kInvalidArgument);
  EXPECT_EQ(call({.sample = {.table = 1}, .items_max = 1}), Code::kInvalidArgument);
}

// Replies that are none end the mirror with one line, and bring nothing.
TEST(ReplayMirrorTest, RejectsInvalidReplies) {
  const auto expect = [](const char* what,
                         std::function<void(TableDeltaReplyBody*, Message*)> change) {
    RelayWorld world(Fed(), 1);
    world.relay(0).edit = [&](Message* message) {
      if (message->type != MessageType::kTableDeltaReply) return;
      auto body = *DecodeBody<TableDeltaReplyBody>(message->body);
      change(&body, message);
      message->body = EncodeBody(body);
    };
    auto channels = world.ConnectAll(Role::kLearner);
    const auto mirror = MakeDeltaSampler(std::move(channels[0]), SmallSpec(),
                                         {.batch_size = 4, .view = {.length_max = 3}});
    Status status;
    for (int i = 0; i < 6 && status.ok(); ++i) {
      mirror->Poll(world.now());
      world.Pump();
      mirror->Poll(world.now());
      const auto batch = mirror->Next();
      status = batch.status();
    }
    EXPECT_EQ(status.code(), Code::kDataLoss) << what << ": " << status.ToString();
    EXPECT_NE(status.message().find("replay feed"), std::string::npos);
  };
  expect("another type",
         [](TableDeltaReplyBody*, Message* m) { m->type = MessageType::kSampleReply; });
  expect("no part", [](TableDeltaReplyBody*, Message* m) { m->parts.clear(); });
  expect("an invalid part",
         [](TableDeltaReplyBody*, Message* m) { m->parts[0] = Buffer::Copy("x"); });
  expect("no life", [](TableDeltaReplyBody* b, Message*) { b->life = 0; });
  expect("a start behind", [](TableDeltaReplyBody* b, Message*) { b->start = b->next + 1; });
  expect("an end before", [](TableDeltaReplyBody* b, Message*) { b->next = b->end + 1; });
  expect("a total", [](TableDeltaReplyBody* b, Message*) { b->sample.total = -1; });
}

// A few bytes can stand for many: no memory is made for more than a replay sends.
TEST(ReplayMirrorTest, RejectsFeedThatDecodesToTooManyBytes) {
  ReplayServer::Options options = Fed();
  Table::Options& table = options.tables[0].table;
  table.trajectory = {.observation = {DType::kU8, {1 << 20}}, .action = {DType::kI32, {}}};
  table.codec = Codec::kLz4;
  FrameCoder coder(Codec::kLz4, 1 << 20);
  const std::vector<std::byte> zeros(1 << 20);
  std::vector<std::byte> encoded(coder.encoded_bytes_max());
  const auto size = std::uint32_t(coder.Encode(zeros.data(), encoded.data()));
  TableDelta feed;
  for (std::uint32_t i = 0; i < 200; ++i) {
    feed.place.push_back(i);
    feed.reward.push_back(0);
    feed.discount.push_back(1);
    feed.observation.push_back({encoded.data(), size});
  }
  feed.action.resize(4 * feed.place.size());
  RelayWorld world(options, 1);
  world.relay(0).edit = [&](Message* message) {
    if (message->type != MessageType::kTableDeltaReply) return;
    message->parts[0] = PackTableDelta(feed, table.trajectory, table.codec);
  };
  auto channels = world.ConnectAll(Role::kLearner);
  const auto mirror = MakeDeltaSampler(std::move(channels[0]), table.trajectory,
                                       {.batch_size = 4, .view = table.view, .codec = table.codec});
  for (int i = 0; i < 4; ++i) mirror->Poll(world.now()), world.Pump();
  const Status status = mirror->Next().status();
  EXPECT_EQ(status.code(), Code::kDataLoss);
  EXPECT_NE(status.message().find("200 frames"), std::string::npos) << status.ToString();
}

class MirrorCodecTest : public testing::TestWithParam<Codec> {};

// Frames that need a dictionary wait for it; they come decoded.
TEST_P(MirrorCodecTest, DeliversDecodedFrames) {
  ReplayServer::Options options = Fed();
  InlineExecutor executor;
  options.executor = &executor;
  options.tables[0].table.trajectory = {.observation = {DType::kF32, {512}},
                                        .action = {DType::kI32, {}}};
  options.tables[0].table.codec = GetParam();
  options.tables[0].table.capacity_items = 20000;
  ReplayWorld world(options);
  const auto writer = world.Writer();
  const auto chunk = [](std::uint64_t first, std::uint32_t frames) {
    Chunk made = MakeChunk(1, first, frames);
    MutableBuffer observation(std::size_t{frames} * 2048);
    for (std::uint32_t f = 0; f < frames; ++f) {
      for (std::size_t i = 0; i < 512; ++i) {
        observation.as<float>()[f * 512 + i] = i == 0        ? 1
                                               : i % 64 == 1 ? float(first + f)
                                                             : float(i % 64);
      }
    }
    made.observation = std::move(observation).Freeze();
    return made;
  };
  for (std::uint64_t first = 0; first < 6000; first += 101) {
    ASSERT_TRUE(writer->Push({chunk(first, 101)}, MakeItems(1, first, 100)).ok());
    for (int i = 0; i < 3; ++i) world.Pump(), writer->Poll(world.now());
    if (first == 4040) world.Advance(Milliseconds(1));
  }
  const auto mirror = MirrorOf(&world);
  FeedCopy copy;
  EXPECT_GT(TakeAll(&world, mirror.get(), &copy, 30), 0);
  ExpectItems(copy, 6000);
}

INSTANTIATE_TEST_SUITE_P(Codecs, MirrorCodecTest,
                         testing::Values(Codec::kNone, Codec::kLz4, Codec::kZstd),
                         [](const auto& i) { return std::string(EnumName(i.param)); });

}  // namespace
}  // namespace troop
