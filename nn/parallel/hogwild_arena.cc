// Implements Hogwild updates: the optimizers' formulas on relaxed atomics, one element at a time.
#include "nn/parallel/hogwild_arena.h"

#include <algorithm>
#include <cmath>
#include <thread>
#include <utility>

#include "core/base/check.h"
#include "kernels/optim/optimizer_step.h"

namespace troop {
namespace {

using Write = HogwildArena::Write;

std::atomic_ref<float> Ref(float& x) { return std::atomic_ref<float>(x); }

// x = f(x). `write` decides whether concurrent changes may be lost.
template <class F>
void Change(float& x, Write write, const F& f) {
  // The compare-and-swap retries f with the value that another thread has stored.
  float old = Ref(x).load(std::memory_order_relaxed);
  if (write == Write::kRacy) return Ref(x).store(f(old), std::memory_order_relaxed);
  while (!Ref(x).compare_exchange_weak(old, f(old), std::memory_order_relaxed)) {
  }
}
// Updates a statistic without protection against lost updates, and returns its new value.
template <class F>
float Track(float& x, const F& f) {
  const float now = f(Ref(x).load(std::memory_order_relaxed));
  Ref(x).store(now, std::memory_order_relaxed);
  return now;
}

// Step parameters of one element; formulas and rounding as in kernels/optim/optimizer_step.h.
struct Numbers {
  float scale = 1, rate = 0;
  std::uint64_t step = 1;
  bool decays = true;
};
// Weight decay factor: 1 - rate * decay, or 1 without decay.
float KeepOf(const Numbers& n, double decay) {
  return n.decays ? float(1 - double(n.rate) * decay) : 1;
}

// Rules: Begin prepares a group of a step, the call updates one element. SGD: g += decay · x, m =
// μ m + g, x -= rate · m.
class SgdRule {
 public:
  explicit SgdRule(const OptimizerConfig& config)
      : momentum_(float(config.momentum)), weight_decay_(float(config.weight_decay)) {}
  void Begin(const Numbers& n) { decay_ = n.decays ? weight_decay_ : 0; }
  void operator()(const Numbers& n, float gradient, float& m, float&, float& x, Write write) const {
    // m is a statistic (Track), x the value (Change).
    float g = gradient * n.scale;
    if (decay_ > 0) g += decay_ * Ref(x).load(std::memory_order_relaxed);
    if (momentum_ > 0) g = Track(m, [&](float old) { return momentum_ * old + g; });
    Change(x, write, [&](float old) { return old - n.rate * g; });
  }

 private:
  float momentum_, weight_decay_, decay_ = 0;
};

// ε is outside the root, as in PyTorch.
class AdaGradRule {
 public:
  explicit AdaGradRule(const OptimizerConfig& config) : epsilon_(float(config.epsilon)) {}
  void Begin(const Numbers&) {}
  void operator()(const Numbers& n, float gradient, float&, float& v, float& x, Write write) const {
    const float g = gradient * n.scale;
    const float sum = Track(v, [&](float old) { return old + g * g; });
    const float change = n.rate * (g / (std::sqrt(sum) + epsilon_));
    Change(x, write, [&](float old) { return old - change; });
  }

 private:
  float epsilon_;
};

// Statistics are shared by all threads; ε is inside the root.
class RmsPropRule {
 public:
  explicit RmsPropRule(const OptimizerConfig& config) : keys_(config) {}
  void Begin(const Numbers& n) { keep_ = KeepOf(n, keys_.weight_decay); }
  void operator()(const Numbers& n, float gradient, float& m, float& v, float& x,
                  Write write) const {
    const float g = gradient * n.scale;
    // The variance may be slightly negative by rounding, or by lost updates of m.
    float variance = Track(v, [&](float old) { return decay_ * old + rest_ * (g * g); });
    if (keys_.centered) {
      const float mean = Track(m, [&](float old) { return decay_ * old + rest_ * g; });
      variance = std::max(0.0f, variance - mean * mean);
    }
    const float change = n.rate * (g / std::sqrt(variance + epsilon_));
    Change(x, write, [&](float old) { return keep_ * old - change; });
  }

 private:
  OptimizerConfig keys_;
  float decay_ = float(keys_.decay), rest_ = float(1 - keys_.decay);
  float epsilon_ = float(keys_.epsilon), keep_ = 1;
};

// Adam and RAdam. The factors follow from the step number at the beginning of the step.
class AdamRule {
 public:
  explicit AdamRule(const OptimizerConfig& config) : keys_(config) {}
  void Begin(const Numbers& n) {
    keep_ = KeepOf(n, keys_.weight_decay);
    SetAdamFactors(settings_, double(n.step), n.rate, &factors_);
  }
  void operator()(const Numbers& n, float gradient, float& m, float& v, float& x,
                  Write write) const {
    const float g = gradient * n.scale;
    const float mean = Track(m, [&](float old) { return beta1_ * old + rest1_ * g; });
    const float square = Track(v, [&](float old) { return beta2_ * old + rest2_ * (g * g); });
    const float divisor = std::sqrt(square) * factors_.root_scale + factors_.epsilon;
    const float change = factors_.step_size * (mean / divisor);
    Change(x, write, [&](float old) { return keep_ * old - change; });
  }

