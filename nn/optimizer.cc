// Implements the optimizers over flat buffers: state and step sizes here, the elementwise math in
// kernels/optim/optimizer_step.h.
#include "nn/optimizer.h"

#include <algorithm>

#include "kernels/optim/optimizer_step.h"
#include "nn/arena.h"

namespace troop {
namespace {

// Allocates a zeroed slot.
std::span<float> ZeroFloats(MutableBuffer& storage, std::int64_t count) {
  storage = MutableBuffer::Zeros(std::size_t(count) * sizeof(float));
  return storage.as<float>();
}

// m = β1 m + (1 - β1) g, v = β2 v + (1 - β2) g², x -= rate · m̂ / (√v̂ + ε), with bias-corrected m̂
// and v̂ in f64, and decoupled weight decay (AdamW). RAdam differs in the factors of a step.
class Adam final : public Optimizer {
 public:
  Adam(const OptimizerConfig& config, std::int64_t parameters)
      : options_(config),
        settings_{config.beta1, config.beta2, config.epsilon, config.type == OptimizerType::kRAdam},
        m_(ZeroFloats(m_storage_, parameters)),
        v_(ZeroFloats(v_storage_, parameters)) {}

  std::int64_t parameters() const override { return std::int64_t(m_.size()); }
  void StepRange(std::int64_t first, std::span<const float> gradient, float gradient_scale,
                 const Group& group, float* value) override {
    AdamStep step;
    step.gradient_scale = gradient_scale;
    step.beta1 = float(options_.beta1);
    step.one_minus_beta1 = float(1 - options_.beta1);
    step.beta2 = float(options_.beta2);
    step.one_minus_beta2 = float(1 - options_.beta2);
    // The steps of the group count; decay_factor is the decoupled weight decay of AdamW.
    SetAdamFactors(settings_, double(steps_ / group.every), group.learning_rate, &step);
    step.decay_factor =
        group.decays ? float(1 - double(group.learning_rate) * options_.weight_decay) : 1;
    kernels_.adam(step, std::int64_t(gradient.size()), gradient.data(), m_.data() + first,
                  v_.data() + first, value);
  }
  std::vector<Slot> slots() override { return {{"m", m_}, {"v", v_}}; }
  std::int64_t steps() const override { return steps_; }
  void set_steps(std::int64_t steps) override { steps_ = steps; }

 private:
  const OptimizerConfig options_;
  const AdamSettings settings_;
  const OptimizerKernels& kernels_ = OptimizerKernelsFor(BestCpuLevel());
  MutableBuffer m_storage_, v_storage_;
  std::span<float> m_, v_;
  std::int64_t steps_ = 0;
};

// v = d v + (1 - d) g², x -= rate · g / √(v - m² + ε); the slot m, the mean of g, exists only if
// centered.
class RmsProp final : public Optimizer {
 public:
  RmsProp(const OptimizerConfig& config, std::int64_t parameters)
      : options_(config),
        m_(ZeroFloats(m_storage_, options_.centered ? parameters : 0)),
        v_(ZeroFloats(v_storage_, parameters)) {}

  std::int64_t parameters() const override { return std::int64_t(v_.size()); }
  void StepRange(std::int64_t first, std::span<const float> gradient, float gradient_scale,
                 const Group& group, float* value) override {
    // ε is inside the root, as in DQN.
    RmsPropStep step;
    step.gradient_scale = gradient_scale;
    step.decay = float(options_.decay);
    step.one_minus_decay = float(1 - options_.decay);
    step.epsilon = float(options_.epsilon);
    step.learning_rate = group.learning_rate;
    step.decay_factor =
        group.decays ? float(1 - double(group.learning_rate) * options_.weight_decay) : 1;
    kernels_.rmsprop(step, std::int64_t(gradient.size()), gradient.data(),
                     options_.centered ? m_.data() + first : nullptr, v_.data() + first, value);
  }
  std::vector<Slot> slots() override {
    if (!options_.centered) return {{"v", v_}};
    return {{"m", m_}, {"v", v_}};
  }
  std::int64_t steps() const override { return steps_; }
  void set_steps(std::int64_t steps) override { steps_ = steps; }

 private:
  const OptimizerConfig options_;
  const OptimizerKernels& kernels_ = OptimizerKernelsFor(BestCpuLevel());
  MutableBuffer m_storage_, v_storage_;
  std::span<float> m_, v_;
  std::int64_t steps_ = 0;
};

// g += decay · x, m = μ m + g, x -= rate · m; the slot m exists only with momentum.
class Sgd final : public Optimizer {
 public:
  Sgd(const OptimizerConfig& config, std::int64_t parameters)
      : momentum_(float(config.momentum)),
        decay_(float(config.weight_decay)),
        parameters_(parameters),
        m_(ZeroFloats(m_storage_, momentum_ > 0 ? parameters : 0)) {}

  std::int64_t parameters() const override { return parameters_; }
  void StepRange(std::int64_t first, std::span<const float> gradient, float gradient_scale,
                 const Group& group, float* value) override {
    kernels_.sgd({gradient_scale, momentum_, group.learning_rate, group.decays ? decay_ : 0},
                 std::int64_t(gradient.size()), gradient.data(),
                 momentum_ > 0 ? m_.data() + first : nullptr, value);
  }
  std::vector<Slot> slots() override {
    if (momentum_ == 0) return {};
    return {{"m", m_}};
  }
  std::int64_t steps() const override { return steps_; }
  void set_steps(std::int64_t steps) override { steps_ = steps; }

