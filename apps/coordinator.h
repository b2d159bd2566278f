#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "apps/fleet_seats.h"
#include "apps/role_view.h"
#include "apps/run_state.h"
#include "core/config.h"
#include "core/node.h"
#include "core/storage.h"
#include "net/control.h"
#include "net/log_gate.h"
#include "paramserver/shard_map.h"
#include "paramserver/shard_mover.h"
#include "paramserver/shard_terms.h"

namespace troop {

// Membership, leases of agent steps, the phases of the run; gathers metrics. Off the data path:
// while it is away experience and gradients keep flowing. Invariants: agent steps granted to live
// incarnations plus those done by dead ones never exceed the budget; the run leaves kRunning when
// exactly the budget is done (or the run is solved, or the learner has done max_updates);
// incarnations and phases only grow, also over a restart. Owner: the node's thread.
class Coordinator final : public Node, public Service {
 public:
  struct Options {
    Config config;
    Storage* run = nullptr;  // the run's folder
    // Where a role shall bind: ("replay-0") → endpoint.
    std::function<std::string(Role, std::int32_t)> listen;
    std::string resume_checkpoint;  // path in the run's folder; empty: fresh
    std::int64_t resume_steps = 0;  // agent steps behind that checkpoint
    // Whether there is room for what such a config has, beside `troop scale`; empty: there is.
    std::function<Status(const Config&)> may_have{};
    std::uint64_t resume_updates = 0;  // updates behind it
  };
  // Errors: the environment can't be made; a damaged file of the run.
  static Result<std::unique_ptr<Coordinator>> Make(Options options);

  Turn Step(Time now) override;
  // Ends the run early: roles checkpoint and leave.
  void Drain() override { stop_ = true; }
  Status result() const override { return result_; }
  void Handle(Message message, Reply reply) override;
  Status CheckOrigin(const Origin& caller, Time now) override;
  void PeerChanged(const Origin& peer, PeerState state) override;

  RunView View() const;
  std::vector<MemberView> members() const;  // of the view, which costs more
  // All roles: those of the config, those that joined, and of these the ones that died of late. In
  // the order of the config, then by index. Costs some µs a role: for people, about once a second.
  std::vector<RoleView> roles() const;
  // Why a role has ended, or shall be ended: what `roles` shows of it. `failures`: in a row, the
  // last one of which is followed by a restart; 0: no restart follows.
  void NoteTrouble(Role role, std::int32_t index, const std::string& why,
                   std::int64_t failures = 0);
  Phase phase() const { return phase_; }
  // The run still needs this role: one that leaves is to be started again.
  bool Needs(Role role) const;
  bool Needs(Role role, std::int32_t index) const;
  // Processes of that role: of all shards, also those that come, or have not left yet.
  std::int32_t parameter_servers() const;
  // Of the other roles that come and go. It has a new epoch when others have a seat.
  const FleetSeats& seats() const { return seats_; }
  // Seats of fleet.elsewhere that nobody plays and the run needs ("replay-0"), and actors that
  // are missing of fleet.actors_min.
  std::vector<std::string> EmptySeats() const;
  // Of those from elsewhere, who have not closed their connection yet.
  int guests() const;
  // Everybody who was told to end has been told, or has left.
  bool everybody_left() const;
  // A process of the role ended. If it is the one that plays it by now, its leases return to the
  // pool and its silence means nothing.
  void MemberLeft(Role role, std::int32_t index, std::int64_t process);

 private:
  struct Member {
    MemberView view;
    std::string endpoint;
    std::string listen;  // where it binds, also after a restart
    MetricSnapshot metrics;
    std::int64_t granted = 0, done = 0;
    std::uint64_t shard_move = 0, fleet_epoch = 0;
    Time last_beat{};
    Phase told = Phase::kRunning;
    bool told_stop = false;
    std::string blocked;  // why it makes no progress
    bool present = false;
    bool joined = false;             // from elsewhere: no supervisor of ours watches it
    std::optional<Time> down_since;  // its connection ended
    WorkRate work;
  };

  // What stays known of a name, whoever bears it.
  struct Record {
    std::int64_t registered = 0;  // times
    std::string last_error;
    Time error_at{};
    Role role = Role::kNone;  // of last_error
    std::int32_t index = 0;
    std::int64_t failures = 0;  // in a row, as of error_at
  };
  bool IsRestarting(const Record& record) const;
  std::vector<RoleCondition> Conditions() const;
  RoleView ViewOf(Role role, std::int32_t index, double newest) const;

