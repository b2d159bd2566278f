// Implements the update counts and metrics of the learner role.

#include "learners/learner_node.h"

namespace troop {

// Each update is counted by one learner of the run (the leader), and again if it is repeated after
// a restart.
void LearnerNode::SeeUpdates(std::uint64_t updates) {
  if (Leads() && updates > updates_) led_ += updates - updates_;
  updates_ = updates;
  metrics_.Gauge("learner/updates", double(led_), MetricKind::kCounter);
  metrics_.Gauge("learner/version", double(updates_), MetricKind::kGaugeMax);
  if (UsesShards(topology_) && sampler() != nullptr) sampler()->ObservePolicyVersion(Version());
  source_->ReportSteps(updates, &context_.member->report());
}

// The weights come from other learners or a checkpoint: this learner made no update.
void LearnerNode::AdoptUpdates(std::uint64_t updates) {
  updates_ = updates;
  SeeUpdates(updates);
}

// Metrics of one collected job; the loss is weighted by rows when roles are combined.
void LearnerNode::ReportMetrics(const UpdateJob& job) {
  metrics_.Gauge("learner/skipped_updates", double(rollback_.skipped()), MetricKind::kCounter);
  metrics_.Gauge("learner/quarantined_items", double(rollback_.quarantined()),
                 MetricKind::kCounter);
  if (job.busy_s > 0) metrics_.Count("learner/busy_s", job.busy_s);
  if (job.batches.empty()) return;
  metrics_.Gauge("learner/learning_rate", algorithm_->LearningRate(job.progress));
  if (context_.config.normalize_rewards) metrics_.Gauge("learner/reward_scale", Rewards().Scale());
  metrics_.Ratio("learner/loss", job.last.loss, job.last.rows);
  if (job.last.rows > 0) metrics_.Gauge("learner/grad_norm", job.last.gradient_norm);
  if (job.last.temperature > 0) {
    metrics_.Gauge("learner/temperature", job.last.temperature);
    metrics_.Ratio("learner/entropy", job.last.entropy, job.last.rows);
  }
  if (IsActorCritic(context_.config.learner.algorithm)) {
    for (const auto& [name, value] : {std::pair("learner/entropy", job.last.entropy),
                                      {"learner/policy_loss", job.last.policy_loss},
                                      {"learner/value_loss", job.last.value_loss},
                                      {"learner/approx_kl", job.last.divergence},
                                      {"learner/clip_fraction", job.last.clipped},
                                      {"learner/kl_stop_fraction", job.last.stopped}})
      metrics_.Ratio(name, value, job.last.rows);
  }
  source_->ReportBatches(job, {.updates = updates_, .batches_waiting = batches_waiting_},
                         &metrics_);
}

}  // namespace troop
