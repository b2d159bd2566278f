#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <set>
#include <string>

#include "core/base/log_rate_limit.h"
#include "core/base/time.h"
#include "fleet/config/config.h"
#include "fleet/launcher/supervisor.h"
#include "fleet/run/throughput.h"

namespace troop {

// Shows the progress of a run on `out`: a live block that is redrawn on a terminal, or a plain line
// every two seconds.
class Progress {
 public:
  virtual ~Progress() = default;
  // Shows the current state; a plain line only if one is due.
  virtual void Show(Time now, const RunView& view, const RunThroughput& rates) = 0;
  // Shows the final state.
  virtual void Finish(const RunView& view, const RunThroughput& rates) = 0;
  // Shows a message to the user; in a live block it stays until the next one.
  virtual void Say(const std::string& notice) = 0;
};
// `live`: a live block instead of plain lines.
std::unique_ptr<Progress> MakeProgress(const std::string& name, bool live, std::FILE* out = stdout);

// Messages about problems of a run.
class RoleNotices {
 public:
  // Warns once if no episode has ended after many steps of every environment: returns then stay
  // unknown, and no other message shows that episodes are unlimited.
  void SayEndless(const RunView& view, const Config& config, Progress* progress);
  // Reports each blocked role, once per blockage.
  void SayBlocked(const RunView& view, Progress* progress);
  // Reports a role that failed and will be restarted; rate-limited.
  void SayEnded(Time now, const Supervisor::Exit& exit, const std::string& why, Progress* progress);

 private:
  std::set<std::string> blocked_;  // names of roles that are blocked and reported
  bool endless_said_ = false;      // checked once, whatever the result
  LogRateLimit ended_;             // limits the rate of SayEnded
};

}  // namespace troop
