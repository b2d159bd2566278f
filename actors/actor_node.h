#pragma once

#include <deque>
#include <memory>
#include <vector>

#include "actors/acting_config.h"
#include "actors/acting_context.h"
#include "actors/actor_recorder.h"
#include "actors/env_runner.h"
#include "actors/experience/trajectory_builder.h"
#include "actors/inference/remote_policy.h"
#include "actors/rollout_gate.h"
#include "core/base/node.h"
#include "net/control/fleet_member.h"
#include "paramserver/weights/weights_client.h"
#include "replay/service/client.h"

namespace troop {

// The actor role: steps its environments with exploration, builds n-step items, pushes them to the
// replay, and pulls newer weights. It pauses without a lease and while the push window is full
// (rate limiter, or a slow replay). A step with a fault or a non-finite value (EnvRunner) is not an
// agent step, and non-finite weights are not used.
// An annealed ε follows the fleet's steps in the replay, as last reported by the coordinator: one
// heartbeat late (0.25 s; longer with more than 125 actors), also in a restarted actor. With
// actor.record_episodes complete episodes are also written to the run folder (ActorRecorder).
// With learner.synchronous it plays rollouts with equal weights, and waits for newer ones between
// them (RolloutGate).
// With actor.inference = "server" the actor has no weights, and requests each step's actions from
// an inference server. Invariants: at most InsertBounds::items_max items are buffered; agent steps
// never exceed those leased; an episode number is never reused (incarnation << 32 | count).
// When the number of replay shards changes, a stream that moves restarts at its new shard before a
// step; its items so far bootstrap from that step's observation, as at a truncation. Owner: the
// node's thread.
class ActorNode final : public Node {
 public:
  // Errors: those of EnvRunner::Make.
  static Result<std::unique_ptr<ActorNode>> Make(const ActingConfig& config,
                                                 const ActingContext& context);
  StepStatus Step(Time now) override;
  void Drain() override { draining_ = true; }
  Status result() const override { return result_; }
  const EnvSpec& env() const { return runner_->spec(); }
  // Exploration rate of environment i, for reports of the ladder.
  double epsilon(std::size_t i) const { return state_[i].epsilon; }

 private:
  struct EnvState {
    std::uint64_t global = 0;  // global environment index
    double epsilon = 0;        // discrete actions without annealing
    double noise_sigma = 0;    // continuous actions (ExploreKey)
    double episode_return = 0;
    std::int64_t episode_length = 0;
    double discounted_return = 0;  // RewardStatistics
  };

  ActorNode(const ActingConfig& config, const ActingContext& context);
  // Set-up: environments, policy and replay connections.
  Status Build();
  Status MakeRecorder();
  std::uint64_t SeedOf(std::size_t i, std::uint64_t episode) const;
  TrajectorySpec Trajectory() const;
  TrajectoryBuilder::Options BuilderOptions() const;
  Status Connect();
  Status ConnectReplay(const Origin& origin);
  Result<std::unique_ptr<Channel>> ConnectShard(const Origin& origin, std::int32_t shard) const;
  std::vector<bool> ShardsOfStreams(std::size_t shards) const;
  // Resharding of the replay: notice it, end the streams that move, push their last items.
  void FollowFleet();
  void LeaveShards();
  bool PushLast();
  // Sets ε or σ of each environment for actor `place` of `places`.
  void AssignExploration(std::int64_t place, std::int64_t places);
  Status ConnectPolicy(const Origin& origin);
  // One step: lease, exploration, result, trajectory, push.
  void AskLease();
  bool MayStep();
  bool MayBeginRollout();
  bool Advance();
  void Act();
  void BeginRecordings();
  void ReportEpsilon();
  void Record();
  // Extras of a step that only some algorithms insert.
  static std::span<const float> StateOf(const PolicyOutput& output, std::size_t i);
  float LogMu(std::size_t i) const;
  void RecordRewards();
  bool Push();
  void UseWeights(const WeightSnapshot& snapshot);
  void PullWeights(Time now);
  void Report();
  void ReportEnvMetrics();

  const ActingConfig config_;
  Network* const network_;
  FleetMember* const member_;
  const WeightConnector connect_weights_;
  EventHistory* const history_;
  Storage* const episodes_;  // nullptr: not recorded
  Metrics metrics_;
  std::unique_ptr<EnvRunner> runner_;
  RemotePolicy* remote_ = nullptr;  // the runner's policy in server mode
  std::vector<EnvState> state_;
  std::vector<TrajectoryBuilder> builders_;
  std::vector<ExploreKey> keys_;
  std::unique_ptr<ActorRecorder> recorder_;  // nullptr without actor.record_episodes
  std::unique_ptr<ReplayWriter> writer_;
  std::unique_ptr<WeightSubscriber> weights_;
  RolloutGate rollout_;                  // learner.synchronous
  Time now_{};                           // start of this turn
  std::int64_t place_ = 0, places_ = 0;  // position in the ε ladder
  bool have_weights_ = false;
  // env.metrics: the numbers of the environments since the last report, and the next one.
  EnvMetrics env_metrics_;
  Time env_metrics_next_{};
  bool env_metrics_due_ = false;
  bool env_metrics_warned_ = false;  // one warning per process
  RewardStatistics rewards_;         // env.normalize_rewards; of this incarnation
  bool reward_overflow_ = false;     // a value was left out, and the log says so
  std::int64_t steps_ = 0;           // made, out of member_->steps_granted()
  std::int64_t since_refresh_ = 0;   // vector steps since the last weight pull
  Time next_pull_{};                 // earliest time of the next pull
  std::deque<std::int64_t> pushed_;  // steps_ at each push that is not acknowledged yet
  std::size_t shards_ = 0;           // replay shards that streams are pushed to
  std::size_t shards_next_ = 0;      // takes effect with the next step's frames
  bool left_ = false;                // the moving streams have ended at their old shard
  std::uint64_t fleet_epoch_ = 0;    // of those shards
  // Last frames and items of the moving streams, for their old shards.
  std::vector<Chunk> last_chunks_;
  std::vector<Item> last_items_;
  bool draining_ = false;
  Status result_;
};

}  // namespace troop
