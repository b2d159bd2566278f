#include "replay/service/request_queue.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "net/wire/codec.h"

namespace troop {
namespace {

using ParkedSample = RequestQueue::ParkedSample;

// Counts the answers to one request.
class Counting final : public Reply::Sink {
 public:
  explicit Counting(int* answers) : answers_(answers) {}
  void Answer(Message) override { ++*answers_; }

 private:
  int* answers_;
};

Origin Learner(std::int32_t index) { return {.role = Role::kLearner, .index = index}; }

// A queue with one sample request each of learners 0, 1, 0.
RequestQueue Three() {
  RequestQueue queue;
  for (const std::int32_t index : {0, 1, 0}) queue.Park(ParkedSample{.origin = Learner(index)});
  return queue;
}

TEST(RequestQueueTest, RemovesFirstSampleThatIsAnswered) {
  RequestQueue queue = Three();
  const auto of_second = [](ParkedSample* parked) { return parked->origin.index == 1; };
  EXPECT_TRUE(queue.AnswerFirstSample(of_second));
  EXPECT_FALSE(queue.AnswerFirstSample(of_second));
  EXPECT_EQ(queue.samples(), 2u);
}

TEST(RequestQueueTest, WaiverAndDrainReachOnlyTheirCaller) {
  RequestQueue queue = Three();
  queue.Waive(Learner(0));
  queue.Drain(Learner(1));
  int waived = 0, drained = 0;
  queue.AnswerFirstSample([&](ParkedSample* parked) {
    waived += parked->waived ? 1 : 0;
    drained += parked->body.drain ? 1 : 0;
    EXPECT_NE(parked->waived, parked->body.drain);
    return false;
  });
  EXPECT_EQ(waived, 2);
  EXPECT_EQ(drained, 1);
}

TEST(RequestQueueTest, RefusesAllSamplesOfOneCaller) {
  std::vector<int> answers(3);  // outlives the replies
  RequestQueue queue;
  for (std::size_t i = 0; i < 3; ++i) {
    queue.Park(ParkedSample{.origin = Learner(std::int32_t(i % 2)),
                            .reply = Reply(std::make_unique<Counting>(&answers[i]))});
  }
  queue.Refuse({Role::kLearner, 0}, Unavailable("the caller is disconnected"));
  EXPECT_EQ(answers, (std::vector<int>{1, 0, 1}));
  EXPECT_EQ(queue.samples(), 1u);
}

TEST(RequestQueueTest, BlocksAddUpToBatches) {
  ParkedSample parked{.body = {.batch_size = 4, .batches = 2}};
  EXPECT_FALSE(parked.begun());
  parked.AddBlock(Buffer(), 3);
  EXPECT_TRUE(parked.begun());
  EXPECT_EQ(parked.batches, 0u);
  parked.AddBlock(Buffer(), 1);
  EXPECT_EQ(parked.batches, 1u);
  EXPECT_EQ(parked.rows_open, 0u);
  EXPECT_EQ(parked.rows, (std::vector<std::uint32_t>{3, 1}));
}

}  // namespace
}  // namespace troop
