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

#include "core/metrics.h"
#include "core/spec.h"
#include "core/time.h"
#include "net/network.h"

namespace troop {

// What the roles and the coordinator say to each other.

// The course of a run. Only grows.
enum class Phase : std::uint8_t {
  kRunning = 0,     // actors make experience
  kDraining = 1,    // the step budget is spent: the learner uses up what is left and checkpoints
  kEvaluating = 2,  // the evaluator plays the final episodes
  kDone = 3,        // everybody ends
};

struct PeerInfo {
  std::string endpoint;  // empty: serves nothing, or not bound yet
  std::uint64_t incarnation = 0;
  template <class A>
  void serialize(A& a) {
    a(endpoint, incarnation);
  }
};
std::string PeerName(Role role, std::int32_t index);  // "actor-3"

// Who serves a parameter shard (paramserver/shard_terms.h). Terms are never used twice and only
// grow; each has one primary, and at most one backup for its whole time.
struct ShardTerm {
  std::uint64_t term = 0;     // 0: nobody yet
  std::uint64_t since = 0;    // the term in which its primary became it
  std::uint64_t from = 0;     // whose backup it was before; 0: it begins with what is on disk
  std::int32_t primary = -1;  // index of a paramserver
  std::int32_t backup = -1;   // -1: none; the primary answers alone
  std::uint64_t primary_incarnation = 0, backup_incarnation = 0;
  template <class A>
  void serialize(A& a) {
    a(term, since, from, primary, backup, primary_incarnation, backup_incarnation);
  }
  bool operator==(const ShardTerm&) const = default;
};

// One epoch of the parameter shards' map, the first is the config's: how many there are, from 0,
// and the number of the move that began it. All maps follow from these alone (ShardMapAfter).
struct ShardEpoch {
  std::int32_t shards = 0;
  std::uint64_t move = 0;  // 0: none, the run began so
  template <class A>
  void serialize(A& a) {
    a(shards, move);
  }
  bool operator==(const ShardEpoch&) const = default;
};
enum class ShardMoveStage : std::uint8_t {
  kGathering = 0,    // shards that come are awaited
  kPausing = 1,      // learners finish what is open, and leave
  kHandingOver = 2,  // shards stand still, and fetch what they shall have
};
// A move to the next epoch that is under way (paramserver/shard_mover.h).
struct ShardMove {
  std::uint64_t number = 0;  // never used twice; 0: none is
  std::int32_t shards = 0;
  ShardMoveStage stage = ShardMoveStage::kGathering;
  template <class A>
  void serialize(A& a) {
    a(number, shards, stage);
  }
  bool operator==(const ShardMove&) const = default;
};

// How many a run has by now of the roles that come and go while it runs (`troop scale`). Replay
// shards from 0 on take new items; those behind them that leave are only drawn from.
struct FleetCounts {
  std::uint64_t epoch = 0;  // grows with each change; 0: not heard yet
  std::int32_t learners = 0, replay = 0, replay_leaving = 0;
  template <class A>
  void serialize(A& a) {
    a(epoch, learners, replay, replay_leaving);
  }
  bool operator==(const FleetCounts&) const = default;
};

struct RegisterRequest {
  Role role = Role::kNone;
  std::int32_t index = 0;    // -1, of one that joins from elsewhere: the coordinator says
  std::string version;       // of the program
  std::int64_t process = 0;  // its id, for status
  std::string host;
  std::string reach;  // of one that joins: the address at which others reach what it serves
  template <class A>
  void serialize(A& a) {
    a(role, index, version, process, host, reach);
  }
};
// What the run's environment looks like: roles that play none need not make one to know.
struct EnvSpecBody {
  std::string id, observation;  // "CartPole-v1", "f32[4]"
  float observation_scale = 1;
  std::int64_t actions = 0;      // 0: continuous ones
  std::vector<float> low, high;  // of continuous ones
  std::int64_t max_episode_steps = 0;
  std::string code;  // EnvSpec::code
  template <class A>
  void serialize(A& a) {
    a(id, observation, observation_scale, actions, low, high, max_episode_steps, code);
  }
};
EnvSpecBody ToBody(const EnvSpec& spec);
Result<EnvSpec> FromBody(const EnvSpecBody& body);  // errors: as ParseTensorSpec and CheckEnvSpec

struct RegisterReply {
  std::uint64_t incarnation = 0;  // never used twice, also after a restart of the coordinator
  std::int32_t index = 0;
  std::string config_toml;        // resolved
  std::string listen;             // where to bind, for roles that serve
  std::string resume_checkpoint;  // path in the run folder; empty: a fresh start
  EnvSpecBody env;
  std::string group_secret;   // of learners, where a run has keys: what their group's members prove
  std::string data_identity;  // of a supervised run: Config::data_identity
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
  // Of reviews: `episodes` of them, return_mean the share that was told right in %, return_std its
  // standard error, return_min and return_max its 95 % interval (core/wilson.h), length_mean in
  // tokens; and the mean cross entropy.
  double loss = 0;
  template <class A>
  void serialize(A& a) {
    a(weights_version, steps, episodes, return_mean, return_std, return_min, return_max,
      length_mean, final, loss);
  }
  bool operator==(const EvaluationReport&) const = default;
};

// A progress heartbeat: sent by the node's own thread, so a hung node stops sending it.
struct BeatRequest {
  std::string endpoint;  // bound; empty for roles that serve nothing
  MetricSnapshot metrics;
  std::int64_t steps_done = 0;    // actor: leased steps whose experience the replay acknowledged
  std::int64_t steps_wanted = 0;  // actor: would like this many granted to this incarnation in all
  bool finished = false;          // this role has done all that the phase asks of it
  std::string checkpoint;         // learner: newest whole checkpoint, path in the run folder
  std::uint64_t checkpoint_updates = 0;
  bool checkpoint_final = false;              // no update comes after it
  std::vector<EvaluationReport> evaluations;  // evaluator: since the last answered beat
  std::uint64_t shard_term = 0;  // paramserver: the newest of which it has the whole state
  // paramserver: the newest move whose state it has, on the disk; learner: for which it has left.
  std::uint64_t shard_move = 0;
  // actor: the newest FleetCounts whose shards have all its experience; nothing is on its way to
  // others.
  std::uint64_t fleet_epoch = 0;
  // Why the role makes no progress: a disk that is full, an environment that keeps failing. Empty:
  // it does.
  std::string blocked;
  std::string ended;  // why the role ends now: its last beat, and its seat is free; empty: it stays
  template <class A>
  void serialize(A& a) {
    a(endpoint, metrics, steps_done, steps_wanted, finished, checkpoint, checkpoint_updates,
      checkpoint_final, evaluations, shard_term, shard_move, fleet_epoch, blocked, ended);
  }
};
struct BeatReply {
  Phase phase = Phase::kRunning;
  bool stop = false;  // end now, without final work beyond a checkpoint
  // To this incarnation in all, up to now: a lost reply loses nothing.
  std::int64_t steps_granted = 0;
  // All steps are leased. That can change: what an actor that dies had leased and not done is
  // granted again.
  bool steps_over = false;
  std::int64_t steps_total_done = 0;      // over all actors
  std::map<std::string, PeerInfo> peers;  // by PeerName
  // Of learner.sync = "paramserver". `shards` are those of the newest epoch.
  std::vector<ShardTerm> shards;
  std::vector<ShardEpoch> shard_epochs;
  ShardMove shard_move;
  // Of an actor: which part of the exploration's ladder it has by now, of how many. It changes when
  // actors join from elsewhere, or leave.
  std::int32_t place = 0, places = 0;
  FleetCounts fleet;
  std::uint32_t beat_every_ms = 0;  // the next one is due so much later; 0: as the member has it
  // By Role: the newest incarnation that was issued to one of its members; kNone: the newest number
  // of all, also of terms. Roles at the end may be left out.
  std::vector<std::uint64_t> issued;
  template <class A>
  void serialize(A& a) {
    a(phase, stop, steps_granted, steps_over, steps_total_done, peers, shards, shard_epochs,
      shard_move, place, places, fleet, beat_every_ms, issued);
  }
};

// `troop join`, before it starts anybody: may so many of this role come?
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
  std::int32_t present = 0;  // of that role, by now
  template <class A>
  void serialize(A& a) {
    a(config_toml, present);
  }
};

