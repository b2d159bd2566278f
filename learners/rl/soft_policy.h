#pragma once

#include <memory>
#include <span>
#include <vector>

#include "core/base/philox.h"
#include "core/base/status.h"
#include "learners/training_config.h"
#include "nn/models/policy_critic.h"
#include "replay/codec/sample_batch.h"

namespace troop {

// The stochastic part of a SAC update (Haarnoja et al. 2018, arXiv:1812.05905): sampled actions
// with log-probabilities, and the gradients of policy and temperature α. Log-probabilities and the
// target entropy are those of normalized actions (nn/models/squashed_gaussian.h). One thread at a
// time.
class SoftPolicy {
 public:
  // `network` has a Gaussian policy and must outlive this. learner: its index, for its own noise.
  SoftPolicy(const TrainingConfig& config, const PolicyCritic* network, int learner);

  // Allocates the buffers for a batch of observations. Errors: as Module::MakePlan.
  Status Prepare(const TensorSpec& observation);
  // Begins the noise of an update, which Sample and Backward consume in this order.
  void BeginUpdate(std::uint64_t update);
  // Draws an action [B, A] f32 of the online policy for each observation.
  void Sample(const StepContext& online, const ConstTensor& observation, const Tensor& action);
  // q[i] -= α log π of the actions of the last Sample.
  void AddEntropy(const StepContext& online, std::span<float> q) const;
  // Writes the gradients of the policy and of log α at newly drawn actions a:
  //   policy: Σ w_i (α log π(a|s) - min_j Q_j(s, a)) / B, w_i the importance weights;
  //   log α: Σ w_i (-log α) (log π(a|s) + target entropy) / B; 0 if it is not learned.
  // The critics receive no gradient. context: with gradient.
  void Backward(const StepContext& context, const SampleBatch& batch);

  double entropy() const { return entropy_; }  // mean of -log π in the last Backward
  double Temperature(const StepContext& online) const;

 private:
  void Draw(const StepContext& online, const ConstTensor& observation, const Tensor& action,
            Cache cache);
  void ActionGradient(const StepContext& online, const SampleBatch& batch);

  const std::uint64_t seed_, learner_;
  const bool learns_temperature_;
  const double target_entropy_;
  const PolicyCritic* const network_;
  Rng rng_{RngKey()};
  std::vector<double> noise_;                               // [B, A]
  std::vector<double> log_probability_, dlog_probability_;  // [B]
  Tensor head_, dhead_;                                     // [B, 2A]
  Tensor action_, daction_, daction_part_;                  // [B, A]
  Tensor q_[2], dq_[2];                                     // [B, 1] of each critic
  MutableBuffer policy_cache_, critic_cache_[2];
  double entropy_ = 0;
};

}  // namespace troop
