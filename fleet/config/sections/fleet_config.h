#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/config/enum_names.h"

namespace troop {

class ConfigVisitor;

// Execution of the roles.
enum class FleetMode : std::uint8_t {
  kProcesses,  // one process per role
  kSerial,     // all roles in one thread, deterministic
};
constexpr auto EnumNames(FleetMode) {
  return std::to_array<std::string_view>({"processes", "serial"});
}

// Launcher of the processes.
enum class LaunchEngine : std::uint8_t { kLocal, kSlurm, kMpi, kKubernetes };
constexpr auto EnumNames(LaunchEngine) {
  return std::to_array<std::string_view>({"local", "slurm", "mpi", "kubernetes"});
}

// Transport between the processes of one machine.
enum class FleetTransport : std::uint8_t {
  kIpc,  // Unix-domain sockets
  kTcp,
};
constexpr auto EnumNames(FleetTransport) { return std::to_array<std::string_view>({"ipc", "tcp"}); }

// The processes of a run ([fleet]).
struct FleetConfig {
  FleetMode mode = FleetMode::kProcesses;
  LaunchEngine engine = LaunchEngine::kLocal;
  FleetTransport transport = FleetTransport::kIpc;
  std::int64_t actors = 1;
  std::int64_t learners = 1;
  double heartbeat_timeout_s = 1.5;
  double stall_timeout_s = 30;
  std::int64_t restarts_max = 20;  // consecutive, per role
  double restart_window_s = 60;
  double backoff_initial_s = 0.1;
  double backoff_max_s = 10;
  double shutdown_grace_s = 5;
  std::string listen;                       // tcp://host:port of the coordinator; empty: local only
  std::string listen_replay;                // empty: host of listen, free ports
  std::string listen_paramserver;           // the same
  std::string metrics;                      // host:port of the metrics endpoint; empty: none
  std::string metrics_token;                // file with its token; empty: none
  std::vector<std::string> external_roles;  // join from other machines
  double join_timeout_s = 600;              // how long their slots may be empty
  std::int64_t actors_min = 0;  // minimum number of actors, or the run ends after join_timeout_s
  std::string dashboard;        // host:port of the web dashboard; empty: none
  std::string dashboard_token;  // file with its token; empty: no token
  bool operator==(const FleetConfig&) const = default;
};
// Declares the keys.
void VisitKeys(FleetConfig& config, ConfigVisitor& visitor);

}  // namespace troop
