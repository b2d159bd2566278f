#pragma once

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "core/base/philox.h"
#include "core/tensor/spec.h"
#include "learners/training_config.h"
#include "nn/models/model.h"
#include "nn/models/policy_critic.h"
#include "replay/codec/sample_batch.h"
#include "tests/learners/config_values.h"

// Ape-X DPG and TD3 once more, in f64 and plain loops, from the papers' formulas. For layers that
// are linear with tanh or without.
namespace troop::test {

using Doubles = std::vector<double>;

struct PlainLayer {
  std::size_t in = 0, out = 0, weight = 0, bias = 0;
  bool tanh = false;
};

class PlainNetwork {
 public:
  std::vector<PlainLayer> layers;

  Doubles Forward(const Doubles& value, Doubles x) {
    kept_.clear();
    for (const PlainLayer& l : layers) {
      kept_.push_back(x);
      Doubles y(l.out);
      for (std::size_t o = 0; o < l.out; ++o) {
        y[o] = value[l.bias + o];
        for (std::size_t i = 0; i < l.in; ++i) y[o] += value[l.weight + o * l.in + i] * x[i];
        if (l.tanh) y[o] = std::tanh(y[o]);
      }
      x = std::move(y);
    }
    kept_.push_back(x);
    return x;
  }
  // Backward pass of the last Forward(); adds to gradient if it is given; returns dx.
  Doubles Backward(const Doubles& value, Doubles dy, Doubles* gradient) const {
    for (std::size_t k = layers.size(); k-- > 0;) {
      const PlainLayer& l = layers[k];
      Doubles dx(l.in);
      for (std::size_t o = 0; o < l.out; ++o) {
        const double y = kept_[k + 1][o], dz = l.tanh ? dy[o] * (1 - y * y) : dy[o];
        if (gradient != nullptr) (*gradient)[l.bias + o] += dz;
        for (std::size_t i = 0; i < l.in; ++i) {
          if (gradient != nullptr) (*gradient)[l.weight + o * l.in + i] += dz * kept_[k][i];
          dx[i] += dz * value[l.weight + o * l.in + i];
        }
      }
      dy = std::move(dx);
    }
    return dy;
  }

 private:
  std::vector<Doubles> kept_;
};

class DpgReference {
 public:
  DpgReference(const TrainingConfig& config, const EnvSpec& env)
      : config_(config), env_(env), values_(ValuesOf(config)) {
    const auto network = std::move(MakePolicyCritic(ModelSetupOf(config), env)).value();
    critic_offset_ = std::size_t(network->critic_offset());
    for (const ParamSpec& p : network->params()) {
      if (!p.name.ends_with(".weight")) continue;
      const PlainLayer layer{.in = std::size_t(p.shape[1]),
                             .out = std::size_t(p.shape[0]),
                             .weight = std::size_t(p.offset),
                             .bias = 0,
                             .tanh = p.name.find("head") == std::string::npos};
      NetworkOf(p.name).layers.push_back(layer);
    }
    if (!twins_[1].layers.empty()) critics_ = 2;
    std::map<std::string, std::size_t> at;
    for (const ParamSpec& p : network->params()) at[p.name] = std::size_t(p.offset);
    for (const ParamSpec& p : network->params()) {
      if (!p.name.ends_with(".weight")) continue;
      auto& layers = NetworkOf(p.name).layers;
      const std::string bias = p.name.substr(0, p.name.size() - 6) + "bias";
      for (PlainLayer& l : layers) {
        if (l.weight == std::size_t(p.offset)) l.bias = at.at(bias);
      }
    }
    std::vector<float> start(std::size_t(ParameterCount(*network)));
    InitParameters(*network, std::uint64_t(config.seed), start);
    value.assign(start.begin(), start.end());
    target = value;
    m_.assign(value.size(), 0);
    v_.assign(value.size(), 0);
  }

  void Update(const SampleBatch& b, double progress) {
    gradient.assign(value.size(), 0);
    loss = 0;
    priority.clear();
    const auto& l = config_.learner;
    const bool td3 = l.algorithm == AlgorithmKind::kTd3;
    // The stream of the noise is part of the contract (docs/design/determinism.md).
    noise_ = Rng({std::uint64_t(config_.seed), Purpose::kTargetNoise, 0, std::uint64_t(updates_)});
    policy_steps_ = !td3 || (updates_ + 1) % l.policy_delay == 0;
    for (std::int64_t i = 0; i < b.size(); ++i) {
      const Doubles x = Row(b.observation, i), action = Row(b.action, i);
      AddCritics(b, i, x, action);
      if (policy_steps_) AddPolicy(x, double(b.size()));
    }
    Step(progress);
  }
  // μ(s) of these weights.
  Doubles Act(const Doubles& weights, const Doubles& x) {
    Doubles a = policy_.Forward(weights, x);
    for (std::size_t k = 0; k < a.size(); ++k) {
      const double low = env_.action.low[k], high = env_.action.high[k];
      a[k] = low + (high - low) * (1 + std::tanh(a[k])) / 2;
    }
    return a;
  }
  // Q(s, a), of a distribution its mean.
  double Judge(const Doubles& weights, const Doubles& x, const Doubles& action) {
    return values_.Mean(twins_[0].Forward(weights, Joined(x, action)));
  }

