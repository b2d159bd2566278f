#pragma once

#include <cmath>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "core/base/philox.h"
#include "tests/learners/dpg_reference.h"

// Soft Actor-Critic once more, in f64 from the paper's formulas: the losses in plain loops, and
// their gradients by central differences. For layers that are linear with tanh or without.
namespace troop::test {

class SacReference {
 public:
  SacReference(const TrainingConfig& config, const EnvSpec& env) : config_(config), env_(env) {
    const auto network = std::move(MakePolicyCritic(ModelSetupOf(config), env)).value();
    std::map<std::string, ParamSpec> specs;
    for (const ParamSpec& p : network->params()) specs[p.name] = p;
    for (const ParamSpec& p : network->params()) {
      if (!p.name.ends_with(".weight")) continue;
      const std::string stem = p.name.substr(0, p.name.size() - 6);
      NetworkOf(p.name).layers.push_back({.in = std::size_t(p.shape[1]),
                                          .out = std::size_t(p.shape[0]),
                                          .weight = std::size_t(p.offset),
                                          .bias = std::size_t(specs.at(stem + "bias").offset),
                                          .tanh = p.name.find("head") == std::string::npos});
    }
    for (const ParamSpec& p : network->params()) {
      for (std::int64_t i = 0; i < p.shape.elements(); ++i)
        used_[std::size_t(p.offset + i)] = p.name.substr(0, p.name.find('.'));
    }
    temperature = std::size_t(specs.at("log_temperature").offset);
    std::vector<float> start(std::size_t(ParameterCount(*network)));
    InitParameters(*network, std::uint64_t(config.seed), start);
    value.assign(start.begin(), start.end());
    target = value;
    m_.assign(value.size(), 0);
    v_.assign(value.size(), 0);
  }

  // One update. The stream of the noise is part of the contract (docs/design/determinism.md): first
  // the actions at the next observations, then those of the policy's loss.
  void Update(const SampleBatch& b) {
    Rng rng({std::uint64_t(config_.seed), Purpose::kPolicySampling, 0, std::uint64_t(updates_)});
    const std::size_t actions = env_.action.low.size();
    Doubles noise(std::size_t(b.size()) * actions), next(noise.size());
    for (double& e : next) e = rng.Normal();
    for (double& e : noise) e = rng.Normal();
    const Doubles wanted = Targets(b, next);
    loss = CriticLoss(value, b, wanted);
    priority.clear();
    for (std::int64_t i = 0; i < b.size(); ++i) {
      const Doubles x = DpgReference::Row(b.observation, i), a = DpgReference::Row(b.action, i);
      double sum = 0;
      for (int c = 0; c < 2; ++c) sum += std::abs(Judge(value, c, x, a) - wanted[std::size_t(i)]);
      priority.push_back(sum / 2);
    }
    gradient.assign(value.size(), 0);
    Differentiate("critic", [&](const Doubles& w) { return CriticLoss(w, b, wanted); });
    Differentiate("critic2", [&](const Doubles& w) { return CriticLoss(w, b, wanted); });
    Differentiate("policy", [&](const Doubles& w) { return PolicyLoss(w, b, noise); });
    if (config_.learner.learn_temperature)
      Differentiate("log_temperature",
                    [&](const Doubles& w) { return TemperatureLoss(w[temperature], b, noise); });
    Step();
  }

  // An action in the environment's units, and log π of it as a normalized action.
  struct Drawn {
    Doubles action;
    double log_probability = 0;
  };
  Drawn Act(const Doubles& w, const Doubles& x, const double* noise) {
    const Doubles features = trunk_.Forward(w, x);
    const Doubles mean = mean_.Forward(w, features), raw = log_std_.Forward(w, features);
    Drawn out;
    for (std::size_t k = 0; k < mean.size(); ++k) {
      const double low = env_.action.low[k], high = env_.action.high[k];
      const double log_std = raw[k] < -20 ? -20 : raw[k] > 2 ? 2 : raw[k];
      const double std = std::exp(log_std), y = mean[k] + std * noise[k];
      out.action.push_back(low + (high - low) * (1 + std::tanh(y)) / 2);
      // The Gaussian's density, over the slope 1 / cosh² of tanh.
      const double density =
          std::exp(-(y - mean[k]) * (y - mean[k]) / (2 * std * std)) / (std * std::sqrt(2 * M_PI));
      out.log_probability += std::log(density) + 2 * std::log(std::cosh(y));
    }
    return out;
  }
  // Q_c(s, a).
  double Judge(const Doubles& w, int c, Doubles x, const Doubles& action) {
    for (std::size_t k = 0; k < action.size(); ++k) {
      const double low = env_.action.low[k], high = env_.action.high[k];
      x.push_back(2 * (action[k] - low) / (high - low) - 1);
    }
    return twins_[c].Forward(w, x)[0];
  }

  Doubles value, target, priority, gradient;
  double loss = 0, norm = 0, entropy = 0;
  std::size_t temperature = 0;  // index of log α

 private:
  PlainNetwork& NetworkOf(const std::string& name) {
    if (name.starts_with("critic.")) return twins_[0];
    if (name.starts_with("critic2.")) return twins_[1];
    if (name == "policy.head.weight") return mean_;
    return name == "policy.head.log_std.weight" ? log_std_ : trunk_;
  }

