// Implements the state of each role: alive, silent, dead, missing, awaited, blocked, restarting or
// finished.
#include "fleet/coordinator/role_status_report.h"

#include <algorithm>
#include <set>
#include <utility>

#include "fleet/roles/external_roles.h"

namespace troop {
namespace {

// How long a dead external role stays listed.
constexpr Duration kShownDead = Seconds(300);

}  // namespace

// True while the role is down and will be restarted, or is in a restart loop: it failed more than
// once and has not run for fleet.restart_window_s since. One failure with a rejoin has recovered.
bool RoleStatusReport::IsRestarting(const RoleHistory& history) const {
  if (history.failures == 0 || !desired_.Needs(history.role, history.index)) return false;
  return !members_->Has(history.role, history.index) ||
         (history.failures > 1 &&
          now_ - history.error_at < Seconds(config_->fleet.restart_window_s));
}

std::vector<RoleCondition> RoleStatusReport::Conditions() const {
  std::vector<RoleCondition> conditions;
  for (const auto& [name, history] : members_->histories()) {
    if (!IsRestarting(history)) continue;
    conditions.push_back(
        {history.role, history.index, RoleView::State::kRestarting, OneLineOf(history.last_error)});
  }
  for (const auto& [name, m] : members_->records()) {
    if (!m.present || m.blocked.empty()) continue;
    conditions.push_back({m.view.role, m.view.index, RoleView::State::kBlocked, m.blocked});
  }
  std::stable_partition(conditions.begin(), conditions.end(),
                        [](const RoleCondition& c) { return c.role != Role::kEvaluator; });
  return conditions;
}

// State of a role without a process. `local`: that of a role that the launcher starts. External
// actors have no slots, so a missing one is not awaited.
RoleView::State RoleStatusReport::AbsentState(const RoleView& view, RoleView::State local) const {
  if (!desired_.Needs(view.role, view.index)) return RoleView::State::kFinished;
  const bool external = view.role != Role::kActor && IsExternal(*config_, view.role);
  return external ? RoleView::State::kAwaited : local;
}

// The part of a view that follows from the last process of the role.
void RoleStatusReport::FillMember(const MemberRecord& member, double newest, RoleView* view) const {
  view->incarnation = member.view.incarnation;
  view->process = member.view.process;
  view->host = member.view.host;
  view->joined = member.joined;
  view->heartbeat_age_s = ToSeconds(now_ - member.last_beat);
  view->work = member.work.work();
  if (!member.present) {
    view->state = AbsentState(*view, RoleView::State::kDead);
    return;
  }
  const bool recent =
      !member.down_since && view->heartbeat_age_s < config_->fleet.heartbeat_timeout_s;
  view->state = recent ? RoleView::State::kAlive : RoleView::State::kSilent;
  view->work_per_s = member.work.PerSecond(now_);
  // Age of the actor's weights, in updates.
  const auto version = member.metrics.find("actor/weights_version");
  if (view->role == Role::kActor && version != member.metrics.end()) {
    view->lag_updates = std::max(0.0, newest - version->second.value);
  }
}

// Derives the state of one role from its record and its history; a restart loop or a block takes
// precedence. `newest`: version of the learner's weights, in updates.
RoleView RoleStatusReport::ViewOf(Role role, std::int32_t index, double newest) const {
  RoleView v{.role = role, .index = index};
  if (const RoleHistory* const history = members_->HistoryOf(role, index)) {
    v.last_error = history->last_error;
    // The first registration is not a restart.
    v.restarts = std::max<std::int64_t>(0, history->registered - 1);
    if (IsRestarting(*history)) v.reason = OneLineOf(history->last_error);
  }
  const MemberRecord* const member = members_->Find(role, index);
  if (member != nullptr) {
    FillMember(*member, newest, &v);
  } else {
    v.state = AbsentState(v, RoleView::State::kMissing);
  }
  if (!v.reason.empty()) {
    v.state = RoleView::State::kRestarting;
  } else if (v.state == RoleView::State::kAlive && !member->blocked.empty()) {
    v.state = RoleView::State::kBlocked;
    v.reason = member->blocked;
  }
  return v;
}

bool RoleStatusReport::IsShownDead(const MemberRecord& member) const {
  const RoleHistory* const history = members_->HistoryOf(member.view.role, member.view.index);
  return !member.present && history != nullptr && !history->last_error.empty() &&
         now_ - history->error_at < kShownDead && desired_.Needs(member.view.role);
}

// Step 1: the slots in config order; step 2: external roles that are present or died recently.
std::vector<RoleView> RoleStatusReport::Roles() const {
  const double newest = std::max(0.0, members_->NewestVersion());
  std::vector<RoleView> views;
  std::set<std::pair<Role, std::int32_t>> shown;
  for (const auto& [role, index] : desired_.All()) {
    views.push_back(ViewOf(role, index, newest));
    shown.emplace(role, index);
  }
  std::vector<RoleView> others;
  for (const auto& [name, member] : members_->records()) {
    if (shown.contains({member.view.role, member.view.index})) continue;
    if (!member.present && !IsShownDead(member)) continue;
    others.push_back(ViewOf(member.view.role, member.view.index, newest));
  }
  std::ranges::sort(others, {}, &RoleView::index);
  views.insert(views.end(), others.begin(), others.end());
  return views;
}

}  // namespace troop
