// DQN with noisy networks, against an update in f64: plain loops over three sets of weights, each
// with its own draw of the noise.
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "learners/rl/dqn.h"
#include "nn/models/model.h"
#include "tests/kernels/small_net_reference.h"
#include "tests/learners/config_values.h"
#include "tests/learners/dqn_testing.h"
#include "tests/nn/noisy_reference.h"

namespace troop {
namespace {

using test::NoisyPlace;

constexpr std::uint64_t kHead = std::uint64_t{1} << 32;

TrainingConfig NoisyConfig(bool dueling, std::int64_t units) {
  TrainingConfig config = SmallConfig();
  config.network.noisy = true;
  config.network.dueling = dueling;
  config.network.dueling_units = units;
  return config;
}

std::unique_ptr<Algorithm> MakeLearner(const TrainingConfig& config, int learner) {
  auto made = MakeAlgorithm(config, Env(), {}, learner);
  EXPECT_TRUE(made.ok()) << made.status().ToString();
  return std::move(made).value();
}

// The expected loss, priorities and gradient of one update.
class Reference {
 public:
  Reference(const TrainingConfig& config, std::uint64_t learner)
      : config_(config),
        learner_(learner),
        values_(ValuesOf(config)),
        network_(std::move(MakeNetwork(ModelSetupOf(config), Env())).value()) {
    const auto numbers = std::int64_t(values_.numbers);
    const std::int64_t units = config.network.dueling_units;
    net_.inputs = kInputs;
    net_.trunk_count = 1;
    net_.trunk[0] = Layer("layers.0.", kInputs, kHidden, Activation::kTanh, {});
    net_.dueling = config.network.dueling;
    if (!net_.dueling) {
      places_ = {{"layers.0.", 0}};
      net_.advantage[0] = Layer("head.", kHidden, kActions * numbers, Activation::kNone, kHead);
      return;
    }
    net_.stream_count = units > 0 ? 2 : 1;
    Stream("head.value.", numbers, kHead, net_.value);
    Stream("head.advantage.", kActions * numbers, kHead + 2, net_.advantage);
  }

  void Update(const SampleBatch& b, std::uint64_t updates, std::span<const float> value,
              std::span<const float> target) {
    const Doubles mine(value.begin(), value.end()), other(target.begin(), target.end());
    // Independent noise for the first observations, the target network, and double Q.
    SmallNetReference online(net_, Noisy(mine, updates, 0)), old(net_, Noisy(other, updates, 1)),
        choice(net_, Noisy(mine, updates, 2));
    online.numbers = old.numbers = choice.numbers = values_.numbers;
    loss = 0;
    priority.clear();
    for (std::int64_t i = 0; i < b.size(); ++i) {
      const Doubles next = Row(b.next_observation, i), judge = old.Forward(next);
      const std::size_t best =
          values_.Best(config_.learner.double_q ? choice.Forward(next) : judge);
      const auto become = [&](double g) {
        for (std::int64_t k = b.length[std::size_t(i)] - 1; k >= 0; --k) {
          const auto at = std::size_t(i * b.reward.dim(1) + k);
          g = double(b.reward.as<float>()[at]) +
              config_.learner.gamma * double(b.discount.as<float>()[at]) * g;
        }
        return g;
      };
      const auto action = std::size_t(b.action.as<std::int32_t>()[std::size_t(i)]);
      const Doubles q = online.Forward(Row(b.observation, i));
      const auto item = values_.Learn(values_.Of(q, action), values_.Of(judge, best), become);
      const double weight = b.weight[std::size_t(i)] / double(b.size());
      loss += weight * item.loss;
      priority.push_back(item.priority);
      Doubles dq(q.size());
      for (std::size_t k = 0; k < values_.numbers; ++k)
        dq[action * values_.numbers + k] = weight * item.dout[k];
      online.Backward(dq);
    }
    // A deviation has the gradient of its weight, times the noise.
    gradient = online.gradient;
    for (const NoisyPlace& layer : places_) {
      ForEachNoisy(*network_, layer, Key(updates, 0),
                   [&](std::size_t mean, std::size_t sigma, double e) {
                     gradient[sigma] = online.gradient[mean] * e;
                   });
    }
  }

  const Module& network() const { return *network_; }
  double loss = 0;
  Doubles priority, gradient;

