#include "fleet/run/serial_restore_point.h"

#include <gtest/gtest.h>

#include "core/storage/memory_storage.h"
#include "learners/checkpoint.h"
#include "nn/models/model.h"

namespace troop {
namespace {

// A run's folder as the end of a leg leaves it.
class RestorePointTest : public testing::Test {
 protected:
  RestorePointTest() { LiveThroughLeg(100, "one"); }

  // Writes the files of a leg that ends after `updates` updates.
  void LiveThroughLeg(std::uint64_t updates, const std::string& text) {
    Write("replay-0/table", "table " + text);
    Write("replay-0/segments/" + text + ".log", "records " + text);
    Write("replay-1/table", "other table " + text);
    Write("replay-1/lock", "process 1");
    Write("incarnation", text);
    const EnvSpec env{.observation = {DType::kF32, {4}}, .action = {.count = 2}};
    const auto module = MakeNetwork(ModelSetup{}, env);
    ASSERT_TRUE(module.ok()) << module.status().ToString();
    CheckpointState state{.updates = updates, .steps = std::int64_t(updates) * 2};
    state.state.tensors["value"] = Tensor(DType::kF32, {ParameterCount(**module)});
    const auto path = WriteCheckpoint(&disk_, **module, state, 1);
    ASSERT_TRUE(path.ok()) << path.status().ToString();
    end_ = {.leg = std::int64_t(updates) / 100,
            .checkpoint = *path,
            .steps = state.steps,
            .updates = updates};
  }
  void Write(const std::string& path, const std::string& text) {
    const Status status = disk_.WriteAtomic(path, text);
    ASSERT_TRUE(status.ok()) << status.ToString();
  }
  std::string Read(const std::string& path) {
    const auto bytes = disk_.Read(path, 1 << 20);
    return bytes.ok() ? std::string(bytes->text()) : "missing";
  }
  void ExpectAsAfter(const RestorePoint& point, const std::string& text) {
    EXPECT_EQ(Read("incarnation"), text);
    EXPECT_EQ(Read("replay-0/table"), "table " + text);
    EXPECT_EQ(Read("replay-0/segments/" + text + ".log"), "records " + text);
    EXPECT_EQ(Read("replay-1/table"), "other table " + text);
    const auto checkpoint = ReadCheckpoint(&disk_, point.checkpoint);
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().ToString();
    EXPECT_EQ(checkpoint->updates, point.updates);
  }

