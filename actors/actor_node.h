#pragma once

#include <deque>
#include <memory>
#include <vector>

#include "actors/env_runner.h"
#include "actors/remote_policy.h"
#include "actors/trajectory_builder.h"
#include "core/config.h"
#include "core/history.h"
#include "core/node.h"
#include "net/control.h"
#include "paramserver/client.h"
#include "replay/client.h"

namespace troop {

// Makes experience: steps its environments with exploration, cuts n-step items, pushes them, and
// pulls newer weights. Stops for: no lease, a full push window (the replay's limiter, or a slow
// replay). A step with a fault or a bad number (EnvRunner) is no agent step. Weights with bad
// numbers are not used. Where ε anneals, it follows the steps of the fleet that the replay has, as
// the coordinator last told them: a beat behind (0.25 s), also in a restarted actor. Owner: the
// node's thread. Invariants: at most n_step + 2·push_items items wait here; agent steps never
// exceed those leased; an episode number is never used twice (incarnation << 32 | count). Where the
// number of replay shards changes, streams that move to another one begin anew there, in front of a
// step: their items so far bootstrap from its observation, as at a truncation. With actor.inference
// = "server" it has no weights, and asks an inference server for each step's actions.
class ActorNode final : public Node {
 public:
  // `network` and `member` outlive the node. Errors: the environment or network can't be made.
  static Result<std::unique_ptr<ActorNode>> Make(const Config& config, Network* network,
                                                 FleetMember* member, History* history = nullptr);
  Turn Step(Time now) override;
  void Drain() override { draining_ = true; }
  Status result() const override { return result_; }
  const EnvSpec& env() const { return runner_->spec(); }
  // Exploration of environment i, for what looks at the ladder.
  double epsilon(std::size_t i) const { return state_[i].epsilon; }

 private:
  struct EnvState {
    std::uint64_t global = 0;  // global environment index
    double epsilon = 0;        // discrete actions, where it does not anneal
    double noise_sigma = 0;    // continuous ones
    double episode_return = 0;
    std::int64_t episode_length = 0;
  };

  ActorNode(const Config& config, Network* network, FleetMember* member, History* history);
  Status Build();
  TrajectorySpec Trajectory() const;
  Status Connect();
  Status ConnectReplay(const Origin& origin);
  Result<std::unique_ptr<Channel>> ConnectShard(const Origin& origin, std::int32_t shard) const;
  std::vector<bool> ShardsOfStreams(std::size_t shards) const;
  void FollowFleet();
  void LeaveShards();
  bool PushLast();
  void DealLadder(std::int64_t place, std::int64_t places);
  Status ConnectPolicy(const Origin& origin);
  void AskLease();
  bool MayStep();
  bool Advance();
  void Act();
  void ReportEpsilon();
  void Record();
  bool Push();
  void UseWeights(const WeightSnapshot& snapshot);
  void PullWeights(Time now);
  void Report();

  const Config config_;
  Network* const network_;
  FleetMember* const member_;
  History* const history_;
  Metrics metrics_;
  std::unique_ptr<EnvRunner> runner_;
  RemotePolicy* remote_ = nullptr;  // the runner's policy, where a server chooses
  std::vector<EnvState> state_;
  std::vector<TrajectoryBuilder> builders_;
  std::vector<ExploreKey> keys_;
  std::unique_ptr<ReplayWriter> writer_;
  std::unique_ptr<WeightSubscriber> weights_;
  std::int64_t place_ = 0, places_ = 0;  // of the ladder that it has
  bool have_weights_ = false;
  std::int64_t steps_ = 0;           // taken, of member_->steps_granted()
  std::int64_t since_refresh_ = 0;   // vector steps since the last pull
  Time next_pull_{};                 // no pull before
  std::deque<std::int64_t> pushed_;  // steps_ at each push that is not acknowledged yet
  std::size_t shards_ = 0;           // of the replay, that streams go to
  std::size_t shards_next_ = 0;      // another number: with the next step's frames
  bool left_ = false;                // streams that move have ended at the shard before
  std::uint64_t fleet_epoch_ = 0;    // whose shards those are
  // What streams that move leave behind, for the shards before.
  std::vector<Chunk> last_chunks_;
  std::vector<Item> last_items_;
  bool draining_ = false;
  Status result_;
};

}  // namespace troop
