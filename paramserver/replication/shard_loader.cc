// Implements the choice of the state that a new primary begins with.
#include "paramserver/replication/shard_loader.h"

#include <string>
#include <utility>
#include <vector>

#include "core/base/check.h"
#include "core/base/log.h"

namespace troop {
namespace {

// Concatenates the ranges of a value.
std::vector<float> Cut(std::span<const float> value, std::span<const ParamRange> ranges) {
  std::vector<float> part;
  for (const ParamRange& range : ranges) {
    part.insert(part.end(), value.begin() + range.begin, value.begin() + range.end);
  }
  return part;
}

}  // namespace

// Loads in a job, because a snapshot has gigabytes and the node must send heartbeats.
void ShardLoader::Start(Request request) {
  TROOP_CHECK(!running(), "shard {} is being loaded already", shard_);
  job_ = std::make_unique<Job>();
  job_->loaded.since = request.since;
  job_->request = std::move(request);
  // job_ keeps request and result alive until TakeDone.
  const auto id = executor_->Submit(
      "load", [this, job = job_.get()] { job->loaded.shard = Load(job->request); });
  TROOP_CHECK(id.ok(), "{}", id.status().ToString());
  job_->id = *id;
}

std::optional<ShardLoader::Loaded> ShardLoader::TakeDone() {
  if (!job_ || !executor_->TakeDone(job_->id)) return std::nullopt;
  return std::move(std::exchange(job_, nullptr)->loaded);
}

// A checkpoint has no optimizer state of the shards. Errors: kNotFound.
Result<std::unique_ptr<ParameterShard>> ShardLoader::LoadCheckpoint(const Request& request) const {
  if (!fallbacks_.checkpoint_weights) return NotFound("no checkpoint");
  std::vector<float> value(std::size_t(request.parameters));
  TROOP_ASSIGN_OR_RETURN(const std::uint64_t updates, fallbacks_.checkpoint_weights(value));
  LogWarning("shard {} resumes from the checkpoint weights of update {}", shard_, updates);
  return ParameterShard::Make(request.options, Cut(value, request.options.ranges), updates);
}

Result<std::unique_ptr<ParameterShard>> ShardLoader::Load(const Request& request) const {
  ShardSnapshots* const snapshots = request.snapshots;
  TROOP_ASSIGN_OR_RETURN(const std::vector<std::string> names, snapshots->List());
  Status damage;
  // The newest snapshot comes first, so the first intact one wins.
  // Damaged snapshots are skipped; any other error ends the load.
  for (const std::string& name : names) {
    Result<Buffer> bytes = snapshots->Read(name);
    if (bytes.ok()) {
      auto shard = ParameterShard::Restore(request.options, std::span(&*bytes, 1));
      if (shard.ok())
        LogInfo("resuming from {}: version {}", snapshots->PathOf(name), (*shard)->version());
      // Errors besides damage, such as another optimizer, would be the same for older snapshots.
      if (shard.ok() || shard.status().code() != Code::kDataLoss) return shard;
      bytes = shard.status();
    }
    // The first damage is the reason that the user sees if nothing can be loaded.
    if (damage.ok()) damage = bytes.status().WithContext(snapshots->PathOf(name));
    LogError("skipping {}: {}", snapshots->PathOf(name), bytes.status().message());
  }
  Result<std::unique_ptr<ParameterShard>> kept = LoadCheckpoint(request);
  if (kept.status().code() != Code::kNotFound) return kept;
  // An empty folder is normal only for a run that begins.
  if (damage.ok() && request.snapshot_expected) {
    damage = DataLoss("{} is empty, but a snapshot must exist before its epoch begins",
                      snapshots->PathOf(""));
  }
  if (!damage.ok()) {  // never start over silently
    return DataLoss(
        "{}; no older snapshot or checkpoint is intact; start over with troop train … "
        "--overwrite",
        damage.message());
  }
  // Every shard makes the first weights of the whole model, and cuts out its ranges.
  std::vector<float> value(std::size_t(request.parameters));
  TROOP_RETURN_IF_ERROR(fallbacks_.first_weights(value));
  return ParameterShard::Make(request.options, Cut(value, request.options.ranges));
}

}  // namespace troop