  static Doubles Row(const Tensor& t, std::int64_t i) {
    const auto size = std::size_t(t.elements() / t.dim(0));
    const std::span<const float> row = t.as<float>().subspan(std::size_t(i) * size, size);
    return {row.begin(), row.end()};
  }

  Doubles value, target, priority, gradient;
  double loss = 0, norm = 0;

 private:
  static Doubles Joined(Doubles x, const Doubles& action) {
    x.insert(x.end(), action.begin(), action.end());
    return x;
  }
  double Return(const SampleBatch& b, std::int64_t i, double g) const {
    for (std::int64_t k = b.length[std::size_t(i)] - 1; k >= 0; --k) {
      const auto at = std::size_t(i * b.reward.dim(1) + k);
      g = double(b.reward.as<float>()[at]) +
          config_.learner.gamma * double(b.discount.as<float>()[at]) * g;
    }
    return g;
  }

  PlainNetwork& NetworkOf(const std::string& parameter) {
    if (parameter.starts_with("policy.")) return policy_;
    return twins_[parameter.starts_with("critic2.") ? 1 : 0];
  }
  // The action of the target policy, which TD3 smooths with clipped noise.
  Doubles TargetAction(const Doubles& next) {
    Doubles a = Act(target, next);
    if (critics_ == 1) return a;
    for (std::size_t k = 0; k < a.size(); ++k) {
      const double low = env_.action.low[k], high = env_.action.high[k];
      const double clip = config_.learner.target_noise_clip;
      double noise = noise_.Normal() * config_.learner.target_policy_noise;
      noise = noise > clip ? clip : noise < -clip ? -clip : noise;
      a[k] += noise * (high - low) / 2;
      a[k] = a[k] > high ? high : a[k] < low ? low : a[k];
    }
    return a;
  }

  void AddCritics(const SampleBatch& b, std::int64_t i, const Doubles& x, const Doubles& action) {
    const Doubles next = Row(b.next_observation, i);
    const Doubles judged = Joined(next, TargetAction(next));
    Doubles expected = twins_[0].Forward(target, judged);
    if (critics_ == 2) expected[0] = std::fmin(expected[0], twins_[1].Forward(target, judged)[0]);
    const double weight = b.weight[std::size_t(i)] / double(b.size());
    double sum = 0;
    for (int c = 0; c < critics_; ++c) {
      const Doubles out = twins_[c].Forward(value, Joined(x, action));
      auto item = values_.Learn(out, expected, [&](double z) { return Return(b, i, z); });
      loss += weight * item.loss;
      sum += item.priority;
      for (double& d : item.dout) d *= weight;
      twins_[c].Backward(value, item.dout, &gradient);
    }
    priority.push_back(sum / critics_);
  }

  void AddPolicy(const Doubles& x, double items) {
    const Doubles action = Act(value, x);
    const Doubles out = twins_[0].Forward(value, Joined(x, action));
    const Doubles dout = values_.Slope(out);
    const Doubles joined = twins_[0].Backward(value, dout, nullptr);
    Doubles da(joined.end() - std::ptrdiff_t(action.size()), joined.end());
    for (std::size_t k = 0; k < da.size(); ++k) {
      const double limit = config_.learner.action_gradient_clip;
      if (limit > 0) da[k] = std::clamp(da[k], -limit, limit);
      const double half = (double(env_.action.high[k]) - double(env_.action.low[k])) / 2;
      const double t = (action[k] - double(env_.action.low[k])) / half - 1;
      da[k] *= -1 / items * half * (1 - t * t);
    }
    policy_.Backward(value, da, &gradient);
  }

  void Step(double progress) {
    double sum = 0;
    for (const double g : gradient) sum += g * g;
    norm = std::sqrt(sum);
    const auto& o = config_.optimizer;
    ++updates_;
    if (policy_steps_) ++policy_updates_;
    for (std::size_t i = 0; i < value.size(); ++i) {
      if (i < critic_offset_ && !policy_steps_) continue;
      const int steps = i < critic_offset_ ? policy_updates_ : updates_;
      const double limit = config_.learner.max_grad_norm;
      const double g = norm > limit && limit > 0 ? gradient[i] * limit / norm : gradient[i];
      const bool of_policy = i < critic_offset_ && o.policy_learning_rate > 0;
      const double rate = (of_policy ? o.policy_learning_rate : o.learning_rate) *
                          (1 + (o.final_lr_fraction - 1) * progress);
      m_[i] = o.beta1 * m_[i] + (1 - o.beta1) * g;
      v_[i] = o.beta2 * v_[i] + (1 - o.beta2) * g * g;
      const double m = m_[i] / (1 - std::pow(o.beta1, steps));
      const double v = v_[i] / (1 - std::pow(o.beta2, steps));
      value[i] -= rate * m / (std::sqrt(v) + o.epsilon);
    }
    if (updates_ % config_.learner.target_update_every_updates != 0) return;
    for (std::size_t i = 0; i < value.size(); ++i) {
      target[i] += config_.learner.target_tau * (value[i] - target[i]);
    }
  }

  const TrainingConfig config_;
  const EnvSpec env_;
  const ValueReference values_;
  PlainNetwork policy_, twins_[2];
  int critics_ = 1;
  Rng noise_{RngKey()};
  bool policy_steps_ = true;  // in this update
  std::size_t critic_offset_ = 0;
  Doubles m_, v_;
  int updates_ = 0, policy_updates_ = 0;
};

}  // namespace troop::test
