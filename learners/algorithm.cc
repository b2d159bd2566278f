// Implements the defaults of Algorithm, and its factory.

#include "learners/algorithm.h"

#include <cmath>

#include "core/base/log.h"
#include "kernels/optim/optimizer_step.h"
#include "learners/external/external_algorithm.h"
#include "learners/external/own_algorithm.h"
#include "learners/images/image_classification.h"
#include "learners/linear/linear_lbfgs.h"
#include "learners/linear/linear_training.h"
#include "learners/rl/behavior_cloning.h"
#include "learners/rl/dpg.h"
#include "learners/rl/dqn.h"
#include "learners/rl/gpu_dqn.h"
#include "learners/supervised/supervised.h"
#include "learners/unrolls/actor_critic.h"
#include "learners/unrolls/pqn.h"
#include "learners/unrolls/r2d2.h"
#include "nn/models/model.h"

namespace troop {

// The all-reduce's wait and travel times, and the weights pulled with it.
void UpdateCost::Count(const AllReduceStats& stats) {
  allreduce_wait_s += stats.wait_s;
  allreduce_s += stats.allreduce_s;
  gradient_bytes += stats.bytes;
  weights_s += stats.weights_s;
  weights_bytes += stats.weights_bytes;
}

UpdateCost& UpdateCost::operator+=(const UpdateCost& other) {
  gradients += other.gradients;
  data_s += other.data_s;
  compute_s += other.compute_s;
  tensor_s += other.tensor_s;
  allreduce_wait_s += other.allreduce_wait_s;
  allreduce_s += other.allreduce_s;
  step_s += other.step_s;
  flops += other.flops;
  gradient_bytes += other.gradient_bytes;
  weights_s += other.weights_s;
  weights_bytes += other.weights_bytes;
  tensor_bytes += other.tensor_bytes;
  tokens += other.tokens;
  sequences += other.sequences;
  stage = std::max(stage, other.stage);
  stage_runs += other.stage_runs;
  stage_s += other.stage_s;
  stage_idle_s += other.stage_idle_s;
  stage_bytes += other.stage_bytes;
  planned_stage_s += other.planned_stage_s;
  planned_idle_s += other.planned_idle_s;
  planned_stage_bytes += other.planned_stage_bytes;
  return *this;
}

// Works on the host's gradient; algorithms on a device override it.
double Algorithm::GradientNorm() {
  static const OptimizerKernels& kernels = OptimizerKernelsFor(BestCpuLevel());
  const std::span<const float> g = gradient();
  return std::sqrt(kernels.sum_squares(std::int64_t(g.size()), g.data()));
}

Result<LossReport> Algorithm::Update(const SampleBatch& batch, double progress,
                                     std::span<float> priority) {
  // A fused update needs no gradient between the two steps.
  if (FusedUpdate* const fused = fused_update(); fused != nullptr) {
    return fused->RunUpdate(batch, progress, priority);
  }
  TROOP_ASSIGN_OR_RETURN(const LossReport report, ComputeGradient(batch, priority));
  ApplyGradient(progress, report.gradient_norm);
  return report;
}

// A rank of a tensor-parallel group has a part only; the gathered value may be older.
std::span<const float> WholeValueOf(Algorithm& algorithm) {
  TensorParallelMember* const part = algorithm.tensor_parallel();
  return part != nullptr ? part->WholeValue() : algorithm.value();
}

TensorFile WholeStateOf(Algorithm& algorithm) {
  TensorParallelMember* const part = algorithm.tensor_parallel();
  return part != nullptr ? part->WholeState() : algorithm.State();
}

// Order of choice: own algorithms, then supervised algorithms, then a GPU if learner.device allows
// it, then the CPU.
Result<std::unique_ptr<Algorithm>> MakeAlgorithm(const TrainingConfig& config, const EnvSpec& env,
                                                 const TensorParallelRank& tensor, int learner) {
  const AlgorithmKind kind = config.learner.algorithm;
  if (kind == AlgorithmKind::kOwn) return MakeOwnAlgorithm(config, env);
  if (config.learner.device == DeviceChoice::kCuda &&
      (HasPolicyNetwork(kind) || LearnsFromUnrolls(kind) || kind == AlgorithmKind::kExternal ||
       kind == AlgorithmKind::kBehaviorCloning)) {
    return InvalidArgument(
        "learner.device is \"cuda\", but learner.algorithm = \"{}\" only runs on the CPU; "
        "set learner.device = \"auto\"",
        EnumName(kind));
  }
  if (ClassifiesImages(config)) return MakeImageClassification(config, tensor);
  if (IsLinearModel(config) && config.optimizer.type == OptimizerType::kLbfgs)
    return MakeLinearLbfgs(config);
  if (IsLinearModel(config)) return MakeLinearTraining(config);
  if (IsSupervised(config.learner)) return MakeSupervised(config, tensor, learner);
  const ModelSetup setup = ModelSetupOf(config);
  TROOP_RETURN_IF_ERROR(CheckActions(setup, env));
  EnvSpec seen = env;  // batches hold the network's inputs
  seen.observation = NetworkInput(setup, env);
  if (kind == AlgorithmKind::kExternal) {
    TROOP_ASSIGN_OR_RETURN(std::unique_ptr<Module> network, MakeNetwork(setup, env));
    return MakeExternalAlgorithm(config, seen, std::move(network));
  }
  if (kind == AlgorithmKind::kBehaviorCloning) {
    TROOP_ASSIGN_OR_RETURN(std::unique_ptr<Module> network, MakeNetwork(setup, env));
    return MakeBehaviorCloning(config, seen, std::move(network));
  }
  // DPG, TD3 and SAC have no GPU implementation.
  if (HasPolicyNetwork(kind)) {
    TROOP_ASSIGN_OR_RETURN(std::unique_ptr<PolicyCritic> both, MakePolicyCritic(setup, env));
    return MakeDpg(config, seen, std::move(both), learner);
  }
  TROOP_ASSIGN_OR_RETURN(std::unique_ptr<Module> network, MakeNetwork(setup, env));
  // The algorithms of unrolls have no GPU implementation.
  if (kind == AlgorithmKind::kR2d2) return MakeR2d2(config, seen, std::move(network));
  if (kind == AlgorithmKind::kPqn) return MakePqn(config, seen, std::move(network));
  if (IsActorCritic(kind)) return MakeActorCritic(config, seen, std::move(network));
  if (config.learner.device != DeviceChoice::kCpu) {
    // MakeGpuDqn consumes its network; the CPU algorithm below needs one if no GPU is used.
    TROOP_ASSIGN_OR_RETURN(std::unique_ptr<Module> same, MakeNetwork(setup, env));
    // With learner.device = "cuda" an error ends the run; with "auto" it selects the CPU.
    auto on_device = MakeGpuDqn(config, env, std::move(same), learner);
    if (on_device.ok() || config.learner.device == DeviceChoice::kCuda) return on_device;
    if (config.replay.placement == ReplayPlacement::kGpu) {
      return on_device.status().WithContext("replay.placement = \"gpu\" needs a GPU");
    }
    // A missing GPU is normal; one that exists and is not used is logged.
    if (on_device.status().code() != Code::kUnavailable)
      LogInfo("updates are computed on the CPU: {}", on_device.status().message());
  }
  return MakeDqn(config, seen, std::move(network), learner);
}

}  // namespace troop
