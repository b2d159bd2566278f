#pragma once

#include <cstdio>
#include <memory>
#include <string>

#include "apps/run_rates.h"

namespace troop {

// Shows a run on `out`: a live block that redraws itself on a terminal, else a plain line every two
// seconds.
class Progress {
 public:
  virtual ~Progress() = default;
  virtual void Show(Time now, const RunView& view, const RunRates& rates) = 0;
  virtual void Finish(const RunView& view, const RunRates& rates) = 0;
  // A line for the person who watches; it stays in sight.
  virtual void Say(const std::string& notice) = 0;
};
std::unique_ptr<Progress> MakeProgress(const std::string& name, bool live, std::FILE* out = stdout);

}  // namespace troop