// `troop scale`. Answered when it is done, or was given up.
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
  std::uint64_t epoch = 0;                            // of the map, or of FleetCounts
  std::int64_t parameters = 0, parameters_moved = 0;  // of parameter shards
  double seconds = 0;                                 // since the request
  template <class A>
  void serialize(A& a) {
    a(before, after, epoch, parameters, parameters_moved, seconds);
  }
};

struct StatusReply {
  std::string json;  // for people and `troop status`
  template <class A>
  void serialize(A& a) {
    a(json);
  }
};

// A registered role's line to the coordinator. Owner: the node's thread; nothing blocks. Beats go
// out every `beat_every`, or as seldom as the coordinator of many says, more often while shards
// move, and at once when something changed that the coordinator waits for.
class FleetMember {
 public:
  struct Options {
    Role role = Role::kNone;
    std::int32_t index = 0;
    std::uint64_t incarnation = 0;
    Duration hung_after = Seconds(30);  // the coordinator's patience (fleet.hung_after_s)
    Duration beat_every = std::min<Duration>(Milliseconds(250), hung_after / 3);
    Duration deadline = Seconds(10);   // of one beat
    Duration alone_max = Seconds(60);  // without an answer for so long: lost()
  };
  FleetMember(std::unique_ptr<Channel> channel, const Options& options);

