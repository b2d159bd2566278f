// Own algorithms: registration, errors of their factories, and the algorithm of
// examples/cpp_algorithm against its loss in f64 and plain loops.
#include "learners/external/own_algorithm.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <map>
#include <stdexcept>

#include "examples/cpp_algorithm/munchausen_dqn.h"
#include "learners/rl/dqn.h"
#include "nn/models/model.h"
#include "tests/learners/dqn_testing.h"

namespace troop {
namespace {

using testing::HasSubstr;

// Registers an algorithm once per process, as repeated tests need.
void Register(const std::string& name, AlgorithmFactory factory) {
  if (IsRegisteredAlgorithm(name)) return;
  const Status status = RegisterAlgorithm(name, std::move(factory));
  ASSERT_TRUE(status.ok()) << status.ToString();
}

TrainingConfig OwnConfig(const std::string& name) {
  TrainingConfig config = SmallConfig();
  config.learner.algorithm = AlgorithmKind::kOwn;
  config.learner.own_algorithm = name;
  config.network.dueling = false;
  config.n_step = 1;
  return config;
}

TrainingConfig MunchausenConfig() {
  Register("munchausen_dqn", MakeMunchausenDqn);
  return OwnConfig("munchausen_dqn");
}

std::string ErrorOf(const TrainingConfig& config) {
  const auto made = MakeAlgorithm(config, Env());
  EXPECT_FALSE(made.ok());
  return made.status().message();
}

// Troop's own DQN under another name.
Result<std::unique_ptr<Algorithm>> MakeSameDqn(OwnAlgorithmRequest request) {
  return MakeDqn(request.config, request.env, std::move(request.network));
}

TEST(OwnAlgorithmTest, BuiltInNamesAreRefused) {
  for (const std::string_view name : EnumNames(AlgorithmKind()))
    EXPECT_THAT(RegisterAlgorithm(std::string(name), MakeSameDqn).message(),
                HasSubstr("the name is built in"));
}

TEST(OwnAlgorithmTest, UnknownNameIsNamedWithTheKnownOnes) {
  Register("same_dqn", MakeSameDqn);
  EXPECT_THAT(ErrorOf(OwnConfig("some_dqn")),
              testing::AllOf(HasSubstr("learner.algorithm: \"some_dqn\" is unknown"),
                             HasSubstr("dqn, dpg, td3, sac, r2d2, pqn, vtrace, ppo, classifier, "
                                       "masked_lm, external, behavior_cloning"),
                             HasSubstr("same_dqn"), HasSubstr("learner.library")));
}

TEST(OwnAlgorithmTest, FactoryThatFailsOrThrowsIsAnError) {
  using Made = Result<std::unique_ptr<Algorithm>>;
  Register("fails", [](OwnAlgorithmRequest) -> Made { return InvalidArgument("has no luck"); });
  Register("throws", [](OwnAlgorithmRequest) -> Made { throw std::runtime_error("a bad day"); });
  Register("makes_nothing",
           [](OwnAlgorithmRequest) -> Made { return std::unique_ptr<Algorithm>(); });
  EXPECT_EQ(ErrorOf(OwnConfig("fails")), "learner.algorithm = \"fails\": has no luck");
  EXPECT_EQ(ErrorOf(OwnConfig("throws")),
            "learner.algorithm = \"throws\": an exception was thrown: a bad day");
  EXPECT_THAT(ErrorOf(OwnConfig("makes_nothing")), HasSubstr("made no algorithm"));
}

TEST(OwnAlgorithmTest, OptionsAndDeviceAreChecked) {
  TrainingConfig config = MunchausenConfig();
  config.learner.options = {{"temperatures", 0.1}};
  EXPECT_THAT(ErrorOf(config), HasSubstr("learner.options: temperatures is an unknown option"));
  config.learner.options = {{"temperature", 0.0}};
  EXPECT_THAT(ErrorOf(config), HasSubstr("temperature = 0.0 is not a number in the range > 0"));
  config.n_step = 3;  // the factory's error, too: an invalid option is reported first
  EXPECT_THAT(ErrorOf(config), HasSubstr("temperature = 0.0"));
  config.learner.options.clear();
  EXPECT_THAT(ErrorOf(config), HasSubstr("actor.n_step is 3, must be 1"));
  config.n_step = 1;
  config.learner.device = DeviceChoice::kCuda;
  EXPECT_THAT(ErrorOf(config), HasSubstr("learner.device is \"cuda\""));
}

// ---- Munchausen DQN once more: the loss as a function of the weights, in f64.

class Reference {
 public:
  Reference(const TrainingConfig& config, double temperature, double munchausen, double clip)
      : config_(config), temperature_(temperature), munchausen_(munchausen), clip_(clip) {
    const auto network = std::move(MakeNetwork(ModelSetupOf(config), Env())).value();
    for (const ParamSpec& p : network->params()) at_[p.name] = std::size_t(p.offset);
  }

