#include "core/base/executor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <memory>
#include <semaphore>

namespace troop {
namespace {

TEST(InlineExecutorTest, RunsJobWithinSubmitAndReportsDoneOnce) {
  InlineExecutor executor;
  bool ran = false;
  const auto job = executor.Submit("job", [&] { ran = true; });
  ASSERT_TRUE(job.ok());
  EXPECT_TRUE(ran);
  EXPECT_NE(*job, 0u);
  EXPECT_TRUE(executor.TakeDone(*job));
  EXPECT_FALSE(executor.TakeDone(*job));
  EXPECT_NE(*executor.Submit("other", [] {}), *job);
}

TEST(ThreadExecutorTest, JobIsDoneAfterWakeWithVisibleWrites) {
  std::binary_semaphore woken(0);
  ThreadExecutor executor(1, [&] { woken.release(); });
  int result = 0;
  const std::thread::id here = std::this_thread::get_id();
  std::thread::id there;
  const auto job = executor.Submit("job", [&] {
    result = 42;
    there = std::this_thread::get_id();
  });
  ASSERT_TRUE(job.ok());
  woken.acquire();
  EXPECT_TRUE(executor.TakeDone(*job));
  EXPECT_FALSE(executor.TakeDone(*job));
  EXPECT_EQ(result, 42);
  EXPECT_NE(there, here);
}

TEST(ThreadExecutorTest, RejectsJobWhenQueueIsFull) {
  std::promise<void> gate;
  std::binary_semaphore started(0);
  ThreadExecutor executor(1, nullptr, 2);
  ASSERT_TRUE(executor
                  .Submit("running",
                          [&] {
                            started.release();
                            gate.get_future().wait();
                          })
                  .ok());
  started.acquire();  // it has left the queue
  EXPECT_TRUE(executor.Submit("first", [] {}).ok());
  EXPECT_TRUE(executor.Submit("second", [] {}).ok());
  const auto refused = executor.Submit("third", [] {});
  EXPECT_EQ(refused.status().code(), Code::kResourceExhausted);
  EXPECT_THAT(refused.status().message(), testing::HasSubstr("third"));
  gate.set_value();
}

TEST(ThreadExecutorTest, DestructorFinishesSubmittedJobs) {
  std::atomic<int> ran = 0;
  {
    ThreadExecutor executor(3, nullptr);
    for (int i = 0; i < 50; ++i) ASSERT_TRUE(executor.Submit("job", [&] { ++ran; }).ok());
  }
  EXPECT_EQ(ran, 50);
}

TEST(ThreadExecutorTest, ReleasesCapturesBeforeJobIsDone) {
  std::binary_semaphore woken(0);
  ThreadExecutor executor(1, [&] { woken.release(); });
  auto held = std::make_shared<int>(1);
  const std::weak_ptr<int> watched = held;
  ASSERT_TRUE(executor.Submit("job", [held = std::move(held)] { (void)held; }).ok());
  woken.acquire();
  EXPECT_TRUE(watched.expired());
}

// Its destructor sees whether the job that holds it counts as done.
TEST(ThreadExecutorTest, JobIsNotDoneWhileCapturesAreReleased) {
  std::binary_semaphore submitted(0), released(0);
  ThreadExecutor executor(1, nullptr);
  Executor::Job job = 0;
  bool done = true;
  auto held = std::shared_ptr<int>(new int(1), [&](int* number) {
    delete number;
    done = executor.TakeDone(job);
    released.release();
  });
  const auto id = executor.Submit("job", [&submitted, held = std::move(held)] {
    submitted.acquire();
    (void)held;
  });
  ASSERT_TRUE(id.ok());
  job = *id;
  submitted.release();
  released.acquire();
  EXPECT_FALSE(done);
}

TEST(ThreadExecutorTest, SingleThreadKeepsSubmissionOrder) {
  std::vector<int> order;
  {
    ThreadExecutor executor(1, nullptr);
    for (int i = 0; i < 20; ++i)
      ASSERT_TRUE(executor.Submit("job", [&, i] { order.push_back(i); }).ok());
  }
  EXPECT_TRUE(std::ranges::is_sorted(order));
  EXPECT_EQ(order.size(), 20u);
}

}  // namespace
}  // namespace troop
