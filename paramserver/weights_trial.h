#pragma once

#include <cstdint>
#include <string>

#include "core/status.h"
#include "net/control.h"

namespace troop {

// Which measurement of the weights it is.
struct TrialOptions {
  std::int64_t episodes = 1;  // or reviews
  std::uint64_t round = 0;    // a trial of the same config and round is the same
  std::uint64_t version = 0;  // of the weights
  bool final = false;         // of the run's end
};

// Measures fixed weights in bounded slices: what the evaluator's role is about. Two
// implementations: Evaluation plays episodes, ReviewTrial tells the sentiment of reviews. One owner
// thread.
class WeightsTrial {
 public:
  virtual ~WeightsTrial() = default;
  enum class State : std::uint8_t { kBusy, kWaiting, kOver };
  // A slice, of up to `steps` where that is a measure. kWaiting: for others (fd()); kOver: all is
  // done, or error() is not ok.
  virtual State Advance(int steps) = 0;
  virtual int fd() const { return -1; }
  virtual const Status& error() const = 0;
  virtual EvaluationReport Report() const = 0;  // REQUIRES: over, and no error
  // What was left out of this trial, and why: rewards or observations that were not finite, faults
  // of environments.
  virtual std::int64_t bad_numbers() const { return 0; }
  virtual std::int64_t faults() const { return 0; }
  // Why it makes no progress, as of EnvRunner::blocked; empty: it does.
  virtual std::string blocked() const { return {}; }
};

}  // namespace troop
