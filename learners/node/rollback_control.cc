// Implements the reaction to non-finite values.

#include "learners/node/rollback_control.h"

#include <bit>
#include <utility>

#include "core/base/log.h"

namespace troop {

// An update with empty priorities was skipped; a batch without keys only carried experience.
Status RollbackControl::Review(const UpdateJob& job, ReplaySampler* sampler) {
  const std::uint64_t before = skipped_;
  bool back = !job.weights.ok();
  Status diverged;  // of the last batch that no program refused
  for (std::size_t i = 0; i < job.batches.size(); ++i) {
    // A batch without keys has no items to update, and says nothing about the weights.
    if (job.batches[i].key.empty()) continue;
    if (!job.priority[i].empty()) {
      sampler->UpdatePriorities(job.batches[i].key, job.priority[i]);
      rule_.CountGood();
      quarantine_.CountGood();
    } else {
      ++skipped_;
      const auto reason = job.skipped.find(i);
      const Status& why = reason == job.skipped.end() ? job.status : reason->second;
      // An external program chose to skip the batch: neither its items nor the weights are at
      // fault. Another batch of the same job can be at fault all the same.
      if (why.code() == Code::kCancelled) continue;
      diverged = why;
      // Bad batches of a rollback that is in progress are its consequence, not a new cause.
      if (busy() || (job.weights.ok() && quarantine_.Catch(job.batches[i], sampler))) continue;
      back = rule_.CountSkipped() || back;
    }
  }
  // Logged at each power of two of the number of skipped updates.
  if (!job.status.ok() && std::bit_width(before) != std::bit_width(skipped_)) {
    LogWarning("update skipped ({} so far): {}", skipped_, job.status.message());
  }
  // Jobs submitted before a rollback used weights that it discards.
  if (!back || busy()) return Status::Ok();
  // A lost device is reported before the values that it computed.
  const bool lost = job.weights.code() == Code::kUnavailable;
  return lost || diverged.ok() ? job.weights : diverged;
}

// After a permanent failure of the device, or of an external program, the role ends; its
// replacement resumes from the newest checkpoint.
Status RollbackControl::Permit(const Status& why) {
  if (why.code() == Code::kUnavailable) {
    const bool external = options_.config->learner.algorithm == AlgorithmKind::kExternal;
    return why.WithContext(external ? "learner.program_socket" : "learner.device");
  }
  if (options_.shards_hold_weights) {
    return Cancelled("diverged (NaN or infinity), and the parameter shards hold the weights: {}",
                     why.message());
  }
  // A rule limits the number, because a divergence that repeats does not end by itself.
  if (rule_.GoBack()) return Status::Ok();
  return Cancelled(
      "diverged again (NaN or infinity) after {} rollbacks, each within {} good updates, last: "
      "{}; "
      "lower optimizer.learning_rate, set learner.max_grad_norm or env.reward_clip, or check "
      "the values that {} returns",
      RollbackRule::kRollbacksMax, RollbackRule::kGoodMin, why.message(), options_.env->id);
}

void RollbackControl::Start(const Status& why) {
  TROOP_CHECK(!busy(), "a rollback is already in progress");
  job_ = std::make_unique<Job>();
  job_->why = why;
  Result<Executor::Job> id = options_.executor->Submit(
      "rollback", [work = job_.get(), algorithm = options_.algorithm, options = &options_] {
        // The job owns the algorithm until it is done: no update runs meanwhile.
        work->to = RollBack(algorithm, options->run, *options->config, *options->env);
        work->updates = algorithm->updates();
        work->value = Buffer::Copy(std::as_bytes(algorithm->value()));
      });
  TROOP_CHECK(id.ok(), "{}", id.status().ToString());
  job_->id = *id;
}

Result<std::optional<RollbackControl::Done>> RollbackControl::Poll() {
  if (!job_ || !options_.executor->TakeDone(job_->id)) return std::optional<Done>();
  const std::unique_ptr<Job> job = std::move(job_);
  if (!job->to.ok()) {
    return job->to.status().WithContext("the rollback failed after " + job->why.message());
  }
  return std::optional<Done>({.updates = job->updates,
                              .value = std::move(job->value),
                              .description = fmt::format("{}, now update {}: {}", *job->to,
                                                         job->updates, job->why.message())});
}

}  // namespace troop
