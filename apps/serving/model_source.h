#pragma once

#include <memory>
#include <optional>
#include <string>

#include "apps/deploy/loaded_checkpoint.h"
#include "apps/serving/served_model.h"
#include "apps/serving/serving_metrics.h"
#include "apps/serving/session_table.h"
#include "core/base/status.h"
#include "core/tensor/spec.h"

namespace troop {

// The checkpoints of a run as served models. Owner: one thread, which blocks on the disk. It must
// outlive its models, which use its sessions.
class ModelSource {
 public:
  struct Options {
    // Run folder; or checkpoint folder or Hugging Face files (text models), which never change.
    std::string path;
    bool best = false;
    std::int64_t rows_max = 64;  // of a batch
    std::size_t sessions_max = 1024;
    Duration session_idle = Seconds(300);
  };
  // metrics: borrowed.
  ModelSource(Options options, ServingMetrics* metrics);

  // Loads the newest or the best checkpoint. Errors: those of LoadCheckpoint, of ServedPolicy::Make
  // and of TextPredictor::Load.
  Result<std::shared_ptr<ServedModel>> Load();
  // Loads the checkpoint if the run has written another one since the last success; null if not. An
  // error leaves the next call to try again.
  Result<std::shared_ptr<ServedModel>> Poll();

 private:
  Result<std::shared_ptr<ServedModel>> LoadPolicy(const LoadedCheckpoint& loaded);
  // updates: of the checkpoint at `path`.
  Result<std::shared_ptr<ServedModel>> LoadText(const std::string& path, CheckpointChoice choice,
                                                std::uint64_t updates);
  std::string NewestMark() const;

  const Options options_;
  ServingMetrics* const metrics_;
  std::optional<EnvSpec> env_;  // found once: it may start a process
  std::unique_ptr<SessionTable> sessions_;
  std::string mark_;  // of the loaded checkpoint: its name and the time of its manifest
};

}  // namespace troop
