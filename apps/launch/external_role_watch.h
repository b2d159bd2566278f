#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "apps/launch/run_monitor.h"
#include "core/base/status.h"
#include "core/base/time.h"

namespace troop {

// Reports external roles (fleet.external_roles) that are missing, and fails a run that has missed
// one for too long. Owner: the thread of the run.
class ExternalRoleWatch {
 public:
  // endpoint: the coordinator's, which the roles must join. limit_s: fleet.join_timeout_s.
  ExternalRoleWatch(std::string endpoint, double limit_s)
      : endpoint_(std::move(endpoint)), limit_s_(limit_s) {}
  // `missing`: Coordinator::EmptySlots. Says each new set of missing roles once. Errors:
  // kDeadlineExceeded: some role was missing for limit_s, with the remedy.
  Status Check(Time now, const std::vector<std::string>& missing, RunMonitor* monitor);

 private:
  const std::string endpoint_;
  const double limit_s_;
  std::optional<Time> since_;  // since then some role is missing
  std::string reported_;       // the missing roles, as last reported
};

}  // namespace troop
