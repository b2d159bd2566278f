#include "apps/serving/serving_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troop {
namespace {

using testing::ElementsAre;

constexpr Time At(std::int64_t ms) { return Time(Milliseconds(ms)); }

ServingRequest Request(std::int64_t rows, std::int64_t arrived_ms,
                       std::int64_t deadline_ms = 1000) {
  ServingRequest request;
  request.rows = rows;
  request.arrived = At(arrived_ms);
  request.deadline = At(deadline_ms);
  return request;
}

std::vector<std::int64_t> Rows(const std::vector<ServingRequest>& requests) {
  std::vector<std::int64_t> rows;
  for (const ServingRequest& request : requests) rows.push_back(request.rows);
  return rows;
}

TEST(ServingQueueTest, RequestWaitsForOthersUntilItsTime) {
  ServingQueue queue({.rows_max = 8, .queue_rows_max = 100, .wait_max = Milliseconds(10)});
  EXPECT_EQ(queue.Due(), kForever);
  ASSERT_TRUE(queue.Add(Request(2, 100)).ok());
  ASSERT_TRUE(queue.Add(Request(3, 105)).ok());
  EXPECT_EQ(queue.Due(), At(110));
  EXPECT_THAT(Rows(queue.TakeBatch(At(109))), ElementsAre());
  EXPECT_THAT(Rows(queue.TakeBatch(At(110))), ElementsAre(2, 3));
  EXPECT_EQ(queue.rows(), 0);
  EXPECT_EQ(queue.Due(), kForever);
}

TEST(ServingQueueTest, FullBatchLeavesAtOnceAndKeepsOrder) {
  ServingQueue queue({.rows_max = 8, .queue_rows_max = 100, .wait_max = Milliseconds(10)});
  for (const std::int64_t rows : {5, 4, 3, 1}) ASSERT_TRUE(queue.Add(Request(rows, 100)).ok());
  EXPECT_LE(queue.Due(), At(100));
  EXPECT_THAT(Rows(queue.TakeBatch(At(100))), ElementsAre(5));  // 5 + 4 exceed 8
  EXPECT_THAT(Rows(queue.TakeBatch(At(100))), ElementsAre(4, 3, 1));
  EXPECT_THAT(Rows(queue.TakeBatch(At(200))), ElementsAre());
}

TEST(ServingQueueTest, WithoutWaitEveryRequestIsDue) {
  ServingQueue queue({.rows_max = 8, .queue_rows_max = 100});
  ASSERT_TRUE(queue.Add(Request(1, 100)).ok());
  EXPECT_EQ(queue.Due(), At(100));
  EXPECT_THAT(Rows(queue.TakeBatch(At(100))), ElementsAre(1));
}

TEST(ServingQueueTest, FullQueueRefuses) {
  ServingQueue queue({.rows_max = 8, .queue_rows_max = 10, .wait_max = Milliseconds(10)});
  ASSERT_TRUE(queue.Add(Request(8, 0)).ok());
  const Status full = queue.Add(Request(3, 0));
  EXPECT_EQ(full.code(), Code::kResourceExhausted);
  EXPECT_EQ(full.message(), "the queue is full: 8 rows wait, the limit is 10; retry later");
  EXPECT_EQ(queue.rows(), 8);
  EXPECT_TRUE(queue.Add(Request(2, 0)).ok());  // exactly the limit
  EXPECT_THAT(Rows(queue.TakeBatch(At(0))), ElementsAre(8));
  EXPECT_TRUE(queue.Add(Request(8, 0)).ok());
}

TEST(ServingQueueTest, ExpiredRequestsAreNotComputed) {
  ServingQueue queue({.rows_max = 8, .queue_rows_max = 100, .wait_max = Milliseconds(500)});
  ASSERT_TRUE(queue.Add(Request(1, 0, 50)).ok());
  ASSERT_TRUE(queue.Add(Request(2, 10, 60)).ok());
  EXPECT_EQ(queue.Due(), At(50));  // earlier than the end of its wait
  EXPECT_THAT(Rows(queue.TakeExpired(At(49))), ElementsAre());
  EXPECT_THAT(Rows(queue.TakeExpired(At(50))), ElementsAre(1));
  EXPECT_EQ(queue.rows(), 2);
  EXPECT_THAT(Rows(queue.TakeExpired(At(1000))), ElementsAre(2));
  EXPECT_EQ(queue.rows(), 0);
}

}  // namespace
}  // namespace troop
