#include "replay/server.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "net/codec.h"
#include "replay/wire.h"
#include "tests/replay/replay_world.h"

namespace troop {
namespace {

ReplayServer::Options SmallOptions() {
  return {.trajectory = SmallSpec(),
          .n_step_max = 3,
          .capacity_items = 1000,
          .min_items = 10,
          .samples_per_insert = 0,
          .seed = 7};
}

// Pushes `items` one-step items of one stream, starting at frame `first`.
void Push(ReplayWorld* world, ReplayWriter* writer, StreamId stream, std::uint64_t first,
          std::uint32_t items) {
  ASSERT_TRUE(writer->CanPush());
  ASSERT_TRUE(
      writer->Push({MakeChunk(stream, first, items + 1)}, MakeItems(stream, first, items)).ok());
  world->Pump();
  writer->Poll(world->now());
}

// The next batch, when it is there after one exchange.
Result<std::optional<SampleBatch>> Take(ReplayWorld* world, ReplaySampler* sampler) {
  sampler->Poll(world->now());
  world->Pump();
  sampler->Poll(world->now());
  return sampler->Next();
}

bool Took(const Result<std::optional<SampleBatch>>& batch) {
  return batch.ok() && batch->has_value();
}

// ---- samples ------------------------------------------------------------------------------------

TEST(ReplayServerTest, DrawnItemsAreTheFramesThatWerePushed) {
  ReplayWorld world(SmallOptions());
  const auto writer = world.Writer();
  ASSERT_TRUE(writer->Push({MakeChunk(3, 0, 20)}, MakeItems(3, 0, 17, 1, 3)).ok());
  const auto sampler = world.Sampler({.batch_size = 32, .prefetch = 1});
  const auto batch = Take(&world, sampler.get());
  ASSERT_TRUE(Took(batch));
  const SampleBatch& b = **batch;
  ASSERT_EQ(b.size(), 32);
  EXPECT_EQ(b.observation.shape(), (Shape{32, 2}));
  EXPECT_EQ(b.action.shape(), (Shape{32}));
  EXPECT_EQ(b.reward.shape(), (Shape{32, 3}));
  for (std::size_t i = 0; i < 32; ++i) {
    const float t = b.observation.as<float>()[2 * i + 1];
    EXPECT_EQ(b.policy_version[i], std::uint64_t(t));
    EXPECT_EQ(b.observation.as<float>()[2 * i], 3);
    EXPECT_EQ(b.next_observation.as<float>()[2 * i + 1], t + 3);
    EXPECT_EQ(b.action.as<std::int32_t>()[i], std::int32_t(30 + t));
    for (std::size_t j = 0; j < 3; ++j) {
      EXPECT_EQ(b.reward.as<float>()[3 * i + j], t + float(j) + 0.5f);
      EXPECT_EQ(b.discount.as<float>()[3 * i + j], 1);
    }
    EXPECT_EQ(b.length[i], 3);
    EXPECT_NEAR(b.probability[i], 1.0 / 17, 1e-6);
    EXPECT_NEAR(b.weight[i], 1, 1e-6);
  }
}

TEST(ReplayServerTest, WeightsAreTheImportanceWeightsOverTheirLargest) {
  ReplayWorld world(SmallOptions());
  const auto writer = world.Writer();
  std::vector<Item> items = MakeItems(1, 0, 20);
  for (std::size_t i = 0; i < items.size(); ++i) items[i].priority = float(1 + i * i);
  ASSERT_TRUE(writer->Push({MakeChunk(1, 0, 21)}, items).ok());
  const auto sampler = world.Sampler({.batch_size = 16, .beta = 0.4});
  const auto batch = Take(&world, sampler.get());
  ASSERT_TRUE(Took(batch));
  std::vector<double> weight;
  for (const double p : (*batch)->probability) weight.push_back(std::pow(20 * p, -0.4));
  const double largest = std::ranges::max(weight);
  for (std::size_t i = 0; i < weight.size(); ++i) {
    EXPECT_NEAR((*batch)->weight[i], weight[i] / largest, 1e-6);
  }
}

TEST(ReplayServerTest, ARequestMayBringSeveralBatches) {
  ReplayWorld world(SmallOptions());
  const auto writer = world.Writer();
  Push(&world, writer.get(), 1, 0, 20);
  const auto sampler = world.Sampler({.batch_size = 5, .prefetch = 2, .batches_per_request = 3});
  ASSERT_TRUE(Took(Take(&world, sampler.get())));
  EXPECT_EQ(sampler->ready_batches(), 5);
  EXPECT_EQ(world.Metric("replay/samples"), 30);
}

// Reverb 27: the statistics counted prefetched samples without a bound.
TEST(ReplayServerTest, NeverMoreThanTheWindowIsCountedAndNotTaken) {
  ReplayWorld world(SmallOptions());
  const auto writer = world.Writer();
  Push(&world, writer.get(), 1, 0, 20);
  const auto sampler = world.Sampler({.batch_size = 4, .prefetch = 3, .batches_per_request = 2});
  int taken = 0;
  for (int i = 0; i < 50; ++i) {
    if (Took(Take(&world, sampler.get()))) ++taken;
    ASSERT_LE(world.Metric("replay/samples") / 4 - taken, 3 * 2);
  }
  EXPECT_EQ(taken, 50);
}

TEST(ReplayServerTest, EqualRunsGiveEqualBytes) {
  std::vector<std::vector<float>> runs;
  for (int run = 0; run < 2; ++run) {
    ReplayWorld world(SmallOptions());
    const auto writer = world.Writer();
    const auto sampler = world.Sampler({.batch_size = 8});
    std::vector<float>& seen = runs.emplace_back();
    for (std::uint64_t first = 0; first < 200; first += 20) {
      Push(&world, writer.get(), 1, first, 19);
      const auto batch = Take(&world, sampler.get());
      ASSERT_TRUE(Took(batch));
      const auto observation = (*batch)->observation.as<float>();
      seen.insert(seen.end(), observation.begin(), observation.end());
      std::vector<float> priority(8);
      for (std::size_t i = 0; i < 8; ++i) priority[i] = observation[2 * i + 1];
      sampler->UpdatePriorities((*batch)->key, priority);
    }
  }
  EXPECT_EQ(runs[0], runs[1]);
}

// The stream began again at its first number, with the seed alone as its key.
TEST(ReplayServerTest, ARestartedServerDoesNotDrawTheSameStreamAgain) {
  ReplayWorld world(SmallOptions());
  std::vector<std::vector<float>> runs;
  for (const std::uint64_t incarnation : {1, 2, 1}) {
    world.options().incarnation = incarnation;
    world.RestartServer();
    const auto writer = world.Writer(std::int32_t(runs.size()));
    const auto sampler = world.Sampler({.batch_size = 8}, std::int32_t(runs.size()));
    Push(&world, writer.get(), 1, 0, 100);
    const auto batch = Take(&world, sampler.get());
    ASSERT_TRUE(Took(batch));
    const auto observation = (*batch)->observation.as<float>();
    runs.emplace_back(observation.begin(), observation.end());
  }
  EXPECT_NE(runs[0], runs[1]);
  EXPECT_EQ(runs[0], runs[2]);
}

// ---- priorities ---------------------------------------------------------------------------------

TEST(ReplayServerTest, PrioritiesTravelWithTheNextRequest) {
  ReplayWorld world(SmallOptions());
  const auto writer = world.Writer();
  Push(&world, writer.get(), 1, 0, 20);
  const auto sampler = world.Sampler({.batch_size = 64, .prefetch = 1});
  auto batch = Take(&world, sampler.get());
  ASSERT_TRUE(Took(batch));
  std::vector<float> priority(64, 0.0f);
  for (std::size_t i = 0; i < 64; ++i) {
    if ((*batch)->observation.as<float>()[2 * i + 1] == 7) priority[i] = 1e9f;
  }
  sampler->UpdatePriorities((*batch)->key, priority);
  batch = Take(&world, sampler.get());
  ASSERT_TRUE(Took(batch));
  EXPECT_EQ(world.Metric("replay/updates"), 64);
  std::size_t sevens = 0;
  for (std::size_t i = 0; i < 64; ++i) {
    sevens += (*batch)->observation.as<float>()[2 * i + 1] == 7 ? 1 : 0;
  }
  EXPECT_GE(sevens, 63u);
}

TEST(ReplayServerTest, PrioritiesGoAloneWhenNoRequestIsDue) {
  ReplayWorld world(SmallOptions());
  const auto writer = world.Writer();
  Push(&world, writer.get(), 1, 0, 20);
  const auto sampler = world.Sampler({.batch_size = 4, .prefetch = 1});
  const auto batch = Take(&world, sampler.get());
  ASSERT_TRUE(Took(batch));
  sampler->Poll(world.now());  // asks for the next one
  world.Pump();
  sampler->Poll(world.now());  // which is ready: the window is full
  sampler->UpdatePriorities((*batch)->key, std::vector<float>(4, 2.0f));
  sampler->Poll(world.now());
  world.Pump();
  EXPECT_EQ(world.Metric("replay/updates"), 4);
  EXPECT_EQ(world.Metric("replay/samples"), 8);
}

TEST(ReplayServerTest, LateAndImpossiblePrioritiesAreCounted) {
  ReplayServer::Options options = SmallOptions();
  options.capacity_items = 20;
  ReplayWorld world(options);
  const auto writer = world.Writer();
  Push(&world, writer.get(), 1, 0, 20);
  const auto sampler = world.Sampler({.batch_size = 4, .prefetch = 1});
  const auto batch = Take(&world, sampler.get());
  ASSERT_TRUE(Took(batch));
  sampler->UpdatePriorities(std::vector<ItemKey>{(*batch)->key[0]},
                            std::vector<float>{std::nanf("")});
  Push(&world, writer.get(), 1, 21, 20);
  sampler->UpdatePriorities(std::vector<ItemKey>{(*batch)->key[1]}, std::vector<float>{1});
  sampler->Poll(world.now());
  world.Pump();
  EXPECT_EQ(world.Metric("replay/refused_priorities"), 1);
  EXPECT_EQ(world.Metric("replay/stale_updates"), 1);
  EXPECT_EQ(world.Metric("replay/updates"), 0);
}

// ---- the limiter --------------------------------------------------------------------------------

TEST(ReplayServerTest, SamplesWaitForMinItemsAndAreAnsweredInOrder) {
  ReplayWorld world(SmallOptions());
  const auto writer = world.Writer();
  const auto first = world.Sampler({.batch_size = 4, .prefetch = 1}, 0);
  const auto second = world.Sampler({.batch_size = 4, .prefetch = 1}, 1);
  EXPECT_FALSE(Took(Take(&world, first.get())));
  EXPECT_FALSE(Took(Take(&world, second.get())));
  EXPECT_EQ(world.Metric("replay/parked_samples"), 2);
  Push(&world, writer.get(), 1, 0, 9);
  EXPECT_FALSE(Took(Take(&world, first.get())));
  Push(&world, writer.get(), 1, 10, 1);
  const auto a = Take(&world, first.get()), b = Take(&world, second.get());
  ASSERT_TRUE(Took(a) && Took(b));
  EXPECT_EQ(world.Metric("replay/parked_samples"), 0);
}

ReplayServer::Options Limited() {
  ReplayServer::Options options = SmallOptions();
  options.samples_per_insert = 2;  // band: 20 ± 2 samples
  return options;
}

TEST(ReplayServerTest, InsertsAreParkedWhileTheLearnerRestsAndGoOnWhenItDraws) {
  ReplayWorld world(Limited());
  const auto writer = world.Writer();
  Push(&world, writer.get(), 1, 0, 10);
  Push(&world, writer.get(), 1, 11, 2);  // lead 24 after it
  Push(&world, writer.get(), 1, 14, 1);
  EXPECT_EQ(writer->acked_items(), 12u);
  EXPECT_EQ(writer->unacked_pushes(), 1);
  EXPECT_EQ(world.Metric("replay/parked_inserts"), 1);
  const auto sampler = world.Sampler({.batch_size = 3, .prefetch = 1});
  ASSERT_TRUE(Took(Take(&world, sampler.get())));
  writer->Poll(world.now());
  EXPECT_EQ(writer->acked_items(), 13u);
  EXPECT_EQ(world.Metric("replay/parked_inserts"), 0);
}

TEST(ReplayServerTest, TheWindowIsTheBackPressureOnAWriter) {
  ReplayWorld world(Limited());
  const auto writer = world.Writer(0, 2);
  Push(&world, writer.get(), 1, 0, 30);
  Push(&world, writer.get(), 1, 31, 1);
  EXPECT_TRUE(writer->CanPush());
  Push(&world, writer.get(), 1, 33, 1);
  EXPECT_FALSE(writer->CanPush());
}

TEST(ReplayServerTest, SaysForHowLongEachSideWasBlocked) {
  ReplayWorld world(Limited());
  const auto writer = world.Writer();
  const auto sampler = world.Sampler({.batch_size = 1, .prefetch = 1});
  sampler->Poll(world.now());
  world.Pump();
  world.Advance(Seconds(3));
  EXPECT_DOUBLE_EQ(world.Metric("replay/sample_blocked_s"), 3);
  EXPECT_DOUBLE_EQ(world.Metric("replay/insert_blocked_s"), 0);
  Push(&world, writer.get(), 1, 0, 30);
  Push(&world, writer.get(), 1, 31, 1);
  world.Advance(Seconds(2));
  EXPECT_DOUBLE_EQ(world.Metric("replay/sample_blocked_s"), 3);
  EXPECT_DOUBLE_EQ(world.Metric("replay/insert_blocked_s"), 2);
}

TEST(ReplayServerTest, ARunKeepsTheTargetRatio) {
  ReplayServer::Options options = SmallOptions();
  options.samples_per_insert = 8;
  options.trim_every_samples = 100;
  ReplayWorld world(options);
  const auto writer = world.Writer();
  const auto sampler = world.Sampler({.batch_size = 16, .prefetch = 4});
  std::uint64_t frame = 0, taken = 0;
  while (frame < 21 * 500) {
    if (writer->CanPush()) {
      ASSERT_TRUE(writer->Push({MakeChunk(1, frame, 21)}, MakeItems(1, frame, 20)).ok());
      frame += 21;
    }
    writer->Poll(world.now());
    while (Took(Take(&world, sampler.get()))) ++taken;
  }
  EXPECT_NEAR(world.Metric("replay/samples_per_insert"), 8, 0.02 * 8);
  EXPECT_LE(world.Metric("replay/items"), 1125);
}

// Priorities of 0 everywhere (epsilon 0): only an insert can help, so inserts must not wait.
TEST(ReplayServerTest, InsertsGoOnWhenNothingCanBeDrawn) {
  ReplayServer::Options options = Limited();
  options.priority_epsilon = 0;
  ReplayWorld world(options);
  const auto writer = world.Writer();
  ASSERT_TRUE(writer->Push({MakeChunk(1, 0, 41)}, MakeItems(1, 0, 40, 0)).ok());
  const auto sampler = world.Sampler({.batch_size = 2});
  EXPECT_FALSE(Took(Take(&world, sampler.get())));
  writer->Poll(world.now());
  Push(&world, writer.get(), 1, 41, 5);
  EXPECT_EQ(writer->acked_items(), 45u);
  EXPECT_TRUE(Took(Take(&world, sampler.get())));
}

// ---- ends ---------------------------------------------------------------------------------------

TEST(ReplayServerTest, ADrainedSamplerTakesWhatTheRatioAllowsAndThenEnds) {
  ReplayWorld world(Limited());
  const auto writer = world.Writer();
  Push(&world, writer.get(), 1, 0, 20);  // lead 40, lower end 18
  const auto sampler = world.Sampler({.batch_size = 4, .prefetch = 2});
  sampler->Drain();
  int batches = 0;
  Result<std::optional<SampleBatch>> batch = Take(&world, sampler.get());
  for (; batch.ok() && batches < 100; batch = Take(&world, sampler.get())) {
    if (batch->has_value()) ++batches;
  }
  EXPECT_EQ(batch.status().code(), Code::kOutOfRange);
  EXPECT_EQ(batches, 6);  // 40 - 5 * 4 = 20 >= 18 allows a sixth
}

TEST(ReplayServerTest, DrainEndsRequestsThatAreParkedAlready) {
  ReplayWorld world(SmallOptions());
  const auto sampler = world.Sampler({.batch_size = 4, .prefetch = 3});
  EXPECT_FALSE(Took(Take(&world, sampler.get())));
  EXPECT_EQ(world.Metric("replay/parked_samples"), 3);
  sampler->Drain();
  EXPECT_EQ(Take(&world, sampler.get()).status().code(), Code::kOutOfRange);
  EXPECT_EQ(world.Metric("replay/parked_samples"), 0);
}

TEST(ReplayServerTest, DrainTakesTheLastInsertsWithoutWaiting) {
  ReplayWorld world(Limited());
  const auto writer = world.Writer();
  Push(&world, writer.get(), 1, 0, 30);
  Push(&world, writer.get(), 1, 31, 20);
  EXPECT_EQ(writer->unacked_pushes(), 1);
  const auto sampler = world.Sampler({.batch_size = 1, .prefetch = 1});
  sampler->Drain();
  sampler->Poll(world.now());
  world.Pump();
  writer->Poll(world.now());
  EXPECT_EQ(writer->unacked_pushes(), 0);
}

TEST(ReplayServerTest, ARestartedServerIsFilledByWhatWasNotAcknowledged) {
  ReplayWorld world(Limited());
  const auto writer = world.Writer();
  Push(&world, writer.get(), 1, 0, 30);
  Push(&world, writer.get(), 1, 31, 5);
  Push(&world, writer.get(), 1, 37, 5);
  EXPECT_EQ(writer->acked_items(), 30u);
  world.RestartServer();
  for (int i = 0; i < 50 && writer->unacked_pushes() > 0; ++i) {
    world.Advance(Milliseconds(200));
    writer->Poll(world.now());
  }
  EXPECT_TRUE(writer->error().ok()) << writer->error().ToString();
  EXPECT_EQ(writer->acked_items(), 40u);
  EXPECT_EQ(world.Metric("replay/items"), 10);
}

// What the network says when a server forgot a client: its calls in flight may have been handled or
// not. Handles the first calls without an answer, and loses what follows, until the first one comes
// again.
class ForgetfulServer final : public Service {
 public:
  ForgetfulServer(ReplayServer* server, int handled) : server_(server), handled_(handled) {}
  void Handle(Message message, Reply reply) override {
    if (calls_ > 0 && message.body == first_) recovered_ = true;
    if (calls_ == 0) first_ = message.body;
    if (recovered_) return server_->Handle(std::move(message), std::move(reply));
    if (calls_++ < handled_) server_->Handle(std::move(message), Reply(std::make_unique<NoSink>()));
    reply.Fail(DeadlineExceeded("forgotten"));
  }

