// Sticky actions, reward scaling and clipping of observations around any vector.

#include "envs/vector/wrappers.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "core/base/check.h"
#include "core/base/philox.h"

namespace troop {
namespace {

// Clips the finite elements to ± limit. O(elements).
void Clip(std::span<const float> in, double limit, std::span<float> out) {
  const auto bound = float(limit);
  std::ranges::transform(in, out.begin(), [bound](float x) {
    return std::isfinite(x) ? std::clamp(x, -bound, bound) : x;
  });
}

// Intercepts the seeder to derive the sticky actions' random stream from each episode's seed.
class WrappedVectorEnv final : public VectorEnv {
 public:
  WrappedVectorEnv(const VectorWrappers& wrappers, int size, EpisodeSeeder seeder)
      : wrappers_(wrappers), seeder_(std::move(seeder)), episodes_(std::size_t(size)) {}

  // Creates the inner vector with a seeder that records each seed before it returns it.
  Status Wrap(const MakeInnerVectorEnv& make) {
    TROOP_ASSIGN_OR_RETURN(inner_, make([this](int i) {
                             Episode& episode = episodes_[std::size_t(i)];
                             ++episode.seeds;
                             episode.seed_before = episode.seed;
                             episode.seed = seeder_(i);
                             return episode.seed;
                           }));
    const TensorSpec action = inner_->spec().action.tensor();
    action_ = Tensor(action.dtype, action.shape.Prepend(size()));
    reward_ = Tensor(DType::kF32, {size()});
    if (wrappers_.observation_clip <= 0) return Status::Ok();
    TROOP_RETURN_IF_ERROR(CheckClip(wrappers_, inner_->spec()));
    const Shape observations = inner_->spec().observation.shape.Prepend(size());
    observation_ = Tensor(DType::kF32, observations);
    final_observation_ = Tensor(DType::kF32, observations);
    return Status::Ok();
  }

  const EnvSpec& spec() const override { return inner_->spec(); }
  int size() const override { return int(episodes_.size()); }
  void SubmitReset() override { inner_->SubmitReset(); }
  void Submit(ConstTensor action) override {
    if (wrappers_.sticky_actions > 0) action = Stick(action);
    inner_->Submit(action);
  }
  // Changes copies, because the results belong to the inner vector.
  const StepBatch* Poll() override {
    const StepBatch* batch = inner_->Poll();
    const double clip = wrappers_.observation_clip;
    if (batch == nullptr || (wrappers_.reward_scale == 1 && clip <= 0)) return batch;
    batch_ = *batch;
    if (wrappers_.reward_scale != 1) {
      const auto scale = float(wrappers_.reward_scale);
      std::ranges::transform(batch->reward.as<float>(), reward_.as<float>().begin(),
                             [scale](float x) { return x * scale; });
      batch_.reward = reward_;
    }
    if (clip > 0) {
      Clip(batch->observation.as<float>(), clip, observation_.as<float>());
      batch_.observation = observation_;
      // Rows that are not valid are clipped too, but never read.
      if (!batch->final_observation.empty()) {
        Clip(batch->final_observation.as<float>(), clip, final_observation_.as<float>());
        batch_.final_observation = final_observation_;
      }
    }
    return &batch_;
  }
  void SubmitRestart(std::span<const int> indices) override { inner_->SubmitRestart(indices); }
  std::span<const EnvFault> faults() const override { return inner_->faults(); }
  int fd() const override { return inner_->fd(); }
  Status status() const override { return inner_->status(); }
  int seeds_ahead() const override { return inner_->seeds_ahead(); }
  Environment::Picture Render(int index) const override { return inner_->Render(index); }
  void TakeMetrics(EnvMetrics* into) override { inner_->TakeMetrics(into); }
  std::optional<Duration> inside() const override { return inner_->inside(); }

 private:
  struct Episode {
    std::uint64_t seed = 0, seed_before = 0;  // the two seeds requested last
    std::uint64_t seeds = 0;                  // number of seeds requested
    std::uint64_t number = 0;                 // number of the current episode among them
    std::uint64_t steps = 0;                  // of the current episode
  };

