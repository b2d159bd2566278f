// Coordinator: the human-readable state of each role (`troop status`, dashboard).
#include <algorithm>
#include <set>
#include <utility>

#include "fleet/coordinator/coordinator.h"
#include "fleet/roles/external_roles.h"

namespace troop {
namespace {

// How long a dead external role stays listed.
constexpr Duration kShownDead = Seconds(300);

double ValueOf(const MetricSnapshot& metrics, const char* name) {
  const auto it = metrics.find(name);
  return it == metrics.end() ? 0 : it->second.value;
}

}  // namespace

// True while the role is down and will be restarted, or is in a restart loop: it failed more than
// once and has not run for fleet.restart_window_s since. One failure with a rejoin has recovered.
bool Coordinator::IsRestarting(const RoleHistory& record) const {
  if (record.failures == 0 || !Needs(record.role, record.index)) return false;
  const bool present = membership_.Has(record.role, record.index);
  return !present || (record.failures > 1 &&
                      now_ - record.error_at < Seconds(options_.config.fleet.restart_window_s));
}

// Restarting roles first, then blocked ones; evaluators last, since they stall nothing else.
std::vector<RoleCondition> Coordinator::Conditions() const {
  std::vector<RoleCondition> conditions;
  for (const auto& [name, record] : membership_.histories()) {
    if (!IsRestarting(record)) continue;
    conditions.push_back(
        {record.role, record.index, RoleView::State::kRestarting, OneLineOf(record.last_error)});
  }
  for (const auto& [name, m] : membership_.records()) {
    if (!m.present || m.blocked.empty()) continue;
    conditions.push_back({m.view.role, m.view.index, RoleView::State::kBlocked, m.blocked});
  }
  std::stable_partition(conditions.begin(), conditions.end(),
                        [](const RoleCondition& c) { return c.role != Role::kEvaluator; });
  return conditions;
}

// Derives the state of one role from its member entry and its history. `newest`: version of the
// learner's weights, in updates.
RoleView Coordinator::ViewOf(Role role, std::int32_t index, double newest) const {
  using State = RoleView::State;
  RoleView v{.role = role, .index = index};
  if (const RoleHistory* const history = membership_.HistoryOf(role, index)) {
    v.last_error = history->last_error;
    // The first registration is not a restart.
    v.restarts = std::max<std::int64_t>(0, history->registered - 1);
    if (IsRestarting(*history)) v.reason = OneLineOf(history->last_error);
  }
  // External actors have no slots, so a missing one is not awaited.
  const bool left_to_others = role != Role::kActor && IsExternal(options_.config, role);
  const MemberRecord* const member = membership_.Find(role, index);
  if (member == nullptr) {
    const State missing = left_to_others ? State::kAwaited : State::kMissing;
    v.state = Needs(role, index) ? missing : State::kFinished;
    if (!v.reason.empty()) v.state = State::kRestarting;
    return v;
  }
  // Known: alive, silent, dead or finished; a restart loop or a block takes precedence.
  const MemberRecord& m = *member;
  v.incarnation = m.view.incarnation;
  v.process = m.view.process;
  v.host = m.view.host;
  v.joined = m.joined;
  v.heartbeat_age_s = ToSeconds(now_ - m.last_beat);
  v.work = m.work.work();
  if (m.present) {
    const bool heard =
        !m.down_since && v.heartbeat_age_s < options_.config.fleet.heartbeat_timeout_s;
    v.state = heard ? State::kAlive : State::kSilent;
    v.work_per_s = m.work.PerSecond(now_);
    // Age of the actor's weights, in updates.
    if (role == Role::kActor && m.metrics.contains("actor/weights_version")) {
      v.lag_updates = std::max(0.0, newest - ValueOf(m.metrics, "actor/weights_version"));
    }
  } else {
    const State gone = left_to_others ? State::kAwaited : State::kDead;
    v.state = Needs(role, index) ? gone : State::kFinished;
  }
  if (!v.reason.empty()) {
    v.state = State::kRestarting;
  } else if (v.state == State::kAlive && !m.blocked.empty()) {
    v.state = State::kBlocked;
    v.reason = m.blocked;
  }
  return v;
}

// Step 1: the slots in config order; step 2: external roles that are present or died recently.
std::vector<RoleView> Coordinator::roles() const {
  const double newest = std::max(0.0, membership_.NewestVersion());
  std::vector<RoleView> views;
  const auto all = slots_.All();
  const auto add = [&](Role role) {
    for (const auto& [its, index] : all) {
      if (its == role) views.push_back(ViewOf(role, index, newest));
    }
  };
  add(Role::kReplay);
  for (std::int32_t k = 0; k < parameter_servers(); ++k) {
    views.push_back(ViewOf(Role::kParamServer, k, newest));
  }
  add(Role::kLearner);
  for (std::int32_t k = 0; k < std::int32_t(InferenceServersOf(options_.config)); ++k) {
    views.push_back(ViewOf(Role::kInference, k, newest));
  }
  add(Role::kActor);
  if (options_.config.evaluator.enabled) views.push_back(ViewOf(Role::kEvaluator, 0, newest));
  std::set<std::pair<Role, std::int32_t>> told;
  for (const RoleView& v : views) told.emplace(v.role, v.index);
  std::vector<RoleView> others;
  for (const auto& [name, member] : membership_.records()) {
    if (told.contains({member.view.role, member.view.index})) continue;
    const RoleHistory* const record = membership_.HistoryOf(member.view.role, member.view.index);
    const bool died = !member.present && record != nullptr && !record->last_error.empty() &&
                      now_ - record->error_at < kShownDead && Needs(member.view.role);
    if (!member.present && !died) continue;
    others.push_back(ViewOf(member.view.role, member.view.index, newest));
  }
  std::ranges::sort(others, {}, &RoleView::index);
  views.insert(views.end(), others.begin(), others.end());
  return views;
}

}  // namespace troop
