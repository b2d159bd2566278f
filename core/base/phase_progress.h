#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "core/base/time.h"

namespace troop {

// Sets the receiver of progress lines: stderr of a command, or the log of a role; nullptr (the
// default) discards them. Thread safe.
using PhaseSink = void (*)(const std::string& line);
void SetPhaseSink(PhaseSink sink);

// Progress of a long phase, as a line every two seconds: "tokenizing: 12000 of 50000 reviews, 4 s
// so far, about 13 s left". Shorter phases show nothing. Owner: one thread.
class PhaseProgress {
 public:
  // what: "tokenizing"; units: "reviews"; total: in those units. The clock must outlive this
  // object.
  PhaseProgress(std::string what, std::string units, std::int64_t total, const Clock* clock);
  PhaseProgress(std::string what, std::string units, std::int64_t total);
  // Shows a line if one is due; `done` of `total` units are complete.
  void Show(std::int64_t done);

 private:
  const std::string what_, units_;
  const std::int64_t total_;
  const Clock* const clock_;
  const Time begun_;
  std::optional<Time> shown_;
};

}  // namespace troop
