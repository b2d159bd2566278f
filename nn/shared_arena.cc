#include "nn/shared_arena.h"

#include <algorithm>
#include <cmath>
#include <thread>
#include <utility>

#include "core/check.h"

namespace troop {
namespace {

using Write = SharedArena::Write;

std::atomic_ref<float> Ref(float& x) { return std::atomic_ref<float>(x); }

// x = f(x); whether others' changes meanwhile may be lost is `write`'s.
template <class F>
void Change(float& x, Write write, const F& f) {
  float old = Ref(x).load(std::memory_order_relaxed);
  if (write == Write::kRacy) return Ref(x).store(f(old), std::memory_order_relaxed);
  while (!Ref(x).compare_exchange_weak(old, f(old), std::memory_order_relaxed)) {
  }
}
// A statistic: what it is now.
template <class F>
float Track(float& x, const F& f) {
  const float now = f(Ref(x).load(std::memory_order_relaxed));
  Ref(x).store(now, std::memory_order_relaxed);
  return now;
}

// What an optimizer does to one element; formulas and roundings of kernels/optimizer.h.
struct Numbers {
  float scale = 1, rate = 0;
  std::uint64_t step = 1;
  bool decays = true;
};
// 1 - rate * decay, of what decays.
float KeepOf(const Numbers& n, double decay) {
  return n.decays ? float(1 - double(n.rate) * decay) : 1;
}

class SgdRule {
 public:
  explicit SgdRule(const Config& config) : momentum_(float(config.optimizer.momentum)) {}
  void Begin(const Numbers&) {}
  void operator()(const Numbers& n, float gradient, float& m, float&, float& x, Write write) const {
    float g = gradient * n.scale;
    if (momentum_ > 0) g = Track(m, [&](float old) { return momentum_ * old + g; });
    Change(x, write, [&](float old) { return old - n.rate * g; });
  }

 private:
  float momentum_;
};

class AdaGradRule {
 public:
  explicit AdaGradRule(const Config& config) : epsilon_(float(config.optimizer.epsilon)) {}
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

class RmsPropRule {
 public:
  explicit RmsPropRule(const Config& config) : keys_(config.optimizer) {}
  void Begin(const Numbers& n) { keep_ = KeepOf(n, keys_.weight_decay); }
  void operator()(const Numbers& n, float gradient, float& m, float& v, float& x,
                  Write write) const {
    const float g = gradient * n.scale;
    float variance = Track(v, [&](float old) { return decay_ * old + rest_ * (g * g); });
    if (keys_.centered) {
      const float mean = Track(m, [&](float old) { return decay_ * old + rest_ * g; });
      variance = std::max(0.0f, variance - mean * mean);
    }
    const float change = n.rate * (g / std::sqrt(variance + epsilon_));
    Change(x, write, [&](float old) { return keep_ * old - change; });
  }

 private:
  decltype(Config::optimizer) keys_;
  float decay_ = float(keys_.decay), rest_ = float(1 - keys_.decay);
  float epsilon_ = float(keys_.epsilon), keep_ = 1;
};

class AdamRule {
 public:
  explicit AdamRule(const Config& config) : keys_(config.optimizer) {}
  void Begin(const Numbers& n) {
    keep_ = KeepOf(n, keys_.weight_decay);
    size_ = float(double(n.rate) / (1 - std::pow(keys_.beta1, double(n.step))));
    root_ = float(1 / std::sqrt(1 - std::pow(keys_.beta2, double(n.step))));
  }
  void operator()(const Numbers& n, float gradient, float& m, float& v, float& x,
                  Write write) const {
    const float g = gradient * n.scale;
    const float mean = Track(m, [&](float old) { return beta1_ * old + rest1_ * g; });
    const float square = Track(v, [&](float old) { return beta2_ * old + rest2_ * (g * g); });
    const float change = size_ * (mean / (std::sqrt(square) * root_ + epsilon_));
    Change(x, write, [&](float old) { return keep_ * old - change; });
  }

