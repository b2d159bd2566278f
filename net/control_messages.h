#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/base/time.h"
#include "core/metrics/metrics.h"
#include "core/tensor/spec.h"
#include "net/network.h"

namespace troop {

// Control messages between the coordinator and the roles, tools and `troop join`.

// The phase of a run; it only advances.
enum class Phase : std::uint8_t {
  kRunning = 0,     // actors produce experience
  kDraining = 1,    // the budget is spent: the learner finishes and writes a checkpoint
  kEvaluating = 2,  // the evaluator runs the final evaluation
  kDone = 3,        // all roles exit
};

// Address and incarnation of a role that serves others.
struct PeerInfo {
  std::string endpoint;  // empty: no service, or not bound yet
  std::uint64_t incarnation = 0;
  template <class A>
  void serialize(A& a) {
    a(endpoint, incarnation);
  }
};
std::string PeerName(Role role, std::int32_t index);  // "actor-3"

// The primary and backup of a parameter shard (paramserver/replication/primary_election.h). Terms
// are never reused and only increase; each has one primary, and at most one backup for its whole
// duration.
struct ShardTerm {
  std::uint64_t term = 0;     // 0: not assigned yet
  std::uint64_t since = 0;    // first term of the current primary
  std::uint64_t from = 0;     // term of the primary whose backup it was; 0: it starts from disk
  std::int32_t primary = -1;  // index of a parameter server
  std::int32_t backup = -1;   // -1: none; the primary acknowledges alone
  std::uint64_t primary_incarnation = 0, backup_incarnation = 0;
  template <class A>
  void serialize(A& a) {
    a(term, since, from, primary, backup, primary_incarnation, backup_incarnation);
  }
  bool operator==(const ShardTerm&) const = default;
};

// One epoch of the shard map: the number of shards, which are counted from 0, and the move that
// began the epoch. The first epoch has the config's number. All maps follow from these values alone
// (ShardMapAfter).
struct ShardEpoch {
  std::int32_t shards = 0;
  std::uint64_t move = 0;  // 0: the initial epoch
  template <class A>
  void serialize(A& a) {
    a(shards, move);
  }
  bool operator==(const ShardEpoch&) const = default;
};
// Stages of resharding, in order.
enum class ShardMoveStage : std::uint8_t {
  kGathering = 0,    // waits for new shards
  kPausing = 1,      // learners finish open calls and pause
  kHandingOver = 2,  // shards accept no pushes and fetch their new ranges
};
// A resharding in progress (paramserver/resharding/reshard_controller.h).
struct ShardMove {
  std::uint64_t number = 0;  // never reused; 0: no move in progress
  std::int32_t shards = 0;
  ShardMoveStage stage = ShardMoveStage::kGathering;
  template <class A>
  void serialize(A& a) {
    a(number, shards, stage);
  }
  bool operator==(const ShardMove&) const = default;
};

// Current numbers of the roles that `troop scale` changes. Replay shards below `replay` accept new
// items; the `replay_leaving` shards after them are only sampled from.
struct FleetCounts {
  std::uint64_t epoch = 0;  // increases with each change; 0: not received yet
  std::int32_t learners = 0, replay = 0, replay_leaving = 0;
  template <class A>
  void serialize(A& a) {
    a(epoch, learners, replay, replay_leaving);
  }
  bool operator==(const FleetCounts&) const = default;
};

// Registers a process as a role of the run.
struct RegisterRequest {
  Role role = Role::kNone;
  std::int32_t index = 0;    // -1 for an external role: the coordinator assigns it
  std::string version;       // of the program
  std::int64_t process = 0;  // process id, shown by `troop status`
  std::string host;
  std::string reach;  // external roles: address at which others reach their services
  template <class A>
  void serialize(A& a) {
    a(role, index, version, process, host, reach);
  }
};
// The specification of the environment of a run, for roles that do not create an environment.
struct EnvSpecBody {
  std::string id, observation;  // "CartPole-v1", "f32[4]"
  float observation_scale = 1;
  std::int64_t actions = 0;      // number of discrete actions; 0: continuous
  std::vector<float> low, high;  // bounds of continuous actions
  std::int64_t max_episode_steps = 0;
  std::string code;  // EnvSpec::code
  template <class A>
  void serialize(A& a) {
    a(id, observation, observation_scale, actions, low, high, max_episode_steps, code);
  }
};
EnvSpecBody ToBody(const EnvSpec& spec);
Result<EnvSpec> FromBody(const EnvSpecBody& body);  // errors: see ParseTensorSpec and CheckEnvSpec

// The identity of the new member and all it needs to start.
struct RegisterReply {
  std::uint64_t incarnation = 0;  // never reused, also after a coordinator restart
  std::int32_t index = 0;
  std::string config_toml;        // resolved
  std::string listen;             // listen address of roles that serve
  std::string resume_checkpoint;  // path in the run folder; empty: a new run
  EnvSpecBody env;
  std::string group_secret;  // learners of a run with keys: secret that authenticates group members
  std::string data_identity;  // supervised: Config::data_identity
  template <class A>
  void serialize(A& a) {
    a(incarnation, index, config_toml, listen, resume_checkpoint, env, group_secret, data_identity);
  }
};

// The outcome of an evaluation.
struct EvaluationReport {
  std::uint64_t weights_version = 0;
  std::int64_t steps = 0;  // agent steps of the run when the weights were pulled
  std::int64_t episodes = 0;
  double return_mean = 0, return_std = 0, return_min = 0, return_max = 0, length_mean = 0;
  bool final = false;
  // Supervised: `episodes` is the number of examples, return_mean the accuracy in %, return_std its
  // standard error, return_min and return_max its 95 % interval (core/metrics/wilson_interval.h),
  // length_mean is in tokens, and loss is the mean cross-entropy.
  double loss = 0;
  template <class A>
  void serialize(A& a) {
    a(weights_version, steps, episodes, return_mean, return_std, return_min, return_max,
      length_mean, final, loss);
  }
  bool operator==(const EvaluationReport&) const = default;
};

// A heartbeat with the progress of a role. The node's own thread sends it, so a hung node stops
// sending.
struct HeartbeatRequest {
  std::string endpoint;  // bound endpoint; empty for roles without a service
  MetricSnapshot metrics;
  std::int64_t steps_done = 0;    // actor: granted steps whose experience the replay acknowledged
  std::int64_t steps_wanted = 0;  // actor: total steps requested by this incarnation
  bool finished = false;          // this role has completed the work of the phase
  std::string checkpoint;         // learner: newest complete checkpoint, path in the run folder
  std::uint64_t checkpoint_updates = 0;
  bool checkpoint_final = false;  // it is the last one of the run
  std::vector<EvaluationReport>
      evaluations;               // evaluator: results since the last acknowledged heartbeat
  std::uint64_t shard_term = 0;  // paramserver: newest term whose complete state it has
  // paramserver: newest move whose state it has on disk; learner: newest move for which it has
  // paused.
  std::uint64_t shard_move = 0;
  // actor: newest FleetCounts::epoch whose shards have all its experience; no insert to other
  // shards is pending.
  std::uint64_t fleet_epoch = 0;
  // Reason why the role makes no progress, such as a full disk or a failing environment; empty if
  // it does.
  std::string blocked;
  std::string
      ended;  // reason of the exit, in the last heartbeat, which frees the slot; empty: running
  template <class A>
  void serialize(A& a) {
    a(endpoint, metrics, steps_done, steps_wanted, finished, checkpoint, checkpoint_updates,
      checkpoint_final, evaluations, shard_term, shard_move, fleet_epoch, blocked, ended);
  }
};
// The state of the run, as the answer to a heartbeat.
struct HeartbeatReply {
  Phase phase = Phase::kRunning;
  bool stop = false;  // exit now, with only a checkpoint as final work
  // Total steps granted to this incarnation; cumulative, so a lost reply loses nothing.
  std::int64_t steps_granted = 0;
  // True if all steps are granted. It can become false again: steps that a dead actor was granted
  // but did not complete are granted again.
  bool steps_over = false;
  std::int64_t steps_total_done = 0;      // over all actors
  std::map<std::string, PeerInfo> peers;  // by PeerName
  // With learner.sync = "paramserver": the terms of the shards of the newest epoch.
  std::vector<ShardTerm> shards;
  std::vector<ShardEpoch> shard_epochs;
  ShardMove shard_move;
  // actor: its index and the number of actors in the sequence of exploration rates. They change
  // when external actors join or leave.
  std::int32_t place = 0, places = 0;
  FleetCounts fleet;
  std::uint32_t heartbeat_every_ms = 0;  // interval to the next heartbeat; 0: the member's default
  // By Role: the newest incarnation issued to a member of that role; kNone: the newest number of
  // all, including terms. Trailing roles may be omitted.
  std::vector<std::uint64_t> issued;
  template <class A>
  void serialize(A& a) {
    a(phase, stop, steps_granted, steps_over, steps_total_done, peers, shards, shard_epochs,
      shard_move, place, places, fleet, heartbeat_every_ms, issued);
  }
};

// Sent by `troop join` before it starts processes, to ask if `count` members of a role may join.
struct JoinRequest {
  Role role = Role::kNone;
  std::int32_t count = 0;
  std::string version;  // of the program
  std::string host;
  template <class A>
  void serialize(A& a) {
    a(role, count, version, host);
  }
};
struct JoinReply {
  std::string config_toml;   // resolved
  std::int32_t present = 0;  // current members of that role
  template <class A>
  void serialize(A& a) {
    a(config_toml, present);
  }
};

// Sent by `troop scale`. Answered when the change is complete or was aborted.
struct ScaleRequest {
  std::string role;  // "paramserver", "actors", "replay", "learners"
  std::int64_t count = 0;
  template <class A>
  void serialize(A& a) {
    a(role, count);
  }
};
struct ScaleReply {
  std::int64_t before = 0, after = 0;
  std::uint64_t epoch = 0;                            // epoch of the shard map, or of FleetCounts
  std::int64_t parameters = 0, parameters_moved = 0;  // parameter servers only
  double seconds = 0;                                 // duration of the request
  template <class A>
  void serialize(A& a) {
    a(before, after, epoch, parameters, parameters_moved, seconds);
  }
};

struct StatusReply {
  std::string json;  // parsed and shown by `troop status`
  template <class A>
  void serialize(A& a) {
    a(json);
  }
};

// A registered role's connection to the coordinator. Owner: the node's thread; nothing blocks.
// Heartbeats are sent every `heartbeat_every`, less often at the coordinator's request in large
// fleets, more often during resharding, and immediately when the coordinator waits for a change.
class FleetMember {
 public:
  struct Options {
    Role role = Role::kNone;
    std::int32_t index = 0;
    std::uint64_t incarnation = 0;
    Duration hung_after = Seconds(30);  // the coordinator's limit (fleet.stall_timeout_s)
    Duration heartbeat_every = std::min<Duration>(Milliseconds(250), hung_after / 3);
    Duration deadline = Seconds(10);   // deadline of one heartbeat
    Duration alone_max = Seconds(60);  // lost() after this time without an answer
  };
  FleetMember(std::unique_ptr<Channel> channel, const Options& options);

