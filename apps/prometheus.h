#pragma once

#include <string>
#include <vector>

#include "apps/role_view.h"
#include "apps/run_rates.h"
#include "apps/run_state.h"

namespace troop {

// A run at one moment, for whoever watches it from another thread.
struct RunState {
  std::string name, problem, version;
  RunView view;
  RunRates rates;
  std::vector<RoleView> roles;
};

// Series of single roles are told of so many, the lowest indices of each role first; the rest are
// in the sums alone.
inline constexpr std::size_t kRoleSeriesMax = 2000;

// Prometheus' text format, version 0.0.4: HELP and TYPE for each family, counters that end in
// _total, times in seconds. Labels: role and index (at most kRoleSeriesMax pairs), table (those of
// the config), and names of states. A metric "replay/insert_blocked_s" of the roles together is
// troop_replay_insert_blocked_seconds_total; histograms have a bucket a power of two.
// O(roles + metrics); some ms for 1,000 roles.
std::string PrometheusText(const RunState& state);
inline constexpr char kPrometheusType[] = "text/plain; version=0.0.4; charset=utf-8";

}  // namespace troop