 private:
  const float momentum_, decay_;
  const std::int64_t parameters_;
  const OptimizerKernels& kernels_ = OptimizerKernelsFor(BestCpuLevel());
  MutableBuffer m_storage_;
  std::span<float> m_;
  std::int64_t steps_ = 0;
};

// v += g², x -= rate · g / (√v + ε).
class AdaGrad final : public Optimizer {
 public:
  AdaGrad(const OptimizerConfig& config, std::int64_t parameters)
      : epsilon_(float(config.epsilon)), v_(ZeroFloats(v_storage_, parameters)) {}

  std::int64_t parameters() const override { return std::int64_t(v_.size()); }
  void StepRange(std::int64_t first, std::span<const float> gradient, float gradient_scale,
                 const Group& group, float* value) override {
    kernels_.adagrad({gradient_scale, group.learning_rate, epsilon_}, std::int64_t(gradient.size()),
                     gradient.data(), v_.data() + first, value);
  }
  std::vector<Slot> slots() override { return {{"v", v_}}; }
  std::int64_t steps() const override { return steps_; }
  void set_steps(std::int64_t steps) override { steps_ = steps; }

 private:
  const float epsilon_;
  const OptimizerKernels& kernels_ = OptimizerKernelsFor(BestCpuLevel());
  MutableBuffer v_storage_;
  std::span<float> v_;
  std::int64_t steps_ = 0;
};

}  // namespace

void Optimizer::Step(std::span<const float> gradient, float gradient_scale, float learning_rate,
                     std::span<float> value) {
  // One group without exceptions from weight decay.
  const Group whole{std::int64_t(gradient.size()), learning_rate};
  StepParts({&gradient, 1}, gradient_scale, {&whole, 1}, value);
}

void Optimizer::StepGroups(std::span<const float> gradient, float gradient_scale,
                           std::span<const Group> groups, std::span<float> value) {
  StepParts({&gradient, 1}, gradient_scale, groups, value);
}

// Walks parts and groups in parallel: each StepRange lies in one of both.
void Optimizer::StepParts(std::span<const std::span<const float>> parts, float gradient_scale,
                          std::span<const Group> groups, std::span<float> value) {
  set_steps(steps() + 1);
  std::size_t first = 0, group = 0, left = 0;  // left: elements of the group that remain
  for (std::span<const float> part : parts) {
    TROOP_CHECK(part.size() <= value.size() - first, "{} more of {} after {}", part.size(),
                value.size(), first);
    // A part may span several groups and a group several parts.
    while (!part.empty()) {
      for (; left == 0; ++group) {
        TROOP_CHECK(group < groups.size(), "groups of {} parameters, not {}", first, value.size());
        left = std::size_t(groups[group].count);
      }
      const std::size_t count = std::min(part.size(), left);
      const Group& current = groups[group - 1];
      if (steps() % current.every == 0) {
        StepRange(std::int64_t(first), part.first(count), gradient_scale, current,
                  value.data() + first);
      }
      part = part.subspan(count);
      first += count;
      left -= count;
    }
  }
  TROOP_CHECK(first == value.size() && std::int64_t(first) == parameters(), "{} and {}, not {}",
              first, value.size(), parameters());
}

// Padding belongs to the group before it, so that the counts sum to P.
std::vector<Optimizer::Group> DecayGroups(const Module& module, float learning_rate) {
  std::vector<Optimizer::Group> groups;
  std::int64_t at = 0;  // the end of `groups`
  // Extends the last group up to `end`, or begins a new one.
  const auto extend = [&](std::int64_t end, bool decays) {
    if (groups.empty() || groups.back().decays != decays)
      groups.push_back({0, learning_rate, decays});
    groups.back().count += end - at;
    at = end;
  };
  for (const ParamSpec& spec : module.params())
    extend(AlignParams(spec.offset + spec.shape.elements()), spec.decays);
  return groups;
}

// `parameters` is P; every slot has that size.
Result<std::unique_ptr<Optimizer>> MakeOptimizer(const OptimizerConfig& config,
                                                 std::int64_t parameters) {
  TROOP_CHECK(parameters >= 0, "{} parameters", parameters);
  switch (config.type) {
    case OptimizerType::kAdam:
    case OptimizerType::kRAdam:
      return std::unique_ptr<Optimizer>(new Adam(config, parameters));
    case OptimizerType::kRmsProp:
      return std::unique_ptr<Optimizer>(new RmsProp(config, parameters));
    case OptimizerType::kSgd:
      return std::unique_ptr<Optimizer>(new Sgd(config, parameters));
    case OptimizerType::kAdaGrad:
      return std::unique_ptr<Optimizer>(new AdaGrad(config, parameters));
    case OptimizerType::kLbfgs:
      return InvalidArgument("optimizer.type \"lbfgs\" needs all examples in each update");
  }
  return Internal("optimizer.type has no implementation");
}

}  // namespace troop
