#include "learners/pipeline/schedule_simulator.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/base/philox.h"
#include "learners/pipeline/schedule_generators.h"
#include "tests/learners/pipeline/naive_pipeline.h"

namespace troop {
namespace {

PipelineForecast SimulatedSchedule(const PipelineSchedule& schedule, const PipelineCosts& costs) {
  Result<PipelineForecast> forecast = SimulateSchedule(schedule, costs);
  EXPECT_TRUE(forecast.ok()) << forecast.status().ToString();
  return std::move(forecast).value();
}

// Equal chunks, without transfers and updates.
PipelineCosts PassCosts(std::int64_t chunks, double forward_s, double input_s, double weight_s) {
  PipelineCosts costs;
  costs.chunks.assign(
      std::size_t(chunks),
      {.forward_s = forward_s, .backward_input_s = input_s, .backward_weight_s = weight_s});
  return costs;
}

TEST(ScheduleSimulatorTest, GpipeAnd1f1bBubblesEqualTheFormula) {
  for (const ScheduleKind kind : {ScheduleKind::kGpipe, ScheduleKind::k1f1b}) {
    for (const auto& [stages, count, expected] :
         {std::tuple{4, 4, .428571}, {4, 8, .272727}, {8, 32, .179487}, {2, 1, .5}, {1, 3, 0.0}}) {
      const PipelineForecast forecast =
          SimulatedSchedule(MadeSchedule({.kind = kind, .stages = stages, .micro_batches = count}),
                            PassCosts(stages, 1, 1, 1));
      EXPECT_NEAR(forecast.bubble, expected, 1e-6);
      for (const StageForecast& stage : forecast.stages) {
        EXPECT_NEAR(stage.bubble, (stages - 1.0) / (count + stages - 1.0), 1e-12);
      }
    }
  }
}

TEST(ScheduleSimulatorTest, ModelParallelismUsesOneStageAtATime) {
  const PipelineForecast forecast = SimulatedSchedule(
      MadeSchedule({.kind = ScheduleKind::kNone, .stages = 4, .micro_batches = 6}),
      PassCosts(4, 1, 1, 1));
  EXPECT_NEAR(forecast.seconds, 4 * 6 * 3, 1e-9);
  EXPECT_NEAR(forecast.bubble, 3.0 / 4, 1e-12);
}

// Narayanan et al. 2021: the bubble of 1F1B divided by the number of chunks per stage.
TEST(ScheduleSimulatorTest, InterleavingDividesTheBubble) {
  for (const std::int64_t stages : {2, 4, 5}) {
    for (const std::int64_t chunks : {2, 3, 4}) {
      for (const std::int64_t groups : {1, 2, 4}) {
        const std::int64_t count = groups * stages;
        const double forward_s = 1.0 / double(chunks);  // a stage takes 1 and 2 in total
        const PipelineForecast forecast =
            SimulatedSchedule(MadeSchedule({.kind = ScheduleKind::kInterleaved,
                                            .stages = stages,
                                            .micro_batches = count,
                                            .chunks_per_stage = chunks}),
                              PassCosts(stages * chunks, forward_s, forward_s, forward_s));
        const double idle_s = forecast.seconds - 3.0 * double(count);
        EXPECT_NEAR(idle_s, 3.0 * double(stages - 1) / double(chunks), 1e-9)
            << stages << " stages, " << chunks << " chunks, " << count << " micro-batches";
      }
    }
  }
}

// Qi et al. 2023: (K-1)(F + B - W), for M >= K and W <= B <= F.
TEST(ScheduleSimulatorTest, ZeroBubbleEqualsTheFormula) {
  for (const auto& [f, b, w] : {std::tuple{1.0, 1.0, 1.0}, {2.0, 1.5, 1.0}, {1.0, 1.0, 0.5}}) {
    for (const std::int64_t stages : {1, 2, 4, 7}) {
      for (const std::int64_t count : {stages, stages + 1, 3 * stages}) {
        const PipelineForecast forecast = SimulatedSchedule(
            MadeSchedule(
                {.kind = ScheduleKind::kZeroBubble, .stages = stages, .micro_batches = count}),
            PassCosts(stages, f, b, w));
        EXPECT_NEAR(forecast.seconds - double(count) * (f + b + w),
                    double(stages - 1) * (f + b - w), 1e-9)
            << stages << " stages, " << count << " micro-batches, W " << w;
        EXPECT_NEAR(forecast.stages[0].busy_s, double(count) * (f + b + w), 1e-9);
      }
    }
  }
}

TEST(ScheduleSimulatorTest, PipedreamTakesTwoTicksPerMicroBatch) {
  for (const auto& [stages, ticks] : {std::pair{3, 804}, {4, 806}, {8, 814}}) {
    for (const ScheduleKind kind : {ScheduleKind::kPipedream, ScheduleKind::k1f1b}) {
      const PipelineForecast forecast =
          SimulatedSchedule(MadeSchedule({.kind = kind, .stages = stages, .micro_batches = 400}),
                            PassCosts(stages, 1, .5, .5));
      EXPECT_NEAR(forecast.seconds, ticks, 1e-9) << "2n + 2(K - 1)";
    }
  }
}

TEST(ScheduleSimulatorTest, WavefrontTakesLayersPlusStepsMinusOne) {
  const auto seconds = [](std::int64_t layers, std::int64_t steps, bool both, bool forward_only) {
    return SimulatedSchedule(MadeSchedule({.kind = ScheduleKind::kWavefront,
                                           .stages = layers,
                                           .micro_batches = steps,
                                           .forward_only = forward_only,
                                           .bidirectional_first = both}),
                             PassCosts(layers, 1, .5, .5))
        .seconds;
  };
  EXPECT_NEAR(seconds(8, 32, false, true), 39, 1e-9);
  EXPECT_NEAR(8 * 32 / seconds(8, 32, false, true), 6.564, 1e-3);
  EXPECT_NEAR(8 * 64 / seconds(8, 64, false, true), 7.211, 1e-3);
  EXPECT_NEAR(seconds(8, 32, false, false), 2 * 39, 1e-9);
  for (const std::int64_t layers : {2, 3, 8}) {
    for (const std::int64_t steps : {1, 5, 32}) {
      EXPECT_NEAR(seconds(layers, steps, true, true), double(2 * steps + layers - 2), 1e-9);
      EXPECT_NEAR(seconds(layers, steps, true, false), 2.0 * double(2 * steps + layers - 2), 1e-9);
    }
  }
}

// Random integer costs, slots and kinds: the end equals that of an executor that counts ticks.
TEST(ScheduleSimulatorTest, EqualsANaiveExecutorOnRandomCosts) {
  Rng rng({.index = 37});
  const auto draw = [&](std::uint32_t high) { return std::int64_t(rng.Below(high)); };
  for (int trial = 0; trial < 400; ++trial) {
    const auto kind = ScheduleKind(draw(8));
    if (kind == ScheduleKind::kSpectrain) continue;  // the executor predicts no weights
    ScheduleOptions options{.kind = kind, .stages = 1 + draw(5), .micro_batches = 1 + draw(9)};
    if (kind == ScheduleKind::kInterleaved) options.chunks_per_stage = 2 + draw(2);
    options.recompute = kind != ScheduleKind::kZeroBubble && draw(2) == 0;
    if (kind == ScheduleKind::kPipedream && draw(2) == 0) {
      for (std::int64_t s = 0; s < options.stages; ++s) options.replicas.push_back(1 + draw(3));
    }
    PipelineSchedule schedule = MadeSchedule(options);
    schedule.send_slots += draw(3);
    NaiveCosts naive = EqualCosts(schedule.chunks());
    PipelineCosts costs;
    for (std::size_t c = 0; c < schedule.placement.size(); ++c) {
      naive.forward[c] = draw(6);
      naive.backward_input[c] = draw(6);
      naive.backward_weight[c] = draw(6);
      naive.update[c] = draw(4);
      naive.send_activation[c] = draw(5);
      naive.send_gradient[c] = draw(5);
      costs.chunks.push_back({.forward_s = double(naive.forward[c]),
                              .backward_input_s = double(naive.backward_input[c]),
                              .backward_weight_s = double(naive.backward_weight[c]),
                              .update_s = double(naive.update[c]),
                              .send_activation_s = double(naive.send_activation[c]),
                              .send_gradient_s = double(naive.send_gradient[c])});
    }
    const auto outcome = NaivePipeline(schedule, naive).Run();
    ASSERT_TRUE(outcome.has_value()) << "trial " << trial;
    EXPECT_NEAR(SimulatedSchedule(schedule, costs).seconds, double(outcome->ticks), 1e-9)
        << "trial " << trial << ", " << EnumName(kind);
  }
}

TEST(ScheduleSimulatorTest, MemoryCountsWhatAStageHolds) {
  const auto peak = [](const ScheduleOptions& options, std::size_t stage) {
    PipelineCosts costs;
    costs.chunks.assign(std::size_t(options.stages), {.activation_bytes = 1000,
                                                      .input_bytes = 10,
                                                      .output_bytes = 20,
                                                      .weight_bytes = 100000,
                                                      .fixed_bytes = 1e6});
    return SimulatedSchedule(MadeSchedule(options), costs).stages[stage].peak_bytes;
  };
  const ScheduleKind gpipe = ScheduleKind::kGpipe;
  // Eight complete activations, and the gradient that the last backward pass reads.
  EXPECT_EQ(peak({.kind = gpipe, .stages = 4, .micro_batches = 8}, 0), 1.1e6 + 8 * 1000 + 20);
  // Rematerialization: the inputs of eight, the activations of one.
  EXPECT_EQ(peak({.kind = gpipe, .stages = 4, .micro_batches = 8, .recompute = true}, 0),
            1.1e6 + 7 * 10 + 1000 + 20 + 10);
  // PipeDream: K - k versions and activations; one send slot of each neighbor.
  EXPECT_EQ(peak({.kind = ScheduleKind::kPipedream, .stages = 4, .micro_batches = 9}, 1),
            1e6 + 3 * 100000 + 3 * 1000 + 20 + (20 + 10));
}

TEST(ScheduleSimulatorTest, SmallerLastMicroBatchAndSlowStage) {
  const PipelineSchedule schedule =
      MadeSchedule({.kind = ScheduleKind::kGpipe, .stages = 2, .micro_batches = 3});
  PipelineCosts costs = PassCosts(2, 1, 1, 1);
  costs.micro_batch_share = {1, 1, .5};
  // By hand: forward 1, 2, 2.5 and 2, 3, 3.5; backward on stage 1 5.5, 7.5, 8.5; stage 0 7.5, 9.5,
  // 10.5.
  EXPECT_NEAR(SimulatedSchedule(schedule, costs).seconds, 10.5, 1e-12);
  costs.micro_batch_share.clear();
  costs.speed = {1, .5};
  // Stage 1 takes 2 and 4 after the first forward pass; then stage 0 has its last backward pass.
  EXPECT_NEAR(SimulatedSchedule(schedule, costs).seconds, 1 + 3 * 6 + 2, 1e-12);
}

TEST(ScheduleSimulatorTest, RefusesCostsThatDoNotFit) {
  const PipelineSchedule schedule =
      MadeSchedule({.kind = ScheduleKind::kGpipe, .stages = 2, .micro_batches = 3});
  const auto message = [&](const PipelineCosts& costs) {
    return std::string(SimulateSchedule(schedule, costs).status().message());
  };
  EXPECT_EQ(message(PassCosts(3, 1, 1, 1)), "costs: there are 3 chunks, the schedule has 2");
  EXPECT_EQ(message(PassCosts(2, -1, 1, 1)), "costs: chunk 0 has the value -1, must be at least 0");
  EXPECT_NE(message(PassCosts(2, 1, NAN, 1)), "");
  PipelineCosts costs = PassCosts(2, 1, 1, 1);
  costs.speed = {1, 0};
  EXPECT_EQ(message(costs), "costs: speed[1] is 0, must be positive");
  costs.speed = {1};
  EXPECT_EQ(message(costs), "costs: speed has 1 entries, must have 2 or none");
  costs.speed = {};
  costs.micro_batch_share = {1, 1};
  EXPECT_EQ(message(costs), "costs: micro_batch_share has 2 entries, must have 3 or none");
  PipelineSchedule broken = schedule;
  broken.stages[0].pop_back();
  EXPECT_EQ(SimulateSchedule(broken, PassCosts(2, 1, 1, 1)).status().code(),
            Code::kInvalidArgument);
}

}  // namespace
}  // namespace troop
