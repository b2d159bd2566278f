#include "learners/pipeline/schedule_generators.h"

#include <gtest/gtest.h>

#include <numeric>

#include "learners/pipeline/schedule_checker.h"
#include "tests/learners/pipeline/naive_pipeline.h"

namespace troop {
namespace {

// Weights after one synchronous step of one device, by plain loops over chunks and micro-batches.
std::vector<std::uint64_t> OneDeviceStep(std::int64_t chunks, std::int64_t count, bool recurrent) {
  const std::uint64_t state = recurrent ? kNaiveState : 0;
  std::vector<std::uint64_t> input, gradient, weights;
  for (std::int64_t m = 0; m < count; ++m) {
    input.push_back(NaiveInput(m));
    gradient.push_back(NaiveGradient(m));
  }
  std::vector<std::vector<std::uint64_t>> inputs;  // [chunk][micro-batch]
  for (std::int64_t c = 0; c < chunks; ++c) {
    inputs.push_back(input);
    for (std::size_t m = 0; m < input.size(); ++m) {
      input[m] = NaiveWeight(c) * input[m] + (m > 0 ? state * input[m - 1] : 0);
    }
  }
  for (std::int64_t c = chunks - 1; c >= 0; --c) {
    std::uint64_t sum = 0;
    for (std::size_t m = gradient.size(); m-- > 0;) {
      gradient[m] += m + 1 < gradient.size() ? state * gradient[m + 1] : 0;
      sum += gradient[m] * inputs[std::size_t(c)][m];
    }
    for (std::uint64_t& value : gradient) value *= NaiveWeight(c);
    weights.insert(weights.begin(), NaiveWeight(c) - sum);
  }
  return weights;
}

// Weights after PipeDream's updates (Narayanan et al. 2019): micro-batch m reads at chunk k version
// max(0, m - lag(k)), and its gradient makes version m + 1.
std::vector<std::uint64_t> PipedreamReplay(std::int64_t chunks, std::int64_t count,
                                           bool vertical_sync) {
  std::vector<std::vector<std::uint64_t>> versions;  // [chunk][version]
  for (std::int64_t c = 0; c < chunks; ++c) versions.push_back({NaiveWeight(c)});
  for (std::int64_t m = 0; m < count; ++m) {
    std::vector<std::uint64_t> inputs, weights;
    std::uint64_t value = NaiveInput(m), gradient = NaiveGradient(m);
    for (std::int64_t c = 0; c < chunks; ++c) {
      const std::int64_t lag = vertical_sync ? chunks - 1 : chunks - 1 - c;
      const auto version = std::size_t(std::max(m - lag, std::int64_t(0)));
      weights.push_back(versions[std::size_t(c)][version]);
      inputs.push_back(value);
      value *= weights.back();
    }
    for (auto c = std::size_t(chunks); c-- > 0;) {
      versions[c].push_back(versions[c].back() - gradient * inputs[c]);
      gradient *= weights[c];
    }
  }
  std::vector<std::uint64_t> newest;
  for (const auto& of_chunk : versions) newest.push_back(of_chunk.back());
  return newest;
}

// Checks a schedule, and the values that a naive execution computes.
void ExpectComputes(const PipelineSchedule& schedule, const std::vector<std::uint64_t>& weights) {
  const Status status = CheckSchedule(schedule);
  ASSERT_TRUE(status.ok()) << status.message();
  const std::optional<NaiveOutcome> outcome = RunNaive(schedule);
  ASSERT_TRUE(outcome.has_value());
  EXPECT_EQ(outcome->weights, weights);
}

// Includes M < K, M = 1, K = 1, and numbers of micro-batches that K does not divide.
TEST(ScheduleGeneratorsTest, SynchronousSchedulesEqualOneDevice) {
  for (std::int64_t stages = 1; stages <= 5; ++stages) {
    for (const std::int64_t count : {1, 2, 3, 4, 7, 8, 11}) {
      for (const bool recompute : {false, true}) {
        SCOPED_TRACE(::testing::Message() << stages << " stages, " << count << " micro-batches");
        for (const ScheduleKind kind :
             {ScheduleKind::kNone, ScheduleKind::kGpipe, ScheduleKind::k1f1b}) {
          ExpectComputes(
              MadeSchedule(
                  {.kind = kind, .stages = stages, .micro_batches = count, .recompute = recompute}),
              OneDeviceStep(stages, count, false));
        }
        ExpectComputes(MadeSchedule({.kind = ScheduleKind::kWavefront,
                                     .stages = stages,
                                     .micro_batches = count,
                                     .recompute = recompute}),
                       OneDeviceStep(stages, count, true));
        for (const std::int64_t chunks : {2, 3}) {
          ExpectComputes(MadeSchedule({.kind = ScheduleKind::kInterleaved,
                                       .stages = stages,
                                       .micro_batches = count,
                                       .chunks_per_stage = chunks,
                                       .recompute = recompute}),
                         OneDeviceStep(stages * chunks, count, false));
        }
      }
      ExpectComputes(
          MadeSchedule(
              {.kind = ScheduleKind::kZeroBubble, .stages = stages, .micro_batches = count}),
          OneDeviceStep(stages, count, false));
    }
  }
}

TEST(ScheduleGeneratorsTest, PipedreamEqualsAReplayOfItsVersions) {
  for (std::int64_t stages = 1; stages <= 5; ++stages) {
    for (const std::int64_t count : {1, 2, 4, 9}) {
      for (const bool vertical_sync : {false, true}) {
        ExpectComputes(MadeSchedule({.kind = ScheduleKind::kPipedream,
                                     .stages = stages,
                                     .micro_batches = count,
                                     .vertical_sync = vertical_sync}),
                       PipedreamReplay(stages, count, vertical_sync));
      }
    }
  }
}

// Gradients of a round of replicas are added up in one update: for a single stage, by plain loops.
TEST(ScheduleGeneratorsTest, ReplicasMakeOneUpdateOfARound) {
  const std::int64_t count = 8, replicas = 3;
  const PipelineSchedule schedule = MadeSchedule({.kind = ScheduleKind::kPipedream,
                                                  .stages = 1,
                                                  .micro_batches = count,
                                                  .replicas = {replicas}});
  std::uint64_t weight = NaiveWeight(0);
  for (std::int64_t m = 0; m < count; ++m) weight -= NaiveGradient(m) * NaiveInput(m);
  ExpectComputes(schedule, {weight});
  for (std::int64_t replica = 0; replica < replicas; ++replica) {
    EXPECT_EQ(schedule.stages[std::size_t(replica)].back(),
              (StageOp{.kind = StageOpKind::kUpdate, .version = 3}))
        << "8 micro-batches are 3 rounds, also on the replica without a third one";
  }
}

TEST(ScheduleGeneratorsTest, ReplicatedStagesAreValidAndEndInTheSameVersions) {
  for (std::int64_t a = 1; a <= 4; ++a) {
    for (std::int64_t b = 1; b <= 4; ++b) {
      for (const std::int64_t count : {1, 3, 10}) {
        const PipelineSchedule schedule = MadeSchedule({.kind = ScheduleKind::kPipedream,
                                                        .stages = 3,
                                                        .micro_batches = count,
                                                        .replicas = {a, b, 1}});
        const Status status = CheckSchedule(schedule);
        ASSERT_TRUE(status.ok()) << a << " " << b << ": " << status.message();
        ASSERT_TRUE(RunNaive(schedule).has_value());
        // In flight per replica of the first stage: all processes over the replicas, rounded up.
        EXPECT_LE(schedule.memory_max[0].activations, (a + b + 1 + a - 1) / a);
      }
    }
  }
}

TEST(ScheduleGeneratorsTest, ActivationsInFlightEqualTheFormulas) {
  for (std::int64_t stages = 1; stages <= 5; ++stages) {
    for (const std::int64_t count : {1, 3, 5, 12}) {
      const auto memory = [&](ScheduleKind kind, bool recompute) {
        return MadeSchedule(
                   {.kind = kind, .stages = stages, .micro_batches = count, .recompute = recompute})
            .memory_max;
      };
      for (std::int64_t k = 0; k < stages; ++k) {
        const auto at = std::size_t(k);
        const auto flush = memory(ScheduleKind::k1f1b, false)[at];
        EXPECT_EQ(flush.activations, std::min(stages - k, count));
        EXPECT_EQ(flush.versions, 1);
        EXPECT_EQ(memory(ScheduleKind::kGpipe, false)[at].activations, count);
        // Rematerialization: the inputs of all micro-batches, and the activations of one.
        const auto recomputed = memory(ScheduleKind::kGpipe, true)[at];
        EXPECT_EQ(recomputed.activations, 1);
        EXPECT_EQ(recomputed.inputs, count);
        EXPECT_EQ(memory(ScheduleKind::kNone, false)[at].activations, 1);
        // ZB-H1: no stage holds more than 1F1B's first.
        EXPECT_EQ(memory(ScheduleKind::kZeroBubble, false)[at].activations,
                  std::min(stages, count));
      }
    }
  }
}

TEST(ScheduleGeneratorsTest, PipedreamStashesAndLagsEqualTheFormulas) {
  const std::int64_t stages = 4, count = 20;
  const PipelineSchedule schedule =
      MadeSchedule({.kind = ScheduleKind::kPipedream, .stages = stages, .micro_batches = count});
  for (std::int64_t k = 0; k < stages; ++k) {
    EXPECT_EQ(schedule.memory_max[std::size_t(k)].versions, stages - k) << "stash depth K - k";
    EXPECT_EQ(schedule.memory_max[std::size_t(k)].activations, stages - k);
    std::vector<std::int64_t> updates_at(std::size_t(count), 0);
    std::int64_t updates = 0;
    for (const StageOp& op : schedule.stages[std::size_t(k)]) {
      const std::int64_t lag = stages - 1 - k;
      if (op.kind == StageOpKind::kForward) {
        EXPECT_EQ(op.version, std::max(op.micro_batch - lag, std::int64_t(0)));
        updates_at[std::size_t(op.micro_batch)] = updates;
      } else if (op.kind == StageOpKind::kBackward) {
        // The first micro-batches enter before the first update.
        const std::int64_t between = updates - updates_at[std::size_t(op.micro_batch)];
        EXPECT_EQ(between, std::min(op.micro_batch, lag)) << "updates between forward and backward";
      }
      updates += op.kind == StageOpKind::kUpdate;
    }
  }
  const PipelineSchedule synchronized = MadeSchedule({.kind = ScheduleKind::kPipedream,
                                                      .stages = stages,
                                                      .micro_batches = count,
                                                      .vertical_sync = true});
  for (const auto& ops : synchronized.stages) {
    for (const StageOp& op : ops) {
      if (op.kind != StageOpKind::kForward && op.kind != StageOpKind::kBackward) continue;
      EXPECT_EQ(op.version, std::max(op.micro_batch - (stages - 1), std::int64_t(0)));
    }
  }
}

// SpecTrain: all stages predict version m for micro-batch m, s = K-1-k updates ahead, and keep one.
TEST(ScheduleGeneratorsTest, SpectrainPredictsTheVersionOfItsBackwardPass) {
  for (const std::int64_t stages : {1, 2, 5}) {
    const PipelineSchedule schedule =
        MadeSchedule({.kind = ScheduleKind::kSpectrain, .stages = stages, .micro_batches = 12});
    ASSERT_TRUE(CheckSchedule(schedule).ok());
    for (std::int64_t k = 0; k < stages; ++k) {
      EXPECT_EQ(schedule.memory_max[std::size_t(k)].versions, 1);
      std::int64_t updates = 0;
      for (const StageOp& op : schedule.stages[std::size_t(k)]) {
        if (op.kind == StageOpKind::kUpdate) ++updates;
        if (op.kind == StageOpKind::kBackward) {
          EXPECT_EQ(op.version, updates);
        }
        if (op.kind != StageOpKind::kForward) continue;
        EXPECT_EQ(op.version, op.micro_batch);
        EXPECT_EQ(op.version - updates, std::min(stages - 1 - k, op.micro_batch)) << "horizon";
      }
    }
  }
}

TEST(ScheduleGeneratorsTest, BidirectionalLayerSendsAfterItsLastStep) {
  for (const bool forward_only : {false, true}) {
    for (const std::int64_t stages : {1, 2, 4}) {
      const PipelineSchedule schedule = MadeSchedule({.kind = ScheduleKind::kWavefront,
                                                      .stages = stages,
                                                      .micro_batches = 3,
                                                      .forward_only = forward_only,
                                                      .bidirectional_first = true});
      const Status status = CheckSchedule(schedule);
      EXPECT_TRUE(status.ok()) << status.message();
      PipelineSchedule early = schedule;
      if (stages > 1) {
        std::swap(early.stages[0][2], early.stages[0][3]);
        EXPECT_NE(CheckSchedule(early).message().find("its pass is missing"), std::string::npos);
      }
    }
  }
}

TEST(ScheduleGeneratorsTest, RefusesValuesThatAKindIgnores) {
  const auto message = [](const ScheduleOptions& options) {
    return std::string(MakeSchedule(options).status().message());
  };
  const auto k1f1b = ScheduleKind::k1f1b;
  EXPECT_EQ(message({.kind = k1f1b, .stages = 0}), "stages is 0, must be from 1 to 1024");
  EXPECT_EQ(message({.kind = k1f1b, .micro_batches = 0}),
            "micro_batches is 0, must be from 1 to 16777216");
  EXPECT_EQ(message({.kind = k1f1b, .chunks_per_stage = 2}),
            "chunks_per_stage has no effect with the schedule 1f1b; use interleaved, or leave it "
            "out");
  EXPECT_NE(message({.kind = ScheduleKind::kInterleaved}).find("at least 2"), std::string::npos);
  for (const ScheduleOptions& options :
       {ScheduleOptions{.kind = k1f1b, .forward_only = true},
        ScheduleOptions{.kind = k1f1b, .vertical_sync = true},
        ScheduleOptions{.kind = k1f1b, .bidirectional_first = true},
        ScheduleOptions{.kind = k1f1b, .replicas = {1}},
        ScheduleOptions{.kind = ScheduleKind::kZeroBubble, .recompute = true},
        ScheduleOptions{.kind = ScheduleKind::kGpipe, .recompute = true, .forward_only = true}}) {
    EXPECT_NE(message(options).find("has no effect with the schedule"), std::string::npos);
  }
  const auto pipedream = ScheduleKind::kPipedream;
  EXPECT_NE(message({.kind = pipedream, .stages = 2, .replicas = {1}}).find("must have one for"),
            std::string::npos);
  EXPECT_NE(message({.kind = pipedream, .vertical_sync = true, .replicas = {2}})
                .find("vertical_sync needs one replica"),
            std::string::npos);
  EXPECT_NE(message({.kind = pipedream, .replicas = {-1}}).find("replicas of a stage is -1"),
            std::string::npos);
  EXPECT_NE(
      message({.kind = k1f1b, .stages = 1024, .micro_batches = 1 << 20}).find("passes of all"),
      std::string::npos);
}

TEST(ScheduleGeneratorsTest, LastMicroBatchHasTheRemainingRows) {
  EXPECT_EQ(MicroBatchRows(10, 4), (std::vector<std::int64_t>{4, 4, 2}));
  EXPECT_EQ(MicroBatchRows(8, 4), (std::vector<std::int64_t>{4, 4}));
  EXPECT_EQ(MicroBatchRows(3, 4), (std::vector<std::int64_t>{3}));
  EXPECT_TRUE(MicroBatchRows(0, 4).empty());
  EXPECT_TRUE(MicroBatchRows(4, 0).empty());
}

}  // namespace
}  // namespace troop
