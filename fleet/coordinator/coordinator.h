#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/base/log_rate_limit.h"
#include "core/base/node.h"
#include "core/storage/storage.h"
#include "fleet/config/config.h"
#include "fleet/coordinator/incarnation_sequence.h"
#include "fleet/coordinator/parameter_resharding.h"
#include "fleet/coordinator/role_slots.h"
#include "fleet/coordinator/run_results.h"
#include "fleet/coordinator/step_leases.h"
#include "fleet/run/role_status.h"
#include "fleet/run/run_state.h"
#include "net/control/heartbeat_request.h"
#include "net/control/join_request.h"
#include "net/control/peer_info.h"
#include "net/control/phase.h"
#include "net/control/register_request.h"
#include "net/control/scale_request.h"
#include "net/network.h"

namespace troop {

// The coordinator of a run: tracks membership, advances the phases of the run, merges metrics, and
// dispatches requests. Its parts: StepLeases (the step budget), RunResults (checkpoint,
// evaluations, counters), IncarnationSequence, RoleSlots, ParameterResharding. It is off the data
// path: experience and gradients flow without it.
//
// Invariants:
// - Agent steps leased to live incarnations plus those done by dead ones never exceed the budget.
// - The run leaves kRunning when exactly the budget is done, or the run is solved, or the learner
//   has made max_updates updates.
// - Incarnations and phases only grow, also across restarts.
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
  void Drain() override { stop_ = true; }
  Status result() const override { return result_; }
  void Handle(Message message, Reply reply) override;
  Status CheckOrigin(const Origin& caller, Time now) override;
  void PeerChanged(const Origin& peer, PeerState state) override;

  // Merges the metrics of all members: O(members × metrics).
  RunView View() const;
  // The members alone, which is cheaper than View().
  std::vector<MemberView> members() const;
  // All roles of the config, external roles, and external roles that died recently; in the order
  // of the config, then by index. Some µs per role: meant for display, about once a second.
  std::vector<RoleView> roles() const;
  // Records why a role ended or is about to be ended, for roles(). `failures`: consecutive
  // failures, where a restart follows the last one; 0: no restart follows.
  void RecordFailure(Role role, std::int32_t index, const std::string& why,
                     std::int64_t failures = 0);
  Phase phase() const { return phase_; }
  // True while the run needs this role: a process that leaves must be restarted.
  bool Needs(Role role) const;
  bool Needs(Role role, std::int32_t index) const;
  // Number of parameter server processes, including those that are joining or leaving.
  std::int32_t parameter_servers() const;
  // Slots of the other roles that `troop scale` changes; a new epoch marks each change.
  const RoleSlots& slots() const { return slots_; }
  // Empty slots that the run needs filled: external roles ("replay-0"), and actors below
  // fleet.actors_min.
  std::vector<std::string> EmptySlots() const;
  // Number of external members whose connection is still open.
  int external_members() const;
  // True when each present member has received the final phase or the stop request.
  bool all_members_left() const;
  // Records that a process of the role ended. If it is the current member, its leases return to
  // the pool and it no longer counts as silent; an older process changes nothing.
  void OnMemberExit(Role role, std::int32_t index, std::int64_t process);

 private:
  struct Member {
    MemberView view;
    std::string endpoint;
    std::string listen;  // where it binds, also after a restart
    MetricSnapshot metrics;
    StepLease steps;
    std::uint64_t shard_move = 0, fleet_epoch = 0;
    Time last_beat{};
    Phase told = Phase::kRunning;  // phase in the last heartbeat reply
    bool told_stop = false;        // that reply requested a stop
    std::string blocked;           // why it makes no progress; empty: it does
    bool present = false;
    bool joined = false;             // external: not watched by the launcher's supervisor
    std::optional<Time> down_since;  // its connection ended
    WorkRate work;
  };

  // History of a role name across its incarnations.
  struct Record {
    std::int64_t registered = 0;  // number of registrations
    std::string last_error;
    Time error_at{};
    Role role = Role::kNone;  // of last_error
    std::int32_t index = 0;
    std::int64_t failures = 0;  // consecutive, as of error_at
  };
  bool IsRestarting(const Record& record) const;
  std::vector<RoleCondition> Conditions() const;
  RoleView ViewOf(Role role, std::int32_t index, double newest) const;

  // A scale request in progress; its caller waits for the reply.
  struct FleetChange {
    Role role = Role::kNone;
    std::int32_t before = 0, after = 0;
    bool shards_leave = false;
    Time began{};
    Reply reply;
  };

  Coordinator(Options options, EnvSpec env);
  Status CheckRequest(const RegisterRequest& request) const;
  Status CheckBeat(Role role, const HeartbeatRequest& beat) const;
  void HandleRegister(const Message& message, Reply reply);
  void HandleJoin(const Message& message, Reply reply);
  Status CheckJoin(const JoinRequest& request, Role key) const;
  Status MayJoin(Role role) const;
  std::int64_t SlotCount(Role role) const;
  std::int32_t CountMembers(Role role) const;
  Result<std::int32_t> FreeIndex(Role role) const;
  std::string ListenFor(const RegisterRequest& request, const Member& before) const;
  std::string SecretFor(Role role);
  void HandleBeat(const Message& message, Reply reply);
  void NoteUpdates();
  void HandleStatus(Reply reply);
  void HandleScale(const Message& message, Reply reply);
  Status BeginScale(const ScaleRequest& request);
  void UpdateMove();
  Config LiveConfig() const;
  Config ConfigFor(Role role) const;
  Status BeginFleetScale(Role role, const ScaleRequest& request);
  Result<Config> CheckFleetScale(Role role, const ScaleRequest& request) const;
  void ChangeReplay(std::int32_t count);
  void UpdateFleet();
  void UpdateLeavingShards();
  bool FleetChangeIsDone() const;
  void EndFleetScale(const Status& outcome);
  std::int32_t CountPresent(Role role) const;
  std::int32_t SlotsOf(Role role) const;
  double ReplayMetric(std::int32_t shard, const char* name) const;
  void TellFleet(const Member& member, HeartbeatReply* body) const;
  void Forget(Member* member);
  const std::map<std::string, PeerInfo>& Peers();
  void Retire(Member* member);
  HeartbeatReply MakeBeatReply(Member* member, std::int64_t wanted);
  std::int64_t StepsDone() const;
  void AdvancePhase();
  void GiveUpSilent();
  const Member* Find(Role role) const;

  const Options options_;
  const EnvSpec env_;
  std::map<std::string, Member> members_;  // by PeerName
  std::map<std::string, Record> records_;  // by PeerName
  std::string group_secret_;
  std::vector<std::int32_t> joined_;  // indices of the present external actors, sorted
  StepLeases leases_;
  std::map<std::string, PeerInfo> peers_;  // cache of the members that serve an endpoint
  bool peers_old_ = true;                  // peers_ must be rebuilt
  std::int64_t reviews_done_;              // supervised mode: examples over all learners
  RunResults results_;
  IncarnationSequence incarnations_;
  std::vector<std::uint64_t> issued_;  // HeartbeatReply::issued
  LogRateLimit invented_;              // limits warnings about never-issued incarnations
  RoleSlots slots_;
  std::optional<FleetChange> change_;
  Time next_fleet_look_{}, next_silence_look_{};
  std::unique_ptr<ParameterResharding> shards_;  // null unless learner.sync = "paramserver"
  Phase phase_ = Phase::kRunning;
  bool stop_ = false;
  Time now_{};
  Status result_;
};

// Cuts a role's message to 400 bytes and replaces control characters by spaces.
std::string OneLineOf(std::string_view text);

}  // namespace troop
