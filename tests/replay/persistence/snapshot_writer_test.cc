#include "replay/persistence/snapshot_writer.h"

#include <gtest/gtest.h>

#include "core/storage/memory_storage.h"
#include "replay/persistence/journal_names.h"
#include "tests/replay/journal_world.h"

namespace troop {
namespace {

JournalOptions SmallBlocks() {
  JournalOptions options;
  options.snapshot_every = Duration(0);
  options.snapshot_block_bytes = 600;
  options.lines_per_poll = 1;
  return options;
}

// A table whose lines are written by a SnapshotWriter alone; its log counts as durable.
struct PicturedTable {
  PicturedTable() { table.Insert(1); }
  // Begins a round and writes it up to its end, or to the first failure.
  void Round(bool last = false) {
    writer.BeginRound(now, table, last);
    for (int i = 0; writer.active() && i < 1000; ++i) Step();
  }
  void Step() {
    if (!writer.needs_log()) writer.ReadLines(&table);
    if (!writer.StartBlock(now, durable, &lane)) return;
    executor.RunOne(&rng);
    const std::shared_ptr<JournalJob> job = lane.TakeDone();
    ASSERT_NE(job, nullptr);
    ok = writer.FinishBlock(job.get());
  }
  std::string Path(std::uint64_t number) { return "replay/" + JournalSnapshotName(number); }
  std::int64_t RoundsIn(std::uint64_t number) {
    const auto bytes = disk.Read(Path(number), 1 << 20);
    std::int64_t rounds = 0;
    return bytes.ok() && ReadSnapshot(bytes->bytes(), &rounds).ok() ? rounds : 0;
  }

  MemoryStorage disk;
  ManualExecutor executor;
  JournalLane lane{&disk, &executor, nullptr};
  ItemTable table{40};
  SnapshotWriter writer{SmallBlocks(), 7, {}};
  LogPosition durable{~std::uint64_t{0}, 0};
  Rng rng{{.purpose = Purpose::kTest}};
  Time now{};
  bool ok = true;
};

TEST(SnapshotWriterTest, FirstRoundHasAllLinesAndLaterOnesThoseThatChanged) {
  PicturedTable world;
  world.Round();
  EXPECT_EQ(world.RoundsIn(7), 1);
  EXPECT_EQ(world.writer.stats().lines, world.table.lines());
  world.Round();  // the line was never taken as dirty
  EXPECT_EQ(world.writer.stats().lines, world.table.lines() + 1);
  EXPECT_EQ(world.RoundsIn(7), 2);
  world.Round();
  EXPECT_EQ(world.writer.stats().rounds, 2);  // nothing has changed
}

TEST(SnapshotWriterTest, LastBlockWaitsForLog) {
  PicturedTable world;
  world.durable = {};
  world.Round();
  EXPECT_TRUE(world.writer.active());
  EXPECT_TRUE(world.writer.needs_log());
  EXPECT_EQ(world.RoundsIn(7), 0);
  world.durable = world.table.position();
  world.Step();
  EXPECT_FALSE(world.writer.active());
  EXPECT_EQ(world.RoundsIn(7), 1);
}

TEST(SnapshotWriterTest, RoundIsDueOnRequestAndPeriodically) {
  JournalOptions options = SmallBlocks();
  options.snapshot_every = Seconds(30);
  SnapshotWriter writer(options, 1, {});
  const Time now = Time{} + Seconds(100);
  writer.Begin(now);
  EXPECT_FALSE(writer.due(now));
  EXPECT_TRUE(writer.due(now + Seconds(30)));
  writer.RequestRound();
  EXPECT_TRUE(writer.due(now));
}

TEST(SnapshotWriterTest, FailedBlockStartsNewFile) {
  PicturedTable world;
  world.Round();
  world.table.Insert(1);
  world.disk.FailFrom(world.disk.changes(), Unavailable("broken"));
  world.Round();
  EXPECT_FALSE(world.ok);
  EXPECT_FALSE(world.writer.error().ok());
  EXPECT_TRUE(world.writer.removable().empty());  // the older file has the only complete round
  world.disk.Repair();
  EXPECT_TRUE(world.writer.due(world.now));
  world.Round();
  EXPECT_TRUE(world.writer.error().ok());
  EXPECT_EQ(world.RoundsIn(8), 1);
  ASSERT_EQ(world.writer.removable().size(), 1u);
  EXPECT_EQ(world.writer.removable()[0], world.Path(7));
}

TEST(SnapshotWriterTest, FinishesWhenLastRoundIsCompleteAndOlderFilesAreGone) {
  PicturedTable world;
  world.writer = SnapshotWriter(SmallBlocks(), 7, {"replay/old"});
  world.Round(true);
  EXPECT_TRUE(world.writer.last_round_done());
  EXPECT_FALSE(world.writer.finished());
  EXPECT_EQ(world.writer.removable().size(), 1u);
  world.writer.ForgetRemovable();
  EXPECT_TRUE(world.writer.finished());
}

TEST(SnapshotWriterTest, FailedLastRoundIsNotRepeated) {
  PicturedTable world;
  world.disk.FailFrom(world.disk.changes(), Unavailable("broken"));
  world.Round(true);
  EXPECT_FALSE(world.writer.last_round_done());
  EXPECT_TRUE(world.writer.finished());
}

}  // namespace
}  // namespace troop