  // Σ γ^k r_k + γ^n (min_j Q'_j(s_n, a') - α log π(a'|s_n)).
  Doubles Targets(const SampleBatch& b, const Doubles& noise) {
    Doubles out;
    const std::size_t actions = env_.action.low.size();
    for (std::int64_t i = 0; i < b.size(); ++i) {
      const Doubles x = DpgReference::Row(b.next_observation, i);
      const Drawn drawn = Act(value, x, noise.data() + std::size_t(i) * actions);
      double g = std::fmin(Judge(target, 0, x, drawn.action), Judge(target, 1, x, drawn.action));
      g -= std::exp(value[temperature]) * drawn.log_probability;
      for (std::int64_t k = b.length[std::size_t(i)] - 1; k >= 0; --k) {
        const auto at = std::size_t(i * b.reward.dim(1) + k);
        g = double(b.reward.as<float>()[at]) +
            config_.learner.gamma * double(b.discount.as<float>()[at]) * g;
      }
      out.push_back(g);
    }
    return out;
  }
  double CriticLoss(const Doubles& w, const SampleBatch& b, const Doubles& wanted) {
    double sum = 0;
    for (std::int64_t i = 0; i < b.size(); ++i) {
      const Doubles x = DpgReference::Row(b.observation, i), a = DpgReference::Row(b.action, i);
      for (int c = 0; c < 2; ++c) {
        const double d = std::abs(Judge(w, c, x, a) - wanted[std::size_t(i)]);
        const bool linear = config_.learner.loss == TdLoss::kHuber && d > 1;
        sum += double(b.weight[std::size_t(i)]) * (linear ? d - 0.5 : d * d / 2);
      }
    }
    return sum / double(b.size());
  }
  double PolicyLoss(const Doubles& w, const SampleBatch& b, const Doubles& noise) {
    double sum = 0;
    entropy = 0;
    for (std::int64_t i = 0; i < b.size(); ++i) {
      const Doubles x = DpgReference::Row(b.observation, i);
      const Drawn drawn = Act(w, x, noise.data() + std::size_t(i) * env_.action.low.size());
      const double q =
          std::fmin(Judge(value, 0, x, drawn.action), Judge(value, 1, x, drawn.action));
      sum += double(b.weight[std::size_t(i)]) *
             (std::exp(value[temperature]) * drawn.log_probability - q);
      entropy -= drawn.log_probability / double(b.size());
    }
    return sum / double(b.size());
  }
  double TemperatureLoss(double log_alpha, const SampleBatch& b, const Doubles& noise) {
    const double actions = double(env_.action.low.size());
    const double wanted =
        config_.learner.target_entropy != 0 ? config_.learner.target_entropy : -actions;
    double sum = 0;
    for (std::int64_t i = 0; i < b.size(); ++i) {
      const Doubles x = DpgReference::Row(b.observation, i);
      const Drawn drawn = Act(value, x, noise.data() + i * std::int64_t(actions));
      sum += double(b.weight[std::size_t(i)]) * -log_alpha * (drawn.log_probability + wanted);
    }
    return sum / double(b.size());
  }

  // Writes the gradient of the parameters whose names begin with `part`.
  void Differentiate(const std::string& part, const std::function<double(const Doubles&)>& f) {
    Doubles w = value;
    for (const auto& [i, name] : used_) {
      if (name != part) continue;
      const double origin = w[i], step = 1e-5;
      w[i] = origin + step;
      const double up = f(w);
      w[i] = origin - step;
      gradient[i] = (up - f(w)) / (2 * step);
      w[i] = origin;
    }
  }

  void Step() {
    double sum = 0;
    for (const double g : gradient) sum += g * g;
    sum -= gradient[temperature] * gradient[temperature];
    norm = std::sqrt(sum);
    const auto& o = config_.optimizer;
    const double limit = config_.learner.max_grad_norm;
    ++updates_;
    for (const auto& [i, name] : used_) {
      const bool clips = i != temperature && norm > limit && limit > 0;
      const double g = clips ? gradient[i] * limit / norm : gradient[i];
      const bool of_policy = name == "policy" && o.policy_learning_rate > 0;
      m_[i] = o.beta1 * m_[i] + (1 - o.beta1) * g;
      v_[i] = o.beta2 * v_[i] + (1 - o.beta2) * g * g;
      const double m = m_[i] / (1 - std::pow(o.beta1, updates_));
      const double v = v_[i] / (1 - std::pow(o.beta2, updates_));
      value[i] -=
          (of_policy ? o.policy_learning_rate : o.learning_rate) * m / (std::sqrt(v) + o.epsilon);
    }
    if (updates_ % config_.learner.target_update_every_updates != 0) return;
    for (std::size_t i = 0; i < value.size(); ++i)
      target[i] += config_.learner.target_tau * (value[i] - target[i]);
  }

  const TrainingConfig config_;
  const EnvSpec env_;
  PlainNetwork trunk_, mean_, log_std_, twins_[2];
  std::map<std::size_t, std::string> used_;  // first part of the name of each parameter
  Doubles m_, v_;
  int updates_ = 0;
};

}  // namespace troop::test
