#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <set>
#include <string>

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
