#include "paramserver/service/shard_saver.h"

#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <utility>

#include "core/storage/memory_storage.h"
#include "tests/paramserver/shard_testing.h"

namespace troop {
namespace {

// Runs a job on request.
class StepExecutor final : public Executor {
 public:
  Result<Job> Submit(std::string_view, std::function<void()> work) override {
    work_ = std::move(work);
    return ++submitted_;
  }
  bool TakeDone(Job) override { return std::exchange(done_, false); }
  void Run() {
    std::exchange(work_, nullptr)();
    done_ = true;
  }
  Job submitted() const { return submitted_; }

 private:
  std::function<void()> work_;
  bool done_ = false;
  Job submitted_ = 0;
};

class ShardSaverTest : public testing::Test {
 protected:
  static std::unique_ptr<ShardServer> ServerOf(std::span<const float> value) {
    return std::make_unique<ShardServer>(Make(OptionsOf({.mode = SyncMode::kAsync}), value),
                                         ShardServer::Options{});
  }
  void Save(bool final = false) {
    saver_.Save(server_.get(), {.snapshots = &snapshots_, .since = 4, .final = final});
  }

  StepExecutor executor_;
  MemoryStorage storage_;
  ShardSnapshots snapshots_{&storage_, 0};
  ShardSaver saver_{{.executor = &executor_, .shard = 0, .every_s = 10}};
  std::unique_ptr<ShardServer> server_ = ServerOf(FirstValue());
};

TEST_F(ShardSaverTest, IsDueAtTheEndOfEachInterval) {
  const Time start{Seconds(5)};
  EXPECT_FALSE(saver_.IsDue(start));
  EXPECT_EQ(saver_.next_save(), start + Seconds(10));
  EXPECT_TRUE(saver_.IsDue(start + Seconds(10)));
  saver_.BeginInterval(start + Seconds(10));
  EXPECT_FALSE(saver_.IsDue(start + Seconds(19)));
  ShardSaver never({.executor = &executor_, .every_s = 0});
  EXPECT_FALSE(never.IsDue(start));
  EXPECT_EQ(never.next_save(), kForever);
}

TEST_F(ShardSaverTest, SavesEachVersionOnce) {
  Save();
  EXPECT_TRUE(saver_.running());
  Save();  // one job at a time
  EXPECT_TRUE(saver_.Collect().ok());
  EXPECT_EQ(saver_.saves(), 0);
  executor_.Run();
  EXPECT_TRUE(saver_.Collect().ok());
  EXPECT_EQ(saver_.saves(), 1);
  EXPECT_EQ(snapshots_.Read(snapshots_.List()->front())->text(), server_->Snapshot().text());
  Save(true);
  EXPECT_TRUE(saver_.final_started());
  EXPECT_FALSE(saver_.running());
  EXPECT_EQ(executor_.submitted(), 1u);
}

// A save that ended after its server counted as one of the next server, whose state has the same
// version; that state was then not saved.
TEST_F(ShardSaverTest, SaveOfEarlierServerDoesNotCount) {
  Save();
  server_ = ServerOf(Floats(kParameters, 0.5F));
  saver_.BeginServer();
  executor_.Run();
  EXPECT_TRUE(saver_.Collect().ok());
  Save();
  ASSERT_TRUE(saver_.running());
  executor_.Run();
  EXPECT_TRUE(saver_.Collect().ok());
  EXPECT_EQ(snapshots_.Read(snapshots_.List()->front())->text(), server_->Snapshot().text());
}

TEST_F(ShardSaverTest, NonFiniteWeightsAreNotSaved) {
  auto shard = MakeWhole(OptionsOf({.mode = SyncMode::kAsync, .learners = 1}));
  ShardPush push = PushOf({.learner = 0, .incarnation = 1, .sequence = 1}, 1,
                          Floats(kParameters, std::numeric_limits<float>::max()));
  push.learning_rate = 10;  // each weight overflows
  Push(shard.get(), std::move(push));
  Drain(shard.get());
  server_ = std::make_unique<ShardServer>(std::move(shard), ShardServer::Options{});
  Save(true);
  EXPECT_FALSE(saver_.running());
  EXPECT_TRUE(saver_.final_started());  // the process may end
}

TEST_F(ShardSaverTest, OnlyFailureOfFinalSaveIsAnError) {
  storage_.FailFrom(0, Unavailable("no disk"));
  Save();
  executor_.Run();
  EXPECT_TRUE(saver_.Collect().ok());
  EXPECT_EQ(saver_.failures(), 1);
  Save(true);
  ASSERT_TRUE(saver_.running());  // the version is not saved yet
  executor_.Run();
  EXPECT_EQ(saver_.Collect().code(), Code::kUnavailable);
  EXPECT_EQ(saver_.saves(), 0);
}

}  // namespace
}  // namespace troop
