#pragma once

#include <memory>
#include <vector>

#include "actors/bad_number.h"
#include "actors/policy.h"
#include "core/config.h"
#include "core/node.h"
#include "envs/vector_env.h"
#include "net/control.h"
#include "paramserver/client.h"

namespace troop {

// Plays a fixed number of episodes with fixed weights, in bounded slices. Each environment plays
// its share of the episodes, so short episodes count no more often than long ones. Seeds depend on
// (run seed, `round`, environment, episode) alone. Where the environment has no limit, episodes are
// truncated after evaluator.max_episode_steps. In place of an episode with a reward or an
// observation that is NaN or infinite another one is played; too many end it. One owner thread.
class Evaluation {
 public:
  static Result<std::unique_ptr<Evaluation>> Make(const Config& config, std::int64_t episodes,
                                                  std::uint64_t round, std::uint64_t version,
                                                  std::span<const float> weights);
  // Takes up to `steps` vector steps; true when all episodes are over, or error() is not ok.
  bool Advance(int steps);
  const Status& error() const { return error_; }
  EvaluationReport Report() const;  // REQUIRES: over, and no error
  std::int64_t bad_numbers() const { return bad_numbers_; }
  std::span<const double> returns() const { return returns_; }
  const VectorEnv& envs() const { return *envs_; }  // for drawing

 private:
  Evaluation() = default;
  void Count(const StepBatch& batch);
  void Restart(std::size_t i, const StepBatch& batch);
  void CheckStart(std::size_t i, const StepBatch& batch);
  void NoteBad(std::size_t i, const BadNumber& bad);
  std::uint64_t SeedOf(std::size_t i, std::uint64_t episode) const;

  std::unique_ptr<VectorEnv> envs_;
  std::unique_ptr<Policy> policy_;
  Tensor observation_, reward_;
  double epsilon_ = 0;
  std::uint64_t seed_ = 0, round_ = 0, version_ = 0;
  std::vector<std::int64_t> left_;  // episodes that an environment still has to play
  std::vector<std::uint64_t> episode_, step_;
  std::vector<double> return_;
  std::vector<ExploreKey> keys_;
  std::vector<double> returns_, lengths_;  // of the finished episodes
  std::int64_t open_ = 0;                  // episodes not finished
  std::int64_t bad_numbers_ = 0;
  Status error_;
};

// The evaluator role: every `every_s` pulls the newest weights and plays `episodes` with its own ε;
// at the end of the run, `final_episodes` with the final weights; an evaluation that still runs
// then is dropped. Owner: the node's thread.
class EvaluatorNode final : public Node {
 public:
  static Result<std::unique_ptr<EvaluatorNode>> Make(const Config& config, Network* network,
                                                     FleetMember* member);
  Turn Step(Time now) override;
  void Drain() override { draining_ = true; }
  Status result() const override { return result_; }

 private:
  EvaluatorNode(const Config& config, Network* network, FleetMember* member)
      : config_(config), network_(network), member_(member) {}
  Status Connect();
  void Pull(Time now);
  Status Begin();

  const Config config_;
  Network* const network_;
  FleetMember* const member_;
  Metrics metrics_;
  std::unique_ptr<WeightSubscriber> weights_;
  std::optional<WeightSnapshot> newest_;
  std::int64_t newest_steps_ = 0;
  std::unique_ptr<Evaluation> running_;
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
