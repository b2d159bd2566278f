#include <gtest/gtest.h>

#include <limits>

#include "tests/replay/replay_world.h"

namespace troop {
namespace {

TEST(ReplayEndsTest, DrainedSamplerTakesAllowedBatchesThenEnds) {
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

TEST(ReplayEndsTest, DrainEndsParkedRequests) {
  ReplayWorld world(SmallOptions());
  const auto sampler = world.Sampler({.batch_size = 4, .prefetch = 3});
  EXPECT_FALSE(Took(Take(&world, sampler.get())));
  EXPECT_EQ(world.Metric("replay/waiting_samples"), 3);
  sampler->Drain();
  EXPECT_EQ(Take(&world, sampler.get()).status().code(), Code::kOutOfRange);
  EXPECT_EQ(world.Metric("replay/waiting_samples"), 0);
}

TEST(ReplayEndsTest, DrainAcceptsLastInsertsWithoutWaiting) {
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

TEST(ReplayEndsTest, ResendsUnacknowledgedInsertsToRestartedServer) {
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

// A server that evicted a client: the client's calls in flight may have been handled or not. It
// handles the first calls without an answer, and loses the following ones, until the first one is
// sent again.
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

TEST(ReplayEndsTest, InsertsEachPushOnceAfterServerLoss) {
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

TEST(ReplayEndsTest, SamplerSurvivesServerRestart) {
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

TEST(ReplayEndsTest, DropsUpdateForPreviousServer) {
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
TEST(ReplayEndsTest, GenerationsOfIncarnationsAreFarApart) {
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

// Regression: dropped experience was counted, but not logged.
TEST(ReplayEndsTest, LogsExpiredItems) {
  ReplayServer::Options options = SmallOptions();
  options.tables[0].table.capacity_items = 100;
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
    EXPECT_NE(log.find(fmt::format("replay: dropped {} items", count)), std::string::npos) << log;
  }
  EXPECT_EQ(log.find("replay: dropped 3 items"), std::string::npos) << log;
}

TEST(ReplayEndsTest, FencedWriterReportsError) {
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

TEST(ReplayEndsTest, ParkedRequestsOfRestartedLearnerConsumeNoSamples) {
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
  EXPECT_EQ(world.Samples(), 4);
}

TEST(ReplayEndsTest, ReleasesReservationsOfRestartedLearner) {
  ReplayWorld world(Limited());
  const auto writer = world.Writer();
  ASSERT_NO_FATAL_FAILURE(Push(&world, writer.get(), 1, 0, 10));
  const auto ask = [&world](ReplaySampler* sampler) {
    for (int i = 0; i < 3; ++i) {
      sampler->Poll(world.now());
      world.Pump();
    }
  };
  const auto old_sampler = world.Sampler({.batch_size = 6, .prefetch = 8}, 0, 1);
  ask(old_sampler.get());
  EXPECT_GE(world.Metric("replay/samples_in_flight"), 6);
  const auto new_sampler = world.Sampler({.batch_size = 1, .prefetch = 1}, 0, 2);
  ask(new_sampler.get());
  EXPECT_EQ(world.Metric("replay/samples_in_flight"), 1);
  EXPECT_EQ(world.Metric("replay/samples"), 0);
}

// Regression: each run of a tool has a new index, and the reservations of an exited one were never
// released.
TEST(ReplayEndsTest, ReleasesReservationsOfDisconnectedSampler) {
  ReplayWorld world(Limited());
  const auto writer = world.Writer();
  ASSERT_NO_FATAL_FAILURE(Push(&world, writer.get(), 1, 0, 10));
  auto sampler = world.Sampler({.batch_size = 6, .prefetch = 8}, 4711);
  for (int i = 0; i < 3; ++i) {
    sampler->Poll(world.now());
    world.Pump();
  }
  EXPECT_GT(world.Metric("replay/samples_in_flight"), 0);
  EXPECT_GT(world.Metric("replay/waiting_samples"), 0);
  for (int i = 0; i < 90; ++i) {  // it waits, and is there
    world.Advance(Seconds(1));
    sampler->Poll(world.now());
  }
  EXPECT_GT(world.Metric("replay/samples_in_flight"), 0);
  EXPECT_GT(world.Metric("replay/waiting_samples"), 0);
  sampler.reset();
  for (int i = 0; i < 90; ++i) world.Advance(Seconds(1));
  EXPECT_EQ(world.Metric("replay/samples_in_flight"), 0);
  EXPECT_EQ(world.Metric("replay/waiting_samples"), 0);
  EXPECT_EQ(world.Metric("replay/samples"), 0);
}

}  // namespace
}  // namespace troop