 private:
  OptimizerConfig keys_;
  AdamSettings settings_{keys_.beta1, keys_.beta2, keys_.epsilon,
                         keys_.type == OptimizerType::kRAdam};
  float beta1_ = float(keys_.beta1), rest1_ = float(1 - keys_.beta1);
  float beta2_ = float(keys_.beta2), rest2_ = float(1 - keys_.beta2);
  float keep_ = 1;
  AdamStep factors_;
};

// A slot of the optimizer; if it does not exist, a dummy value that the rule never reads.
class SlotOf {
 public:
  SlotOf(Optimizer* optimizer, std::string_view name) {
    for (const Optimizer::Slot& slot : optimizer->slots()) {
      if (slot.name == name) values_ = slot.values.data();
    }
  }
  float& operator[](std::size_t i) { return values_ != nullptr ? values_[i] : none_; }

 private:
  float* values_ = nullptr;
  float none_ = 0;
};

template <class Rule>
class Arena final : public HogwildArena {
 public:
  Arena(const OptimizerConfig& config, std::span<float> value, Optimizer* optimizer, Write write)
      : HogwildArena(value, optimizer, write),
        rule_(config),
        m_(optimizer, "m"),
        v_(optimizer, "v") {}

  void StepParts(std::span<const std::span<const float>> parts, float scale,
                 std::span<const Optimizer::Group> groups) override {
    const std::uint64_t step = NextStep();
    std::size_t at = 0, group = 0, end = 0;  // end of the group
    Rule rule = rule_;                       // private to the thread
    Numbers numbers{.scale = scale, .step = step};
    for (const std::span<const float> part : parts) {
      // Groups begin lazily, so that empty ones are skipped.
      TROOP_CHECK(part.size() <= value_.size() - at, "{} more of {}", part.size(), value_.size());
      for (const float gradient : part) {
        for (; at == end; ++group) {
          TROOP_CHECK(group < groups.size(), "groups of {}, not {}", end, value_.size());
          TROOP_CHECK(groups[group].every == 1, "every {}", groups[group].every);
          end += std::size_t(groups[group].count);
          numbers.rate = groups[group].learning_rate;
          numbers.decays = groups[group].decays;
          rule.Begin(numbers);
        }
        rule(numbers, gradient, m_[at], v_[at], value_[at], write_);
        ++at;
      }
    }
    TROOP_CHECK(at == value_.size(), "{}, not {}", at, value_.size());
  }
  void StepSparse(std::span<const std::int32_t> index, std::span<const float> gradient, float scale,
                  float learning_rate) override {
    TROOP_CHECK(gradient.size() == index.size(), "{}, not {}", gradient.size(), index.size());
    const Numbers numbers{.scale = scale, .rate = learning_rate, .step = NextStep()};
    Rule rule = rule_;
    rule.Begin(numbers);
    // Indices are checked: they become memory offsets.
    for (std::size_t k = 0; k < index.size(); ++k) {
      const auto i = std::size_t(index[k]);
      TROOP_CHECK(i < value_.size(), "element {} of {}", index[k], value_.size());
      rule(numbers, gradient[k], m_[i], v_[i], value_[i], write_);
    }
  }

 private:
  // Step numbers are the only shared state besides the values.
  std::uint64_t NextStep() { return steps_.fetch_add(1, std::memory_order_relaxed) + 1; }

  const Rule rule_;
  SlotOf m_, v_;
};

}  // namespace

// One instantiation per optimizer, so that the inner loop has no dispatch.
Result<std::unique_ptr<HogwildArena>> HogwildArena::Make(const OptimizerConfig& config,
                                                         std::span<float> value,
                                                         Optimizer* optimizer, Write write) {
  const auto make = [&]<class Rule>(std::in_place_type_t<Rule>) {
    return std::unique_ptr<HogwildArena>(new Arena<Rule>(config, value, optimizer, write));
  };
  switch (config.type) {
    case OptimizerType::kAdam:
    case OptimizerType::kRAdam:
      return make(std::in_place_type<AdamRule>);
    case OptimizerType::kRmsProp:
      return make(std::in_place_type<RmsPropRule>);
    case OptimizerType::kSgd:
      return make(std::in_place_type<SgdRule>);
    case OptimizerType::kAdaGrad:
      return make(std::in_place_type<AdaGradRule>);
    case OptimizerType::kLbfgs:
      return InvalidArgument("optimizer.type \"lbfgs\" has no threads that share weights");
  }
  return Internal("optimizer.type has no implementation");
}

void HogwildArena::Step(std::span<const float> gradient, float scale, float learning_rate) {
  const Optimizer::Group whole{size(), learning_rate};
  StepParts({&gradient, 1}, scale, {&whole, 1});
}

// Not a snapshot: other threads may write between elements.
void HogwildArena::Read(std::span<float> out) const {
  TROOP_CHECK(out.size() == value_.size(), "{}, not {}", out.size(), value_.size());
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = Atomic(value_[i]);
}

// The calling thread is thread 0. The atomic counter hands out the steps.
void RunHogwild(int threads, std::int64_t steps,
                const std::function<void(int thread, std::int64_t step)>& f) {
  TROOP_CHECK(threads > 0, "{} threads", threads);
  std::atomic<std::int64_t> next = 0;
  const auto run = [&](int thread) {
    for (std::int64_t step = next++; step < steps; step = next++) f(thread, step);
  };
  // Thread 0 is the caller.
  std::vector<std::thread> others;
  for (int thread = 1; thread < threads; ++thread) others.emplace_back(run, thread);
  run(0);
  for (std::thread& thread : others) thread.join();
}

}  // namespace troop
