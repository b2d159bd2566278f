#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "apps/run_rates.h"
#include "apps/supervisor.h"
#include "core/config.h"
#include "core/time.h"
#include "net/log_gate.h"

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
// Shows how far a phase of a command is, in a line on `out` every two seconds: "troop: 12 of 100
// episodes, 8 s so far, about 59 s left". Nothing of a phase that is over sooner.
class PhaseProgress {
 public:
  // units: "episodes". The clock has to outlive it.
  PhaseProgress(std::string units, std::int64_t total, const Clock* clock, std::FILE* out = stderr)
      : units_(std::move(units)), total_(total), clock_(clock), out_(out), begun_(clock->Now()) {}
  void Show(std::int64_t done);

 private:
  const std::string units_;
  const std::int64_t total_;
  const Clock* const clock_;
  std::FILE* const out_;
  const Time begun_;
  std::optional<Time> shown_;
};
std::unique_ptr<Progress> MakeProgress(const std::string& name, bool live, std::FILE* out = stdout);

// Lines on the terminal about what keeps a run from going well.
class RoleNotices {
 public:
  // Once, when no episode has ended though every environment took many steps: returns stay unknown,
  // and no message says that nothing limits an episode.
  void SayEndless(const RunView& view, const Config& config, Progress* progress);
  // Each role that is blocked, once until it is blocked again.
  void SayBlocked(const RunView& view, Progress* progress);
  // A role that failed and will be restarted; of many in a second only some.
  void SayEnded(Time now, const Supervisor::Exit& exit, const std::string& why, Progress* progress);

 private:
  std::set<std::string> blocked_;  // names
  bool endless_said_ = false;
  LogGate ended_;
};

}  // namespace troop
