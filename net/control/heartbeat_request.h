#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/metrics/metrics.h"
#include "net/control/evaluation_report.h"
#include "net/control/fleet_counts.h"
#include "net/control/peer_info.h"
#include "net/control/phase.h"
#include "net/control/reward_statistics.h"
#include "net/control/shard_move.h"
#include "net/control/shard_term.h"

namespace troop {

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
  // env.normalize_rewards. actor: all discounted returns of this incarnation; learner: those of the
  // checkpoint that it started from.
  RewardStatistics rewards;
  template <class A>
  void serialize(A& a) {
    a(endpoint, metrics, steps_done, steps_wanted, finished, checkpoint, checkpoint_updates,
      checkpoint_final, evaluations, shard_term, shard_move, fleet_epoch, blocked, ended);
    SerializeTail(a, rewards);
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
  // actor: its position in the sequence of exploration rates, and the number of actors in it. They
  // change when actors are scaled, and when external actors join or leave.
  std::int32_t place = 0, places = 0;
  FleetCounts fleet;
  std::uint32_t heartbeat_every_ms = 0;  // interval to the next heartbeat; 0: the member's default
  // Indexed by Role: the newest incarnation issued to a member of that role. Element kNone is the
  // newest number issued for any purpose, including terms. Trailing roles may be omitted.
  std::vector<std::uint64_t> issued;
  RewardStatistics rewards;  // of the run; no values: none are known, or not needed
  template <class A>
  void serialize(A& a) {
    a(phase, stop, steps_granted, steps_over, steps_total_done, peers, shards, shard_epochs,
      shard_move, place, places, fleet, heartbeat_every_ms, issued);
    SerializeTail(a, rewards);
  }
};

}  // namespace troop
