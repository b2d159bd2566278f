#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "core/base/status.h"
#include "core/graphics/picture.h"
#include "net/control/evaluation_report.h"

namespace troop {

// Identifies one evaluation of the weights.
struct EvaluationRequest {
  std::int64_t episodes = 1;  // or examples
  std::uint64_t round = 0;    // seeds the trial: equal config and round repeat it
  std::uint64_t version = 0;  // of the weights
  bool final = false;         // at the end of the run
  bool video = false;         // record pictures, where the implementation has any
};

// Evaluates fixed weights in bounded slices, for the evaluator role. Three
// implementations: EpisodeEvaluator plays episodes, TextEvaluator and ImageEvaluator classify
// examples. One owner thread.
class Evaluator {
 public:
  virtual ~Evaluator() = default;
  enum class State : std::uint8_t { kBusy, kWaiting, kOver };
  // Runs a slice of at most `steps` steps, where the implementation counts steps. kWaiting: for
  // other processes (fd()); kOver: finished, or error() is not ok.
  virtual State Advance(int steps) = 0;
  virtual int fd() const { return -1; }
  virtual const Status& error() const = 0;
  virtual EvaluationReport Report() const = 0;  // REQUIRES: over, and no error
  // Further measures of the trial by name, besides the report's; they become gauges of the role.
  // REQUIRES: as Report.
  virtual std::vector<std::pair<std::string, double>> Measures() const { return {}; }
  // Adds to a report that has the measures what takes longer and only a final one holds: their
  // intervals, and the classes. Blocks for seconds at most. REQUIRES: as Report.
  virtual void AddDetails(EvaluationReport*) const {}
  // The pictures of a trial with `video`, once; empty: there are none. REQUIRES: as Report.
  virtual std::vector<Picture> TakeFrames() { return {}; }
  // Results excluded from this trial: non-finite rewards or observations, and environment faults.
  virtual std::int64_t nonfinite_values() const { return 0; }
  virtual std::int64_t faults() const { return 0; }
  // Reason for a lack of progress, as in EnvRunner::blocked; empty if there is none.
  virtual std::string blocked() const { return {}; }
};

}  // namespace troop