  // Sends and receives what is due. Call at each Step, after the node updated what it reports.
  void Poll(Time now, const Metrics& metrics);
  // For a role whose node has failed: repeats the metrics of its last heartbeat.
  void Poll(Time now);
  // kForever while the answer to the last one is awaited: it wakes the node.
  Time next_beat() const { return ticket_ != 0 ? kForever : next_beat_; }
  // Makes the next Poll send a beat even if none is due.
  void BeatSoon() { next_beat_ = Time{}; }
  // The last beat that BeatSoon asked for was answered: who leaves has told all.
  bool told() const { return ticket_ == 0 && next_beat_ != Time{}; }
  // Reporting side: change it, then call BeatSoon when the coordinator waits for it.
  BeatRequest& report() { return report_; }

  const Options& options() const { return options_; }
  Phase phase() const { return state_.phase; }
  bool stop() const { return state_.stop; }
  bool steps_over() const { return state_.steps_over; }
  std::int64_t steps_total_done() const { return state_.steps_total_done; }
  // The endpoint of a peer that serves; empty: not known yet.
  std::string Endpoint(Role role, std::int32_t index) const;
  // Peers that serve elsewhere than they did before, since the last call: {from, to}.
  std::vector<std::pair<std::string, std::string>> TakeMoved() { return std::exchange(moved_, {}); }
  // The newest incarnation that the coordinator has issued to a role of this kind (kNone: the
  // newest number of any use), as last heard; 0: none.
  std::uint64_t NewestIssued(Role role) const;
  // Grows when that peer was restarted; 0: not known yet.
  std::uint64_t Incarnation(Role role, std::int32_t index) const;
  // Who serves shard k, as last heard.
  ShardTerm Shard(std::int32_t k) const;
  // The epochs of the shards' map, and the move that is under way, as last heard; empty: not yet.
  std::span<const ShardEpoch> shard_epochs() const { return state_.shard_epochs; }
  const ShardMove& shard_move() const { return state_.shard_move; }
  // When the newest beat that was answered had been sent: the coordinator knew this incarnation
  // then. Time{}: none was.
  Time last_known() const { return last_known_; }
  // Steps granted to this incarnation in all.
  std::int64_t steps_granted() const { return state_.steps_granted; }
  // Of an actor: its part of the exploration's ladder, of how many; {0, 0}: not heard yet.
  std::int32_t place() const { return state_.place; }
  std::int32_t places() const { return state_.places; }
  // As last heard.
  const FleetCounts& fleet() const { return state_.fleet; }
  // Not ok: this incarnation was fenced, the coordinator's keys don't let it in, or the coordinator
  // has not answered for alone_max.
  Status lost() const { return lost_; }

 private:
  void Poll(Time now, const Metrics* metrics);
  void Receive(Time now);
  void NoteMoved();

  std::unique_ptr<Channel> channel_;
  const Options options_;
  BeatRequest report_;
  BeatReply state_;
  Ticket ticket_ = 0;
  std::size_t evaluations_sent_ = 0;
  Time next_beat_{};
  std::optional<Time> last_answer_;
  Time sent_{}, last_known_{};
  std::map<std::string, std::string> endpoints_;  // of peers, as last known
  std::vector<std::pair<std::string, std::string>> moved_;
  Status lost_;
};

}  // namespace troop