  MemoryStorage disk_;
  RestorePoint end_;  // of the last leg
};

TEST_F(RestorePointTest, RestoresFolderContents) {
  ASSERT_TRUE(WriteRestorePoint(&disk_, end_).ok());
  const RestorePoint first = end_;
  LiveThroughLeg(200, "two");  // removes the first checkpoint: it keeps one
  EXPECT_FALSE(disk_.Exists(first.checkpoint));
  Write("replay-2/table", "of a shard that there was not");
  const auto point = NewestRestorePoint(&disk_);
  ASSERT_TRUE(point.ok()) << point.status().ToString();
  EXPECT_EQ(point->leg, 1);
  EXPECT_EQ(point->steps, 200);
  EXPECT_EQ(point->updates, 100u);
  EXPECT_EQ(point->checkpoint, first.checkpoint);
  ASSERT_TRUE(GoBackTo(&disk_, *point).ok());
  ExpectAsAfter(*point, "one");
  EXPECT_FALSE(disk_.Exists("replay-0/segments/two.log"));
  EXPECT_FALSE(disk_.Exists("replay-2/table"));
  EXPECT_FALSE(disk_.Exists("replay-1/lock"));
}

TEST_F(RestorePointTest, RestoresEmptyInitialState) {
  MemoryStorage empty;
  ASSERT_TRUE(WriteRestorePoint(&empty, {}).ok());
  ASSERT_TRUE(empty.WriteAtomic("incarnation", "7").ok());
  ASSERT_TRUE(empty.WriteAtomic("replay-0/table", "later").ok());
  const auto point = NewestRestorePoint(&empty);
  ASSERT_TRUE(point.ok()) << point.status().ToString();
  EXPECT_EQ(point->checkpoint, "");
  ASSERT_TRUE(GoBackTo(&empty, *point).ok());
  EXPECT_FALSE(empty.Exists("incarnation"));
  EXPECT_FALSE(empty.Exists("replay-0/table"));
}

TEST_F(RestorePointTest, KeepsOnlyNewestPoint) {
  ASSERT_TRUE(WriteRestorePoint(&disk_, end_).ok());
  LiveThroughLeg(200, "two");
  ASSERT_TRUE(WriteRestorePoint(&disk_, end_).ok());
  EXPECT_EQ(disk_.List("restore")->size(), 1u);
  EXPECT_EQ(NewestRestorePoint(&disk_)->leg, 2);
  ASSERT_TRUE(RemoveRestorePoints(&disk_).ok());
  EXPECT_EQ(NewestRestorePoint(&disk_).status().code(), Code::kNotFound);
}

// Wherever the disk gives up while a point is written, the one before or the new one is whole; and
// a way back that was cut short is gone again.
TEST_F(RestorePointTest, WritesAndRestoresAtomically) {
  ASSERT_TRUE(WriteRestorePoint(&disk_, end_).ok());
  LiveThroughLeg(200, "two");
  bool whole = false;
  int old_points = 0;
  for (std::int64_t after = 0; !whole; ++after) {
    ASSERT_LT(after, 100);
    disk_.FailFrom(disk_.changes() + after, ResourceExhausted("the disk is full"));
    const Status written = WriteRestorePoint(&disk_, end_);
    disk_.Repair();
    whole = written.ok();
    const auto point = NewestRestorePoint(&disk_);
    ASSERT_TRUE(point.ok()) << "change " << after << ": " << point.status().ToString();
    old_points += point->leg == 1;
    EXPECT_TRUE(!whole || point->leg == 2) << "change " << after;
  }
  EXPECT_GT(old_points, 5);
  LiveThroughLeg(300, "three");
  bool back = false;
  for (std::int64_t after = 0; !back; ++after) {
    ASSERT_LT(after, 100);
    disk_.FailFrom(disk_.changes() + after, ResourceExhausted("the disk is full"));
    const auto point = NewestRestorePoint(&disk_);
    ASSERT_TRUE(point.ok()) << "change " << after << ": " << point.status().ToString();
    back = GoBackTo(&disk_, *point).ok();
    disk_.Repair();
  }
  ExpectAsAfter(*NewestRestorePoint(&disk_), "two");
}

TEST_F(RestorePointTest, NamesDamage) {
  ASSERT_TRUE(WriteRestorePoint(&disk_, end_).ok());
  const std::string file = "restore/0000000001/point.json";
  const std::string good = Read(file);
  for (const std::string& bad :
       {std::string("{"), std::string("{}"), std::string(R"({"leg":2,"steps":1,"updates":1})"),
        std::string(R"({"checkpoint":"x","leg":1,"steps":-1,"updates":1})")}) {
    Write(file, bad);
    const auto point = NewestRestorePoint(&disk_);
    EXPECT_EQ(point.status().code(), Code::kDataLoss) << bad;
    EXPECT_NE(point.status().message().find(file), std::string::npos) << point.status().message();
  }
  ASSERT_TRUE(disk_.Remove(file).ok());
  EXPECT_EQ(NewestRestorePoint(&disk_).status().code(), Code::kDataLoss);
  Write(file, good);
  Write("restore/0000000001/checkpoint/state.json", "{}");
  EXPECT_EQ(NewestRestorePoint(&disk_).status().code(), Code::kDataLoss);
}

// A replay would be restored from less as after a crash, and the run take another course: with the
// word "exactly".
TEST_F(RestorePointTest, DetectsAnyChangedTruncatedOrMissingFile) {
  ASSERT_TRUE(WriteRestorePoint(&disk_, end_).ok());
  const std::string folder = "restore/0000000001/";
  const auto point = NewestRestorePoint(&disk_);
  ASSERT_TRUE(point.ok()) << point.status().ToString();
  std::vector<std::string> files{"point.json"};
  for (const auto& [name, file] : point->files) files.push_back(name);
  EXPECT_GT(files.size(), 7u);
  for (const std::string& name : files) {
    const std::string path = folder + name;
    const auto expect_noticed = [&](const std::string& what) {
      const auto damaged = NewestRestorePoint(&disk_);
      EXPECT_EQ(damaged.status().code(), Code::kDataLoss) << name << what;
      EXPECT_NE(damaged.status().message().find(path), std::string::npos)
          << damaged.status().message();
    };
    const std::string good = Read(path);
    const std::size_t stride = good.size() / 64 + 1;
    for (std::size_t at = 0; at < good.size(); at += stride) {
      std::string bad = good;
      bad[at] = char(bad[at] ^ 1 << at % 8);
      Write(path, bad);
      expect_noticed(" with a flipped bit");
    }
    Write(path, good.substr(0, good.size() / 2));
    expect_noticed(" cut");
    Write(path, good + "x");
    expect_noticed(" grown");
    ASSERT_TRUE(disk_.Remove(path).ok());
    expect_noticed(" removed");
    Write(path, good);
  }
  EXPECT_TRUE(NewestRestorePoint(&disk_).ok());
}

TEST_F(RestorePointTest, IgnoresUnlistedFiles) {
  ASSERT_TRUE(WriteRestorePoint(&disk_, end_).ok());
  Write("restore/0000000001/replay-0/segments/other.log", "of no role");
  Write("restore/0000000001/replay-7/table", "of no role");
  const auto point = NewestRestorePoint(&disk_);
  ASSERT_TRUE(point.ok()) << point.status().ToString();
  ASSERT_TRUE(GoBackTo(&disk_, *point).ok());
  ExpectAsAfter(*point, "one");
  EXPECT_FALSE(disk_.Exists("replay-0/segments/other.log"));
  EXPECT_FALSE(disk_.Exists("replay-7"));
}

}  // namespace
}  // namespace troop
