#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "actors/env_runner.h"
#include "core/config.h"
#include "core/node.h"
#include "net/control.h"
#include "paramserver/client.h"
#include "paramserver/weights_trial.h"

namespace troop {

// Plays a fixed number of episodes with fixed weights, in bounded slices. Each environment plays
// its share of the episodes, so short episodes count no more often than long ones. Seeds depend on
// (run seed, `round`, environment, episode) alone. Where the environment has no limit, episodes are
// truncated after evaluator.max_episode_steps. In place of an episode with a reward or an
// observation that is NaN or infinite another one is played; too many end it. One owner thread.
class Evaluation final : public WeightsTrial {
 public:
  struct Options {
    std::int64_t episodes = 1;
    std::uint64_t round = 0;    // an evaluation of the same config and round plays the same
    std::uint64_t version = 0;  // of the weights
    bool wait = false;          // for environments that take their time (EnvOptions)
    std::function<Status(Time)> while_starting;  // as EnvOptions'
  };
  // `before`: an evaluation of the same config, whose environments play on; nullptr: new ones.
  static Result<std::unique_ptr<Evaluation>> Make(const Config& config, const Options& options,
                                                  std::span<const float> weights,
                                                  std::unique_ptr<Evaluation> before = nullptr);
  State Advance(int steps) override;  // of vector steps; waits for environments
  int fd() const override { return runner_->fd(); }
  const Status& error() const override { return runner_->status(); }
  EvaluationReport Report() const override;
  std::int64_t bad_numbers() const override { return runner_->bad_numbers() - bad_numbers_before_; }
  std::int64_t faults() const override { return runner_->faults() - faults_before_; }
  std::string blocked() const override { return runner_->blocked(); }
  std::span<const double> returns() const { return returns_; }
  const VectorEnv& envs() const { return runner_->envs(); }  // for drawing

 private:
  Evaluation() = default;
  void Act();
  void Count();

  std::unique_ptr<EnvRunner> runner_;
  double epsilon_ = 0;
  std::uint64_t round_ = 0, version_ = 0;
  std::vector<std::int64_t> left_;  // episodes that an environment still has to play
  std::vector<double> return_, lengths_under_way_;  // of the episodes under way
  std::vector<ExploreKey> keys_;
  std::vector<double> returns_, lengths_;  // of the finished episodes
  std::int64_t open_ = 0;                  // episodes not finished
  std::int64_t bad_numbers_before_ = 0, faults_before_ = 0;
};

// The evaluator role: every `every_s` pulls the newest weights and plays `episodes` with its own ε,
// or makes another trial of them; at the end of the run, `final_episodes` with the final weights; a
// trial that still runs then is dropped. Owner: the node's thread.
class EvaluatorNode final : public Node {
 public:
  // before: a trial of this maker that is over or dropped; nullptr: none.
  using BeginTrial = std::function<Result<std::unique_ptr<WeightsTrial>>(
      const TrialOptions&, std::span<const float> weights, std::unique_ptr<WeightsTrial> before)>;
  // problem: as ReviewSpec or an environment has it.
  static Result<std::unique_ptr<EvaluatorNode>> Make(const Config& config, Network* network,
                                                     FleetMember* member, const EnvSpec& problem,
                                                     BeginTrial begin);
  // Plays the config's environment.
  static Result<std::unique_ptr<EvaluatorNode>> Make(const Config& config, Network* network,
                                                     FleetMember* member);
  Turn Step(Time now) override;
  void Drain() override { draining_ = true; }
  Status result() const override { return result_; }

 private:
  EvaluatorNode(const Config& config, Network* network, FleetMember* member)
      : config_(config), network_(network), member_(member) {}
  Result<std::unique_ptr<WeightsTrial>> BeginEvaluation(const TrialOptions& trial,
                                                        std::span<const float> weights,
                                                        std::unique_ptr<WeightsTrial> before);
  Status Connect();
  void Pull(Time now);
  Status Begin();

  const Config config_;
  Network* const network_;
  FleetMember* const member_;
  Metrics metrics_;
  BeginTrial begin_;
  std::optional<EnvSpec> env_;
  std::unique_ptr<WeightSubscriber> weights_;
  std::optional<WeightSnapshot> newest_;
  std::int64_t newest_steps_ = 0;
  std::unique_ptr<WeightsTrial> running_;
  std::unique_ptr<WeightsTrial> last_;  // whose environments play the next one
  bool running_final_ = false;
  std::int64_t running_steps_ = 0;
  std::uint64_t round_ = 0;
  std::uint64_t evaluated_version_ = 0;
  Time next_{};                   // no pull before
  bool final_requested_ = false;  // asked for the weights after the learner had ended
  bool final_pulled_ = false;     // and have the answer
  bool final_done_ = false;
  bool draining_ = false;
  Status result_;
};

}  // namespace troop
