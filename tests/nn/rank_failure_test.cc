#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <latch>

#include "tests/nn/tensor_ranks.h"

// Steps of tensor-parallel ranks whose group ends: a typed error, never a wait or an abort.
namespace troop {
namespace {

using Batch = test::TokensByChance;
using test::SimRanks;
using test::TensorRank;
using test::TinyTransformer;
using ::testing::HasSubstr;

TransformerOptions Options() {
  return {.config = TinyTransformer(TransformerConfig::Family::kBert, 0.1f),
          .head = TransformerHead::kMaskedLm};
}

void RankForward(TensorRank& mine, const Batch& batch) {
  mine.bench.SetBatch(batch.view(true));
  mine.bench.Forward();
}
void RankBackward(TensorRank& mine) {
  Tensor dlogits;
  mine.bench.Loss(std::vector<std::int32_t>{1, 39, 7}, &dlogits);
  mine.bench.Backward(dlogits);
}

// A step after a failure of the group sends no messages.
void ExpectNothingIsAskedForAnyMore(TensorRank& mine, const Batch& batch) {
  const Status first = mine.group.status();
  const TensorTraffic before = mine.group.traffic();
  RankForward(mine, batch);
  RankBackward(mine);
  EXPECT_EQ(mine.group.traffic(), before);
  EXPECT_EQ(mine.group.status().ToString(), first.ToString());
}

TEST(RankFailureTest, DeadRankFailsStepOnAllOthers) {
  const Batch batch({5, 20});
  for (const bool between : {false, true}) {  // before the step, and between its halves
    SimGroup sim({.size = 3});
    const Ranks ranks = SimRanks(3, &sim);
    RunRanks(3, [&](int rank) {
      TensorRank mine(Options(), ranks[std::size_t(rank)].get());
      if (rank == 1 && !between) return sim.Kill(1);
      RankForward(mine, batch);
      if (rank == 1) return sim.Kill(1);
      RankBackward(mine);
      EXPECT_EQ(mine.group.status().code(), Code::kUnavailable);
      EXPECT_THAT(mine.group.status().message(), HasSubstr("rank 1 has died"));
      ExpectNothingIsAskedForAnyMore(mine, batch);
    });
  }
}

TEST(RankFailureTest, SilentRankFailsStepAtTimeout) {
  SimGroup sim({.size = 2, .timeout = Milliseconds(20)});
  const Ranks ranks = SimRanks(2, &sim);
  TensorRank mine(Options(), ranks[0].get());
  RankForward(mine, Batch({5, 20}));
  EXPECT_EQ(mine.group.status().code(), Code::kDeadlineExceeded);
  ExpectNothingIsAskedForAnyMore(mine, Batch({5, 20}));
}

TEST(RankFailureTest, RejectsDifferentBatchesAcrossRanks) {
  const Ranks ranks = SimRanks(2);
  RunRanks(2, [&](int rank) {
    TensorRank mine(Options(), ranks[std::size_t(rank)].get());
    RankForward(mine, rank == 0 ? Batch({5, 20}) : Batch({5, 19}));
    EXPECT_EQ(mine.group.status().code(), Code::kInvalidArgument);
  });
}

// A rank that fails locally, here by exceeding the limit of open works, aborts the step on the
// others.
TEST(RankFailureTest, RankThatCannotStartOperationFailsStepOnAll) {
  SimGroup sim({.size = 2, .timeout = Seconds(20)});
  const Ranks ranks = SimRanks(2, &sim);
  std::latch failed(1);
  RunRanks(2, [&](int rank) {
    Collective& collective = *ranks[std::size_t(rank)];
    Tensor word(DType::kI32, {1});
    for (std::size_t i = 0; rank == 0 && i < kWorksMax; ++i)
      EXPECT_TRUE(collective.Start({.kind = OpKind::kReceive, .peer = 1}, {}, word).ok());
    TensorRank mine(Options(), &collective);
    if (rank == 1) failed.wait();  // else its all-reduce meets what rank 0 waits to receive
    RankForward(mine, Batch({5, 20}));
    if (rank == 0) failed.count_down();
    EXPECT_EQ(mine.group.status().code(), Code::kResourceExhausted);
    EXPECT_THAT(mine.group.status().message(), HasSubstr("1024 works are open"));
  });
}

// Over sockets and over shared memory; afterwards the same module continues in a rebuilt group.
TEST(RankFailureTest, LostRankFailsStepAndRebuiltGroupContinues) {
  const Batch batch({5, 20});
  for (const auto path : {GroupOptions::Path::kTcp, GroupOptions::Path::kShm}) {
    Ranks ranks = MakeSocketRanks(3, {.path = path, .timeout = Seconds(60)});
    Ranks again = MakeSocketRanks(3, {.group = "again", .epoch = 1, .path = path});
    std::latch forward(3);
    RunRanks(3, [&](int rank) {
      TensorRank mine(Options(), ranks[std::size_t(rank)].get());
      RankForward(mine, batch);
      EXPECT_TRUE(mine.group.status().ok());
      forward.arrive_and_wait();
      const std::vector<float> logits(mine.bench.out.as<float>().begin(),
                                      mine.bench.out.as<float>().end());
      if (rank == 2) {
        ranks[2].reset();
      } else {
        RankBackward(mine);
        EXPECT_EQ(mine.group.status().code(), Code::kUnavailable) << mine.group.status().ToString();
      }
      TensorGroup group(again[std::size_t(rank)].get());
      mine.bench.tensor = &group;
      RankForward(mine, batch);
      RankBackward(mine);
      EXPECT_TRUE(group.status().ok()) << group.status().ToString();
      RankForward(mine, batch);
      EXPECT_TRUE(std::ranges::equal(mine.bench.out.as<float>(), logits));
    });
  }
}

}  // namespace
}  // namespace troop
