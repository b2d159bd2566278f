// Implements the update counts and metrics of the learner role.

#include <algorithm>
#include <string>

#include "learners/learner_node.h"

namespace troop {

// Each update is counted by one learner of the run (the leader), and again if it is repeated after
// a restart.
void LearnerNode::SeeUpdates(std::uint64_t updates) {
  if (updater_->is_leader() && updates > updates_) led_ += updates - updates_;
  updates_ = updates;
  metrics_.Gauge("learner/updates", double(led_), MetricKind::kCounter);
  metrics_.Gauge("learner/version", double(updates_), MetricKind::kGaugeMax);
  if (sharded() && sampler_) sampler_->ObservePolicyVersion(Version());
  if (supervised()) {
    context_.member->report().steps_done = StepsAt(updates);
  }
}

// The weights come from other learners or a checkpoint: this learner made no update.
void LearnerNode::AdoptUpdates(std::uint64_t updates) {
  updates_ = updates;
  SeeUpdates(updates);
}

// Metrics of one collected job; loss and accuracy are weighted by rows when roles are combined.
void LearnerNode::ReportMetrics(const UpdateJob& job) {
  metrics_.Gauge("learner/skipped_updates", double(skipped_), MetricKind::kCounter);
  metrics_.Gauge("learner/quarantined_items", double(quarantine_.items()), MetricKind::kCounter);
  if (job.busy_s > 0) metrics_.Count("learner/busy_s", job.busy_s);
  if (job.batches.empty()) return;
  metrics_.Gauge("learner/learning_rate", algorithm_->LearningRate(job.progress));
  metrics_.Ratio("learner/loss", job.last.loss, job.last.rows);
  if (job.last.rows > 0) metrics_.Gauge("learner/grad_norm", job.last.gradient_norm);
  if (supervised()) {
    metrics_.Ratio("learner/accuracy", job.last.accuracy, job.last.rows);
    const std::pair<const char*, double> costs[] = {{"gradients", job.cost.gradients},
                                                    {"tokens", job.cost.tokens},
                                                    {"sequences", job.cost.sequences},
                                                    {"data_s", job.cost.data_s},
                                                    {"compute_s", job.cost.compute_s},
                                                    {"tensor_s", job.cost.tensor_s},
                                                    {"allreduce_wait_s", job.cost.allreduce_wait_s},
                                                    {"allreduce_s", job.cost.allreduce_s},
                                                    {"step_s", job.cost.step_s},
                                                    {"flops", job.cost.flops},
                                                    {"gradient_bytes", job.cost.gradient_bytes},
                                                    {"weights_s", job.cost.weights_s},
                                                    {"weights_bytes", job.cost.weights_bytes},
                                                    {"tensor_bytes", job.cost.tensor_bytes}};
    for (const auto& [name, value] : costs) {
      metrics_.Count(std::string("learner/") + name, value);
    }
    return;
  }
  if (!job.batches.back().key.empty()) metrics_.Gauge("learner/beta", job.batches.back().beta);
  metrics_.Ratio("learner/td_error_mean", job.last.td_error_mean, job.last.rows);
  metrics_.Ratio("learner/q_mean", job.last.q_mean, job.last.rows);
  // Batches ready at the sampler or waiting in jobs: 0 means that the learner waits for data.
  const std::size_t ready = std::size_t(sampler_->ready_batches()) + batches_waiting_;
  metrics_.Gauge("learner/ready_batches", double(ready), MetricKind::kGaugeSum);
  // Age of the experience: updates since the weights that acted in it.
  double age = 0, items = 0;
  for (const SampleBatch& batch : job.batches) {
    for (const std::uint64_t version : batch.policy_version) {
      age += double(updates_) - double(UpdatesOf(version));
      ++items;
    }
  }
  metrics_.Ratio("learner/sample_age", items > 0 ? std::max(0.0, age / items) : 0, items);
}

}  // namespace troop
