// Action repeat around any single environment.

#include "envs/vector/action_repeat.h"

#include <utility>

namespace troop {
namespace {

class RepeatedEnvironment final : public Environment {
 public:
  RepeatedEnvironment(std::unique_ptr<Environment> inner, int repeat)
      : inner_(std::move(inner)), repeat_(repeat), spec_(inner_->spec()) {
    // Rounded up: the last repeated action may be cut short by the limit.
    spec_.max_episode_steps = (spec_.max_episode_steps + repeat - 1) / repeat;
  }
  const EnvSpec& spec() const override { return spec_; }
  void Reset(std::uint64_t seed, std::span<std::byte> observation) override {
    inner_->Reset(seed, observation);
  }
  StepResult Step(std::span<const std::byte> action, std::span<std::byte> observation) override {
    // Intermediate observations are overwritten; only the last one is returned.
    StepResult sum;
    for (int i = 0; i < repeat_; ++i) {
      const StepResult step = inner_->Step(action, observation);
      sum = {sum.reward + step.reward, step.terminated, step.truncated};
      if (step.terminated || step.truncated || !inner_->fault().empty()) break;
    }
    return sum;
  }
  std::string_view fault() const override { return inner_->fault(); }
  Picture Render() const override { return inner_->Render(); }
  void TakeMetrics(EnvMetrics* into) override { inner_->TakeMetrics(into); }

 private:
  const std::unique_ptr<Environment> inner_;
  const int repeat_;
  EnvSpec spec_;
};

}  // namespace

std::unique_ptr<Environment> MakeRepeatedEnvironment(std::unique_ptr<Environment> inner,
                                                     int repeat) {
  return std::make_unique<RepeatedEnvironment>(std::move(inner), repeat);
}

}  // namespace troop
