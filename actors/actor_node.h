#pragma once

#include <deque>
#include <memory>
#include <vector>

#include "actors/bad_number.h"
#include "actors/policy.h"
#include "actors/trajectory_builder.h"
#include "core/config.h"
#include "core/history.h"
#include "core/node.h"
#include "envs/vector_env.h"
#include "net/control.h"
#include "paramserver/client.h"
#include "replay/client.h"

namespace troop {

// Makes experience: steps its environments ε-greedily, cuts n-step items, pushes them, and pulls
// newer weights. Stops for: no lease, a full push window (the replay's limiter, or a slow replay).
// A step of which the reward, an observation or a q-value is NaN or infinite is left out: it is no
// agent step, its episode is given up, and the log says where it was. Such weights are not used.
// Owner: the node's thread. Invariants: at most n_step + 2·push_items items wait here; agent steps
// never exceed those leased; an episode number is never used twice (incarnation << 32 | count).
class ActorNode final : public Node {
 public:
  // `network` and `member` outlive the node. Errors: the environment or network can't be made.
  static Result<std::unique_ptr<ActorNode>> Make(const Config& config, Network* network,
                                                 FleetMember* member, History* history = nullptr);
  Turn Step(Time now) override;
  void Drain() override { draining_ = true; }
  Status result() const override { return result_; }

 private:
  struct EnvState {
    std::uint64_t global = 0;    // global environment index
    std::uint64_t episodes = 0;  // begun by this incarnation
    std::uint64_t step = 0;      // within the episode
    int bad_row = 0;             // bad numbers since the last whole good episode
    double epsilon = 0;
    double episode_return = 0;
  };

  ActorNode(const Config& config, Network* network, FleetMember* member, History* history);
  Status Build();
  std::uint64_t SeedOf(const EnvState& env, std::uint64_t episode) const;
  Status Connect();
  Status ConnectReplay(const Origin& origin);
  void AskLease();
  bool MayStep();
  void StepEnvironments();
  void Begin();
  void Spoil();
  std::int64_t Record(const PolicyOutput& output, std::int64_t leased);
  void GiveUp(std::size_t i, const BadNumber& bad, bool ended);
  void Restart(std::size_t i);
  void CheckStart(std::size_t i);
  void NoteBad(std::size_t i, bool ended, std::uint64_t step, const BadNumber& bad);
  bool Push();
  void UseWeights(const WeightSnapshot& snapshot);
  void PullWeights(Time now);
  void Report();

  const Config config_;
  Network* const network_;
  FleetMember* const member_;
  History* const history_;
  Metrics metrics_;
  EnvSpec spec_;
  std::unique_ptr<VectorEnv> envs_;
  std::unique_ptr<Policy> policy_;
  std::vector<EnvState> state_;
  std::vector<TrajectoryBuilder> builders_;
  std::vector<ExploreKey> keys_;
  Tensor observation_;       // what the last action was chosen from
  Tensor next_observation_;  // what the step then gave
  Tensor reward_;
  const StepBatch* batch_ = nullptr;  // the last one of envs_
  std::uint64_t policy_version_ = 0;  // of the weights that chose the last actions
  std::uint64_t bad_numbers_ = 0;
  std::unique_ptr<ReplayWriter> writer_;
  std::unique_ptr<WeightSubscriber> weights_;
  bool have_weights_ = false;
  bool started_ = false;             // the first observations are in observation_
  std::int64_t steps_ = 0;           // taken, of member_->steps_granted()
  std::int64_t since_refresh_ = 0;   // vector steps since the last pull
  Time next_pull_{};                 // no pull before
  std::deque<std::int64_t> pushed_;  // steps_ at each push that is not acknowledged yet
  bool draining_ = false;
  Status result_;
};

}  // namespace troop
