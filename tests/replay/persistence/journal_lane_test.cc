#include "replay/persistence/journal_lane.h"

#include <gtest/gtest.h>

#include <memory>

#include "core/storage/memory_storage.h"
#include "tests/replay/journal_world.h"

namespace troop {
namespace {

std::shared_ptr<JournalJob> JobThatWrites(const std::string& path) {
  auto job = std::make_shared<JournalJob>();
  job->writes.emplace_back(path, Buffer::Copy("content"));
  return job;
}

TEST(JournalLaneTest, ReturnsEachJobOnceAfterItHasRun) {
  MemoryStorage disk;
  ManualExecutor executor;
  Rng rng({.purpose = Purpose::kTest});
  JournalLane lane(&disk, &executor, nullptr);
  EXPECT_TRUE(lane.idle());
  EXPECT_EQ(lane.TakeDone(), nullptr);
  ASSERT_TRUE(lane.Start("test", JobThatWrites("a"), Time{}));
  EXPECT_FALSE(lane.idle());
  EXPECT_EQ(lane.TakeDone(), nullptr);
  EXPECT_EQ(lane.running().writes.size(), 1u);
  executor.RunOne(&rng);
  const std::shared_ptr<JournalJob> job = lane.TakeDone();
  ASSERT_NE(job, nullptr);
  EXPECT_TRUE(job->status.ok());
  EXPECT_TRUE(disk.Exists("a"));
  EXPECT_TRUE(lane.idle());
  EXPECT_EQ(lane.TakeDone(), nullptr);
}

TEST(JournalLaneTest, FullExecutorDelaysNextJob) {
  MemoryStorage disk;
  ManualExecutor executor;
  JournalLane lane(&disk, &executor, nullptr);
  executor.refuse = true;
  const Time now = Time{} + Seconds(1);
  EXPECT_FALSE(lane.Start("test", JobThatWrites("a"), now));
  EXPECT_TRUE(lane.idle());
  EXPECT_GT(lane.retry_at(), now);
}

TEST(JournalLaneTest, RunningJobKeepsFolderLocked) {
  MemoryStorage disk;
  ManualExecutor executor;
  Rng rng({.purpose = Purpose::kTest});
  {
    std::shared_ptr<StorageLock> lock = std::move(*disk.Lock("lock", "first"));
    JournalLane lane(&disk, &executor, std::move(lock));
    ASSERT_TRUE(lane.Start("test", JobThatWrites("a"), Time{}));
  }
  EXPECT_FALSE(disk.Lock("lock", "second").ok());
  executor.RunOne(&rng);
  EXPECT_TRUE(disk.Lock("lock", "second").ok());
}

}  // namespace
}  // namespace troop
