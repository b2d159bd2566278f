#pragma once

#include <cstdint>
#include <vector>

#include "core/base/time.h"
#include "fleet/config/config.h"
#include "fleet/coordinator/desired_roles.h"
#include "fleet/coordinator/member_record.h"
#include "fleet/coordinator/membership.h"
#include "fleet/run/role_status.h"
#include "fleet/run/run_state.h"
#include "net/message.h"

namespace troop {

// The human-readable state of each role at one moment (`troop status`, dashboard), derived from
// the members, their histories and the desired roles.
//
// Invariant: reads its sources and changes none. It is made for one report, since they change.
// Owner: the coordinator. Some µs per role: meant for display, about once a second.
class RoleStatusReport {
 public:
  // `config` and `members`: borrowed. `now`: the coordinator's time.
  RoleStatusReport(const Config* config, const Membership* members, const DesiredRoles& desired,
                   Time now)
      : config_(config), members_(members), desired_(desired), now_(now) {}

  // All slots, in the order of DesiredRoles::All; then external roles that are present or died
  // recently, by index.
  std::vector<RoleView> Roles() const;
  // The roles that stall the run: restarting ones first, then blocked ones; evaluators last, since
  // they stall nothing else.
  std::vector<RoleCondition> Conditions() const;

 private:
  bool IsRestarting(const RoleHistory& history) const;
  bool IsShownDead(const MemberRecord& member) const;
  RoleView ViewOf(Role role, std::int32_t index, double newest) const;
  void FillMember(const MemberRecord& member, double newest, RoleView* view) const;
  RoleView::State AbsentState(const RoleView& view, RoleView::State local) const;

  const Config* const config_;
  const Membership* const members_;
  const DesiredRoles desired_;
  const Time now_;
};

}  // namespace troop
