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
#include "net/control/heartbeat_request.h"
#include "net/network.h"

namespace troop {

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
  // Send time of the newest answered heartbeat: this incarnation was a member at that time.
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
  // The newest statistics of the run's discounted returns (env.normalize_rewards); no values before
  // the first are received.
  const RewardStatistics& rewards() const { return state_.rewards; }
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
