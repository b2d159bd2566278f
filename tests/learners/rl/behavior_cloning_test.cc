#include "learners/rl/behavior_cloning.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "nn/models/model.h"
#include "tests/learners/dqn_testing.h"

namespace troop {
namespace {

constexpr std::int64_t kRows = 7, kWidth = 2;

EnvSpec ContinuousEnv() {
  EnvSpec env = Env();
  env.action = {.kind = ActionSpec::Kind::kContinuous, .low = {-2, 0.5F}, .high = {1, 4}};
  return env;
}

TrainingConfig CloningConfig() {
  TrainingConfig config = SmallConfig();
  config.learner.algorithm = AlgorithmKind::kBehaviorCloning;
  config.network.dueling = false;
  return config;
}

std::unique_ptr<Algorithm> MakeCloning(const TrainingConfig& config, const EnvSpec& env) {
  auto made = MakeAlgorithm(config, env);
  EXPECT_TRUE(made.ok()) << made.status().ToString();
  return std::move(made).value();
}

SampleBatch ContinuousBatch() {
  SampleBatch batch = RandomBatch(kRows, 2, 5);
  batch.action = Tensor(DType::kF32, {kRows, kWidth});
  Rng rng({9, Purpose::kTest});
  for (std::size_t i = 0; i < std::size_t(kRows); ++i) {
    batch.action.as<float>()[2 * i] = float(rng.Uniform(-2, 1));
    batch.action.as<float>()[2 * i + 1] = float(rng.Uniform(0.5, 4));
  }
  return batch;
}

// The network once more in f64: linear, tanh, linear, from parameters by name.
class PlainNet {
 public:
  PlainNet(const TrainingConfig& config, const EnvSpec& env) {
    const auto network = *MakeNetwork(ModelSetupOf(config), env);
    for (const ParamSpec& spec : network->params()) {
      if (spec.name.starts_with("critic.")) continue;
      places_.push_back({std::size_t(spec.offset), spec.shape});
    }
    EXPECT_EQ(places_.size(), 4u);
  }
  std::vector<double> Forward(const std::vector<double>& value, std::span<const float> x) const {
    std::vector<double> in(x.begin(), x.end());
    for (std::size_t layer = 0; layer < 2; ++layer) {
      // A weight has two dimensions, a bias one, in either order.
      const bool weight_first = places_[2 * layer].second.rank() == 2;
      const auto& [weight, shape] = places_[2 * layer + (weight_first ? 0 : 1)];
      const std::size_t bias = places_[2 * layer + (weight_first ? 1 : 0)].first;
      const auto outputs = std::size_t(shape[0]);
      EXPECT_EQ(std::size_t(shape[1]), in.size());
      std::vector<double> out(outputs);
      for (std::size_t o = 0; o < outputs; ++o) {
        out[o] = value[bias + o];
        for (std::size_t i = 0; i < in.size(); ++i) {
          out[o] += value[weight + o * in.size() + i] * in[i];
        }
        if (layer == 0) out[o] = std::tanh(out[o]);
      }
      in = out;
    }
    return in;
  }