  // q of one observation: a tanh layer, then a linear one.
  std::vector<double> Q(const std::vector<double>& value, const float* x) const {
    std::vector<double> hidden(kHidden), q(kActions);
    for (std::size_t h = 0; h < hidden.size(); ++h) {
      double z = value[at_.at("layers.0.bias") + h];
      for (std::size_t i = 0; i < kInputs; ++i)
        z += value[at_.at("layers.0.weight") + h * kInputs + i] * double(x[i]);
      hidden[h] = std::tanh(z);
    }
    for (std::size_t a = 0; a < q.size(); ++a) {
      q[a] = value[at_.at("head.bias") + a];
      for (std::size_t h = 0; h < hidden.size(); ++h)
        q[a] += value[at_.at("head.weight") + a * kHidden + h] * hidden[h];
    }
    return q;
  }

  // |TD error| of item i, and its signed value, with the target network `target`.
  double Td(const SampleBatch& batch, std::size_t i, const std::vector<double>& value,
            const std::vector<double>& target) const {
    const auto action = std::size_t(batch.action.as<std::int32_t>()[i]);
    const std::vector<double> before =
        Policy(Q(target, batch.observation.data<float>() + i * kInputs));
    const std::vector<double> next = Q(target, batch.next_observation.data<float>() + i * kInputs);
    const std::vector<double> after = Policy(next);
    double soft_value = 0;  // Σ π (q - τ ln π)
    for (std::size_t a = 0; a < next.size(); ++a) {
      if (after[a] > 0) soft_value += after[a] * (next[a] - temperature_ * std::log(after[a]));
    }
    const double bonus =
        std::max(clip_, std::min(0.0, temperature_ * std::log(std::max(before[action], 1e-300))));
    const double goal = double(batch.reward.as<float>()[i]) + munchausen_ * bonus +
                        config_.learner.gamma * double(batch.discount.as<float>()[i]) * soft_value;
    return goal - Q(value, batch.observation.data<float>() + i * kInputs)[action];
  }

  double Loss(const SampleBatch& batch, const std::vector<double>& value,
              const std::vector<double>& target) const {
    double sum = 0;
    for (std::size_t i = 0; i < std::size_t(batch.size()); ++i) {
      const double size = std::abs(Td(batch, i, value, target));
      const bool linear = config_.learner.loss == TdLoss::kHuber && size > 1;
      sum += double(batch.weight[i]) * (linear ? size - 0.5 : 0.5 * size * size);
    }
    return sum / double(batch.size());
  }

 private:
  std::vector<double> Policy(std::vector<double> q) const {
    const double largest = *std::ranges::max_element(q);
    double sum = 0;
    for (double& x : q) sum += x = std::exp((x - largest) / temperature_);
    for (double& x : q) x /= sum;
    return q;
  }

