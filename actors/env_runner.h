#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "actors/experience/frame_stack.h"
#include "actors/experience/nonfinite_reward.h"
#include "actors/policy.h"
#include "core/base/failpoint.h"
#include "core/metrics/metrics.h"
#include "envs/vector_env.h"
#include "net/control/fleet_member.h"
#include "net/network.h"

namespace troop {

// Options from the [env] keys, with heartbeats of `member` while environment processes start
// (not in serial mode). The arguments must outlive the environments that the options create.
EnvOptions BeatingEnvOptions(const ActingConfig& config, Network* network, FleetMember* member,
                             const Metrics* metrics);

// Steps N environments with a policy, and excludes invalid steps. A step with a fault, or with a
// NaN or infinite reward, observation or q-value, is dropped; its episode is abandoned, the next
// one starts, and the log names the origin. Never blocks on slow environments. One owner thread.
class EnvRunner {
 public:
  struct Options {
    EnvOptions env;
    // Seed of an episode of environment i; must be deterministic.
    std::function<std::uint64_t(std::size_t i, std::uint64_t episode)> seed;
    std::uint64_t first = 0;  // global index of environment 0, for messages
    // Failpoints: before each step, and on the values that it returns.
    Failpoint before_step = Failpoint::kActorStep, reward = Failpoint::kActorReward;
    std::optional<Failpoint> observation = std::nullopt;
    // Factory of the policy; empty: MakeLocalPolicy.
    std::function<Result<std::unique_ptr<Policy>>(const EnvSpec& env)> policy;
  };
  // Makes `size` environments and their policy. Errors: those of MakeVectorEnv and of the policy.
  static Result<std::unique_ptr<EnvRunner>> Make(const ActingConfig& config, int size,
                                                 Options options);

  // Abandons all episodes and starts new ones with these seeds. Counters keep their values.
  void Restart(std::function<std::uint64_t(std::size_t i, std::uint64_t episode)> seed);

  const EnvSpec& spec() const { return spec_; }
  std::size_t size() const { return envs_state_.size(); }
  Policy& policy() { return *policy_; }
  const VectorEnv& envs() const { return *envs_; }  // for rendering
  // VectorEnv::TakeMetrics. REQUIRES: ready().
  void TakeMetrics(EnvMetrics* into) { envs_->TakeMetrics(into); }
  // Number of the current episode of environment i.
  std::uint64_t episode(std::size_t i) const {
    return envs_state_[i].seeds - 1 - std::uint64_t(envs_->seeds_ahead());
  }
  std::uint64_t step(std::size_t i) const { return envs_state_[i].step; }  // within the episode

  // Takes available results of the policy and the environments. Returns true if a new step is
  // complete, so that one() and the related accessors refer to it.
  bool Poll();
  // True if no result is pending, so that Act may be called.
  bool ready() const { return waiting_ == Waiting::kNothing; }
  // File descriptor to wait on, as VectorEnv's; -1 if no environment result is pending.
  int fd() const { return ready() || waiting_ == Waiting::kActions ? -1 : envs_->fd(); }
  // Chooses actions and sends them to the environments. keys: [N]. REQUIRES: ready().
  void Act(std::span<const ExploreKey> keys);
  // Not ok: the environments cannot continue, or one of them had env.faults_max faults and
  // non-finite values without completing an episode. The latter is kCancelled (a restart does not
  // help), or kInternal if the last one was a q-value, so that the weights are at fault.
  const Status& status() const { return status_; }
  // Message about the first fault of all, or about the latest fault of an environment with three or
  // more in a row; cleared when that environment completes an episode. Empty: none.
  const std::string& blocked() const { return blocked_; }

  // Result of the last step of environment i, valid until the next Poll.
  struct One {
    bool good = false;    // false: the step is dropped
    bool q_good = false;  // all q-values are finite
    bool terminated = false, truncated = false;
    float reward = 0;
    bool ended() const { return terminated || truncated; }
  };
  const One& one(std::size_t i) const { return ones_[i]; }
  const PolicyOutput& output() const { return *output_; }
  // Bytes of the single frame that the action was chosen from, and, if one(i).ended(), those of the
  // episode's last observation. Valid until the next Act or Poll.
  std::span<const std::byte> acted_on(std::size_t i) const;
  std::span<const std::byte> final_observation(std::size_t i) const;
  // Bytes of the single frame that the next action will be chosen from. Valid until the next Act.
  std::span<const std::byte> next_observation(std::size_t i) const;

  std::int64_t nonfinite_values() const { return nonfinite_values_; }  // total
  std::int64_t faults() const { return faults_; }
  // Steps with a value of magnitude kSuspiciousMagnitude or more.
  std::int64_t suspect_values() const { return suspect_values_; }

 private:
  enum class Waiting : std::uint8_t { kNothing, kFirst, kActions, kStep, kRestart };
  struct EnvState {
    std::uint64_t seeds = 0;             // seeds used, one per episode
    std::uint64_t step = 0;              // within the current episode
    std::int64_t troubles_in_a_row = 0;  // faults and non-finite values, until an episode completes
  };
  // A fault or a non-finite value, with its episode.
  struct Trouble {
    std::string what;
    std::uint64_t episode = 0, step = 0;
    bool fault = false;
    bool of_weights = false;  // a q-value was not finite
  };

  EnvRunner() = default;
  // Handlers of the results that Poll waits for.
  void Start();
  bool TakeActions();
  void TakeStep();
  // Checks of a step's values; a dropped step goes to Note, which logs it and limits repetitions.
  std::optional<NonFiniteValue> FindBad(std::size_t i, bool any_bad) const;
  void NoteSuspect(std::size_t i);
  std::string OriginOf(std::size_t i, const Trouble& trouble) const;
  void CorruptForTest();
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
  bool start_anew_ = false;           // after the pending result has arrived
  const StepBatch* batch_ = nullptr;  // the last step's
  const PolicyOutput* output_ = nullptr;
  std::uint64_t version_ = 0;        // of the weights that chose the actions
  Tensor acted_on_;                  // input of the last action
  std::optional<FrameStack> stack_;  // ends in acted_on_; nullopt: single frames
  std::vector<std::uint8_t> first_;
  Tensor observation_;  // input of the next action
  Tensor reward_;
  std::vector<One> ones_;
  std::vector<int> starting_;  // environments with a new first observation
  std::vector<int> to_restart_;
  std::int64_t nonfinite_values_ = 0, faults_ = 0, suspect_values_ = 0;
  std::string blocked_;
  std::size_t blocked_by_ = 0;  // the environment of that message
  Status status_;
};

}  // namespace troop
