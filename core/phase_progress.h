#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "core/time.h"

namespace troop {

// Where the lines of phases go: stderr of a command, the log of a role. nullptr (the default):
// nowhere. Thread-safe.
using PhaseSink = void (*)(const std::string& line);
void SetPhaseSink(PhaseSink sink);

// How far a phase is that may take long, as a line every two seconds: "tokenizing: 12000 of 50000
// reviews, 4 s so far, about 13 s left". Nothing of a phase that is over sooner. Owner: one thread.
class PhaseProgress {
 public:
  // what: "tokenizing"; units: "reviews"; total: in those units. The clock has to outlive it.
  PhaseProgress(std::string what, std::string units, std::int64_t total, const Clock* clock);
  PhaseProgress(std::string what, std::string units, std::int64_t total);
  void Show(std::int64_t done);

 private:
  const std::string what_, units_;
  const std::int64_t total_;
  const Clock* const clock_;
  const Time begun_;
  std::optional<Time> shown_;
};

}  // namespace troop