 private:
  decltype(Config::optimizer) keys_;
  float beta1_ = float(keys_.beta1), rest1_ = float(1 - keys_.beta1);
  float beta2_ = float(keys_.beta2), rest2_ = float(1 - keys_.beta2);
  float epsilon_ = float(keys_.epsilon);
  float keep_ = 1, size_ = 0, root_ = 1;
};

// One of an optimizer's slots; where it has none, a number that its rule never looks at.
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
class Arena final : public SharedArena {
 public:
  Arena(const Config& config, std::span<float> value, Optimizer* optimizer, Write write)
      : SharedArena(value, optimizer, write),
        rule_(config),
        m_(optimizer, "m"),
        v_(optimizer, "v") {}

  void StepParts(std::span<const std::span<const float>> parts, float scale,
                 std::span<const Optimizer::Group> groups) override {
    const std::uint64_t step = NextStep();
    std::size_t at = 0, group = 0, end = 0;  // of the group
    Rule rule = rule_;                       // the thread's own
    Numbers numbers{.scale = scale, .step = step};
    for (const std::span<const float> part : parts) {
      TROOP_CHECK(part.size() <= value_.size() - at, "{} more of {}", part.size(), value_.size());
      for (const float gradient : part) {
        for (; at == end; ++group) {
          TROOP_CHECK(group < groups.size(), "groups of {}, not {}", end, value_.size());
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
    for (std::size_t k = 0; k < index.size(); ++k) {
      const auto i = std::size_t(index[k]);
      TROOP_CHECK(i < value_.size(), "element {} of {}", index[k], value_.size());
      rule(numbers, gradient[k], m_[i], v_[i], value_[i], write_);
    }
  }

 private:
  // All that threads share beside the numbers.
  std::uint64_t NextStep() { return steps_.fetch_add(1, std::memory_order_relaxed) + 1; }

  const Rule rule_;
  SlotOf m_, v_;
};

}  // namespace

Result<std::unique_ptr<SharedArena>> SharedArena::Make(const Config& config, std::span<float> value,
                                                       Optimizer* optimizer, Write write) {
  const std::string& type = config.optimizer.type;
  const auto make = [&]<class Rule>(std::in_place_type_t<Rule>) {
    return std::unique_ptr<SharedArena>(new Arena<Rule>(config, value, optimizer, write));
  };
  if (type == "sgd") return make(std::in_place_type<SgdRule>);
  if (type == "adagrad") return make(std::in_place_type<AdaGradRule>);
  if (type == "rmsprop") return make(std::in_place_type<RmsPropRule>);
  if (type == "adam") return make(std::in_place_type<AdamRule>);
  return InvalidArgument(
      "optimizer.type is \"{}\"; known are \"adam\", \"rmsprop\", \"sgd\", \"adagrad\"", type);
}

void SharedArena::Step(std::span<const float> gradient, float scale, float learning_rate) {
  const Optimizer::Group whole{size(), learning_rate};
  StepParts({&gradient, 1}, scale, {&whole, 1});
}

void SharedArena::Read(std::span<float> out) const {
  TROOP_CHECK(out.size() == value_.size(), "{}, not {}", out.size(), value_.size());
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = Atomic(value_[i]);
}

void RunHogwild(int threads, std::int64_t steps,
                const std::function<void(int thread, std::int64_t step)>& f) {
  TROOP_CHECK(threads > 0, "{} threads", threads);
  std::atomic<std::int64_t> next = 0;
  const auto run = [&](int thread) {
    for (std::int64_t step = next++; step < steps; step = next++) f(thread, step);
  };
  std::vector<std::thread> others;
  for (int thread = 1; thread < threads; ++thread) others.emplace_back(run, thread);
  run(0);
  for (std::thread& thread : others) thread.join();
}

}  // namespace troop
