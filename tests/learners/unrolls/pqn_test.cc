#include "learners/unrolls/pqn.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "learners/unrolls/unroll_frames.h"
#include "nn/models/model.h"
#include "tests/kernels/small_net_reference.h"
#include "tests/learners/dqn_testing.h"
#include "tests/learners/unroll_batch.h"

namespace troop {
namespace {

using testing::HasSubstr;

constexpr std::int64_t kSteps = kUnrollSteps;

TrainingConfig PqnConfig() {
  TrainingConfig config = SmallConfig();
  config.learner.algorithm = AlgorithmKind::kPqn;
  config.learner.lambda = 0.6;
  config.learner.loss = TdLoss::kMse;
  config.unroll_length = kSteps;
  return config;
}

LossReport UpdateOnce(Algorithm* algorithm, const SampleBatch& batch,
                      std::vector<float>* priority = nullptr) {
  std::vector<float> local(std::size_t(batch.size()));
  const auto report = algorithm->Update(batch, 0, priority != nullptr ? *priority : local);
  EXPECT_TRUE(report.ok()) << report.status().ToString();
  return report.ok() ? *report : LossReport{};
}

// PQN once more, in f64 and plain loops, one frame at a time; Adam's step included.
class Reference {
 public:
  explicit Reference(const TrainingConfig& config) : config_(config) {
    const auto network = std::move(MakeNetwork(ModelSetupOf(config), Env())).value();
    std::map<std::string, std::int64_t> at;
    for (const ParamSpec& p : network->params()) at[p.name] = p.offset;
    net_.inputs = kInputs;
    net_.trunk_count = 1;
    net_.trunk[0] = {kInputs, kHidden, Activation::kTanh, at.at("layers.0.weight"),
                     at.at("layers.0.bias")};
    net_.dueling = config.network.dueling;
    const std::string head = net_.dueling ? "head.advantage" : "head";
    net_.advantage[0] = {kHidden, kActions, Activation::kNone, at.at(head + ".weight"),
                         at.at(head + ".bias")};
    if (net_.dueling) {
      net_.value[0] = {kHidden, 1, Activation::kNone, at.at("head.value.weight"),
                       at.at("head.value.bias")};
    }
    std::vector<float> start(std::size_t(ParameterCount(*network)));
    InitParameters(*network, std::uint64_t(config.seed), start);
    value.assign(start.begin(), start.end());
    m_.assign(value.size(), 0);
    v_.assign(value.size(), 0);
  }

  void Update(const SampleBatch& b) {
    SmallNetReference net(net_, value);
    double steps = 0;
    for (const std::int32_t length : b.length) steps += length;
    loss = 0;
    priority.clear();
    for (std::int64_t i = 0; i < b.size(); ++i) UpdateUnroll(b, i, steps, &net);
    Step(net.gradient);
  }

  Doubles value, priority;
  double loss = 0, norm = 0;

 private:
  static Doubles Frame(const SampleBatch& b, std::int64_t i, std::int64_t t) {
    const auto row =
        b.observation.as<float>().subspan(std::size_t((i * (kSteps + 1) + t) * kInputs), kInputs);
    return {row.begin(), row.end()};
  }