  // Receives answers and sends a heartbeat if due. Call at each Step, after updating report().
  void Poll(Time now, const Metrics& metrics);
  // For a role whose node has failed: repeats the metrics of the last heartbeat.
  void Poll(Time now);
  // Time of the next heartbeat; kForever while an answer is pending, which wakes the node.
  Time next_heartbeat() const { return ticket_ != 0 ? kForever : next_heartbeat_; }
  // Makes the next Poll send a heartbeat even if none is due.
  void SendHeartbeatSoon() { next_heartbeat_ = Time{}; }
  // True if the heartbeat after SendHeartbeatSoon was answered, so a role that exits has reported
  // everything.
  bool told() const { return ticket_ == 0 && next_heartbeat_ != Time{}; }
  // The content of the next heartbeat. Change it, then call SendHeartbeatSoon if the coordinator
  // waits for the change.
  HeartbeatRequest& report() { return report_; }

  const Options& options() const { return options_; }
  Phase phase() const { return state_.phase; }
  bool stop() const { return state_.stop; }
  bool steps_over() const { return state_.steps_over; }
  std::int64_t steps_total_done() const { return state_.steps_total_done; }
  // Returns the endpoint of a peer that serves; empty if not known yet.
  std::string Endpoint(Role role, std::int32_t index) const;
  // Returns the peers whose endpoint changed since the last call, as {from, to}.
  std::vector<std::pair<std::string, std::string>> TakeMoved() { return std::exchange(moved_, {}); }
  // Returns the newest incarnation that the coordinator has issued to this kind of role (kNone: the
  // newest number of any kind), as last received; 0 if none.
  std::uint64_t NewestIssued(Role role) const;
  // Returns the incarnation of a peer, which increases with each restart; 0 if not known yet.
  std::uint64_t Incarnation(Role role, std::int32_t index) const;
  // Returns the term of shard k, as last received.
  ShardTerm Shard(std::int32_t k) const;
  // The epochs of the shard map and the move in progress, as last received; empty before that.
  std::span<const ShardEpoch> shard_epochs() const { return state_.shard_epochs; }
  const ShardMove& shard_move() const { return state_.shard_move; }
  // Send time of the newest answered heartbeat: the coordinator knew this incarnation at that time.
  // Time{} if none was answered.
  Time last_known() const { return last_known_; }
  // Total steps granted to this incarnation.
  std::int64_t steps_granted() const { return state_.steps_granted; }
  // actor: its index and the number of actors in the sequence of exploration rates; {0, 0} before
  // the first answer.
  std::int32_t place() const { return state_.place; }
  std::int32_t places() const { return state_.places; }
  // The numbers of scalable roles, as last received.
  const FleetCounts& fleet() const { return state_.fleet; }
  // Not ok if this incarnation was fenced, its key was rejected, or the coordinator has not
  // answered for alone_max.
  Status lost() const { return lost_; }

 private:
  void Poll(Time now, const Metrics* metrics);
  void Receive(Time now);
  void NoteMoved();

  std::unique_ptr<Channel> channel_;
  const Options options_;
  HeartbeatRequest report_;
  HeartbeatReply state_;
  Ticket ticket_ = 0;
  std::size_t evaluations_sent_ = 0;
  Time next_heartbeat_{};
  std::optional<Time> last_answer_;
  Time sent_{}, last_known_{};
  std::map<std::string, std::string> endpoints_;  // endpoints of peers, to detect changes
  std::vector<std::pair<std::string, std::string>> moved_;
  Status lost_;
};

}  // namespace troop
