#include "learners/pipeline/stage_runner.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "collective/sim/sim_group.h"
#include "core/base/philox.h"
#include "learners/pipeline/schedule_generators.h"
#include "nn/layers/layers.h"
#include "tests/collective/ranks.h"

namespace troop {
namespace {

constexpr std::int64_t kRunnerWidth = 5;
constexpr float kRunnerRate = 0.05f;
constexpr float kRunnerMomentum = 0.9f;

// A model of chunks [rows, 5] -> [rows, 5], each of two linear layers, and its data.
struct RunnerModel {
  std::vector<std::unique_ptr<Module>> modules;
  std::vector<std::vector<float>> initial;  // [chunk]
  std::vector<std::int64_t> rows;
  std::vector<Tensor> inputs, targets;  // [micro-batch]

  RunnerModel(std::int64_t chunks, std::vector<std::int64_t> rows_of, std::uint64_t seed = 39)
      : rows(std::move(rows_of)) {
    Rng rng({.index = seed});
    for (std::int64_t c = 0; c < chunks; ++c) {
      std::vector<SequentialPart> parts;
      parts.push_back({"a", MakeLinear(kRunnerWidth, 7, Activation::kTanh)});
      parts.push_back({"b", MakeLinear(7, kRunnerWidth)});
      modules.push_back(MakeSequential(std::move(parts)));
      const ParamSpec& last = modules.back()->params().back();
      std::vector<float> value(std::size_t(last.offset + last.shape.elements()));
      for (float& v : value) v = float(rng.Uniform(-.6, .6));
      initial.push_back(std::move(value));
    }
    for (const std::int64_t n : rows) {
      for (auto* tensors : {&inputs, &targets}) {
        tensors->push_back(Tensor(DType::kF32, {n, kRunnerWidth}));
        for (float& v : tensors->back().as<float>()) v = float(rng.Normal());
      }
    }
  }
  std::int64_t chunks() const { return std::int64_t(modules.size()); }
  // Gradient of half the squared error, summed over rows.
  void Loss(std::int64_t m, ConstTensor output, Tensor gradient) const {
    for (std::size_t i = 0; i < gradient.as<float>().size(); ++i) {
      gradient.as<float>()[i] = output.as<float>()[i] - targets[std::size_t(m)].as<float>()[i];
    }
  }
};

void SgdStep(std::span<const float> gradient, std::span<float> value) {
  for (std::size_t i = 0; i < value.size(); ++i) value[i] -= kRunnerRate * gradient[i];
}

// Adds the gradient of a micro-batch at these weights, [chunk][P], by one pass over the modules on
// one device. Returns the last output.
Tensor AddGradient(const RunnerModel& model, std::int64_t m,
                   const std::vector<std::vector<float>>& weights,
                   std::vector<std::vector<float>>* gradients) {
  std::vector<Tensor> values{model.inputs[std::size_t(m)]}, caches, workspaces;
  std::vector<std::unique_ptr<Packed>> packed;
  for (std::size_t c = 0; c < model.modules.size(); ++c) {
    const Module& module = *model.modules[c];
    const TensorSpec in = values.back().spec();
    const Result<Plan> plan = module.MakePlan(std::span(&in, 1));
    packed.push_back(module.MakePacked(Precision::kF32));
    module.Pack(weights[c], packed.back().get());
    caches.push_back(Tensor(DType::kU8, {std::int64_t(plan->cache_bytes + 1)}));
    workspaces.push_back(Tensor(DType::kU8, {std::int64_t(plan->workspace_bytes + 1)}));
    Tensor out(DType::kF32, plan->out[0].shape);
    StepContext context{.value = weights[c], .packed = packed.back().get()};
    context.workspace = workspaces.back().bytes();
    const ConstTensor ins[] = {values.back()};
    module.Forward(context, ins, std::span(&out, 1), caches.back().bytes());
    values.push_back(out);
  }
  Tensor gradient(DType::kF32, values.back().shape());
  model.Loss(m, values.back(), gradient);
  for (std::size_t c = model.modules.size(); c-- > 0;) {
    Tensor below = c > 0 ? Tensor(DType::kF32, values[c].shape()) : Tensor();
    StepContext context{.value = weights[c], .packed = packed[c].get()};
    context.gradient = (*gradients)[c];
    context.workspace = workspaces[c].bytes();
    const ConstTensor ins[] = {values[c]}, outs[] = {gradient};
    model.modules[c]->Backward(context, ins, outs, caches[c].bytes(), std::span(&below, 1));
    gradient = below;
  }
  return values.back();
}

std::vector<std::vector<float>> Zeros(const RunnerModel& model) {
  std::vector<std::vector<float>> zeros;
  for (const auto& value : model.initial) zeros.emplace_back(value.size(), 0.0f);
  return zeros;
}

// Weights after one step of one device that accumulates the micro-batches in order.
std::vector<std::vector<float>> AccumulatedStep(const RunnerModel& model) {
  std::vector<std::vector<float>> weights = model.initial, gradients = Zeros(model);
  for (std::size_t m = 0; m < model.rows.size(); ++m) {
    AddGradient(model, std::int64_t(m), weights, &gradients);
  }
  for (std::size_t c = 0; c < weights.size(); ++c) SgdStep(gradients[c], weights[c]);
  return weights;
}

// Distances of predicted and of stale weights from those that the predicted version had.
struct PredictionErrors {
  struct Open {
    std::vector<float> predicted, stale;
  };
  std::map<std::int64_t, Open> open;  // by predicted version
  std::int64_t version = 0;
  double predicted = 0, stale = 0;