 private:
  struct NoSink final : Reply::Sink {
    void Answer(Message) override {}
  };
  ReplayServer* server_;
  int handled_, calls_ = 0;
  std::string first_;
  bool recovered_ = false;
};

TEST(ReplayServerTest, EachPushIsInsertedOnceWhateverTheServerForgot) {
  for (const int handled : {0, 1, 3, 4}) {  // of the four in flight
    const auto made = MakeReplayServer(SmallOptions());
    ASSERT_TRUE(made.ok());
    ForgetfulServer forgetful(made->get(), handled);
    const auto hub = MakeSimHub();
    const auto there = hub->MakeNetwork(), here = hub->MakeNetwork();
    const auto listener = *there->Listen("inproc://replay", &forgetful);
    const auto writer = MakeReplayWriter(
        *here->Connect("inproc://replay", {.origin = {.role = Role::kActor, .incarnation = 1}}),
        SmallSpec(), {});
    const Time now{Seconds(1)};
    std::uint64_t frame = 0;
    for (int i = 0; i < 40; ++i) {
      while (frame < 60 && writer->CanPush()) {
        ASSERT_TRUE(writer->Push({MakeChunk(1, frame, 10)}, MakeItems(1, frame, 9)).ok());
        frame += 10;
      }
      here->Pump(now);
      there->Pump(now);
      here->Pump(now);
      writer->Poll(now);
    }
    Metrics metrics;
    (*made)->Report(&metrics);
    EXPECT_TRUE(writer->error().ok()) << writer->error().ToString();
    EXPECT_EQ(writer->unacked_pushes(), 0);
    EXPECT_EQ(writer->acked_items(), 54u);
    EXPECT_EQ(metrics.Get("replay/items"), 54) << handled << " handled";
  }
}

TEST(ReplayServerTest, ASamplerOutlivesARestartOfTheServer) {
  ReplayWorld world(SmallOptions());
  const auto sampler = world.Sampler({.batch_size = 4, .prefetch = 2});
  EXPECT_FALSE(Took(Take(&world, sampler.get())));
  world.RestartServer();
  const auto writer = world.Writer();
  bool took = false;
  for (int i = 0; i < 50 && !took; ++i) {
    world.Advance(Milliseconds(200));
    if (i == 10) {
      ASSERT_NO_FATAL_FAILURE(Push(&world, writer.get(), 1, 0, 20));
    }
    took = Took(Take(&world, sampler.get()));
  }
  EXPECT_TRUE(took);
}

TEST(ReplayServerTest, AnUpdateForADeadServerHitsNothingOfItsSuccessor) {
  ReplayServer::Options options = SmallOptions();
  options.incarnation = 7;
  ReplayWorld world(options);
  const auto writer = world.Writer();
  Push(&world, writer.get(), 1, 0, 20);
  const auto sampler = world.Sampler({.batch_size = 4, .prefetch = 1});
  const auto batch = Take(&world, sampler.get());
  ASSERT_TRUE(Took(batch));
  world.options().incarnation = 8;
  world.RestartServer();
  const auto next_writer = world.Writer();
  Push(&world, next_writer.get(), 2, 0, 20);  // the same slots
  sampler->UpdatePriorities((*batch)->key, std::vector<float>(4, 1));
  for (int i = 0; i < 50 && world.Metric("replay/stale_updates") == 0; ++i) {
    world.Advance(Milliseconds(200));
    ASSERT_TRUE(Take(&world, sampler.get()).ok());
  }
  EXPECT_EQ(world.Metric("replay/stale_updates"), 4);
  EXPECT_EQ(world.Metric("replay/updates"), 0);
}

// The keys of each server's first item, over a thousand restarts.
TEST(ReplayServerTest, GenerationsOfIncarnationsKeepTheirDistance) {
  std::vector<std::uint64_t> first;
  for (std::uint64_t incarnation = 1; incarnation <= 1000; ++incarnation) {
    ReplayServer::Options options = SmallOptions();
    options.incarnation = incarnation;
    ReplayWorld world(options);
    const auto writer = world.Writer();
    ASSERT_NO_FATAL_FAILURE(Push(&world, writer.get(), 1, 0, 10));
    const auto sampler = world.Sampler({.batch_size = 1, .prefetch = 1});
    const auto batch = Take(&world, sampler.get());
    ASSERT_TRUE(Took(batch));
    first.push_back((*batch)->key[0].generation);
  }
  std::ranges::sort(first);
  for (std::size_t i = 1; i < first.size(); ++i) EXPECT_GT(first[i] - first[i - 1], 500'000u);
  EXPECT_LT(first.back(), 1u << 31);
}

// Dropped experience was counted, and nobody was told.
TEST(ReplayServerTest, SaysWhenItemsExpire) {
  ReplayServer::Options options = SmallOptions();
  options.capacity_items = 100;
  ReplayWorld world(options);
  const auto writer = world.Writer();
  Push(&world, writer.get(), 1, 0, 9);
  for (std::uint64_t first = 0; first < 100000; first += 1000) {  // the whole log, and more
    Push(&world, writer.get(), 2, first, 90);
    ASSERT_TRUE(writer->CanPush());
    ASSERT_TRUE(writer->Push({MakeChunk(2, first + 91, 909)}, {}).ok());
    world.Pump();
    writer->Poll(world.now());
  }
  testing::internal::CaptureStderr();
  for (std::uint64_t frame = 10; frame < 14; ++frame) {
    ASSERT_TRUE(writer->Push({MakeChunk(1, frame, 1)}, MakeItems(1, 8, 1)).ok());
    world.Pump();
    writer->Poll(world.now());
  }
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_EQ(world.Metric("replay/expired"), 4);
  for (const int count : {1, 2, 4}) {
    EXPECT_NE(log.find(fmt::format("replay: {} items were dropped", count)), std::string::npos)
        << log;
  }
  EXPECT_EQ(log.find("replay: 3 items"), std::string::npos) << log;
}

TEST(ReplayServerTest, AFencedWriterSaysSo) {
  ReplayWorld world(SmallOptions());
  const auto old_writer = MakeReplayWriter(world.Connect(Role::kActor, 0, 1), SmallSpec(), {});
  Push(&world, old_writer.get(), 1, 0, 5);
  const auto new_writer = MakeReplayWriter(world.Connect(Role::kActor, 0, 2), SmallSpec(), {});
  Push(&world, new_writer.get(), 2, 0, 5);
  if (old_writer->CanPush()) {
    static_cast<void>(old_writer->Push({MakeChunk(1, 6, 5)}, MakeItems(1, 6, 4)));
  }
  for (int i = 0; i < 20 && old_writer->error().ok(); ++i) {
    world.Advance(Milliseconds(200));
    old_writer->Poll(world.now());
  }
  EXPECT_EQ(old_writer->error().code(), Code::kAborted);
  EXPECT_FALSE(old_writer->CanPush());
  EXPECT_EQ(world.Metric("replay/items"), 10);
}

TEST(ReplayServerTest, ParkedRequestsOfARestartedLearnerConsumeNoSamples) {
  ReplayWorld world(SmallOptions());
  const auto old_sampler = MakeReplaySampler(world.Connect(Role::kLearner, 0, 1), SmallSpec(),
                                             {.batch_size = 4, .prefetch = 4});
  EXPECT_FALSE(Took(Take(&world, old_sampler.get())));
  const auto new_sampler = MakeReplaySampler(world.Connect(Role::kLearner, 0, 2), SmallSpec(),
                                             {.batch_size = 4, .prefetch = 1});
  EXPECT_FALSE(Took(Take(&world, new_sampler.get())));
  const auto writer = world.Writer();
  Push(&world, writer.get(), 1, 0, 20);
  EXPECT_TRUE(Took(Take(&world, new_sampler.get())));
  EXPECT_EQ(world.Metric("replay/samples"), 4);
}

TEST(ReplayServerTest, OptionsThatCannotWorkAreRefusedInOneLine) {
  const auto message = [](auto change) {
    ReplayServer::Options options = SmallOptions();
    change(&options);
    return MakeReplayServer(options).status().message();
  };
  EXPECT_EQ(message([](auto* o) { o->min_items = 2000; }),
            "replay: min_items 2000 must lie in [1, capacity 1000]");
  EXPECT_NE(message([](auto* o) { o->samples_per_insert = -3; }).find("-3"), std::string::npos);
  EXPECT_NE(message([](auto* o) { o->batch_size_max = 0; }).find("batch_size_max 0"),
            std::string::npos);
}

TEST(ReplayServerTest, PredictsTheBytesThatItReports) {
  ReplayWorld world(SmallOptions());
  EXPECT_EQ(world.Metric("replay/bytes"), double(PredictReplayBytes(SmallOptions())));
}

TEST(ReplayServerTest, StatsAreAnsweredWithTheMetrics) {
  ReplayWorld world(SmallOptions());
  const auto channel = world.Connect(Role::kTool);
  const auto answer = world.Call(channel.get(), {.type = MessageType::kReplayStats});
  ASSERT_TRUE(answer.ok());
  const auto body = DecodeBody<ReplayStatsBody>(answer->body);
  ASSERT_TRUE(body.ok());
  EXPECT_TRUE(body->metrics.contains("replay/samples_per_insert"));
}

}  // namespace
}  // namespace troop