 private:
  std::vector<std::pair<std::size_t, Shape>> places_;
};

// Loss in f64 loops from the definition.
double DiscreteLoss(const PlainNet& net, const std::vector<double>& value,
                    const SampleBatch& batch) {
  double loss = 0;
  for (std::size_t row = 0; row < std::size_t(kRows); ++row) {
    const auto q =
        net.Forward(value, batch.observation.as<float>().subspan(row * kInputs, kInputs));
    double sum = 0;
    for (const double x : q) sum += std::exp(x);
    loss -= std::log(std::exp(q[std::size_t(batch.action.as<std::int32_t>()[row])]) / sum);
  }
  return loss / kRows;
}

// The policy's output is tanh, mapped to the bounds; the error counts in half ranges.
double ContinuousLoss(const PlainNet& net, const std::vector<double>& value,
                      const SampleBatch& batch) {
  const EnvSpec env = ContinuousEnv();
  double loss = 0;
  for (std::size_t row = 0; row < std::size_t(kRows); ++row) {
    const auto out =
        net.Forward(value, batch.observation.as<float>().subspan(row * kInputs, kInputs));
    for (std::size_t k = 0; k < std::size_t(kWidth); ++k) {
      const double low = env.action.low[k], high = env.action.high[k], half = (high - low) / 2;
      const double action = low + half + half * std::tanh(out[k]);
      const double error = (action - batch.action.as<float>()[row * kWidth + k]) / half;
      loss += error * error;
    }
  }
  return loss / (kRows * kWidth);
}

template <class Loss>
void CheckGradient(const EnvSpec& env, const SampleBatch& batch, const Loss& loss) {
  const TrainingConfig config = CloningConfig();
  const auto algorithm = MakeCloning(config, env);
  const PlainNet net(config, env);
  std::vector<float> priority(std::size_t(kRows), 3);
  const auto report = algorithm->ComputeGradient(batch, priority);
  ASSERT_TRUE(report.ok()) << report.status().ToString();
  std::vector<double> value(algorithm->value().begin(), algorithm->value().end());
  EXPECT_NEAR(report->loss, loss(net, value, batch), 1e-5);
  EXPECT_EQ(report->rows, double(kRows));
  EXPECT_EQ(priority, std::vector<float>(std::size_t(kRows), 0));
  // Central differences, in all parameters: those that the loss does not use have gradient 0.
  double squares = 0;
  for (std::size_t i = 0; i < value.size(); ++i) {
    const double was = value[i], h = 1e-5;
    value[i] = was + h;
    const double above = loss(net, value, batch);
    value[i] = was - h;
    const double below = loss(net, value, batch);
    value[i] = was;
    const double expected = (above - below) / (2 * h);
    ASSERT_NEAR(algorithm->gradient()[i], expected, 1e-5) << "parameter " << i;
    squares += expected * expected;
  }
  EXPECT_NEAR(report->gradient_norm, std::sqrt(squares), 1e-5);
  EXPECT_GT(squares, 1e-4);
}

TEST(BehaviorCloningTest, CrossEntropyAndGradientMatchReference) {
  CheckGradient(Env(), RandomBatch(kRows, 2, 5), DiscreteLoss);
}

TEST(BehaviorCloningTest, SquaredErrorAndGradientMatchReference) {
  CheckGradient(ContinuousEnv(), ContinuousBatch(), ContinuousLoss);
}

TEST(BehaviorCloningTest, LearnsActionsOfRule) {
  TrainingConfig config = CloningConfig();
  config.optimizer.learning_rate = 0.02;
  const auto algorithm = MakeCloning(config, Env());
  std::vector<float> priority(64);
  LossReport report;
  for (std::uint64_t i = 0; i < 400; ++i) {
    SampleBatch batch = RandomBatch(64, 1, i);
    for (std::size_t row = 0; row < 64; ++row) {
      const auto x = batch.observation.as<float>().subspan(row * kInputs, kInputs);
      batch.action.as<std::int32_t>()[row] = (x[0] > 0 ? 2 : 0) + (x[1] > 0 ? 1 : 0);
    }
    report = *algorithm->Update(batch, 0, priority);
  }
  EXPECT_GT(report.accuracy, 0.9);
  EXPECT_LT(report.loss, 0.3);
}

TEST(BehaviorCloningTest, LargeLogitsStayFinite) {
  TrainingConfig config = CloningConfig();
  const auto algorithm = MakeCloning(config, Env());
  SampleBatch batch = RandomBatch(kRows, 1, 1);
  TensorFile state = algorithm->State();
  Tensor value(DType::kF32, state.tensors.at("value").shape());
  for (std::size_t i = 0; i < value.as<float>().size(); ++i) {
    value.as<float>()[i] = 1e4F * state.tensors.at("value").as<float>()[i];
  }
  state.tensors.at("value") = value;
  ASSERT_TRUE(algorithm->SetState(state).ok());
  std::vector<float> priority(std::size_t(kRows), 0);
  const auto report = algorithm->ComputeGradient(batch, priority);
  ASSERT_TRUE(report.ok()) << report.status().ToString();
  EXPECT_TRUE(std::isfinite(report->loss));
  EXPECT_GT(report->loss, 100);
}

TEST(BehaviorCloningTest, RefusesActionsOutsideTheEnvironment) {
  const auto algorithm = MakeCloning(CloningConfig(), Env());
  SampleBatch batch = RandomBatch(kRows, 1, 1);
  batch.action.as<std::int32_t>()[3] = kActions;
  std::vector<float> priority(std::size_t(kRows), 0);
  EXPECT_EQ(algorithm->ComputeGradient(batch, priority).status().code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace troop