  void UpdateUnroll(const SampleBatch& b, std::int64_t i, double steps, SmallNetReference* net) {
    const double gamma = config_.learner.gamma, lambda = config_.learner.lambda;
    const std::int64_t length = b.length[std::size_t(i)];
    // Targets first: they are constants of this update.
    Doubles target(std::size_t(length), 0);
    double after = 0;
    for (std::int64_t t = length - 1; t >= 0; --t) {
      const double best = std::ranges::max(net->Forward(Frame(b, i, t + 1)));
      if (t == length - 1) after = best;
      const auto at = std::size_t(i * kSteps + t);
      const double mixed = (1 - lambda) * best + lambda * after;
      after = double(b.reward.as<float>()[at]) + gamma * double(b.discount.as<float>()[at]) * mixed;
      target[std::size_t(t)] = after;
    }
    double sum = 0;
    for (std::int64_t t = 0; t < length; ++t) {
      const Doubles q = net->Forward(Frame(b, i, t));
      const auto action = std::size_t(b.action.as<std::int32_t>()[std::size_t(i * kSteps + t)]);
      const double td = target[std::size_t(t)] - q[action];
      const double weight = double(b.weight[std::size_t(i)]) / steps;
      const bool linear = config_.learner.loss == TdLoss::kHuber && std::abs(td) > 1;
      loss += weight * (linear ? std::abs(td) - 0.5 : td * td / 2);
      sum += std::abs(td);
      Doubles dq(q.size());
      dq[action] = -weight * (linear ? std::copysign(1, td) : td);
      net->Backward(dq);
    }
    priority.push_back(sum / double(length));
  }

  void Step(const Doubles& gradient) {
    double sum = 0;
    for (const double g : gradient) sum += g * g;
    norm = std::sqrt(sum);
    const auto& o = config_.optimizer;
    const double limit = config_.learner.max_grad_norm;
    ++updates_;
    for (std::size_t i = 0; i < value.size(); ++i) {
      const double g = norm > limit ? gradient[i] * limit / norm : gradient[i];
      m_[i] = o.beta1 * m_[i] + (1 - o.beta1) * g;
      v_[i] = o.beta2 * v_[i] + (1 - o.beta2) * g * g;
      const double m = m_[i] / (1 - std::pow(o.beta1, updates_));
      const double v = v_[i] / (1 - std::pow(o.beta2, updates_));
      value[i] -= o.learning_rate * m / (std::sqrt(v) + o.epsilon);
    }
  }

