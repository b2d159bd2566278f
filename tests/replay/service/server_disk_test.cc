#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "core/base/executor.h"
#include "core/storage/memory_storage.h"
#include "core/storage/storage.h"
#include "net/wire/codec.h"
#include "replay/service/messages.h"
#include "tests/replay/replay_world.h"

namespace troop {
namespace {

class Lazy final : public Executor {  // runs jobs on request
 public:
  Result<Job> Submit(std::string_view, std::function<void()> work) override {
    waiting.push_back(std::move(work));
    return Job(submitted++);
  }
  bool TakeDone(Job job) override { return job < done; }
  void Run() {
    for (const auto& work : waiting) work();
    waiting.clear();
    done = submitted;
  }
  std::vector<std::function<void()>> waiting;
  Job submitted = 1, done = 1;
};

class ReplayDiskTest : public testing::Test {
 protected:
  ReplayServer::Options Kept(double samples_per_insert = 0) {
    ReplayServer::Options options = SmallOptions();
    options.tables[0].samples_per_insert = samples_per_insert;
    options.executor = &executor_;
    options.storage = storage_.get();
    options.ack_on_disk = true;
    return options;
  }
  // An orderly end, then a new process.
  static void Restart(ReplayWorld* world) {
    world->server().Drain();
    for (int i = 0; i < 1000 && !world->server().drained(); ++i) world->Advance(Milliseconds(1));
    ASSERT_TRUE(world->server().drained());
    ++world->options().incarnation;
    world->RestartServer();
  }
  static void PushAll(ReplayWorld* world, ReplayWriter* writer, StreamId stream,
                      std::uint64_t first, std::uint32_t items) {
    ASSERT_NO_FATAL_FAILURE(Push(world, writer, stream, first, items));
    for (int i = 0; i < 100 && writer->unacked_pushes() > 0; ++i) {
      world->Advance(Milliseconds(10));
      writer->Poll(world->now());
    }
    ASSERT_EQ(writer->unacked_pushes(), 0);
  }

