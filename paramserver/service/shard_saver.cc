// Implements the periodic and the final snapshot of a served shard.
#include "paramserver/service/shard_saver.h"

#include <utility>

#include "core/base/check.h"
#include "core/base/log.h"
#include "kernels/elementwise/is_finite.h"

namespace troop {
namespace {

// Intervals from this value on (30 years) mean "never"; a Time cannot hold much more.
constexpr double kForeverSeconds = 1e9;

}  // namespace

bool ShardSaver::IsDue(Time now) {
  // The first interval begins with the first call, which has the clock of the node.
  if (!next_save_) {
    const bool saves = options_.every_s > 0 && options_.every_s < kForeverSeconds;
    next_save_ = saves ? now + Seconds(options_.every_s) : kForever;
  }
  return now >= *next_save_;
}

void ShardSaver::BeginInterval(Time now) { next_save_ = now + Seconds(options_.every_s); }

void ShardSaver::Save(ShardServer* server, const Target& target) {
  // One job at a time: writes of one folder must not overtake each other.
  if (job_) return;
  final_started_ = final_started_ || target.final;
  const ParameterShard& shard = server->shard();
  // Nothing was pushed since the last snapshot.
  if (shard.version() == saved_version_) return;
  // The previous snapshot is worth more than one that no learner can resume from.
  if (!AllFinite(shard.value())) {
    LogError("shard {} is not saved: a weight is not finite", options_.shard);
    return;
  }
  job_ = std::make_unique<Job>();
  job_->version = shard.version();
  job_->final = target.final;
  const auto id = options_.executor->Submit(
      "save", [job = job_.get(), snapshots = target.snapshots, since = target.since,
               snapshot = server->Snapshot()] { job->status = snapshots->Save(since, snapshot); });
  TROOP_CHECK(id.ok(), "{}", id.status().ToString());
  job_->id = *id;
}

Status ShardSaver::Collect() {
  if (!job_ || !options_.executor->TakeDone(job_->id)) return Status::Ok();
  const std::unique_ptr<Job> job = std::move(job_);
  if (job->status.ok()) {
    saved_version_ = job->version;
    ++saves_;
    return Status::Ok();
  }
  ++failures_;
  LogError("saving shard {} failed, the previous snapshot is kept: {}", options_.shard,
           job->status.message());
  // The next interval tries again; after the final snapshot there is none.
  if (!job->final) return Status::Ok();
  return job->status.WithContext("saving the final state of a parameter shard failed");
}

}  // namespace troop
