#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "core/base/status.h"
#include "core/storage/storage.h"
#include "net/control/evaluation_report.h"
#include "nn/module.h"

namespace troop {

// Keeps the weights of the best evaluation in the best checkpoint of a run (evaluator.keep_best,
// learners/checkpoint.h).
//
// The evaluator writes it, not a learner: only the evaluator has exactly the weights that were
// evaluated. The learner has made further updates by then, with parameter shards no learner ever
// had these weights as a whole, and a message from one to the other would need its own recovery.
// Learners write checkpoints/, the evaluator best/: two processes never write one folder.
//
// One thread at a time: the evaluator role calls it in jobs, one after another.
class BestCheckpointKeeper {
 public:
  struct Options {
    Storage* run = nullptr;  // the run folder
    std::unique_ptr<Module> module;
    std::string config_toml;   // of the run
    std::string policy;        // EncodedPolicyOf the run's agent; empty: a text model
    bool shards = false;       // parameter shards: their versions begin at 1
    bool records_time = true;  // false in serial mode: equal runs write equal bytes
  };
  explicit BestCheckpointKeeper(Options options) : options_(std::move(options)) {}

  // Writes the weights [P] if their score (return_mean) is higher than that of the best checkpoint;
  // at an equal score the earlier weights stay. A restarted process compares with what is on disk;
  // a damaged best checkpoint is replaced, with a log line. Returns true if the weights were
  // written. Blocks on the disk. Errors: kDataLoss: the score is not finite; those of the storage,
  // after which the checkpoint before is still complete.
  Result<bool> Offer(const EvaluationReport& report, std::span<const float> weights);

 private:
  // Updates best_ from the disk.
  void ReadBest();

  const Options options_;
  bool read_ = false;           // the best checkpoint on disk was verified
  bool damaged_ = false;        // it is damaged, so its score does not count
  std::optional<double> best_;  // its score; nullopt: none
};

}  // namespace troop
