// Display state of roles: names, JSON and the rate of their work.
#include "fleet/run/role_status.h"

#include <algorithm>

#include "core/storage/json.h"
#include "net/control/peer_info.h"

namespace troop {
namespace {

constexpr Duration kWindow = Seconds(3);
// The longest regular heartbeat interval: a longer silence counts as time without work.
constexpr Duration kBeat = Seconds(1);

}  // namespace

// Names are part of the JSON status.
const char* StateName(RoleView::State state) {
  switch (state) {
    case RoleView::State::kAlive:
      return "alive";
    case RoleView::State::kSilent:
      return "silent";
    case RoleView::State::kDead:
      return "dead";
    case RoleView::State::kMissing:
      return "missing";
    case RoleView::State::kFinished:
      return "finished";
    case RoleView::State::kAwaited:
      return "awaited";
    case RoleView::State::kBlocked:
      return "blocked";
    case RoleView::State::kRestarting:
      return "restarting";
  }
  return "unknown";
}

// Optional keys are omitted rather than null.
JsonObject RoleJson(const RoleView& r) {
  const RoleWork work = WorkOf(r.role);
  JsonObject out;
  out.Add("role", PeerName(r.role, r.index)).Add("state", StateName(r.state));
  out.Add("host", r.host).Add("process", r.process);
  out.Add("incarnation", r.incarnation).Add("joined", r.joined).Add("restarts", r.restarts);
  out.Add("heartbeat_age_s", r.heartbeat_age_s).Add("work", r.work);
  out.Add("unit", work.unit == nullptr ? "" : work.unit).Add("work_per_s", r.work_per_s);
  if (r.lag_updates) out.Add("lag_updates", *r.lag_updates);
  if (!r.last_error.empty()) out.Add("last_error", r.last_error);
  if (!r.reason.empty()) out.Add("reason", r.reason);
  return out;
}

// Metric names are those that the roles report (docs/guide/watching.md).
RoleWork WorkOf(Role role) {
  switch (role) {
    case Role::kActor:
      return {"actor/steps", "steps"};
    case Role::kReplay:
      return {"replay/inserts", "items"};
    case Role::kLearner:
      return {"learner/version", "updates"};  // reported by every learner, not only rank 0
    case Role::kParamServer:
      return {"paramserver/version", "updates"};
    case Role::kEvaluator:
      return {"evaluator/episodes", "episodes"};
    case Role::kInference:
      return {"inference/actions", "actions"};
    default:
      return {};
  }
}

// Keeps three points: the start of the measurement, the start of the next one, and the last. After
// each window the measurement moves on, so that the span is one to two windows.
void WorkRate::Note(Time now, double work) {
  last_ = {now, work};
  if (!any_ || work < from_.work) {  // first value, or a learner returned to a checkpoint
    from_ = next_ = last_;
    any_ = true;
    return;
  }
  if (now - next_.time < kWindow) return;
  from_ = next_;
  next_ = last_;
}

// Without a recent heartbeat the time up to now counts, which lowers the rate.
double WorkRate::PerSecond(Time now) const {
  const Time end = now - last_.time > kBeat ? now : last_.time;
  const double seconds = ToSeconds(end - from_.time);
  return seconds <= 0 ? 0 : (last_.work - from_.work) / seconds;
}

}  // namespace troop
