#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "apps/role_view.h"
#include "core/metrics.h"
#include "net/control.h"

namespace troop {

// What is known of one role, for supervision and status.
struct MemberView {
  Role role = Role::kNone;
  std::int32_t index = 0;
  std::uint64_t incarnation = 0;
  std::int64_t process = 0;
  std::string host;
  double silent_s = 0;  // since its last beat
  double down_s = 0;    // since its connection ended; 0: it stands
  bool finished = false;
};

// A role that holds up the run, whatever else does.
struct RoleCondition {
  Role role = Role::kNone;
  std::int32_t index = 0;
  RoleView::State state = RoleView::State::kBlocked;  // or kRestarting
  std::string reason;
};

// The state of a run at one moment: what progress lines, files and status show.
struct RunView {
  Phase phase = Phase::kRunning;
  bool supervised = false;  // steps are reviews
  std::int64_t steps = 0, steps_total = 0;
  std::int64_t steps_at_start = 0;     // of a resumed run
  std::uint64_t updates_at_start = 0;  // the same
  // Behind the newest weights. A learner that begins at a checkpoint again takes it back to there;
  // learner/updates of the metrics counts all that were made, also those made again.
  std::uint64_t updates = 0;
  MetricSnapshot metrics;                     // of the whole fleet, dead incarnations' counters too
  std::vector<EvaluationReport> evaluations;  // oldest first
  std::vector<MemberView> members;
  std::vector<RoleCondition> conditions;  // of a role that is not an evaluator first
  std::string checkpoint;                 // newest whole one
  std::uint64_t checkpoint_updates = 0;
  bool checkpoint_final = false;  // no update came after it
  // Of learner.sync = "paramserver".
  std::int32_t shards = 0, shards_wanted = 0;  // another one: a move is under way
  std::uint64_t shard_epoch = 0;               // of their map
};

// The view as JSON: `troop status --json`, whose keys are the same for every run
// (docs/guide/watching.md, apps/ended_run.h).
std::string ViewJson(const RunView& view, const std::vector<RoleView>& roles);
const char* PhaseName(Phase phase);

}  // namespace troop
