#pragma once

#include <string>
#include <vector>

#include "fleet/run/role_status.h"
#include "fleet/run/run_state.h"
#include "fleet/run/throughput.h"

namespace troop {

// A copy of a run's state, for use in another thread.
struct PrometheusState {
  std::string name, problem, version;
  RunView view;
  RunThroughput rates;
  std::vector<RoleView> roles;
};

// Maximum number of roles with their own series, lowest indices of each role first; the others
// count in the sums only.
inline constexpr std::size_t kRoleSeriesMax = 2000;

// The state in the Prometheus text format, version 0.0.4: HELP and TYPE for each family, counters
// that end in _total, times in seconds. Labels: role and index (at most kRoleSeriesMax pairs),
// table (those of the config), and names of states. The fleet-wide metric "replay/insert_blocked_s"
// is troop_replay_insert_blocked_seconds_total; histograms have one bucket per power of two.
// O(roles + metrics); some ms for 1,000 roles.
std::string PrometheusText(const PrometheusState& state);
inline constexpr char kPrometheusType[] = "text/plain; version=0.0.4; charset=utf-8";

}  // namespace troop
