#include "replay/persistence/space_reclaimer.h"

#include <gtest/gtest.h>

#include "core/base/executor.h"
#include "core/storage/memory_storage.h"
#include "replay/persistence/journal_names.h"
#include "tests/replay/journal_world.h"

namespace troop {
namespace {

// A folder with the files of segments 1 to 4.
struct FilledFolder {
  explicit FilledFolder(bool spill = false) : reclaimer(Options(spill), SegmentRanges()) {
    for (std::uint64_t id = 1; id <= 4; ++id) {
      EXPECT_TRUE(disk.WriteAtomic(Path(id), std::string_view("bytes")).ok());
    }
  }
  static JournalOptions Options(bool spill) {
    JournalOptions options;
    options.spill = spill;
    return options;
  }
  static std::string Path(std::uint64_t id) { return "replay/" + JournalSegmentName(id); }
  bool Remove(const LogProgress& log, const std::vector<std::string>& outdated = {}) {
    if (!reclaimer.StartRemoval(Time{}, log, outdated, &lane)) return false;
    const std::shared_ptr<JournalJob> job = lane.TakeDone();
    reclaimer.Finish(job.get(), &table);
    return true;
  }

  MemoryStorage disk;
  InlineExecutor executor;
  JournalLane lane{&disk, &executor, nullptr};
  ItemTable table{40};
  SpaceReclaimer reclaimer;
};

TEST(SpaceReclaimerTest, RemovesFileOnceItsSuccessorsAreDurable) {
  FilledFolder folder;
  folder.reclaimer.RemoveLater({.segment = 1, .moved = {5, 0}, .left = {6, 0}});
  EXPECT_FALSE(folder.Remove({.durable = {5, 99}}));
  EXPECT_TRUE(folder.disk.Exists(folder.Path(1)));
  EXPECT_TRUE(folder.Remove({.durable = {6, 0}}));
  EXPECT_FALSE(folder.disk.Exists(folder.Path(1)));
  EXPECT_TRUE(folder.disk.Exists("replay/" + std::string(kJournalRemoved)));
  EXPECT_EQ(folder.reclaimer.stats().removed, 1);
}

TEST(SpaceReclaimerTest, FullDiskNeedsOnlyMovedRecordsToBeDurable) {
  FilledFolder folder;
  folder.reclaimer.RemoveLater({.segment = 1, .moved = {5, 0}, .left = {6, 0}});
  EXPECT_FALSE(folder.Remove({.durable = {4, 99}, .disk_full = true}));
  EXPECT_TRUE(folder.Remove({.durable = {5, 0}, .disk_full = true}));
}

TEST(SpaceReclaimerTest, KeepsFileThatRunningCommitMayWrite) {
  FilledFolder folder;
  folder.reclaimer.RemoveLater({.segment = 2});
  EXPECT_FALSE(folder.Remove({.written = {2, 10}, .committing = true}));
  EXPECT_TRUE(folder.Remove({.written = {3, 10}, .committing = true}));
}

TEST(SpaceReclaimerTest, RemovesOutdatedFilesWithoutSegments) {
  FilledFolder folder;
  EXPECT_FALSE(folder.Remove({}));
  EXPECT_TRUE(folder.Remove({}, {folder.Path(3)}));
  EXPECT_FALSE(folder.disk.Exists(folder.Path(3)));
  EXPECT_EQ(folder.reclaimer.stats().removed, 0);
}

TEST(SpaceReclaimerTest, SpillsSealedWrittenSegmentsOnce) {
  FilledFolder folder(true);
  while (folder.table.segments().size() < 4) folder.table.Insert(1);
  for (const auto& segment : folder.table.segments()) {
    EXPECT_TRUE(
        folder.disk
            .WriteAtomic(folder.Path(segment->id()), std::span(segment->data(), segment->used()))
            .ok());
  }
  // Segment 3 is not completely written.
  while (folder.reclaimer.StartSpill(Time{}, {3, 10}, folder.table, &folder.lane)) {
    const std::shared_ptr<JournalJob> job = folder.lane.TakeDone();
    folder.reclaimer.Finish(job.get(), &folder.table);
  }
  EXPECT_EQ(folder.reclaimer.stats().spilled, 2);
  EXPECT_FALSE(folder.table.InMemory(1));
  EXPECT_FALSE(folder.table.InMemory(2));
  EXPECT_TRUE(folder.table.InMemory(3));
}

TEST(SpaceReclaimerTest, FailedJobIsCounted) {
  FilledFolder folder;
  folder.disk.FailFrom(folder.disk.changes(), Unavailable("broken"));
  EXPECT_TRUE(folder.Remove({}, {folder.Path(3)}));
  EXPECT_EQ(folder.reclaimer.stats().failures, 1);
}

}  // namespace
}  // namespace troop
