#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "core/base/executor.h"
#include "core/config/enum_names.h"
#include "core/storage/memory_storage.h"
#include "net/wire/codec.h"
#include "replay/service/messages.h"
#include "tests/replay/relay.h"
#include "tests/replay/replay_world.h"

namespace troop {
namespace {

// Pictures that compress as those of games do: a gradient, and one row that moves.
TrajectorySpec PictureSpec() {
  return {.observation = {DType::kU8, {32, 32}}, .action = {DType::kI32, {}}};
}
std::byte Pixel(std::uint64_t t, std::size_t i) {
  const std::size_t row = i / 32, column = i % 32;
  if (row == t % 32) return std::byte(200 + t % 50);
  return std::byte((row * 3 + column * column / 7) % 64);
}
Chunk Pictures(StreamId stream, std::uint64_t first, std::uint32_t frames) {
  Chunk chunk = MakeChunk(stream, first, frames);
  MutableBuffer observation(frames * 1024);
  for (std::uint32_t f = 0; f < frames; ++f) {
    for (std::size_t i = 0; i < 1024; ++i) observation.data()[f * 1024 + i] = Pixel(first + f, i);
  }
  chunk.observation = std::move(observation).Freeze();
  return chunk;
}
ReplayServer::Options PictureOptions(Codec codec) {
  ReplayServer::Options options = SmallOptions();
  options.tables[0].table.trajectory = PictureSpec();
  options.tables[0].table.codec = codec;
  options.tables[0].table.capacity_items = 20000;
  return options;
}
void ExpectPictures(const SampleBatch& batch) {
  const auto now = batch.observation.bytes(), next = batch.next_observation.bytes();
  for (std::size_t row = 0; row < std::size_t(batch.size()); ++row) {
    const std::uint64_t t = batch.policy_version[row];
    for (std::size_t i = 0; i < 1024; ++i) {
      ASSERT_EQ(now[row * 1024 + i], Pixel(t, i));
      ASSERT_EQ(next[row * 1024 + i], Pixel(t + std::uint64_t(batch.length[row]), i));
    }
  }
}
void PushPictures(ReplayWorld* world, ReplayWriter* writer, std::uint64_t first,
                  std::uint32_t items) {
  ASSERT_TRUE(writer->CanPush());
  ASSERT_TRUE(writer->Push({Pictures(1, first, items + 1)}, MakeItems(1, first, items, 1, 1)).ok());
  for (int i = 0; i < 3; ++i) {
    world->Pump();
    writer->Poll(world->now());
  }
}

TEST(ReplayTablesTest, RoundTripsEncodedFrames) {
  for (const Codec codec : {Codec::kNone, Codec::kLz4, Codec::kZstd}) {
    ReplayWorld world(PictureOptions(codec));
    const auto writer = world.Writer();
    ASSERT_NO_FATAL_FAILURE(PushPictures(&world, writer.get(), 0, 50));
    const auto sampler = world.Sampler({.batch_size = 64, .prefetch = 1, .decode_threads = 1});
    const auto batch = Take(&world, sampler.get());
    ASSERT_TRUE(Took(batch)) << batch.status().ToString();
    ExpectPictures(**batch);
  }
}

class TrainedCodecTest : public testing::TestWithParam<Codec> {};
INSTANTIATE_TEST_SUITE_P(, TrainedCodecTest, testing::Values(Codec::kLz4, Codec::kZstd),
                         [](const auto& info) { return std::string(EnumName(info.param)); });

TEST_P(TrainedCodecTest, TrainsDictionaryAndSendsItToWritersAndSamplers) {
  ReplayServer::Options options = PictureOptions(GetParam());
  InlineExecutor executor;
  options.executor = &executor;
  ReplayWorld world(options);
  const auto writer = world.Writer();
  std::uint64_t first = 0;
  for (; first < 6000; first += 101) {
    ASSERT_NO_FATAL_FAILURE(PushPictures(&world, writer.get(), first, 100));
    if (first == 4040) world.Advance(Milliseconds(1));
  }
  ASSERT_TRUE(writer->error().ok()) << writer->error().ToString();
  const auto sampler = world.Sampler({.batch_size = 256, .prefetch = 1});
  Result<std::optional<SampleBatch>> batch = std::optional<SampleBatch>();
  for (int i = 0; i < 5 && batch.ok() && !batch->has_value(); ++i) {
    batch = Take(&world, sampler.get());
  }
  ASSERT_TRUE(Took(batch)) << batch.status().ToString();
  ExpectPictures(**batch);
  const auto channel = world.Connect(Role::kTool);
  const auto answer = world.Call(channel.get(), {.type = MessageType::kDescribe});
  ASSERT_TRUE(answer.ok());
  const auto body = DecodeBody<DescribeReplyBody>(answer->body);
  ASSERT_TRUE(body.ok());
  EXPECT_NE(body->tables[0].dictionary, 0u);

  // A server that took its place has no dictionary: frames that were under way come without.
  options.executor = nullptr;
  world.options() = options;
  ASSERT_TRUE(
      writer->Push({Pictures(1, first, 21)}, MakeItems(1, first, 20, 1, 1)).ok());  // not pumped
  world.RestartServer();
  for (int i = 0; i < 50 && writer->unacked_pushes() > 0; ++i) {
    world.Advance(Milliseconds(200));
    writer->Poll(world.now());
  }
  EXPECT_TRUE(writer->error().ok()) << writer->error().ToString();
  EXPECT_EQ(writer->unacked_pushes(), 0);
  EXPECT_EQ(world.Metric("replay/items"), 20);
}

// A restart whose dictionary is gone: frames that need it can't be served, all others can.
TEST_P(TrainedCodecTest, DropsItemsOfLostDictionaryAndServesTheRest) {
  ReplayServer::Options options = PictureOptions(GetParam());
  InlineExecutor executor;
  MemoryStorage disk;
  options.executor = &executor;
  options.storage = &disk;
  options.journal.commit_bytes = 1;
  ReplayWorld world(options);
  const auto writer = world.Writer();
  for (std::uint64_t first = 0; first < 6000; first += 101) {
    ASSERT_NO_FATAL_FAILURE(PushPictures(&world, writer.get(), first, 100));
    world.Advance(Milliseconds(20));
  }
  const double before = world.Metric("replay/items");
  const std::string folder = options.journal.folder + "/" + options.tables[0].table.name + "/";
  const auto names = disk.List(folder);
  ASSERT_TRUE(names.ok());
  int removed = 0;
  for (const std::string& name : *names) {
    if (name.starts_with("dictionary-")) removed += disk.Remove(folder + name).ok();
  }
  ASSERT_EQ(removed, 1);
  world.RestartServer();
  EXPECT_GT(world.Metric("replay/items"), 1000);
  EXPECT_LT(world.Metric("replay/items"), before - 1000);
  const auto sampler = world.Sampler({.batch_size = 512, .prefetch = 1});
  Result<std::optional<SampleBatch>> batch = std::optional<SampleBatch>();
  for (int i = 0; i < 5 && batch.ok() && !batch->has_value(); ++i) {
    batch = Take(&world, sampler.get());
  }
  ASSERT_TRUE(Took(batch)) << batch.status().ToString();
  ExpectPictures(**batch);
}

// A server that is configured with dictionaries trains none.
TEST_P(TrainedCodecTest, ServesConfiguredDictionariesFromStart) {
  std::vector<std::byte> frames(200 * 1024);
  for (std::size_t i = 0; i < frames.size(); ++i) frames[i] = Pixel(i / 1024, i % 1024);
  const auto trained = TrainFrameDictionary(frames, 1024);
  ASSERT_TRUE(trained.ok()) << trained.status().ToString();
  ReplayServer::Options options = PictureOptions(GetParam());
  options.tables[0].dictionaries = {*trained};
  ReplayWorld world(options);
  const auto writer = world.Writer();
  double bytes = 0;
  for (std::uint64_t first = 0; first < 400; first += 101) {
    const double was = world.Metric("replay/log_bytes");
    ASSERT_NO_FATAL_FAILURE(PushPictures(&world, writer.get(), first, 100));
    const double more = world.Metric("replay/log_bytes") - was;
    if (first == 0) bytes = more;  // the writer had no notice of it yet
    EXPECT_LE(more, first == 0 ? bytes : bytes * 0.9);
  }
  const auto sampler = world.Sampler({.batch_size = 128, .prefetch = 1});
  Result<std::optional<SampleBatch>> batch = std::optional<SampleBatch>();
  for (int i = 0; i < 5 && batch.ok() && !batch->has_value(); ++i) {
    batch = Take(&world, sampler.get());
  }
  ASSERT_TRUE(Took(batch)) << batch.status().ToString();
  ExpectPictures(**batch);
  options.tables[0].dictionaries = {Buffer::Copy("words")};
  EXPECT_EQ(MakeReplayServer(options).status().code(), Code::kInvalidArgument);
}

TEST(ReplayTablesTest, TablesUseIndependentRandomNumbers) {
  ReplayServer::Options options = SmallOptions();
  options.tables.push_back(options.tables[0]);
  options.tables[1].table.name = "other";
  ReplayWorld world(options);
  std::vector<std::vector<std::uint64_t>> drawn;
  for (std::uint32_t table = 0; table < 2; ++table) {
    const auto writer = MakeReplayWriter(world.ConnectAll(Role::kActor, std::int32_t(table)),
                                         world.spec(), {.table = table});
    ASSERT_NO_FATAL_FAILURE(Push(&world, writer.get(), 1, 0, 500));
    const auto sampler =
        world.Sampler({.batch_size = 64, .prefetch = 1, .table = table}, std::int32_t(table));
    auto batch = Take(&world, sampler.get());
    ASSERT_TRUE(Took(batch)) << batch.status().ToString();
    drawn.push_back((*batch)->policy_version);  // the frame's number
  }
  EXPECT_NE(drawn[0], drawn[1]);
}

// Actors say how old their policy is, and the learner how old that makes it.
TEST(ReplayTablesTest, SamplerReportsNewestPolicyVersion) {
  ReplayServer::Options options = SmallOptions();
  options.tables[0].table.max_policy_age = 300;
  ReplayWorld world(options);
  const auto writer = world.Writer();
  ASSERT_NO_FATAL_FAILURE(Push(&world, writer.get(), 1, 0, 200));  // versions 0 to 199
  const auto sampler = world.Sampler({.batch_size = 8, .prefetch = 1});
  ASSERT_TRUE(Took(Take(&world, sampler.get())));
  EXPECT_EQ(world.Metric("replay/items"), 200);
  sampler->ObservePolicyVersion(WeightsVersion(1, 400));
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(Took(Take(&world, sampler.get())));
  EXPECT_EQ(world.Metric("replay/items"), 100);
}

// The dictionary of an answer is of a life that is over: the answer is drawn again.
TEST_P(TrainedCodecTest, SurvivesRestartBetweenReplyAndItsDictionary) {
  ReplayServer::Options options = PictureOptions(GetParam());
  InlineExecutor executor;
  options.executor = &executor;
  ReplayWorld world(options);
  const auto writer = world.Writer();
  for (std::uint64_t first = 0; first < 6000; first += 101) {
    ASSERT_NO_FATAL_FAILURE(PushPictures(&world, writer.get(), first, 100));
    if (first == 4040) world.Advance(Milliseconds(1));
  }
  const auto sampler = world.Sampler({.batch_size = 256, .prefetch = 1});
  sampler->Poll(world.now());
  world.Pump();  // answered, and not looked at
  options.executor = nullptr;
  world.options() = options;
  world.RestartServer();
  const auto second = world.Writer(1);
  ASSERT_TRUE(second->Push({Pictures(1, 0, 41)}, MakeItems(1, 0, 40, 1, 1)).ok());
  Result<std::optional<SampleBatch>> batch = std::optional<SampleBatch>();
  for (int i = 0; i < 100 && batch.ok() && !batch->has_value(); ++i) {
    world.Advance(Milliseconds(200));
    second->Poll(world.now());
    batch = Take(&world, sampler.get());
  }
  ASSERT_TRUE(Took(batch)) << batch.status().ToString();
  ExpectPictures(**batch);
}

// Regression: a decoder keeps a bounded number of dictionaries, and dropped ones were never fetched
// again.
TEST_P(TrainedCodecTest, RefetchesDictionaryDroppedByDecoder) {
  ReplayServer::Options options = PictureOptions(GetParam());
  InlineExecutor executor;
  options.executor = &executor;
  RelayWorld world(options, 1);
  const auto writer =
      MakeReplayWriter(world.ConnectAll(Role::kActor), PictureSpec(), {.codec = GetParam()});
  for (std::uint64_t first = 0; first < 6000; first += 101) {
    ASSERT_TRUE(writer->Push({Pictures(1, first, 101)}, MakeItems(1, first, 100, 1, 1)).ok());
    for (int i = 0; i < 3; ++i) {
      world.Pump();
      writer->Poll(world.now());
    }
  }
  Buffer real;
  std::uint32_t made_up = 0;
  int fetched = 0;
  world.relay(0).ask = [&](const Message& message, Reply* reply) {
    if (message.type != MessageType::kDictionary) return false;
    const std::uint32_t id = DecodeBody<DictionaryBody>(message.body)->id;
    if (id > 1'000'000 || real.empty()) return ++fetched < 0;
    MutableBuffer bytes(real.size());  // the same, with another id
    std::memcpy(bytes.data(), real.data(), real.size());
    std::memcpy(bytes.data() + 4, &id, sizeof id);
    Message answer{.type = MessageType::kDictionaryReply};
    answer.parts.push_back(std::move(bytes).Freeze());
    reply->Send(std::move(answer));
    return true;
  };
  world.relay(0).edit = [&](Message* message) {
    if (message->type == MessageType::kDictionaryReply) real = message->parts[0];
    if (message->type != MessageType::kSampleReply || real.empty()) return;
    SampleReplyBody body = *DecodeBody<SampleReplyBody>(message->body);
    for (int i = 0; i < 100; ++i) body.dictionaries.push_back(40'000 + made_up++);
    message->body = EncodeBody(body);
  };
  const auto sampler = MakeReplaySampler(
      world.ConnectAll(Role::kLearner), PictureSpec(),
      {.batch_size = 64, .prefetch = 1, .view = {.length_max = 3}, .codec = GetParam()});
  int batches = 0;
  for (int i = 0; i < 200 && batches < 8; ++i) {
    sampler->Poll(world.now());
    world.Pump();
    sampler->Poll(world.now());
    const auto batch = sampler->Next();
    ASSERT_TRUE(batch.ok()) << batch.status().ToString();
    if (!batch->has_value()) continue;
    ++batches;
    ExpectPictures(**batch);
  }
  EXPECT_EQ(batches, 8);
  EXPECT_GT(fetched, 1);
}

TEST(ReplayTablesTest, TablesOfOneServerAreIndependent) {
  ReplayServer::Options options = SmallOptions();
  options.tables.push_back(options.tables[0]);
  options.tables[1].table.name = "other";
  options.tables[1].table.view = {.kind = ViewSpec::Kind::kSequence, .length_max = 4};
  ReplayWorld world(options);
  const auto first = world.Writer();
  const auto second = MakeReplayWriter(world.Connect(Role::kActor, 1), SmallSpec(), {.table = 1});
  ASSERT_NO_FATAL_FAILURE(Push(&world, first.get(), 1, 0, 12));
  ASSERT_TRUE(second->Push({MakeChunk(2, 0, 40)}, MakeItems(2, 0, 30, 1, 4)).ok());
  world.Pump();
  EXPECT_EQ(world.Metric("replay/items"), 12);
  EXPECT_EQ(world.Metric("replay/other/items"), 30);
  const auto sampler =
      MakeReplaySampler(world.Connect(Role::kLearner), SmallSpec(),
                        {.batch_size = 8, .table = 1, .view = options.tables[1].table.view});
  const auto batch = Take(&world, sampler.get());
  ASSERT_TRUE(Took(batch)) << batch.status().ToString();
  EXPECT_EQ((*batch)->observation.shape(), (Shape{8, 5, 2}));
  for (std::size_t i = 0; i < 8; ++i) {
    const auto observation = (*batch)->observation.as<float>().subspan(i * 10, 10);
    for (std::size_t f = 0; f < 5; ++f) {
      EXPECT_EQ(observation[2 * f], 2);
      EXPECT_EQ(observation[2 * f + 1], float((*batch)->policy_version[i] + f));
    }
  }
}

TEST(ReplayTablesTest, DescribesItsTables) {
  ReplayServer::Options options = PictureOptions(Codec::kLz4);
  options.tables[0].table.view.stack = 2;
  options.tables[0].table.trajectory.state = TensorSpec{DType::kF32, {3}};
  ReplayWorld world(options);
  const auto channel = world.Connect(Role::kTool);
  const auto answer = world.Call(channel.get(), {.type = MessageType::kDescribe});
  ASSERT_TRUE(answer.ok());
  const auto body = DecodeBody<DescribeReplyBody>(answer->body);
  ASSERT_TRUE(body.ok());
  ASSERT_EQ(body->tables.size(), 1u);
  const auto table = ParseTableInfo(body->tables[0]);
  ASSERT_TRUE(table.ok()) << table.status().ToString();
  EXPECT_EQ(table->name, "experience");
  EXPECT_EQ(table->trajectory, options.tables[0].table.trajectory);
  EXPECT_EQ(table->view, options.tables[0].table.view);
  EXPECT_EQ(table->codec, Codec::kLz4);
}

TEST(ReplayTablesTest, RejectsInvalidDescription) {
  const TableInfo good{
      .name = "a", .observation = {0, {4}}, .action = {4, {}}, .length_max = 1, .stack = 1};
  EXPECT_TRUE(ParseTableInfo(good).ok());
  const auto bad = [&good](auto change) {
    TableInfo info = good;
    change(&info);
    return !ParseTableInfo(info).ok();
  };
  EXPECT_TRUE(bad([](TableInfo* i) { i->observation.dtype = 8; }));
  EXPECT_TRUE(bad([](TableInfo* i) { i->observation.shape = {1, 1, 1, 1, 1, 1, 1}; }));
  EXPECT_TRUE(bad([](TableInfo* i) { i->observation.shape = {1 << 20, 1 << 20}; }));
  EXPECT_TRUE(bad([](TableInfo* i) { i->action.shape = {-1}; }));
  EXPECT_TRUE(bad([](TableInfo* i) { i->view_kind = 2; }));
  EXPECT_TRUE(bad([](TableInfo* i) { i->codec = 3; }));
  EXPECT_TRUE(bad([](TableInfo* i) { i->stack = 0; }));
  EXPECT_TRUE(bad([](TableInfo* i) { i->burn_in = ~0u; }));
}

TEST(ReplayTablesTest, ReconfiguresRunningLimiter) {
  ReplayWorld world(Limited());
  const auto writer = world.Writer();
  ASSERT_NO_FATAL_FAILURE(Push(&world, writer.get(), 1, 0, 30));
  ASSERT_NO_FATAL_FAILURE(Push(&world, writer.get(), 1, 31, 20));
  EXPECT_EQ(writer->unacked_pushes(), 1);
  const auto channel = world.Connect(Role::kTool);
  const auto call = [&](const ReconfigureBody& body) {
    return world.Call(channel.get(), {.type = MessageType::kReconfigure, .body = EncodeBody(body)});
  };
  EXPECT_FALSE(
      call({.samples_per_insert = -1, .samples_per_insert_tolerance_rate = 0.1, .min_items = 10})
          .ok());
  EXPECT_FALSE(
      call({.samples_per_insert = 2, .samples_per_insert_tolerance_rate = 0.1, .min_items = 10000})
          .ok());
  EXPECT_EQ(world.Metric("replay/waiting_inserts"), 1);
  EXPECT_TRUE(
      call({.samples_per_insert = 0, .samples_per_insert_tolerance_rate = 0.1, .min_items = 10})
          .ok());
  writer->Poll(world.now());
  EXPECT_EQ(writer->unacked_pushes(), 0);
}

// Items that leave with their last draw: a batch larger than what is there waits for more.
TEST(ReplayTablesTest, BatchLargerThanTableWaitsForNextInserts) {
  ReplayServer::Options options = SmallOptions();
  options.tables[0].table.max_times_sampled = 1;
  options.tables[0].table.min_items = 1;
  options.tables[0].table.sampler = {.kind = Selector::Kind::kFifo};
  ReplayWorld world(options);
  const auto writer = world.Writer();
  ASSERT_NO_FATAL_FAILURE(Push(&world, writer.get(), 1, 0, 5));
  const auto sampler = world.Sampler({.batch_size = 8, .prefetch = 1});
  EXPECT_FALSE(Took(Take(&world, sampler.get())));
  ASSERT_NO_FATAL_FAILURE(Push(&world, writer.get(), 1, 6, 5));
  const auto batch = Take(&world, sampler.get());
  ASSERT_TRUE(Took(batch)) << batch.status().ToString();
  std::vector<std::uint64_t> seen = (*batch)->policy_version;
  std::ranges::sort(seen);
  EXPECT_EQ(seen, (std::vector<std::uint64_t>{0, 1, 2, 3, 4, 6, 7, 8}));
  EXPECT_EQ(world.Metric("replay/items"), 2);
}

}  // namespace
}  // namespace troop
