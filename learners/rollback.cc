// Implements the rollback to a checkpoint or to initial weights.

#include "learners/rollback.h"

#include <fmt/format.h>

#include "core/base/log.h"
#include "learners/checkpoint.h"
#include "learners/node/warm_start.h"

namespace troop {

// Falls back to the weights with which a new run would begin.
Result<std::string> RollBack(Algorithm* algorithm, Storage* run, const TrainingConfig& config,
                             const EnvSpec& env) {
  const Result<FoundCheckpoint> found = NewestFiniteCheckpoint(run);
  if (found.ok()) {
    const Status status = algorithm->RollBack(found->checkpoint.state);
    if (status.ok()) return fmt::format("{}, of update {}", found->path, found->checkpoint.updates);
    LogWarning("cannot roll back to {}: {}", found->path, status.message());
  }
  TROOP_ASSIGN_OR_RETURN(const std::unique_ptr<Algorithm> fresh, MakeAlgorithm(config, env));
  TROOP_RETURN_IF_ERROR(BeginWarm(config, env, {}, fresh.get()).status());
  TROOP_RETURN_IF_ERROR(algorithm->RollBack(fresh->State()));
  return std::string("the weights of a new run");
}

// A damaged checkpoint is an error here: the other ranks may have read a good one.
Status LoadNewestState(Algorithm* algorithm, Storage* run, const TrainingConfig& config,
                       const EnvSpec& env, const TensorParallelRank& tensor) {
  const Result<FoundCheckpoint> found = NewestFiniteCheckpoint(run);
  if (found.ok()) return algorithm->SetState(found->checkpoint.state);
  if (found.status().code() != Code::kNotFound) return found.status();
  TROOP_ASSIGN_OR_RETURN(const auto fresh, MakeAlgorithm(config, env, tensor));
  TROOP_RETURN_IF_ERROR(BeginWarm(config, env, tensor, fresh.get()).status());
  return algorithm->SetState(fresh->State());
}

}  // namespace troop
