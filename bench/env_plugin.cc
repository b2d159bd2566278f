// Native environments as a plug-in, for env_bridge_bench: the same code through the C interface;
// and an environment that crashes.
#include <csignal>
#include <span>
#include <troop/environment.hpp>

#include "envs/classic_control/classic_control.h"

namespace troop::plugin {
namespace {

template <class Native>
class Wrapped {
 public:
  Spec spec() const {
    const EnvSpec& own = native_.spec();
    const auto dims = own.observation.shape.dims();
    return Spec()
        .Observe({dims.begin(), dims.end()})
        .Scale(own.observation_scale)
        .Discrete(own.action.count)
        .Limit(own.max_episode_steps);
  }
  void Reset(std::uint64_t seed, Span<float> observation) {
    native_.Reset(seed, Bytes(observation));
  }
  StepResult Step(std::int32_t action, Span<float> observation) {
    const troop::StepResult step =
        native_.Step(std::as_bytes(std::span(&action, 1)), Bytes(observation));
    return {step.reward, step.terminated, step.truncated};
  }

 private:
  static std::span<std::byte> Bytes(Span<float> numbers) {
    return std::as_writable_bytes(std::span(numbers.data(), numbers.size()));
  }
  Native native_;
};

struct PluginMountainCar final : Wrapped<troop::MountainCar> {
  static constexpr const char* kId = "MountainCar-v0";
};
struct PluginAcrobot final : Wrapped<troop::Acrobot> {
  static constexpr const char* kId = "Acrobot-v1";
};

// One step in N ends the process. Each step computes for about ten microseconds, like a small game:
// otherwise the speed of a run would be that of the scheduler's wake-ups.
class Crashing {
 public:
  static constexpr const char* kId = "Crashing-v0";
  explicit Crashing(Options& options) : every_(options.Integer("every", 0)) {}
  Spec spec() const { return Spec().Observe({4}).Discrete(2).Limit(100); }
  void Reset(std::uint64_t seed, Span<float> observation) {
    random_ = Random(seed);
    observation.Write({0, 0, 0, 0});
  }
  StepResult Step(std::int32_t action, Span<float> observation) {
    if (every_ > 0 && random_.Below(every_) == 0) std::raise(SIGSEGV);
    std::uint32_t work = 0;
    for (int i = 0; i < kWork; ++i) work = work * 1664525 + 1013904223;  // a dependent chain
    observation.Write({float(action), float(work & 1), 0, 1});
    return {1};
  }

 private:
  static constexpr int kWork = 10'000;
  const std::int64_t every_;
  Random random_;
};

}  // namespace
}  // namespace troop::plugin

TROOP_ENVIRONMENT(troop::plugin::PluginMountainCar, troop::plugin::PluginAcrobot,
                  troop::plugin::Crashing)