  std::unique_ptr<Storage> storage_ = MakeMemoryStorage();
  InlineExecutor executor_;
};

TEST_F(ReplayDiskTest, KeepsAcknowledgedItemsAfterCrash) {
  ReplayWorld world(Kept());
  const auto writer = world.Writer();
  ASSERT_NO_FATAL_FAILURE(PushAll(&world, writer.get(), 1, 0, 20));
  ASSERT_NO_FATAL_FAILURE(PushAll(&world, writer.get(), 2, 0, 15));
  world.RestartServer();  // it had no time for anything
  EXPECT_EQ(world.Metric("replay/items"), 35);
  const auto sampler = world.Sampler({.batch_size = 64, .prefetch = 1});
  const auto batch = Take(&world, sampler.get());
  ASSERT_TRUE(Took(batch)) << batch.status().ToString();
  for (std::size_t i = 0; i < 64; ++i) {
    const auto observation = (*batch)->observation.as<float>().subspan(2 * i, 2);
    EXPECT_EQ(observation[1], float((*batch)->policy_version[i]));
    EXPECT_NEAR((*batch)->probability[i], 1.0 / 35, 1e-6);
  }
}

TEST_F(ReplayDiskTest, AcknowledgesInsertOnlyOnceOnDisk) {
  Lazy lazy;
  ReplayServer::Options options = Kept();
  options.executor = &lazy;
  ReplayWorld world(options);
  const auto writer = world.Writer();
  ASSERT_NO_FATAL_FAILURE(Push(&world, writer.get(), 1, 0, 20));
  world.Advance(Milliseconds(100));
  writer->Poll(world.now());
  EXPECT_EQ(writer->acked_items(), 0u);
  EXPECT_EQ(world.Metric("replay/items"), 20);
  EXPECT_EQ(world.Metric("replay/unacked_inserts"), 1);
  for (int i = 0; i < 10; ++i) {
    lazy.Run();
    world.Advance(Milliseconds(10));
  }
  writer->Poll(world.now());
  EXPECT_EQ(writer->acked_items(), 20u);
  for (int i = 0; i < 10; ++i) lazy.Run();
}

TEST_F(ReplayDiskTest, AcknowledgesRepeatOnlyOnceOriginalIsOnDisk) {
  Lazy lazy;
  ReplayServer::Options options = Kept();
  options.executor = &lazy;
  ReplayWorld world(options);
  const auto first = world.Writer(), again = world.Writer();
  ASSERT_NO_FATAL_FAILURE(Push(&world, first.get(), 1, 0, 20));
  ASSERT_NO_FATAL_FAILURE(Push(&world, again.get(), 1, 0, 20));
  world.Advance(Milliseconds(100));
  again->Poll(world.now());
  EXPECT_EQ(world.Metric("replay/duplicate_items"), 20);
  EXPECT_EQ(again->acked_items(), 0u);
  for (int i = 0; i < 10; ++i) {
    lazy.Run();
    world.Advance(Milliseconds(10));
  }
  again->Poll(world.now());
  EXPECT_EQ(again->acked_items(), 20u);
  for (int i = 0; i < 10; ++i) lazy.Run();
}

TEST_F(ReplayDiskTest, CleanRestartKeepsPrioritiesAndLimiterCounts) {
  ReplayWorld world(Kept(2));
  const auto writer = world.Writer();
  ASSERT_NO_FATAL_FAILURE(PushAll(&world, writer.get(), 1, 0, 25));
  {
    const auto sampler = world.Sampler({.batch_size = 8, .prefetch = 1});
    const auto batch = Take(&world, sampler.get());
    ASSERT_TRUE(Took(batch));
    sampler->UpdatePriorities((*batch)->key, std::vector<float>(8, 50.0f));
    sampler->Poll(world.now());
    world.Pump();
  }
  const double inserts = world.Metric("replay/inserts"), samples = world.Metric("replay/samples");
  EXPECT_EQ(inserts, 25);
  EXPECT_GT(samples, 0);
  ASSERT_NO_FATAL_FAILURE(Restart(&world));
  EXPECT_EQ(world.Metric("replay/items"), 25);
  EXPECT_EQ(world.Metric("replay/limiter_inserts"), inserts);
  EXPECT_EQ(world.Metric("replay/limiter_samples"), samples);
  // The previous server has reported these: a sum over both servers must not count them twice.
  EXPECT_EQ(world.Metric("replay/inserts"), 0);
  EXPECT_EQ(world.Metric("replay/samples"), 0);
  EXPECT_EQ(world.Metric("replay/evicted"), 0);
  const auto sampler = world.Sampler({.batch_size = 8, .prefetch = 1}, 1);
  const auto batch = Take(&world, sampler.get());
  ASSERT_TRUE(Took(batch)) << batch.status().ToString();
  EXPECT_GT(std::ranges::max((*batch)->probability), 1.5 / 25);  // those of priority 50
}

TEST_F(ReplayDiskTest, WriterContinuesStreamAfterRestart) {
  ReplayWorld world(Kept());
  const auto writer = world.Writer();
  ASSERT_TRUE(writer->Push({MakeChunk(1, 0, 20)}, MakeItems(1, 0, 17, 1, 3)).ok());
  for (int i = 0; i < 20 && writer->unacked_pushes() > 0; ++i) {
    world.Advance(Milliseconds(10));
    writer->Poll(world.now());
  }
  world.RestartServer();
  // The items look back at frames of the push before.
  ASSERT_TRUE(writer->Push({MakeChunk(1, 20, 10)}, MakeItems(1, 17, 10, 1, 3)).ok());
  for (int i = 0; i < 50 && writer->unacked_pushes() > 0; ++i) {
    world.Advance(Milliseconds(200));
    writer->Poll(world.now());
  }
  EXPECT_TRUE(writer->error().ok()) << writer->error().ToString();
  EXPECT_EQ(world.Metric("replay/items"), 27);
  EXPECT_EQ(world.Metric("replay/expired"), 0);
}

TEST_F(ReplayDiskTest, RepliesToCheckpointOnceComplete) {
  ReplayWorld world(Kept());
  const auto writer = world.Writer();
  ASSERT_NO_FATAL_FAILURE(PushAll(&world, writer.get(), 1, 0, 20));
  const auto channel = world.Connect(Role::kTool);
  Message request{.type = MessageType::kReplayCheckpoint, .body = EncodeBody(TableBody{0})};
  const auto ticket = channel->Send(request, kForever);
  ASSERT_TRUE(ticket.ok());
  std::optional<Result<Message>> answer;
  for (int i = 0; i < 200 && !answer; ++i) {
    world.Advance(Milliseconds(10));
    answer = channel->Poll(*ticket);
  }
  ASSERT_TRUE(answer.has_value());
  EXPECT_TRUE(answer->ok()) << answer->status().ToString();
  EXPECT_GE(world.Metric("replay/snapshots"), 1);
}

// Regression: a failed checkpoint was never answered.
TEST_F(ReplayDiskTest, RepliesToFailedCheckpointWithReason) {
  MemoryStorage disk;
  ReplayServer::Options options = Kept();
  options.storage = &disk;
  ReplayWorld world(options);
  const auto writer = world.Writer();
  ASSERT_NO_FATAL_FAILURE(PushAll(&world, writer.get(), 1, 0, 20));
  const auto channel = world.Connect(Role::kTool);
  for (const bool full : {true, false}) {
    Message request{.type = MessageType::kReplayCheckpoint, .body = EncodeBody(TableBody{0})};
    disk.Repair();
    if (full) disk.FailFrom(disk.changes(), ResourceExhausted("no space left"));
    const auto ticket = channel->Send(request, kForever);
    ASSERT_TRUE(ticket.ok());
    std::optional<Result<Message>> answer;
    for (int i = 0; i < 500 && !answer; ++i) {
      world.Advance(Milliseconds(10));
      answer = channel->Poll(*ticket);
    }
    ASSERT_TRUE(answer.has_value());
    EXPECT_EQ(answer->status().code(), full ? Code::kResourceExhausted : Code::kOk)
        << answer->status().ToString();
  }
}

// The log in memory turned over before it was written.
TEST_F(ReplayDiskTest, InsertsWaitWhileDiskLags) {
  Lazy lazy;
  ReplayServer::Options options = Kept();
  options.executor = &lazy;
  options.ack_on_disk = false;
  options.journal.lag_bytes = 4000;
  ReplayWorld world(options);
  const auto writer = world.Writer(0, 32);
  int pushes = 0;
  for (; pushes < 30 && writer->CanPush(); ++pushes) {
    ASSERT_NO_FATAL_FAILURE(Push(&world, writer.get(), 1, std::uint64_t(pushes) * 11, 10));
    world.Advance(Milliseconds(1));
    writer->Poll(world.now());
  }
  const double waiting = world.Metric("replay/waiting_inserts");
  EXPECT_GT(waiting, 5);
  EXPECT_GT(world.Metric("replay/unwritten_bytes"), 4000);
  EXPECT_LT(world.Metric("replay/unwritten_bytes"), 6000);
  EXPECT_EQ(world.Metric("replay/items"), 10 * (pushes - waiting));
  EXPECT_NE(world.server().Blocked().find("accepts no inserts: 0 MiB wait for the disk"),
            std::string::npos);
  for (int i = 0; i < 50 && writer->unacked_pushes() > 0; ++i) {
    lazy.Run();
    world.Advance(Milliseconds(10));
    writer->Poll(world.now());
  }
  EXPECT_EQ(writer->unacked_pushes(), 0);
  EXPECT_EQ(world.Metric("replay/items"), 10 * pushes);
  EXPECT_TRUE(writer->error().ok());
  for (int i = 0; i < 10; ++i) {
    lazy.Run();
    world.Advance(Milliseconds(10));
  }
  EXPECT_EQ(world.server().Blocked(), "");
  for (int i = 0; i < 10; ++i) lazy.Run();
}

TEST_F(ReplayDiskTest, ReportsAcknowledgementsBlockedByFullDisk) {
  MemoryStorage disk;
  ReplayServer::Options options = Kept();
  options.storage = &disk;
  ReplayWorld world(options);
  const auto writer = world.Writer();
  disk.FailFrom(disk.changes(), ResourceExhausted("no space left"));
  ASSERT_NO_FATAL_FAILURE(Push(&world, writer.get(), 1, 0, 20));
  for (int i = 0; i < 20; ++i) world.Advance(Milliseconds(10));
  const std::string why = world.server().Blocked();
  EXPECT_NE(why.find("1 inserts wait for the disk (replay.durability = \"disk\")"), why.npos)
      << why;
  EXPECT_NE(why.find("no space left"), why.npos) << why;
  disk.Repair();
  for (int i = 0; i < 500 && !world.server().Blocked().empty(); ++i) {
    world.Advance(Milliseconds(10));
  }
  EXPECT_EQ(world.server().Blocked(), "");
}

// It read 32 lines per call of its host: an end took as long as 2000 calls.
TEST_F(ReplayDiskTest, IdleServerWritesSnapshotInFewCalls) {
  ReplayServer::Options options = Kept();
  options.tables[0].table.capacity_items = 100000;  // 6250 lines
  ReplayWorld world(options);
  const auto writer = world.Writer();
  ASSERT_NO_FATAL_FAILURE(PushAll(&world, writer.get(), 1, 0, 20));
  world.server().Drain();
  int calls = 0;
  for (; calls < 1000 && !world.server().drained(); ++calls) world.Advance(Milliseconds(10));
  EXPECT_LT(calls, 20);
}

TEST_F(ReplayDiskTest, RejectsCheckpointOfInMemoryTable) {
  ReplayWorld world(SmallOptions());
  const auto channel = world.Connect(Role::kTool);
  const auto answer = world.Call(
      channel.get(), {.type = MessageType::kReplayCheckpoint, .body = EncodeBody(TableBody{0})});
  EXPECT_EQ(answer.status().code(), Code::kFailedPrecondition);
}

// The counts were those of the last snapshot: items of the log after it were no inserts.
TEST_F(ReplayDiskTest, LimiterCountsItemsRestoredFromLogAfterCrash) {
  ReplayWorld world(Kept(2));
  const auto writer = world.Writer();
  ASSERT_NO_FATAL_FAILURE(PushAll(&world, writer.get(), 1, 0, 10));
  for (int i = 0; i < 100; ++i) world.Advance(Seconds(1));  // snapshots
  const double snapshots = world.Metric("replay/snapshots");
  EXPECT_GT(snapshots, 0);
  ASSERT_NO_FATAL_FAILURE(Push(&world, writer.get(), 1, 11, 1));
  EXPECT_EQ(world.Metric("replay/inserts"), 11);
  world.RestartServer();
  EXPECT_EQ(world.Metric("replay/items"), 11);
  EXPECT_EQ(world.Metric("replay/limiter_inserts"), 11);
}

}  // namespace
}  // namespace troop