 private:
  static Doubles Row(const Tensor& t, std::int64_t i) {
    const std::span<const float> row = t.as<float>().subspan(std::size_t(i * kInputs), kInputs);
    return {row.begin(), row.end()};
  }
  NoiseKey Key(std::uint64_t updates, std::uint64_t draw) const {
    return {DeriveSeed({std::uint64_t(config_.seed), Purpose::kNoisyUpdates, learner_, updates}),
            draw};
  }
  Doubles Noisy(const Doubles& value, std::uint64_t updates, std::uint64_t draw) const {
    return test::WithNoise(*network_, places_, Key(updates, draw), value);
  }
  // A plain layer at these parameters; with a place it is noisy.
  FusedLinear Layer(const std::string& name, std::int64_t in, std::int64_t out,
                    Activation activation, std::optional<std::uint64_t> place) {
    FusedLinear layer{in, out, activation, 0, 0};
    for (const ParamSpec& spec : network_->params()) {
      if (spec.name == name + "weight") layer.weight = spec.offset;
      if (spec.name == name + "bias") layer.bias = spec.offset;
    }
    if (place) places_.push_back({name, *place});
    return layer;
  }
  void Stream(const std::string& name, std::int64_t out, std::uint64_t place, FusedLinear* layers) {
    const std::int64_t units = config_.network.dueling_units;
    if (units > 0) *layers++ = Layer(name + "hidden.", kHidden, units, Activation::kRelu, place);
    *layers = Layer(name, units > 0 ? units : kHidden, out, Activation::kNone, place + 1);
  }

  const TrainingConfig config_;
  const std::uint64_t learner_;
  const ValueReference values_;
  const std::unique_ptr<Module> network_;
  FusedNet net_;
  std::vector<NoisyPlace> places_;
};

// The reference of the means alone, or of another learner or draw, gives another loss.
TEST(NoisyDqnTest, GradientsMatchF64ReferenceInEveryVariant) {
  constexpr CriticKind kForms[] = {CriticKind::kScalar, CriticKind::kCategorical,
                                   CriticKind::kQuantile};
  for (int variant = 0; variant < 36; ++variant) {
    SCOPED_TRACE(variant);
    TrainingConfig config = NoisyConfig(variant % 3 > 0, variant % 3 == 2 ? 5 : 0);
    config.learner.critic = kForms[variant / 3 % 3];
    config.learner.atoms = 6;
    config.learner.v_min = -1.5, config.learner.v_max = 2;
    config.learner.double_q = variant / 9 % 2 == 1;
    const int learner = variant / 18 * 2;
    const auto algorithm = MakeLearner(config, learner);
    Reference reference(config, std::uint64_t(learner));
    // The target follows at the second update.
    for (std::uint64_t step = 0; step < 3; ++step) {
      const SampleBatch batch = RandomBatch(6, 3, 100 + step);
      const TensorFile state = algorithm->State();
      reference.Update(batch, step, algorithm->value(), state.tensors.at("target").as<float>());
      std::vector<float> priority(std::size_t(batch.size()));
      const auto report = algorithm->ComputeGradient(batch, priority);
      ASSERT_TRUE(report.ok()) << report.status().ToString();
      EXPECT_NEAR(report->loss, reference.loss, 1e-5);
      for (std::size_t i = 0; i < priority.size(); ++i)
        EXPECT_NEAR(priority[i], reference.priority[i], 1e-5);
      for (const ParamSpec& spec : reference.network().params()) {
        for (std::int64_t i = 0; i < spec.shape.elements(); ++i) {
          const auto at = std::size_t(spec.offset + i);
          ASSERT_NEAR(algorithm->gradient()[at], reference.gradient[at], 1e-5) << spec.name << i;
        }
      }
      algorithm->ApplyGradient(0, report->gradient_norm);
    }
  }
}

// Equal weights and batches: only the noise can make the losses differ.
TEST(NoisyDqnTest, LearnersAndUpdatesHaveTheirOwnNoise) {
  const TrainingConfig config = NoisyConfig(true, 5);
  const SampleBatch batch = RandomBatch(6, 3, 1);
  const auto loss = [&](int learner, std::uint64_t updates) {
    const auto algorithm = MakeLearner(config, learner);
    const std::vector<float> value(algorithm->value().begin(), algorithm->value().end());
    algorithm->external_optimizer()->ReplaceWeights(updates, value);
    std::vector<float> priority(6);
    return algorithm->ComputeGradient(batch, priority)->loss;
  };
  EXPECT_EQ(loss(0, 2), loss(0, 2));
  EXPECT_NE(loss(0, 2), loss(1, 2));
  EXPECT_NE(loss(0, 2), loss(0, 4));
}

// The noise follows from the update's number, which a state contains.
TEST(NoisyDqnTest, RestoredStateContinuesBitForBit) {
  const TrainingConfig config = NoisyConfig(true, 5);
  const auto first = MakeLearner(config, 1), second = MakeLearner(config, 1);
  std::vector<float> priority(6);
  const auto update = [&](const auto& algorithm, std::uint64_t i) {
    EXPECT_TRUE(algorithm->Update(RandomBatch(6, 3, i), 0, priority).ok());
  };
  for (std::uint64_t i = 0; i < 3; ++i) update(first, i);
  ASSERT_TRUE(second->SetState(first->State()).ok());
  for (std::uint64_t i = 3; i < 6; ++i) update(first, i), update(second, i);
  EXPECT_TRUE(std::ranges::equal(first->value(), second->value()));
}

}  // namespace
}  // namespace troop
