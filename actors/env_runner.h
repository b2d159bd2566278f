#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "actors/bad_number.h"
#include "actors/frame_stack.h"
#include "actors/policy.h"
#include "core/failpoint.h"
#include "core/metrics.h"
#include "envs/vector_env.h"
#include "net/control.h"
#include "net/network.h"

namespace troop {

// The config's [env] keys, where `member` goes on beating while processes start. All outlive what
// is made with them.
EnvOptions BeatingEnvOptions(const Config& config, Network* network, FleetMember* member,
                             const Metrics* metrics);

// Plays N environments with a policy, and keeps what is bad out of the steps that it gives: a step
// with a fault, or of which the reward, an observation or a q-value is NaN or infinite, is none.
// Its episode is given up and the next begins; the log says where it was. Environments may take
// their time: nothing here waits for them. One owner thread.
class EnvRunner {
 public:
  struct Options {
    EnvOptions env;
    // The seed of an episode of environment i: always the same.
    std::function<std::uint64_t(std::size_t i, std::uint64_t episode)> seed;
    std::uint64_t first = 0;  // the number of environment 0, for people
    Failpoint before_step = Failpoint::kActorStep, reward = Failpoint::kActorReward;
    std::optional<Failpoint> observation = std::nullopt;
    // Who chooses actions; empty: MakeLocalPolicy.
    std::function<Result<std::unique_ptr<Policy>>(const EnvSpec& env)> policy;
  };
  // Errors: the environments or the network can't be made.
  static Result<std::unique_ptr<EnvRunner>> Make(const Config& config, int size, Options options);

  // Gives up all episodes and starts others, with these seeds. What it counts goes on.
  void StartAnew(std::function<std::uint64_t(std::size_t i, std::uint64_t episode)> seed);

  const EnvSpec& spec() const { return spec_; }
  std::size_t size() const { return envs_state_.size(); }
  Policy& policy() { return *policy_; }
  const VectorEnv& envs() const { return *envs_; }  // for drawing
  std::uint64_t episode(std::size_t i) const {
    return envs_state_[i].seeds - 1 - std::uint64_t(envs_->seeds_ahead());
  }
  std::uint64_t step(std::size_t i) const { return envs_state_[i].step; }  // within the episode

  // Takes what the policy and the environments have ready. True: one() and all that belongs to it
  // is of a new step.
  bool Poll();
  // No result is awaited: Act may come.
  bool ready() const { return waiting_ == Waiting::kNothing; }
  // As VectorEnv's; -1 while nothing of the environments is awaited.
  int fd() const { return ready() || waiting_ == Waiting::kActions ? -1 : envs_->fd(); }
  // Chooses actions and hands them to the environments. keys: [N]. REQUIRES: ready().
  void Act(std::span<const ExploreKey> keys);
  // Not ok: the environments can't go on, or one had env.faults_max faults and bad numbers
  // (kCancelled: no restart cures it; kInternal: the last one was a q-value, a matter of the
  // weights).
  const Status& status() const { return status_; }
  // The first trouble of all, or the newest third or later in a row of one environment, until that
  // environment ends a whole good episode; empty: none.
  const std::string& blocked() const { return blocked_; }

  // The last step of environment i, until the next Poll.
  struct One {
    bool good = false;    // false: it is no step
    bool q_good = false;  // the q-values are numbers
    bool terminated = false, truncated = false;
    float reward = 0;
    bool ended() const { return terminated || truncated; }
  };
  const One& one(std::size_t i) const { return ones_[i]; }
  const PolicyOutput& output() const { return *output_; }
  // What the action was chosen from, and what the episode ended with.
  std::span<const std::byte> acted_on(std::size_t i) const;
  std::span<const std::byte> final_observation(std::size_t i) const;

  std::int64_t bad_numbers() const { return bad_numbers_; }  // in all, so far
  std::int64_t faults() const { return faults_; }
  // Steps with a number of kSuspectNumber or more.
  std::int64_t suspect_numbers() const { return suspect_numbers_; }

 private:
  enum class Waiting : std::uint8_t { kNothing, kFirst, kActions, kStep, kRestart };
  struct EnvState {
    std::uint64_t seeds = 0;             // that were asked for, one for each episode
    std::uint64_t step = 0;              // within the last of them
    std::int64_t troubles_in_a_row = 0;  // faults and bad numbers since the last whole good episode
  };
  // What went wrong, and in which episode.
  struct Trouble {
    std::string what;
    std::uint64_t episode = 0, step = 0;
    bool fault = false;
    bool of_weights = false;  // a q-value was not a number
  };

  EnvRunner() = default;
  void Start();
  bool TakeActions();
  void TakeStep();
  std::optional<BadNumber> FindBad(std::size_t i, bool any_bad) const;
  void NoteSuspect(std::size_t i);
  std::string OriginOf(std::size_t i, const Trouble& trouble) const;
  void Spoil();
  void NoteFaults();
  void CheckStarts();
  void CheckStart(std::size_t i);
  void Note(std::size_t i, const Trouble& trouble);

  Options options_;
  std::int64_t faults_max_ = 0;
  EnvSpec spec_;
  std::unique_ptr<VectorEnv> envs_;
  std::unique_ptr<Policy> policy_;
  std::vector<EnvState> envs_state_;
  Waiting waiting_ = Waiting::kFirst;
  bool start_anew_ = false;           // once what is awaited has come
  const StepBatch* batch_ = nullptr;  // the last one
  const PolicyOutput* output_ = nullptr;
  std::uint64_t version_ = 0;        // of the weights that acted
  Tensor acted_on_;                  // what the last action was chosen from
  std::optional<FrameStack> stack_;  // that ends in acted_on_; nullopt: of one frame
  std::vector<std::uint8_t> first_;
  Tensor observation_;  // what the next will be chosen from
  Tensor reward_;
  std::vector<One> ones_;
  std::vector<int> starting_;  // whose first observation is new
  std::vector<int> to_restart_;
  std::int64_t bad_numbers_ = 0, faults_ = 0, suspect_numbers_ = 0;
  std::string blocked_;
  std::size_t blocked_by_ = 0;  // the environment of it
  Status status_;
};

}  // namespace troop
