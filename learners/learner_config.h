#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace troop {

class ConfigVisitor;

// The learners ([learner]).
struct LearnerConfig {
  std::string algorithm = "dqn";  // "dqn" | "dpg" | "classifier" | "masked_lm"
  std::int64_t batch_size = 64;
  double gamma = 0.99;
  bool double_q = true;
  std::string loss = "huber";                      // "huber" | "mse"
  std::int64_t target_update_every_updates = 500;  // updates between target copies
  double target_tau = 1;                           // 1: copy
  double max_grad_norm = 10;                       // 0: no clip
  std::string critic = "scalar";                   // "scalar" | "categorical" | "quantile"
  std::int64_t atoms = 51;                         // number of atoms or quantiles
  double v_min = -150, v_max = 150;                // categorical
  double action_gradient_clip = 1;                 // dpg; 0: no clip
  std::int64_t prefetch = 4;                       // sample requests in flight
  std::int64_t batches_per_request = 1;
  std::int64_t publish_every_updates = 20;
  std::string sync = "allreduce";             // "allreduce" | "paramserver"
  std::string nccl_library = "libnccl.so.2";  // "": reduce gradients through host memory
  double allreduce_timeout_s = 10;            // per collective operation
  std::int64_t hogwild_threads = 1;
  std::string device = "auto";
  std::int64_t micro_batch_size = 0;  // supervised: examples per pass; 0: all of a batch
  bool operator==(const LearnerConfig&) const = default;
};
// Declares the keys.
void VisitKeys(LearnerConfig& config, ConfigVisitor& visitor);

// True for supervised runs (classifier, masked_lm), which have learners, a parameter server and an
// evaluator, but no environment, actors or replay.
inline bool IsSupervised(const LearnerConfig& config) {
  return config.algorithm == "classifier" || config.algorithm == "masked_lm";
}

// The budget of a run ([run]), which ends at the first limit that is reached.
struct BudgetConfig {
  double total_steps = 50000;    // agent steps over all actors
  std::int64_t max_updates = 0;  // 0: no limit
  double epochs = 3;             // supervised: passes over the training examples
  bool operator==(const BudgetConfig&) const = default;
};
// Declares the keys.
void VisitKeys(BudgetConfig& config, ConfigVisitor& visitor);

// Data- and tensor-parallel degrees ([mesh]).
struct MeshConfig {
  std::int64_t dp = 0;  // 0: fleet.learners / tp
  std::int64_t tp = 1;
  std::vector<double> batch_shares;  // relative batch shares of the workers; empty: equal
  bool operator==(const MeshConfig&) const = default;
};
// Declares the keys.
void VisitKeys(MeshConfig& config, ConfigVisitor& visitor);

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