  // Replaces sticking actions by the previous ones, in action_. With seeds ahead, the current
  // episode has the last but one seed.
  ConstTensor Stick(ConstTensor wanted) {
    const std::size_t bytes = wanted.bytes().size() / episodes_.size();
    const int ahead = inner_->seeds_ahead();  // 0 or 1
    for (std::size_t i = 0; i < episodes_.size(); ++i) {
      Episode& episode = episodes_[i];
      const std::uint64_t number = episode.seeds - std::uint64_t(ahead);
      // A new seed means that a new episode began.
      if (std::exchange(episode.number, number) != number) episode.steps = 0;
      const bool sticks = ActionSticks(ahead == 0 ? episode.seed : episode.seed_before,
                                       episode.steps, wrappers_.sticky_actions);
      ++episode.steps;
      // action_ still has the action of the previous step.
      if (sticks) continue;
      std::memcpy(action_.bytes().data() + i * bytes, wanted.bytes().data() + i * bytes, bytes);
    }
    return action_;
  }

  const VectorWrappers wrappers_;
  EpisodeSeeder seeder_;
  std::vector<Episode> episodes_;
  std::unique_ptr<VectorEnv> inner_;
  Tensor action_;  // the actions that the environments received last
  Tensor reward_;
  Tensor observation_, final_observation_;  // clipped; empty without observation_clip
  StepBatch batch_;
};

// Applies the wrappers to one environment.
class WrappedEnvironment final : public Environment {
 public:
  WrappedEnvironment(const VectorWrappers& wrappers, std::unique_ptr<Environment> env)
      : wrappers_(wrappers), env_(std::move(env)) {
    played_.resize(env_->spec().action.tensor().bytes());
  }

  const EnvSpec& spec() const override { return env_->spec(); }
  std::string_view fault() const override { return env_->fault(); }
  Picture Render() const override { return env_->Render(); }
  void TakeMetrics(EnvMetrics* into) override { env_->TakeMetrics(into); }
  void Reset(std::uint64_t seed, std::span<std::byte> observation) override {
    seed_ = seed;
    steps_ = 0;
    env_->Reset(seed, observation);
    ClipObservation(observation);
  }
  // The action sticks before the step and the reward is scaled after it, as in the vector.
  StepResult Step(std::span<const std::byte> action, std::span<std::byte> observation) override {
    TROOP_CHECK(action.size() == played_.size(), "an action has {} bytes, not {}", played_.size(),
                action.size());
    const bool sticks = ActionSticks(seed_, steps_++, wrappers_.sticky_actions);
    if (!sticks) std::ranges::copy(action, played_.begin());
    StepResult result = env_->Step(played_, observation);
    result.reward *= float(wrappers_.reward_scale);
    ClipObservation(observation);
    return result;
  }

 private:
  void ClipObservation(std::span<std::byte> observation) const {
    if (wrappers_.observation_clip <= 0) return;
    const std::span<float> elements(reinterpret_cast<float*>(observation.data()),
                                    observation.size() / sizeof(float));
    Clip(elements, wrappers_.observation_clip, elements);
  }

  const VectorWrappers wrappers_;
  const std::unique_ptr<Environment> env_;
  std::vector<std::byte> played_;  // the action of the last step
  std::uint64_t seed_ = 0, steps_ = 0;
};

}  // namespace

// Each step makes its own generator, so that only the seed and the step decide.
bool ActionSticks(std::uint64_t episode_seed, std::uint64_t step, double probability) {
  Rng rng({.run_seed = episode_seed, .purpose = Purpose::kStickyActions});
  // Uniform consumes two words: step t has a fixed position, whatever happened before.
  rng.Seek(2 * step);
  return step > 0 && rng.Uniform() < probability;
}

Status CheckClip(const VectorWrappers& wrappers, const EnvSpec& spec) {
  if (wrappers.observation_clip <= 0 || spec.observation.dtype == DType::kF32) return Status::Ok();
  return InvalidArgument(
      "env.observation_clip is {}, but observations of {} are {}, and only f32 is clipped; remove "
      "it",
      wrappers.observation_clip, spec.id, spec.observation.ToString());
}

std::unique_ptr<Environment> MakeWrappedEnvironment(const VectorWrappers& wrappers,
                                                    std::unique_ptr<Environment> env) {
  if (!wrappers.any()) return env;
  return std::make_unique<WrappedEnvironment>(wrappers, std::move(env));
}

Result<std::unique_ptr<VectorEnv>> MakeWrappedVectorEnv(const VectorWrappers& wrappers, int size,
                                                        EpisodeSeeder seeder,
                                                        const MakeInnerVectorEnv& make) {
  if (!wrappers.any()) return make(std::move(seeder));
  auto env = std::make_unique<WrappedVectorEnv>(wrappers, size, std::move(seeder));
  TROOP_RETURN_IF_ERROR(env->Wrap(make));
  return std::unique_ptr<VectorEnv>(std::move(env));
}

}  // namespace troop
