#include "replay/persistence/segment_writer.h"

#include <gtest/gtest.h>

#include "core/storage/memory_storage.h"
#include "replay/persistence/journal_names.h"
#include "tests/replay/journal_world.h"

namespace troop {
namespace {

JournalOptions SmallCommits() {
  JournalOptions options;
  options.commit_bytes = 300;
  options.job_bytes = 700;
  return options;
}

// A table whose log is written by a SegmentWriter alone.
struct WrittenTable {
  explicit WrittenTable(JournalOptions o = SmallCommits())
      : options(std::move(o)),
        writer(JournalLane(&disk, &executor, nullptr), options, LogPosition{}, 1) {
    writer.Begin(table);
  }
  void NoteFreed() {
    writer.NoteMoves(table);
    for (const std::uint64_t id : table.TakeFreed()) writer.NoteFreed(id);
  }
  // Starts a commit, if one is due, and runs it. True if it did and the commit succeeded.
  bool Commit(bool urgent = false) {
    writer.CommitIfDue(now, table, urgent);
    if (executor.waiting() == 0) return false;
    executor.RunOne(&rng);
    return writer.Finish(now);
  }
  std::size_t FileBytes(std::uint64_t segment) {
    const auto bytes = disk.Read(options.folder + "/" + JournalSegmentName(segment), 1 << 20);
    return bytes.ok() ? bytes->size() : 0;
  }

  const JournalOptions options;
  MemoryStorage disk;
  ManualExecutor executor;
  ItemTable table{40};
  SegmentWriter writer;
  Rng rng{{.purpose = Purpose::kTest}};
  Time now{};
};

TEST(SegmentWriterTest, CommitWaitsForBytesOrTime) {
  WrittenTable world;
  world.table.Insert(1);
  ASSERT_TRUE(world.Commit());  // a new segment is written at once
  world.table.Insert(1);
  EXPECT_FALSE(world.Commit());
  EXPECT_EQ(world.writer.NextTime(world.now, false), world.now + world.options.commit_wait);
  world.now += world.options.commit_wait;
  EXPECT_TRUE(world.Commit());
  EXPECT_EQ(world.writer.durable(), world.table.position());
  EXPECT_TRUE(world.writer.all_written(world.table));
  EXPECT_EQ(world.writer.NextTime(world.now, false), kForever);
  const std::uint64_t written = world.table.appended();
  while (world.table.appended() - written < world.options.commit_bytes) world.table.Insert(1);
  EXPECT_TRUE(world.Commit());
}

TEST(SegmentWriterTest, UrgentCommitWaitsForNothing) {
  WrittenTable world;
  EXPECT_FALSE(world.Commit(true));  // nothing to write
  world.table.Insert(1);
  EXPECT_TRUE(world.Commit(true));
  EXPECT_EQ(world.writer.stats().commits, 1);
}

TEST(SegmentWriterTest, FilesHoldBytesOfSegments) {
  WrittenTable world;
  while (world.table.segments().size() < 3) world.table.Insert(1);
  while (!world.writer.all_written(world.table)) ASSERT_TRUE(world.Commit(true));
  EXPECT_GT(world.writer.stats().commits, 1);  // job_bytes limits a commit
  for (const auto& segment : world.table.segments()) {
    EXPECT_EQ(world.FileBytes(segment->id()), segment->used());
  }
  world.writer.UpdateLag(world.table);
  EXPECT_EQ(world.writer.lag_bytes(), 0u);
}

TEST(SegmentWriterTest, FailedCommitIsReportedAndRetried) {
  WrittenTable world;
  world.table.Insert(1);
  world.disk.FailFrom(world.disk.changes(), ResourceExhausted("full"));
  EXPECT_FALSE(world.Commit(true));
  EXPECT_FALSE(world.writer.error().ok());
  EXPECT_TRUE(world.writer.progress().disk_full);
  EXPECT_EQ(world.writer.durable(), LogPosition{});
  world.writer.UpdateLag(world.table);
  EXPECT_EQ(world.writer.lag_bytes(), world.table.appended());
  world.disk.Repair();
  EXPECT_FALSE(world.Commit(true));  // too early
  world.now += world.options.retry_after;
  EXPECT_TRUE(world.Commit(true));
  EXPECT_TRUE(world.writer.error().ok());
  EXPECT_EQ(world.writer.durable(), world.table.position());
  EXPECT_EQ(world.writer.stats().failures, 1);
}

TEST(SegmentWriterTest, WrittenBytesAfterHoleAreDurableOnlyWithMovedRecords) {
  WrittenTable world;
  while (world.table.segments().size() < 4) world.table.Insert(1);
  ASSERT_TRUE(world.Commit(true));  // 700 bytes: the first segment and a part of the second
  const LogPosition before = world.writer.durable();
  world.table.Compact();  // moves the first segment's items
  world.table.Compact();
  world.table.Compact();  // the third was never written
  world.NoteFreed();
  ASSERT_TRUE(world.Commit(true));
  while (!world.writer.all_written(world.table)) {
    EXPECT_EQ(world.writer.durable(), before);
    ASSERT_TRUE(world.Commit(true));
  }
  EXPECT_EQ(world.writer.durable(), world.table.position());
}

TEST(SegmentWriterTest, OnlyFreedSegmentsThatMayHaveFilesAreToBeRemoved) {
  WrittenTable world;
  world.table.Insert(1);
  ASSERT_TRUE(world.Commit(true));
  EXPECT_TRUE(world.writer.NoteFreed(1));
  EXPECT_FALSE(world.writer.NoteFreed(7));
  world.table.Insert(1);
  ASSERT_TRUE(world.Commit(true));
  const auto note = world.disk.Read("replay/" + std::string(kJournalSkipped), 1 << 10);
  ASSERT_TRUE(note.ok());
  const auto skipped = SegmentRanges::Parse(note->text());
  ASSERT_TRUE(skipped.ok());
  EXPECT_EQ(ToString(skipped->Missing(8)), "1-6, 8");
}

TEST(SegmentWriterTest, DictionaryIsStoredWithoutNewBytes) {
  WrittenTable world;
  world.writer.AddDictionary(5, Buffer::Copy("words"));
  EXPECT_FALSE(world.writer.all_written(world.table));
  EXPECT_TRUE(world.Commit());
  EXPECT_TRUE(world.disk.Exists("replay/" + JournalDictionaryName(5)));
  EXPECT_TRUE(world.writer.all_written(world.table));
}

}  // namespace
}  // namespace troop