  const TrainingConfig config_;
  FusedNet net_;
  Doubles m_, v_;
  int updates_ = 0;
};

TEST(PqnTest, UpdatesMatchF64Reference) {
  for (int variant = 0; variant < 8; ++variant) {
    TrainingConfig config = PqnConfig();
    config.network.dueling = variant % 2 == 0;
    config.learner.loss = variant % 4 < 2 ? TdLoss::kMse : TdLoss::kHuber;
    config.learner.max_grad_norm = variant < 4 ? 10 : 0.05;  // the small one always clips
    const auto pqn = Make(config);
    Reference reference(config);
    for (std::uint64_t i = 0; i < 6; ++i) {
      const SampleBatch batch = UnrollBatch(std::int64_t(3 + i), 100 * std::uint64_t(variant) + i);
      std::vector<float> priority(std::size_t(batch.size()));
      const LossReport report = UpdateOnce(pqn.get(), batch, &priority);
      reference.Update(batch);
      EXPECT_NEAR(report.loss, reference.loss, 1e-5) << variant;
      EXPECT_NEAR(report.gradient_norm, reference.norm, 1e-5) << variant;
      EXPECT_EQ(report.rows, std::accumulate(batch.length.begin(), batch.length.end(), 0.0));
      for (std::size_t k = 0; k < priority.size(); ++k)
        EXPECT_NEAR(priority[k], reference.priority[k], 2e-5) << variant;
      for (std::size_t k = 0; k < reference.value.size(); ++k)
        ASSERT_NEAR(pqn->value()[k], reference.value[k], 2e-5) << variant << ", update " << i;
    }
  }
}

// A chain: in state s of 3 the episode continues in s + 1 with reward s + 1, and terminates after
// the last one. The exact values follow from the rewards alone.
TEST(PqnTest, LearnsExactValuesOfChain) {
  TrainingConfig config = PqnConfig();
  config.network.dueling = false;
  config.optimizer.epsilon = 1e-8;
  const auto pqn = Make(config);
  SampleBatch b = UnrollBatch(kActions, 1);
  std::ranges::fill(b.observation.as<float>(), 0.0F);
  std::ranges::fill(b.discount.as<float>(), 1.0F);
  std::ranges::fill(b.weight, 1.0F);
  // One unroll per action, which it takes in every state.
  for (std::size_t i = 0; i < std::size_t(kActions); ++i) {
    b.length[i] = 3;
    for (std::size_t t = 0; t < 3; ++t) {
      b.observation.as<float>()[(i * (kSteps + 1) + t) * kInputs + t] = 1;
      b.action.as<std::int32_t>()[i * kSteps + t] = std::int32_t(i);
      b.reward.as<float>()[i * kSteps + t] = float(t + 1);
    }
    b.discount.as<float>()[i * kSteps + 2] = 0;
  }
  LossReport report;
  for (int i = 0; i < 3000; ++i) report = UpdateOnce(pqn.get(), b);
  const double gamma = config.learner.gamma;
  const double mean = (3 + (2 + gamma * 3) + (1 + gamma * (2 + gamma * 3))) / 3;
  EXPECT_NEAR(report.q_mean, mean, 0.02);
  EXPECT_LT(report.td_error_mean, 0.02);
}

TEST(PqnTest, RestoredStateContinuesBitForBit) {
  TrainingConfig config = PqnConfig();
  const auto first = Make(config);
  for (std::uint64_t i = 0; i < 3; ++i) UpdateOnce(first.get(), UnrollBatch(6, i));
  const auto read = DecodeSafetensors(EncodeSafetensors(first->State()));
  ASSERT_TRUE(read.ok()) << read.status().ToString();
  EXPECT_EQ(read->tensors.count("target"), 0u) << "PQN has no target network";
  config.seed = 77;
  const auto second = Make(config);
  UpdateOnce(second.get(), UnrollBatch(4, 50));
  ASSERT_TRUE(second->SetState(*read).ok());
  for (std::uint64_t i = 3; i < 8; ++i) {
    UpdateOnce(first.get(), UnrollBatch(6, i));
    UpdateOnce(second.get(), UnrollBatch(6, i));
  }
  for (std::size_t k = 0; k < first->value().size(); ++k)
    ASSERT_EQ(first->value()[k], second->value()[k]);
}

TEST(PqnTest, RowsHaveStackedFramesWithoutPadding) {
  for (const std::int64_t stack : {1, 3}) {
    EnvSpec env = Env();
    if (stack > 1) env.observation.shape = env.observation.shape.Prepend(stack);
    const UnrollWindow window{.stack = stack};
    UnrollFrames frames(env, window);
    for (const std::int64_t unrolls : {4, 7, 2}) {
      const SampleBatch b = UnrollBatch(unrolls, std::uint64_t(unrolls), stack);
      ASSERT_TRUE(CheckUnrolls(b, env, window, std::size_t(unrolls)).ok());
      frames.Fill(b);
      std::vector<float> expected;
      for (std::int64_t i = 0; i < unrolls; ++i) {
        for (std::int64_t t = 0; t <= b.length[std::size_t(i)]; ++t) {
          for (std::int64_t k = 0; k < stack * kInputs; ++k) {
            expected.push_back(
                b.observation.as<float>()[std::size_t((i * (stack + kSteps) + t) * kInputs + k)]);
          }
        }
      }
      const auto got = frames.rows().as<float>();
      EXPECT_EQ(std::vector<float>(got.begin(), got.end()), expected);
      EXPECT_EQ(frames.rows().spec().shape, env.observation.shape.Prepend(frames.size()));
    }
  }
}

// Statistics count the frames of unrolls, not the padding behind them.
TEST(PqnTest, ObservationStatisticsSkipPadding) {
  TrainingConfig config = PqnConfig();
  config.network.normalize_observations = true;
  const auto pqn = Make(config);
  double sum = 0, count = 0;
  for (std::uint64_t i = 0; i < 3; ++i) {
    const SampleBatch b = UnrollBatch(5, i);
    for (std::size_t row = 0; row < 5; ++row) {
      for (std::size_t t = 0; t <= std::size_t(b.length[row]); ++t, ++count)
        sum += double(b.observation.as<float>()[(row * (kSteps + 1) + t) * kInputs]);
    }
    UpdateOnce(pqn.get(), b);
  }
  EXPECT_NEAR(pqn->value()[0], sum / count, 1e-6);
  EXPECT_EQ(pqn->value()[32], count);
}

TEST(PqnTest, RejectsNonFiniteBatchWithoutChange) {
  const auto pqn = Make(PqnConfig());
  const std::vector<float> before(pqn->value().begin(), pqn->value().end());
  SampleBatch b = UnrollBatch(4, 1);
  b.reward.as<float>()[std::size_t(2 * kSteps)] = std::numeric_limits<float>::quiet_NaN();
  std::vector<float> priority(4);
  const auto report = pqn->Update(b, 0, priority);
  ASSERT_FALSE(report.ok());
  EXPECT_EQ(report.status().code(), Code::kDataLoss);
  EXPECT_THAT(report.status().message(), HasSubstr("reward[0] of item 2"));
  EXPECT_EQ(before, std::vector<float>(pqn->value().begin(), pqn->value().end()));
  EXPECT_EQ(pqn->updates(), 0u);
}

TEST(PqnTest, RejectsGpuAndContinuousActions) {
  TrainingConfig config = PqnConfig();
  config.learner.device = DeviceChoice::kCuda;
  EXPECT_THAT(MakeAlgorithm(config, Env()).status().message(),
              HasSubstr("learner.algorithm = \"pqn\" only runs on the CPU"));
  config.learner.device = DeviceChoice::kAuto;
  EnvSpec env = Env();
  env.action = {.kind = ActionSpec::Kind::kContinuous, .low = {-1}, .high = {1}};
  EXPECT_THAT(MakeAlgorithm(config, env).status().message(), HasSubstr("needs discrete ones"));
}

// Bytes of the network must not crash the learner.
TEST(PqnTest, RejectsMismatchedBatch) {
  const auto pqn = Make(PqnConfig());
  const auto refused = [&](auto change) {
    SampleBatch b = UnrollBatch(4, 1);
    change(&b);
    std::vector<float> priority(4);
    const auto report = pqn->Update(b, 0, priority);
    return report.ok() ? std::string() : report.status().message();
  };
  EXPECT_EQ(refused([](SampleBatch*) {}), "");
  EXPECT_THAT(refused([](SampleBatch* b) { b->length[2] = 0; }), HasSubstr("unroll 2: length 0"));
  EXPECT_THAT(refused([](SampleBatch* b) { b->length[1] = kSteps + 1; }), HasSubstr("length 6"));
  EXPECT_THAT(refused([](SampleBatch* b) { b->action.as<std::int32_t>()[0] = kActions; }),
              HasSubstr("unroll 0: action 4"));
  EXPECT_THAT(refused([](SampleBatch* b) {
                b->observation = Tensor(DType::kF32, {4, kInputs});
              }),
              HasSubstr("observation is f32[4, 3]"));
  EXPECT_THAT(refused([](SampleBatch* b) { b->action = Tensor(DType::kI32, {4}); }),
              HasSubstr("action is i32[4]"));
  EXPECT_THAT(refused([](SampleBatch* b) {
                b->discount = Tensor(DType::kF32, {4, 2});
              }),
              HasSubstr("discount is f32[4, 2]"));
  EXPECT_THAT(refused([](SampleBatch* b) { b->reward = Tensor(); }), HasSubstr("reward"));
  EXPECT_THAT(refused([](SampleBatch* b) { b->weight.pop_back(); }), HasSubstr("3 weights"));
  EXPECT_THAT(refused([](SampleBatch* b) { b->key.clear(); }), HasSubstr("empty"));
}

}  // namespace
}  // namespace troop