  const TrainingConfig config_;
  const double temperature_, munchausen_, clip_;
  std::map<std::string, std::size_t> at_;
};

std::vector<double> Doubles(std::span<const float> values) {
  return {values.begin(), values.end()};
}

// Loss, priorities and gradient, at equal weights and after the target network lags behind.
void ExpectEqualsReference(TrainingConfig config, const Reference& reference) {
  config.learner.target_update_every_updates = 1000;
  const auto algorithm = Make(config);
  const std::vector<double> target = Doubles(algorithm->value());
  for (std::uint64_t round = 0; round < 3; ++round) {
    const SampleBatch batch = RandomBatch(12, 1, 40 + round);
    const std::vector<double> value = Doubles(algorithm->value());
    std::vector<float> priority(12);
    const auto report = algorithm->ComputeGradient(batch, priority);
    ASSERT_TRUE(report.ok()) << report.status().ToString();
    EXPECT_NEAR(report->loss, reference.Loss(batch, value, target), 1e-5);
    for (std::size_t i = 0; i < priority.size(); ++i)
      EXPECT_NEAR(priority[i], std::abs(reference.Td(batch, i, value, target)), 1e-5) << i;
    double norm = 0;
    for (std::size_t k = 0; k < value.size(); ++k) {
      constexpr double kStep = 1e-6;
      std::vector<double> up = value, down = value;
      up[k] += kStep, down[k] -= kStep;
      const double slope =
          (reference.Loss(batch, up, target) - reference.Loss(batch, down, target)) / (2 * kStep);
      EXPECT_NEAR(algorithm->gradient()[k], slope, 1e-5) << k;
      norm += slope * slope;
    }
    EXPECT_NEAR(report->gradient_norm, std::sqrt(norm), 1e-4);
    algorithm->ApplyGradient(0, report->gradient_norm);
  }
  EXPECT_EQ(algorithm->updates(), 3u);
}

TEST(MunchausenDqnTest, LossAndGradientEqualPlainLoops) {
  TrainingConfig config = MunchausenConfig();
  ExpectEqualsReference(config, Reference(config, 0.03, 0.9, -1));
  config.learner.loss = TdLoss::kMse;
  config.learner.options = {{"clip", -0.2}, {"munchausen", 0.5}, {"temperature", std::int64_t{2}}};
  ExpectEqualsReference(config, Reference(config, 2, 0.5, -0.2));
}

// At the end of an episode the value of the last observation is not used, even if it is infinite.
TEST(MunchausenDqnTest, EndOfAnEpisodeHasNoValue) {
  const auto algorithm = Make(MunchausenConfig());
  SampleBatch batch = RandomBatch(2, 1, 3);
  batch.discount.as<float>()[0] = batch.discount.as<float>()[1] = 0;
  for (float& x : batch.next_observation.as<float>()) x = 1e38f;
  std::vector<float> priority(2);
  const auto report = algorithm->ComputeGradient(batch, priority);
  EXPECT_TRUE(report.ok()) << report.status().ToString();
}

TEST(MunchausenDqnTest, NonFiniteRewardSkipsTheBatch) {
  const auto algorithm = Make(MunchausenConfig());
  SampleBatch batch = RandomBatch(2, 1, 3);
  batch.reward.as<float>()[1] = NAN;
  std::vector<float> priority(2);
  const auto report = algorithm->ComputeGradient(batch, priority);
  EXPECT_EQ(report.status().code(), Code::kDataLoss);
  EXPECT_EQ(algorithm->updates(), 0u);
}

// A restored state continues with the same bytes: weights, target network, optimizer.
TEST(MunchausenDqnTest, RestoredStateContinuesExactly) {
  const TrainingConfig config = MunchausenConfig();
  const auto one = Make(config), two = Make(config);
  std::vector<float> priority(8);
  const auto update = [&](Algorithm& algorithm, std::uint64_t seed) {
    ASSERT_TRUE(algorithm.Update(RandomBatch(8, 1, seed), 0, priority).ok());
  };
  for (std::uint64_t i = 0; i < 3; ++i) update(*one, i);
  ASSERT_TRUE(two->SetState(one->State()).ok());
  for (std::uint64_t i = 3; i < 6; ++i) update(*one, i), update(*two, i);
  EXPECT_TRUE(std::ranges::equal(one->value(), two->value()));
  TensorFile other = one->State();
  other.metadata["algorithm"] = "dqn";
  EXPECT_THAT(two->SetState(other).message(), HasSubstr("algorithm is \"dqn\" in the state"));
}

}  // namespace
}  // namespace troop