  void Predicted(std::int64_t updates, std::span<const float> value, std::vector<float> old) {
    open[version + updates] = {{value.begin(), value.end()}, std::move(old)};
  }
  void Reached(std::span<const float> value) {
    const auto at = open.find(++version);
    if (at == open.end()) return;
    double of_predicted = 0, of_stale = 0;
    for (std::size_t i = 0; i < value.size(); ++i) {
      of_predicted += std::pow(double(at->second.predicted[i]) - value[i], 2);
      of_stale += std::pow(double(at->second.stale[i]) - value[i], 2);
    }
    predicted += std::sqrt(of_predicted);
    stale += std::sqrt(of_stale);
  }
};

// Runs a schedule with a thread per stage. Returns the newest weights.
class RunnerFleet {
 public:
  RunnerFleet(const RunnerModel& model, const PipelineSchedule& schedule)
      : model_(model), schedule_(schedule) {}

  // Over simulated groups.
  std::vector<std::vector<float>> Run() {
    const int stages = int(schedule_.stages.size());
    SimGroup activations({.size = stages}), gradients({.size = stages});
    Ranks up, down;
    for (int s = 0; s < stages; ++s) {
      up.push_back(activations.Rank(s));
      down.push_back(gradients.Rank(s));
    }
    return Run(up, down);
  }
  std::vector<std::vector<float>> Run(const Ranks& up, const Ranks& down) {
    weights_.resize(model_.modules.size());
    errors_.resize(model_.modules.size());
    outputs_.resize(model_.rows.size());
    RunRanks(int(schedule_.stages.size()),
             [&](int s) { RunStage(s, up[std::size_t(s)].get(), down[std::size_t(s)].get()); });
    return weights_;
  }
  // A stage with the initial weights.
  Result<std::unique_ptr<StageRunner>> MakeStage(int s, Collective* up, Collective* down,
                                                 StageCallbacks calls) {
    PipelineStage stage{.schedule = &schedule_, .stage = s, .modules = {}, .input_shape = {}};
    for (std::int64_t c = 0; c < model_.chunks(); ++c) {
      const auto& placed = schedule_.placement[std::size_t(c)];
      const auto replica = std::ranges::find(placed, s);
      const bool here = replica != placed.end();
      if (here && placed.size() > 1) {
        stage.replicas = replicas_[{c, std::int64_t(replica - placed.begin())}];
      }
      stage.modules.push_back(here ? model_.modules[std::size_t(c)].get() : nullptr);
      stage.input_shape.push_back({kRunnerWidth});
    }
    stage.rows = model_.rows;
    stage.activations = up;
    stage.gradients = down;
    stage.clock = &clock_;
    auto runner = StageRunner::Make(stage, std::move(calls));
    for (std::size_t c = 0; runner.ok() && c < stage.modules.size(); ++c) {
      if (stage.modules[c] == nullptr) continue;
      std::ranges::copy(model_.initial[c], (*runner)->value(std::int64_t(c)).begin());
    }
    return runner;
  }
  // Sets the group in which a replica of a chunk adds up its gradients.
  void SetReplicas(std::int64_t chunk, std::int64_t replica, Collective* group) {
    replicas_[{chunk, replica}] = group;
  }
  StageCallbacks Callbacks(std::vector<std::vector<float>>* velocity);
  const std::vector<Tensor>& outputs() const { return outputs_; }
  const std::vector<PredictionErrors>& errors() const { return errors_; }

