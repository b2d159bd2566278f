// Detects external roles that do not join a run.
#include "apps/launch/external_role_watch.h"

#include <fmt/format.h>

#include "core/base/log.h"

namespace troop {

// The time counts from the first missing role until none is missing, whichever roles these are.
Status ExternalRoleWatch::Check(Time now, const std::vector<std::string>& missing,
                                RunMonitor* monitor) {
  if (missing.empty()) {
    reported_.clear();
    since_.reset();
    return Status::Ok();
  }
  const std::string names = fmt::format("{}", fmt::join(missing, ", "));
  if (!since_) since_ = now;
  if (names != reported_) {
    reported_ = names;
    LogInfo("waiting for {} to join {}", names, endpoint_);
    monitor->Say(fmt::format("waiting for {} to join {}", names, endpoint_));
  }
  if (now - *since_ < Seconds(limit_s_)) return Status::Ok();
  return DeadlineExceeded(
      "{} did not join within {:g} s (fleet.join_timeout_s); start with: troop join {} --role ROLE",
      names, limit_s_, endpoint_);
}

}  // namespace troop
