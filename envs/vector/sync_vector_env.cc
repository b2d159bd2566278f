// Vector as a loop over single environments, with fault handling and the optional StepMany.

#include <algorithm>

#include "core/base/check.h"
#include "envs/vector/native_vector_env.h"

namespace troop {
namespace {

// Invariant: an environment whose start failed is `down` until its failure has been reported. The
// failure is reported by the batch of that start or, if the start followed the end of an episode
// (whose result must not be lost), by the next step, which also restarts the environment.
class LoopVectorEnv final : public NativeVectorEnv {
 public:
  LoopVectorEnv(std::vector<std::unique_ptr<Environment>> envs, EpisodeSeeder seeder)
      : NativeVectorEnv(envs[0]->spec(), int(envs.size()), std::move(seeder)),
        envs_(std::move(envs)),
        episodes_(envs_.size()) {}

  Environment::Picture Render(int index) const override { return envs_.at(index)->Render(); }
  void TakeMetrics(EnvMetrics* into) override {
    for (const auto& env : envs_) env->TakeMetrics(into);
  }

 private:
  struct Episode {
    std::uint64_t seed = 0;
    std::int64_t step = 0;
    bool down = false;
    std::string why;  // cause of the failed start, if down
  };

  void Start(int index, std::uint64_t seed) override {
    StartOne(index, seed);
    if (episodes_[index].down && !stepping_) Tell(index, episodes_[index].why);
  }

  // Starts an episode without reporting a failure; the observation of a failed start is 0.
  void StartOne(int index, std::uint64_t seed) {
    Episode& episode = episodes_[index];
    episode = {.seed = seed};
    envs_[index]->Reset(seed, ObservationRow(index));
    if (envs_[index]->fault().empty()) return;
    episode.down = true;
    episode.why = envs_[index]->fault();
    std::ranges::fill(ObservationRow(index), std::byte{0});
  }

  // Reports a fault of the current step or start.
  void Tell(int index, std::string what) {
    Fail({.index = index,
          .seed = episodes_[index].seed,
          .step = episodes_[index].step,
          .what = std::move(what)});
  }

  void StepAll(const std::byte* action) override {
    stepping_ = true;
    // StepMany cannot skip environments that are down.
    if (std::ranges::none_of(episodes_, &Episode::down) && StepAtOnce(action)) {
      stepping_ = false;
      return;
    }
    const std::size_t action_bytes = spec_.action.tensor().bytes();
    for (int i = 0; i < size_; ++i) StepOne(i, {action + i * action_bytes, action_bytes});
    stepping_ = false;
  }

  // Steps all environments in one call; false if they do not support it, then nothing has happened.
  bool StepAtOnce(const std::byte* action) {
    using Many = Environment::Many;
    const Many all = envs_[0]->StepMany(envs_, {.action = action,
                                                .observation = observation_.bytes().data(),
                                                .reward = reward_.data<float>(),
                                                .terminated = terminated_.data<std::uint8_t>(),
                                                .truncated = truncated_.data<std::uint8_t>()});
    // Every environment has stepped; handle the ends of episodes and the faults.
    if (all == Many::kCannot) return false;
    for (int i = 0; i < size_; ++i) {
      ++episodes_[i].step;
      if (all == Many::kSomeFailed && !envs_[i]->fault().empty()) {
        TakeFault(i);
      } else if ((terminated_.data<std::uint8_t>()[i] | truncated_.data<std::uint8_t>()[i]) != 0) {
        EndEpisode(i);
      }
    }
    return true;
  }

  // Reports the fault of a step and starts the next episode.
  void TakeFault(int i) {
    Tell(i, std::string(envs_[i]->fault()));
    StartOne(i, NextSeed(i));
  }

  // Steps one environment, or reports and restarts one that is down.
  void StepOne(int i, std::span<const std::byte> action) {
    Episode& episode = episodes_[i];
    if (episode.down) {
      Tell(i, episode.why);
      StartOne(i, NextSeed(i));
      return;
    }
    ++episode.step;
    const StepResult step = envs_[i]->Step(action, ObservationRow(i));
    if (!envs_[i]->fault().empty()) {
      TakeFault(i);
      return;
    }
    reward_.data<float>()[i] = step.reward;
    terminated_.data<std::uint8_t>()[i] = step.terminated;
    truncated_.data<std::uint8_t>()[i] = step.truncated;
    if (step.terminated || step.truncated) EndEpisode(i);
  }

  std::vector<std::unique_ptr<Environment>> envs_;
  std::vector<Episode> episodes_;
  bool stepping_ = false;  // Start is called from StepAll
};

}  // namespace

std::unique_ptr<VectorEnv> MakeSyncVectorEnv(std::vector<std::unique_ptr<Environment>> envs,
                                             EpisodeSeeder seeder) {
  TROOP_CHECK(!envs.empty(), "a vector needs at least one environment");
  return std::make_unique<LoopVectorEnv>(std::move(envs), std::move(seeder));
}

}  // namespace troop
