#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/config/device_choice.h"
#include "core/config/enum_names.h"
#include "core/config/env_option.h"
#include "nn/models/algorithm_kind.h"
#include "nn/models/critic_kind.h"
#include "paramserver/weights_config.h"

namespace troop {

class ConfigVisitor;

// Loss of the TD error.
enum class TdLoss : std::uint8_t {
  kHuber,  // linear beyond 1
  kMse,    // half the squared error
};
constexpr auto EnumNames(TdLoss) { return std::to_array<std::string_view>({"huber", "mse"}); }

// Weights of the classes in the loss of a classifier.
enum class ClassWeights : std::uint8_t {
  kNone,      // every example counts equally
  kBalanced,  // every class counts equally (learners/supervised/class_weights.h)
};
constexpr auto EnumNames(ClassWeights) {
  return std::to_array<std::string_view>({"none", "balanced"});
}

// The learners ([learner]).
struct LearnerConfig {
  AlgorithmKind algorithm = AlgorithmKind::kDqn;
  std::string own_algorithm;       // name of an algorithm of kind kOwn
  std::string library;             // shared library with extensions; "": none
  std::vector<EnvOption> options;  // of an own algorithm, sorted by name
  std::int64_t batch_size = 64;
  double gamma = 0.99;
  double lambda = 0.65;              // pqn, vtrace, ppo
  bool stored_state = true;          // r2d2: sequences begin with it, otherwise with zeros
  bool value_rescaling = true;       // r2d2
  double priority_max_share = 0.9;   // r2d2: of the largest TD error in a priority
  double value_cost = 0.5;           // vtrace, ppo: weight of the value's loss
  double entropy_cost = 0.01;        // vtrace, ppo: weight of the policy's entropy
  double rho_bar = 1, c_bar = 1;     // vtrace, ppo: bounds of V-trace's ratios
  double ratio_clip = 0.2;           // ppo
  bool normalize_advantages = true;  // ppo: per batch
  double value_clip = 0;         // ppo: of the value's change since the actors' weights; 0: none
  double replayed_fraction = 0;  // vtrace, ppo: of each batch; from earlier batches
  std::int64_t replayed_capacity = 512;  // vtrace, ppo: unrolls to sample them from
  bool synchronous = false;              // pqn, vtrace, ppo: actors wait for the weights
  std::int64_t rollout_epochs = 4;       // synchronous: passes over a rollout
  std::int64_t rollout_minibatches = 4;  // synchronous: per pass
  double target_kl = 0;                  // ppo: bound of a batch's KL divergence; 0: none
  bool double_q = true;
  TdLoss loss = TdLoss::kHuber;
  std::int64_t target_update_every_updates = 500;  // updates between target copies
  double target_tau = 1;                           // 1: copy
  double max_grad_norm = 10;                       // 0: no clip
  CriticKind critic = CriticKind::kScalar;
  std::int64_t atoms = 51;           // number of atoms or quantiles
  double v_min = -150, v_max = 150;  // categorical
  double action_gradient_clip = 1;   // dpg, td3; 0: no clip
  std::int64_t policy_delay = 2;     // td3: updates per update of the policy
  double target_policy_noise = 0.2;  // td3: in halves of the action range
  double target_noise_clip = 0.5;    // td3: of that noise
  bool learn_temperature = true;     // sac
  double initial_temperature = 1;    // sac
  double target_entropy = 0;         // sac: of normalized actions; 0: -1 per action dimension
  std::int64_t prefetch = 4;         // sample requests in flight
  std::int64_t batches_per_request = 1;
  std::int64_t publish_every_updates = 20;
  LearnerSync sync = LearnerSync::kAllReduce;
  std::string nccl_library = "libnccl.so.2";  // "": reduce gradients through host memory
  double allreduce_timeout_s = 10;            // per collective operation
  std::int64_t hogwild_threads = 1;
  DeviceChoice device = DeviceChoice::kAuto;
  std::int64_t micro_batch_size = 0;  // supervised: examples per pass; 0: all of a batch
  ClassWeights class_weights = ClassWeights::kNone;  // classifier
  std::string program_socket;                        // external: socket of the program
  double program_timeout_s = 300;                    // external: per batch
  std::string demonstrations;                        // recorded episodes to learn from; "": none
  double demonstration_share = 0.25;                 // of each batch
  std::string init_from;  // run or checkpoint folder of the first weights; "": none
  bool operator==(const LearnerConfig&) const = default;
};
// Declares the keys.
void VisitKeys(LearnerConfig& config, ConfigVisitor& visitor);

// The value of learner.algorithm: the name of a built-in algorithm, or that of an own one.
inline std::string_view AlgorithmName(const LearnerConfig& config) {
  return config.algorithm == AlgorithmKind::kOwn ? std::string_view(config.own_algorithm)
                                                 : EnumName(config.algorithm);
}
// True for supervised runs (classifier, masked_lm), which have learners, a parameter server and an
// evaluator, but no environment, actors or replay.
inline bool IsSupervised(const LearnerConfig& config) { return IsSupervised(config.algorithm); }

// Numbers per step that the items of a run carry (nn/models/algorithm_kind.h).
inline std::int64_t NumbersPerStep(const LearnerConfig& config) {
  return NumbersPerStep(config.algorithm, config.value_clip, config.synchronous);
}

// True for runs that learn from recorded episodes alone, which have neither actors nor replay.
inline bool IsOffline(const LearnerConfig& config) {
  return !IsSupervised(config) && !config.demonstrations.empty() && config.demonstration_share == 1;
}
// Rows of each batch that come from learner.demonstrations.
std::int64_t DemonstrationRows(const LearnerConfig& config);
// Number of rows of a batch that are replayed unrolls, rounded; 0 without
// learner.replayed_fraction.
std::int64_t ReplayedRows(const LearnerConfig& config);

// The budget of a run ([run]), which ends at the first limit that is reached.
struct BudgetConfig {
  double total_steps = 50000;    // agent steps over all actors
  std::int64_t max_updates = 0;  // 0: no limit
  double epochs = 3;             // supervised: passes over the training examples
  bool operator==(const BudgetConfig&) const = default;
};
// Declares the keys.
void VisitKeys(BudgetConfig& config, ConfigVisitor& visitor);

// Data-, tensor- and pipeline-parallel degrees ([mesh]).
struct MeshConfig {
  std::int64_t dp = 0;  // 0: fleet.learners / (tp pp)
  std::int64_t tp = 1;
  std::int64_t pp = 1;
  std::vector<double> batch_shares;  // relative batch shares of the workers; empty: equal
  bool operator==(const MeshConfig&) const = default;
};
// Declares the keys.
void VisitKeys(MeshConfig& config, ConfigVisitor& visitor);

// Schedules of the pipelines of a run: the synchronous ones of ScheduleKind
// (learners/pipeline/schedule_generators.h) for micro-batches.
enum class PipelineKind : std::uint8_t { kNone, kGpipe, k1f1b, kInterleaved, kZeroBubble };
constexpr auto EnumNames(PipelineKind) {
  return std::to_array<std::string_view>({"none", "gpipe", "1f1b", "interleaved", "zero_bubble"});
}

// Pipelines of mesh.pp stages ([pipeline]).
struct PipelineConfig {
  PipelineKind schedule = PipelineKind::k1f1b;
  std::int64_t micro_batches = 4;     // number per worker and batch
  std::int64_t chunks_per_stage = 1;  // interleaved: 2 or more
  bool recompute = false;             // activations, in the backward pass
  std::vector<std::string> stages;    // first block of each chunk but the first; empty: balanced
  bool operator==(const PipelineConfig&) const = default;
};
// Declares the keys.
void VisitKeys(PipelineConfig& config, ConfigVisitor& visitor);

// Checkpoints ([checkpoint]).
struct CheckpointConfig {
  double every_s = 60;
  std::int64_t every_updates = 5000;  // serial mode: between restore points
  std::int64_t keep = 3;
  bool operator==(const CheckpointConfig&) const = default;
};
// Declares the keys.
void VisitKeys(CheckpointConfig& config, ConfigVisitor& visitor);

}  // namespace troop