 private:
  void RunStage(int s, Collective* up, Collective* down) {
    std::vector<std::vector<float>> velocity = Zeros(model_);
    Result<std::unique_ptr<StageRunner>> made = MakeStage(s, up, down, Callbacks(&velocity));
    ASSERT_TRUE(made.ok()) << made.status().ToString();
    StageRunner& runner = **made;
    const Status status = runner.Run();
    ASSERT_TRUE(status.ok()) << status.ToString();
    EXPECT_EQ(runner.intervals().size(), schedule_.stages[std::size_t(s)].size());
    for (std::int64_t c = 0; c < model_.chunks(); ++c) {
      if (schedule_.StageOf(c, 0) != s) continue;
      weights_[std::size_t(c)].assign(runner.value(c).begin(), runner.value(c).end());
      if (c + 1 < model_.chunks() || runner.outputs().empty()) continue;
      outputs_.assign(runner.outputs().begin(), runner.outputs().end());
    }
  }

  const RunnerModel& model_;
  const PipelineSchedule& schedule_;
  std::vector<std::vector<float>> weights_;  // [chunk], each written by its stage
  std::vector<PredictionErrors> errors_;     // [chunk], likewise
  std::vector<Tensor> outputs_;              // written by the last stage
  std::map<std::pair<std::int64_t, std::int64_t>, Collective*> replicas_;  // chunk, replica
  const SystemClock clock_;
};

// Squared error, and SGD or SpecTrain's momentum.
StageCallbacks RunnerFleet::Callbacks(std::vector<std::vector<float>>* velocity) {
  StageCallbacks calls;
  calls.input = [this](std::int64_t m) { return ConstTensor(model_.inputs[std::size_t(m)]); };
  calls.loss = [this](std::int64_t m, ConstTensor output, Tensor gradient) {
    model_.Loss(m, output, gradient);
  };
  if (schedule_.weights != WeightPolicy::kPredicted) {
    calls.update = [](std::int64_t, std::span<const float> gradient, std::span<float> value) {
      SgdStep(gradient, value);
    };
    return calls;
  }
  calls.update = [this, velocity](std::int64_t chunk, std::span<const float> gradient,
                                  std::span<float> value) {
    const auto c = std::size_t(chunk);
    std::vector<float>& v = (*velocity)[c];
    for (std::size_t i = 0; i < value.size(); ++i) {
      v[i] = kRunnerMomentum * v[i] + (1 - kRunnerMomentum) * gradient[i];
      value[i] -= kRunnerRate * v[i];
    }
    errors_[c].Reached(value);
  };
  // Chen et al. 2018, eq. 2.
  calls.predict = [this, velocity](std::int64_t chunk, std::int64_t updates,
                                   std::span<float> value) {
    const auto c = std::size_t(chunk);
    const std::vector<float> stale(value.begin(), value.end());
    const std::vector<float>& v = (*velocity)[c];
    for (std::size_t i = 0; i < value.size(); ++i) value[i] -= kRunnerRate * float(updates) * v[i];
    errors_[c].Predicted(updates, value, stale);
  };
  return calls;
}

std::vector<std::vector<float>> RunPipeline(const RunnerModel& model,
                                            const ScheduleOptions& options) {
  const Result<PipelineSchedule> schedule = MakeSchedule(options);
  EXPECT_TRUE(schedule.ok()) << schedule.status().ToString();
  return RunnerFleet(model, *schedule).Run();
}

// Includes M < K, M = 1, one stage, recomputation, and a last micro-batch of fewer rows.
TEST(StageRunnerTest, SynchronousSchedulesEqualOneDeviceBitForBit) {
  for (const std::vector<std::int64_t>& rows :
       {std::vector<std::int64_t>{3}, MicroBatchRows(7, 4), MicroBatchRows(19, 4)}) {
    const auto count = std::int64_t(rows.size());
    for (const std::int64_t stages : {1, 2, 3}) {
      const RunnerModel model(stages, rows), twice(2 * stages, rows);
      const auto expected = AccumulatedStep(model);
      for (const ScheduleKind kind : {ScheduleKind::kNone, ScheduleKind::kGpipe,
                                      ScheduleKind::k1f1b, ScheduleKind::kZeroBubble}) {
        ScheduleOptions options{.kind = kind, .stages = stages, .micro_batches = count};
        EXPECT_EQ(RunPipeline(model, options), expected) << EnumName(kind);
        if (kind != ScheduleKind::kGpipe && kind != ScheduleKind::k1f1b) continue;
        options.recompute = true;
        EXPECT_EQ(RunPipeline(model, options), expected) << EnumName(kind) << ", recomputed";
      }
      EXPECT_EQ(RunPipeline(twice, {.kind = ScheduleKind::kInterleaved,
                                    .stages = stages,
                                    .micro_batches = count,
                                    .chunks_per_stage = 2}),
                AccumulatedStep(twice));
    }
  }
}

// Micro-batch m reads at chunk c version max(0, m - lag) and makes version m + 1.
TEST(StageRunnerTest, PipedreamEqualsAReplayAtItsVersions) {
  const std::int64_t stages = 3, count = 7;
  const RunnerModel model(stages, std::vector<std::int64_t>(count, 2));
  for (const bool vertical_sync : {false, true}) {
    std::vector<std::vector<std::vector<float>>> versions;  // [chunk][version][P]
    for (const auto& value : model.initial) versions.push_back({value});
    for (std::int64_t m = 0; m < count; ++m) {
      std::vector<std::vector<float>> read, gradients = Zeros(model);
      for (std::int64_t c = 0; c < stages; ++c) {
        const std::int64_t lag = vertical_sync ? stages - 1 : stages - 1 - c;
        read.push_back(versions[std::size_t(c)][std::size_t(std::max(m - lag, std::int64_t(0)))]);
      }
      AddGradient(model, m, read, &gradients);
      for (std::size_t c = 0; c < versions.size(); ++c) {
        std::vector<float> next = versions[c].back();
        SgdStep(gradients[c], next);
        versions[c].push_back(std::move(next));
      }
    }
    const auto newest = RunPipeline(model, {.kind = ScheduleKind::kPipedream,
                                            .stages = stages,
                                            .micro_batches = count,
                                            .vertical_sync = vertical_sync});
    for (std::size_t c = 0; c < versions.size(); ++c) EXPECT_EQ(newest[c], versions[c].back());
  }
}

// Two replicas of the first stage add up the gradients of a round. The versions that a micro-batch
// reads are those of the schedule.
TEST(StageRunnerTest, ReplicasEqualAReplayAtTheLoggedVersions) {
  constexpr std::int64_t kCount = 7;
  const RunnerModel model(2, std::vector<std::int64_t>(kCount, 2));
  const Result<PipelineSchedule> schedule = MakeSchedule(
      {.kind = ScheduleKind::kPipedream, .stages = 2, .micro_batches = kCount, .replicas = {2, 1}});
  ASSERT_TRUE(schedule.ok());
  std::map<std::pair<std::int64_t, std::int64_t>, std::size_t> read;  // chunk, micro-batch
  for (const auto& ops : schedule->stages) {
    for (const StageOp& op : ops) {
      if (op.kind != StageOpKind::kForward) continue;
      read[{op.chunk, op.micro_batch}] = std::size_t(op.version);
    }
  }
  std::vector<std::vector<std::vector<float>>> versions{{model.initial[0]}, {model.initial[1]}};
  std::vector<std::vector<float>> first;  // gradients of the round's first micro-batch
  for (std::int64_t m = 0; m < kCount; ++m) {
    std::vector<std::vector<float>> gradients = Zeros(model);
    AddGradient(model, m, {versions[0].at(read[{0, m}]), versions[1].at(read[{1, m}])}, &gradients);
    versions[1].push_back(versions[1].back());
    SgdStep(gradients[1], versions[1].back());
    if (m % 2 == 0) first = gradients;
    if (m % 2 == 0 && m + 1 < kCount) continue;
    for (std::size_t i = 0; m % 2 == 1 && i < first[0].size(); ++i) {
      first[0][i] += gradients[0][i];
    }
    versions[0].push_back(versions[0].back());
    SgdStep(first[0], versions[0].back());
  }
  SimGroup replicas({.size = 2});
  const Ranks ranks = [&] {
    Ranks both;
    for (int r = 0; r < 2; ++r) both.push_back(replicas.Rank(r));
    return both;
  }();
  RunnerFleet fleet(model, *schedule);
  for (int r = 0; r < 2; ++r) fleet.SetReplicas(0, r, ranks[std::size_t(r)].get());
  const auto newest = fleet.Run();
  EXPECT_EQ(newest[0], versions[0].back());
  EXPECT_EQ(newest[1], versions[1].back());
}

// One stage predicts zero updates ahead: SpecTrain is then momentum SGD, computed here by loops.
TEST(StageRunnerTest, SpectrainOfOneStageIsMomentumSgd) {
  const RunnerModel model(1, std::vector<std::int64_t>(4, 3));
  std::vector<std::vector<float>> weights = model.initial, velocity = Zeros(model);
  for (std::int64_t m = 0; m < 4; ++m) {
    std::vector<std::vector<float>> gradients = Zeros(model);
    AddGradient(model, m, weights, &gradients);
    for (std::size_t i = 0; i < weights[0].size(); ++i) {
      velocity[0][i] = kRunnerMomentum * velocity[0][i] + (1 - kRunnerMomentum) * gradients[0][i];
      weights[0][i] -= kRunnerRate * velocity[0][i];
    }
  }
  const ScheduleOptions options{.kind = ScheduleKind::kSpectrain, .stages = 1, .micro_batches = 4};
  EXPECT_EQ(RunPipeline(model, options), weights);
}

// Deterministic: five seeds, horizons 1 to 3 on the stages of four.
TEST(StageRunnerTest, PredictedWeightsAreCloserThanStaleOnes) {
  const Result<PipelineSchedule> schedule =
      MakeSchedule({.kind = ScheduleKind::kSpectrain, .stages = 4, .micro_batches = 40});
  ASSERT_TRUE(schedule.ok());
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    const RunnerModel model(4, std::vector<std::int64_t>(40, 3), seed);
    RunnerFleet fleet(model, *schedule);
    fleet.Run();
    for (std::size_t c = 0; c < 3; ++c) {
      EXPECT_GT(fleet.errors()[c].predicted, 0);
      EXPECT_LT(fleet.errors()[c].predicted, fleet.errors()[c].stale)
          << "seed " << seed << ", horizon " << 3 - c;
    }
    EXPECT_TRUE(fleet.errors()[3].open.empty()) << "the last stage predicts nothing";
  }
}

TEST(StageRunnerTest, SharedMemoryAndSocketsGiveTheSameBytes) {
  const RunnerModel model(4, MicroBatchRows(11, 2));
  const Result<PipelineSchedule> schedule = MakeSchedule(
      {.kind = ScheduleKind::kInterleaved, .stages = 2, .micro_batches = 6, .chunks_per_stage = 2});
  ASSERT_TRUE(schedule.ok());
  for (const auto path : {GroupOptions::Path::kShm, GroupOptions::Path::kTcp}) {
    const Ranks up = MakeSocketRanks(2, {.path = path}), down = MakeSocketRanks(2, {.path = path});
    EXPECT_EQ(RunnerFleet(model, *schedule).Run(up, down), AccumulatedStep(model));
  }
}

TEST(StageRunnerTest, InferenceHasTheOutputsOfOneDevice) {
  const RunnerModel model(3, MicroBatchRows(10, 4));
  const Result<PipelineSchedule> schedule = MakeSchedule(
      {.kind = ScheduleKind::kGpipe, .stages = 3, .micro_batches = 3, .forward_only = true});
  ASSERT_TRUE(schedule.ok());
  RunnerFleet fleet(model, *schedule);
  EXPECT_EQ(fleet.Run(), model.initial);
  for (std::int64_t m = 0; m < 3; ++m) {
    std::vector<std::vector<float>> unused = Zeros(model);
    const Tensor expected = AddGradient(model, m, model.initial, &unused);
    EXPECT_TRUE(
        std::ranges::equal(fleet.outputs()[std::size_t(m)].as<float>(), expected.as<float>()));
  }
}

// A stage that dies ends the run of its neighbors with an error, without waiting for a deadline.
TEST(StageRunnerTest, DeadStageEndsTheOthers) {
  const RunnerModel model(3, std::vector<std::int64_t>(12, 2));
  const Result<PipelineSchedule> schedule =
      MakeSchedule({.kind = ScheduleKind::k1f1b, .stages = 3, .micro_batches = 12});
  ASSERT_TRUE(schedule.ok());
  RunnerFleet fleet(model, *schedule);
  SimGroup activations({.size = 3}), gradients({.size = 3});
  Ranks up, down;
  for (int s = 0; s < 3; ++s) {
    up.push_back(activations.Rank(s));
    down.push_back(gradients.Rank(s));
  }
  RunRanks(3, [&](int s) {
    StageCallbacks calls = fleet.Callbacks(nullptr);
    calls.loss = [&](std::int64_t m, ConstTensor output, Tensor gradient) {
      model.Loss(m, output, gradient);
      if (m != 4) return;
      activations.Kill(2);
      gradients.Kill(2);
    };
    auto runner = fleet.MakeStage(s, up[std::size_t(s)].get(), down[std::size_t(s)].get(), calls);
    ASSERT_TRUE(runner.ok());
    const Status status = (*runner)->Run();
    EXPECT_FALSE(status.ok()) << "stage " << s;
    if (s == 1) {
      EXPECT_EQ(status.code(), Code::kUnavailable) << status.ToString();
    }
  });
}

TEST(StageRunnerTest, RefusesStagesThatAreIncomplete) {
  const RunnerModel model(1, {2});
  const SystemClock clock;
  Result<PipelineSchedule> schedule = MakeSchedule({.kind = ScheduleKind::k1f1b});
  ASSERT_TRUE(schedule.ok());
  PipelineStage stage{.schedule = &*schedule,
                      .modules = {model.modules[0].get()},
                      .input_shape = {{kRunnerWidth}},
                      .rows = {2},
                      .clock = &clock};
  const auto message = [&] { return std::string(StageRunner::Make(stage, {}).status().message()); };
  EXPECT_NE(message().find("the module of chunk 0, or one of its callbacks, is missing"),
            std::string::npos);
  stage.rows = {0};
  EXPECT_EQ(message(), "pipeline stage: a micro-batch has no rows");
  stage.rows = {};
  EXPECT_EQ(message(), "pipeline stage: rows has 0 entries, must have 1");
  stage.stage = 1;
  EXPECT_EQ(message(), "pipeline stage: there is no stage 1");
  Result<PipelineSchedule> wavefront = MakeSchedule({.kind = ScheduleKind::kWavefront});
  stage = {.schedule = &*wavefront, .modules = {nullptr}, .input_shape = {{1}}, .rows = {1}};
  EXPECT_NE(message().find("recurrent"), std::string::npos);
  Result<PipelineSchedule> replicas =
      MakeSchedule({.kind = ScheduleKind::kPipedream, .replicas = {2}});
  stage.schedule = &*replicas;
  SimGroup pair({.size = 2});
  const std::unique_ptr<Collective> rank = pair.Rank(0);
  stage.activations = stage.gradients = rank.get();
  stage.clock = &clock;
  EXPECT_EQ(message(), "pipeline stage: the group of the replicas is missing");
}

}  // namespace
}  // namespace troop
