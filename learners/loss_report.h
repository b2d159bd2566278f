#pragma once

#include <cstdint>

namespace troop {

// Statistics of one update's batch. Reports of several learners are combined as the mean weighted
// by rows.
struct LossReport {
  double loss = 0;           // importance-weighted mean over the batch
  double td_error_mean = 0;  // mean |TD error|
  double q_mean = 0;         // mean q of the chosen actions
  double gradient_norm = 0;  // before the clip
  double rows = 0;           // items (or labels) that the means are taken over
  // SAC only.
  double entropy = 0;      // mean of -log π of sampled normalized actions
  double temperature = 0;  // α in this update; all learners have the same value
  // Actor-critics with discrete actions only; with entropy, that of the policy.
  double policy_loss = 0, value_loss = 0;
  double divergence = 0;  // estimate of KL(actors' policies, policy)
  double clipped = 0;     // ppo: share of steps whose ratio is clipped
  double stopped = 0;     // ppo: share of rows in batches beyond learner.target_kl
  // Supervised algorithms only.
  double accuracy = 0;         // share of labels classified correctly
  std::int64_t sequences = 0;  // in this learner's part of the batch
};

}  // namespace troop
