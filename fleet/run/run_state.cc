// Implements the JSON form of a run's state.
#include "fleet/run/run_state.h"

#include <string>
#include <vector>

#include "core/base/time.h"
#include "core/metrics/metrics.h"
#include "core/storage/json.h"
#include "net/control/peer_info.h"

namespace troop {

// Names are part of metrics.jsonl and of the JSON status.
const char* PhaseName(Phase phase) {
  switch (phase) {
    case Phase::kRunning:
      return "running";
    case Phase::kDraining:
      return "draining";
    case Phase::kEvaluating:
      return "evaluating";
    case Phase::kDone:
      return "done";
  }
  return "unknown";
}

// Keys are part of the interface of `troop status --json`; fleet/run/ended_run.cc writes the same
// ones.
std::string ViewJson(const RunView& view, const std::vector<RoleView>& all) {
  JsonArray members, roles;
  for (const MemberView& m : view.members) {
    members.Add(JsonObject()
                    .Add("role", PeerName(m.role, m.index))
                    .Add("incarnation", m.incarnation)
                    .Add("process", m.process)
                    .Add("host", m.host)
                    .Add("heartbeat_age_s", m.heartbeat_age_s));
  }
  for (const RoleView& r : all) roles.Add(RoleJson(r));
  JsonObject metrics;
  for (const auto& [name, value] : view.metrics) {
    if (value.kind == MetricKind::kHistogram) {
      metrics.Add(name, value.histogram.Json());
    } else {
      metrics.Add(name, value.value);
    }
  }
  JsonObject out;
  out.Add("state", "running").Add("phase", PhaseName(view.phase)).Add("steps", view.steps);
  // Time of this answer, from which a reader computes its age.
  out.Add("time_s", WallSeconds());
  out.Add("supervised", view.supervised)
      .Add("offline", view.offline)
      .Add("steps_total", view.steps_total)
      .Add("updates", view.updates)
      .Add("checkpoint", view.checkpoint);
  if (!view.evaluations.empty()) out.Add("return_mean", view.evaluations.back().return_mean);
  // Only runs with parameter shards have this key.
  if (view.shards > 0) {
    out.Add("parameter_shards", JsonObject()
                                    .Add("count", std::int64_t(view.shards))
                                    .Add("desired", std::int64_t(view.shards_wanted))
                                    .Add("epoch", view.shard_epoch));
  }
  return out.Add("members", members)
      .Add("roles", roles)
      .Add("metrics", metrics)
      .Add("result", nullptr)
      .str();
}

}  // namespace troop
