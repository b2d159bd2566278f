// Implements the decision which evaluated weights become the best checkpoint.

#include "learners/best_checkpoint.h"

#include <cmath>

#include "core/base/log.h"
#include "core/base/time.h"
#include "core/tensor/trajectory.h"
#include "learners/checkpoint.h"
#include "nn/models/model.h"

namespace troop {

// Verifies the whole checkpoint once: the score of damaged weights is worth nothing. Later only the
// score is read, which a successor has raised if this process was stopped and comes back.
void BestCheckpointKeeper::ReadBest() {
  if (!read_) {
    read_ = true;
    if (const Status repaired = RepairBestCheckpoint(options_.run); !repaired.ok()) {
      LogWarning("{}", repaired.message());
    }
    const Result<std::string> path = BestCheckpoint(options_.run);
    if (!path.ok()) return;
    const Result<CheckpointState> found = ReadCheckpoint(options_.run, *path);
    damaged_ = !found.ok() || !found->score;
    if (damaged_) {
      LogWarning("the best checkpoint is replaced at the next evaluation: {}",
                 found.ok() ? *path + " has no score" : found.status().message());
    }
  }
  if (damaged_) return;
  const Result<CheckpointScore> there = BestScore(options_.run);
  if (there.ok()) best_ = there->score;
}

Result<bool> BestCheckpointKeeper::Offer(const EvaluationReport& report,
                                         std::span<const float> weights) {
  // Every comparison with NaN is false, so the order of the two scores would decide.
  if (!std::isfinite(report.return_mean)) {
    return DataLoss("the score of update {} is {}, which is never the best",
                    UpdatesOf(report.weights_version), report.return_mean);
  }
  // Most evaluations end here, after reading one small file.
  ReadBest();
  if (best_ && report.return_mean <= *best_) return false;
  if (std::int64_t(weights.size()) != ParameterCount(*options_.module)) {
    return InvalidArgument("{} weights, but the model has {} parameters", weights.size(),
                           ParameterCount(*options_.module));
  }
  // The version of parameter shards counts from 1, their updates from 0.
  std::uint64_t updates = UpdatesOf(report.weights_version);
  if (options_.shards && updates > 0) --updates;
  CheckpointState checkpoint{
      .updates = updates,
      .steps = report.steps,
      .config_toml = options_.config_toml,
      .score =
          CheckpointScore{.score = report.return_mean,
                          .episodes = report.episodes,
                          .version = report.weights_version,
                          .unix_time = options_.records_time ? std::int64_t(WallSeconds()) : 0},
      .policy = options_.policy};
  // The value as one tensor for the commands of Troop; the optimizer's state stays out, because a
  // learner never resumes from here.
  checkpoint.state.tensors["value"] = ConstTensor(Buffer::Copy(std::as_bytes(weights)),
                                                  {DType::kF32, {std::int64_t(weights.size())}});
  checkpoint.state.metadata["updates"] = std::to_string(updates);
  TROOP_RETURN_IF_ERROR(WriteBestCheckpoint(options_.run, *options_.module, checkpoint));
  LogInfo("best checkpoint: score {:.2f} at {} updates{}", report.return_mean, updates,
          best_ ? fmt::format(", {:.2f} before", *best_) : "");
  // Only now: a score that was not written must not keep a lower one from being written.
  damaged_ = false;
  best_ = report.return_mean;
  return true;
}

}  // namespace troop
