#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/metrics/metrics.h"
#include "fleet/run/role_status.h"
#include "net/control/evaluation_report.h"
#include "net/control/phase.h"

namespace troop {

// A registered role, as supervision and status see it.
struct MemberView {
  Role role = Role::kNone;
  std::int32_t index = 0;
  std::uint64_t incarnation = 0;
  std::int64_t process = 0;
  std::string host;
  double heartbeat_age_s = 0;  // since its last heartbeat
  double down_s = 0;           // since its connection ended; 0: connected
  bool finished = false;
};

// A role that stalls the run: blocked, or in a restart loop.
struct RoleCondition {
  Role role = Role::kNone;
  std::int32_t index = 0;
  RoleView::State state = RoleView::State::kBlocked;  // or kRestarting
  std::string reason;
};

// The state of a run at one moment: the source of progress lines, metric files and status.
struct RunView {
  Phase phase = Phase::kRunning;
  bool supervised = false;  // steps count training examples
  bool offline = false;     // steps count samples of recorded episodes; there are no actors
  std::int64_t steps = 0, steps_total = 0;
  std::int64_t steps_at_start = 0;     // those of the checkpoint that the run resumed from
  std::uint64_t updates_at_start = 0;  // likewise
  // Updates in the newest weights; falls when a learner returns to a checkpoint. The metric
  // learner/updates counts every update made, including repeated ones.
  std::uint64_t updates = 0;
  MetricSnapshot metrics;                     // merged; includes counters of dead incarnations
  std::vector<EvaluationReport> evaluations;  // oldest first
  std::vector<MemberView> members;
  std::vector<RoleCondition> conditions;  // evaluators last
  std::string checkpoint;                 // newest complete one
  std::uint64_t checkpoint_updates = 0;
  bool checkpoint_final = false;  // no later update will follow
  // Parameter shards (learner.sync = "paramserver").
  std::int32_t shards = 0, shards_wanted = 0;  // they differ while a reshard is under way
  std::uint64_t shard_epoch = 0;               // epoch of the shard map
};

// The view as JSON for `troop status --json`; its keys are the same for every run
// (docs/guide/watching.md, fleet/run/ended_run.h).
std::string ViewJson(const RunView& view, const std::vector<RoleView>& roles);
// "running", "draining", "evaluating", "done".
const char* PhaseName(Phase phase);

}  // namespace troop
