// Implements the job that offers weights to the best checkpoint.

#include "actors/best_offer.h"

#include "core/base/check.h"

namespace troop {

void BestOffer::Start(const EvaluationReport& report, const Buffer& value) {
  TROOP_CHECK(enabled() && !busy(), "weights are already being offered");
  // The executor shares the job, so that a node that ends early leaves nothing dangling.
  job_ = std::make_shared<Job>();
  job_->report = report;
  job_->value = value;
  Result<Executor::Job> id = executor_->Submit("best checkpoint", [job = job_, keep = keep_] {
    job->kept = keep(job->report, job->value.as<float>());
  });
  TROOP_CHECK(id.ok(), "{}", id.status().ToString());
  job_->id = *id;
}

// The job's writes are visible after TakeDone.
std::optional<Result<bool>> BestOffer::Poll() {
  if (!job_ || !executor_->TakeDone(job_->id)) return std::nullopt;
  return std::move(std::exchange(job_, nullptr)->kept);
}

}  // namespace troop