  // A change of who has a seat that somebody waits for.
  struct FleetChange {
    Role role = Role::kNone;
    std::int32_t before = 0, after = 0;
    bool shards_leave = false;
    Time began{};
    Reply reply;
  };

  Coordinator(Options options, EnvSpec env)
      : options_(std::move(options)), env_(std::move(env)), seats_(options_.config) {}
  Status LoadCounters();
  Status CheckRequest(const RegisterRequest& request) const;
  Status CheckBeat(Role role, const BeatRequest& beat) const;
  void HandleRegister(const Message& message, Reply reply);
  void HandleJoin(const Message& message, Reply reply);
  Status CheckJoin(const JoinRequest& request, Role key) const;
  Status MayJoin(Role role) const;
  std::int64_t SeatCount(Role role) const;
  std::int32_t CountMembers(Role role) const;
  Result<std::int32_t> FreeIndex(Role role) const;
  std::string ListenFor(const RegisterRequest& request, const Member& before) const;
  std::string SecretFor(Role role);
  void HandleBeat(const Message& message, Reply reply);
  void NoteUpdates();
  void HandleStatus(Reply reply);
  Status BeginShards();
  Status WriteEpochs(const std::vector<ShardEpoch>& epochs);
  void HandleScale(const Message& message, Reply reply);
  Status BeginScale(const ScaleRequest& request);
  void UpdateMove();
  void EndMove(const Status& outcome);
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
  std::int32_t SeatsOf(Role role) const;
  double ReplayMetric(std::int32_t shard, const char* name) const;
  void TellFleet(const Member& member, BeatReply* body) const;
  void SetSteps(Member* member, std::int64_t granted, std::int64_t done);
  void Forget(Member* member);
  const std::map<std::string, PeerInfo>& Peers();
  void Retire(Member* member);
  BeatReply MakeBeatReply(Member* member, std::int64_t wanted);
  std::int64_t StepsDone() const;
  std::int64_t StepsLeased() const;
  void AdvancePhase();
  void GiveUpSilent();
  const Member* Find(Role role) const;
  Result<std::uint64_t> TakeNumber();

  const Options options_;
  const EnvSpec env_;
  std::map<std::string, Member> members_;  // by PeerName
  std::map<std::string, Record> records_;  // the same
  std::string group_secret_;
  std::vector<std::int32_t> joined_;       // indices of the present actors from elsewhere, sorted
  std::int64_t retired_steps_ = 0;         // done by incarnations that are no more
  std::int64_t members_done_ = 0;          // by those of members_
  std::int64_t members_leased_ = 0;        // to those of them that are present, and not done
  std::map<std::string, PeerInfo> peers_;  // who serves; as of then
  bool peers_old_ = true;
  std::int64_t reviews_done_ = 0;  // supervised: by the learners together
  std::uint64_t updates_ = 0;      // RunView::updates; stays when the learners have left
  MetricSnapshot retired_counters_;
  std::vector<EvaluationReport> evaluations_;
  std::string checkpoint_;
  std::uint64_t checkpoint_updates_ = 0;
  bool checkpoint_final_ = false;
  std::uint64_t next_incarnation_ = 1, incarnations_kept_ = 0;  // below the latter: on the disk
  std::vector<std::uint64_t> issued_;                           // BeatReply::issued
  LogGate invented_;                                            // incarnations
  FleetSeats seats_;
  std::optional<FleetChange> change_;
  Time next_fleet_look_{}, next_silence_look_{};
  // Of learner.sync = "paramserver".
  std::optional<ShardTerms> shards_;
  std::optional<ShardMover> mover_;
  std::optional<ShardMap> first_map_;
  bool epochs_unsure_ = false;  // writing them failed: either may be on the disk
  Reply scale_reply_;           // of who asked for the move that is under way
  ScaleReply scale_;
  Time scale_began_{};
  Phase phase_ = Phase::kRunning;
  bool stop_ = false;
  Time now_{};
  Status result_;
};

// What of a dead incarnation's metrics stays part of the fleet's sum: counters and histograms.
MetricSnapshot CountersOf(const MetricSnapshot& metrics);
// At most 400 bytes of what a role says, on one line.
std::string OneLineOf(std::string_view text);

}  // namespace troop
