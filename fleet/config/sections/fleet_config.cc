// Declares the config keys of the processes of a run.
#include "fleet/config/sections/fleet_config.h"

#include "core/config/config_visitor.h"

namespace troop {
namespace {

void VisitOthers(FleetConfig& c, ConfigVisitor& v) {
  v.Visit(
      {"fleet.metrics",
       "HOST:PORT of the Prometheus metrics endpoint of the coordinator, such as 127.0.0.1:9464; a "
       "non-loopback address requires a token (docs/guide/watching.md). Empty disables it."},
      c.metrics);
  v.Visit({"fleet.metrics_token",
           "File whose single line is the bearer token of the metrics endpoint."},
          c.metrics_token);
  // External roles.
  v.Visit({"fleet.external_roles",
           "External roles, which this launcher does not start, such as [\"replay\", \"learner\"]; "
           "they join from other machines (`troop join --role`) in any order. Actors can always "
           "join a run that sets fleet.listen."},
          c.external_roles);
  v.Visit(
      {"fleet.join_timeout_s",
       "Seconds that an external role (fleet.external_roles) may be missing before the run ends.",
       Between(0.1, 1e6)},
      c.join_timeout_s);
  v.Visit({"fleet.actors_min",
           "Minimum number of actors on all machines; the run ends if it has fewer for "
           "fleet.join_timeout_s.",
           Between(0, 100000)},
          c.actors_min);
  // Dashboard.
  v.Visit({"fleet.dashboard",
           "HOST:PORT of the web dashboard of the coordinator (docs/guide/dashboard.md), such as "
           "127.0.0.1:8800; a non-loopback address requires a token. Empty disables it."},
          c.dashboard);
  v.Visit({"fleet.dashboard_token",
           "File whose single line is the token of the dashboard, readable only by its owner; "
           "empty means no token is required."},
          c.dashboard_token);
}

}  // namespace

void VisitKeys(FleetConfig& c, ConfigVisitor& v) {
  v.Visit({.name = "fleet.mode",
           .doc = "\"processes\": one process per role; \"serial\": all roles in one thread, in a "
                  "fixed order, so that runs with the same seed are bit-identical."},
          c.mode);
  v.Visit({.name = "fleet.engine",
           .doc = "Launcher of the processes (`troop train --engine`). \"local\": this command; "
                  "\"slurm\": a Slurm job; \"mpi\": mpirun; \"kubernetes\": manifests to apply."},
          c.engine);
  v.Visit({.name = "fleet.transport",
           .doc = "Transport between the processes of this machine: Unix-domain sockets in a "
                  "private folder, or TCP."},
          c.transport);
  v.Visit({"fleet.actors", "Number of actor processes.", Between(1, 100000)}, c.actors);
  v.Visit({"fleet.learners", "Number of learner processes; learner.sync sets how they synchronize.",
           Between(1, 256)},
          c.learners);
  // Failure detection and restarts.
  v.Visit({"fleet.heartbeat_timeout_s",
           "Seconds without a heartbeat after which a role's connection counts as lost.",
           Between(0.1, 3600)},
          c.heartbeat_timeout_s);
  v.Visit({"fleet.stall_timeout_s",
           "Seconds without progress after which a live role is restarted.", Between(0.1, 86400)},
          c.stall_timeout_s);
  v.Visit(
      {"fleet.restarts_max",
       "Maximum number of consecutive restarts of a failing role; one more failure aborts the run.",
       Between(0, 1e6)},
      c.restarts_max);
  v.Visit({"fleet.restart_window_s",
           "Seconds of uptime after which the failure count of a role is reset.", Above(0)},
          c.restart_window_s);
  v.Visit(
      {"fleet.backoff_initial_s",
       "Seconds before the first restart of a role; the wait doubles with each restart.", Above(0)},
      c.backoff_initial_s);
  v.Visit({"fleet.backoff_max_s", "Maximum number of seconds before a restart.", Above(0)},
          c.backoff_max_s);
  v.Visit({"fleet.shutdown_grace_s",
           "Time limit in seconds for a clean shutdown of the roles, after which they are killed.",
           Between(0, 3600)},
          c.shutdown_grace_s);
  v.Visit(
      {"fleet.listen",
       "Listen address of the coordinator for roles on other machines (`troop join`): "
       "tcp://HOST:PORT with a HOST that they can reach; empty restricts the run to this machine."},
      c.listen);
  v.Visit({"fleet.listen_replay",
           "Listen address of replay shard 0; shard k uses port + k. Empty means the host of "
           "fleet.listen with free ports."},
          c.listen_replay);
  v.Visit({"fleet.listen_paramserver",
           "Listen address of parameter server 0; server k uses port + k. Empty means the host of "
           "fleet.listen with free ports."},
          c.listen_paramserver);
  VisitOthers(c, v);
}

}  // namespace troop
