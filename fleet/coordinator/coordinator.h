#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/base/node.h"
#include "core/storage/storage.h"
#include "fleet/config/config.h"
#include "fleet/coordinator/admission_control.h"
#include "fleet/coordinator/desired_roles.h"
#include "fleet/coordinator/incarnation_sequence.h"
#include "fleet/coordinator/member_record.h"
#include "fleet/coordinator/membership.h"
#include "fleet/coordinator/parameter_resharding.h"
#include "fleet/coordinator/reward_totals.h"
#include "fleet/coordinator/role_slots.h"
#include "fleet/coordinator/role_status_report.h"
#include "fleet/coordinator/run_lifecycle.h"
#include "fleet/coordinator/run_results.h"
#include "fleet/coordinator/scale_controller.h"
#include "fleet/run/role_status.h"
#include "fleet/run/run_state.h"
#include "net/control/evaluation_report.h"
#include "net/control/heartbeat_request.h"
#include "net/control/phase.h"
#include "net/control/scale_request.h"
#include "net/network.h"

namespace troop {

// The coordinator of a run: dispatches its messages to the parts that decide.
//
// - Membership: which process holds each role; fencing, heartbeats, loss of members.
// - RunLifecycle: the phase, a stop request, and the leases of the step budget.
// - RunResults: checkpoint, evaluations and counters, which outlive the members.
// - ScaleController and ParameterResharding: the number of roles of a running fleet.
// - AdmissionControl: which processes may register, and where.
// - DesiredRoles and RoleStatusReport: views of the others, made for one call.
//
// It is off the data path: experience and gradients flow without it.
//
// Invariants:
// - Agent steps leased to live incarnations plus those done by dead ones never exceed the budget.
// - The run leaves kRunning when exactly the budget is done, or the run is solved, or the learner
//   has made max_updates updates.
// - Incarnations and phases only grow, also across restarts.
// - No part refers to the coordinator. It passes each the time and the other parts.
// Owner: the node's thread.
class Coordinator final : public Node, public Service {
 public:
  struct Options {
    Config config;
    Storage* run = nullptr;  // the run folder
    // Bind endpoint of a role, e.g. (kReplay, 0) -> "tcp://10.0.0.1:7000".
    std::function<std::string(Role, std::int32_t)> listen;
    std::string resume_checkpoint;  // path in the run folder; empty: a fresh run
    std::int64_t resume_steps = 0;  // agent steps done at that checkpoint
    // Checks that the machine has room for a scaled config (`troop scale`); empty: no check.
    std::function<Status(const Config&)> may_have{};
    std::uint64_t resume_updates = 0;  // updates made at that checkpoint
  };
  // Makes a coordinator. Errors: the environment can't be created; kDataLoss: a damaged run file.
  static Result<std::unique_ptr<Coordinator>> Make(Options options);

  StepStatus Step(Time now) override;
  // Ends the run early: roles write a checkpoint and leave.
  void Drain() override { lifecycle_.Stop(); }
  Status result() const override { return Status::Ok(); }
  void Handle(Message message, Reply reply) override;
  Status CheckOrigin(const Origin& caller, Time now) override;
  void PeerChanged(const Origin& peer, PeerState state) override;

  // Merges the metrics of all members: O(members × metrics).
  RunView View() const;
  // The members alone, which is cheaper than View().
  std::vector<MemberView> members() const { return membership_.Views(now_); }
  // All roles of the config, external roles, and external roles that died recently; in the order
  // of the config, then by index. Some µs per role: meant for display, about once a second.
  std::vector<RoleView> roles() const { return status_report().Roles(); }
  // Records why a role ended or is about to be ended, for roles(). `failures`: consecutive
  // failures, where a restart follows the last one; 0: no restart follows.
  void RecordFailure(Role role, std::int32_t index, const std::string& why,
                     std::int64_t failures = 0);
  Phase phase() const { return lifecycle_.phase(); }
  // True while the run needs this role: a process that leaves must be restarted.
  bool Needs(Role role) const { return lifecycle_.Needs(role); }
  bool Needs(Role role, std::int32_t index) const { return desired().Needs(role, index); }
  // Number of parameter server processes, including those that are joining or leaving.
  std::int32_t parameter_servers() const;
  // Slots of the other roles that `troop scale` changes; a new epoch marks each change.
  const RoleSlots& slots() const { return scaling_.slots(); }
  // Empty slots that the run needs filled: external roles ("replay-0"), and actors below
  // fleet.actors_min.
  std::vector<std::string> EmptySlots() const { return desired().EmptySlots(membership_); }
  // The environment that the roles must have, or the reviews of a supervised run (TaskSpec).
  const EnvSpec& env() const { return env_; }
  // Number of external members whose connection is still open.
  int external_members() const { return membership_.CountConnectedExternal(); }
  // True when each present member has received the final phase or the stop request.
  bool all_members_left() const { return membership_.AllInformedOfEnd(lifecycle_.stopping()); }
  // Records that a process of the role ended. If it is the current member, its leases return to
  // the pool and it no longer counts as silent; an older process changes nothing.
  void OnMemberExit(Role role, std::int32_t index, std::int64_t process);

 private:
  Coordinator(Options options, EnvSpec env);
  void HandleRegister(const Message& message, Reply reply);
  void HandleJoin(const Message& message, Reply reply);
  void HandleBeat(const Message& message, Reply reply);
  void HandleScale(const Message& message, Reply reply);
  void HandleStatus(Reply reply);
  Status CheckBeat(Role role, const HeartbeatRequest& beat) const;
  void RecordEvaluations(const std::vector<EvaluationReport>& evaluations);
  HeartbeatReply MakeBeatReply(MemberRecord* member, std::int64_t wanted);
  void Release(MemberRecord* member);
  void AdvancePhase();
  Status BeginReshard(const ScaleRequest& request);
  void UpdateReshard();
  DesiredRoles desired() const;
  RoleStatusReport status_report() const;
  ScaleController::FleetState fleet_state() const {
    return {.members = membership_, .running = lifecycle_.running(), .now = now_};
  }

  const Options options_;
  const EnvSpec env_;
  Membership membership_;
  RunLifecycle lifecycle_;
  RunResults results_;
  RewardTotals rewards_;
  IncarnationSequence incarnations_;
  ScaleController scaling_;
  AdmissionControl admission_;
  std::unique_ptr<ParameterResharding> shards_;  // null unless learner.sync = "paramserver"
  Time now_{};
};

}  // namespace troop
