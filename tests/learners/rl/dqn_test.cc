#include "learners/rl/dqn.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <string>

#include "nn/models/model.h"
#include "tests/kernels/small_net_reference.h"
#include "tests/learners/config_values.h"
#include "tests/learners/dqn_testing.h"

namespace troop {
namespace {

LossReport UpdateOnce(Algorithm* algorithm, const SampleBatch& batch, double progress = 0,
                      std::vector<float>* priority = nullptr) {
  std::vector<float> local(std::size_t(batch.size()));
  const auto report = algorithm->Update(batch, progress, priority != nullptr ? *priority : local);
  EXPECT_TRUE(report.ok()) << report.status().ToString();
  return report.ok() ? *report : LossReport{};
}

// ---- Double DQN once more, in f64 and plain loops.

class Reference {
 public:
  explicit Reference(const TrainingConfig& config) : config_(config), values_(ValuesOf(config)) {
    const auto numbers = std::int64_t(values_.numbers);
    const auto network = std::move(MakeNetwork(ModelSetupOf(config), Env())).value();
    std::map<std::string, std::int64_t> at;
    for (const ParamSpec& p : network->params()) at[p.name] = p.offset;
    net_.inputs = kInputs;
    net_.trunk_count = 1;
    net_.trunk[0] = {kInputs, kHidden, Activation::kTanh, at.at("layers.0.weight"),
                     at.at("layers.0.bias")};
    net_.dueling = config.network.dueling;
    const std::string head = net_.dueling ? "head.advantage" : "head";
    net_.advantage[0] = {kHidden, kActions * numbers, Activation::kNone, at.at(head + ".weight"),
                         at.at(head + ".bias")};
    if (net_.dueling) {
      net_.value[0] = {kHidden, numbers, Activation::kNone, at.at("head.value.weight"),
                       at.at("head.value.bias")};
    }
    std::vector<float> start(std::size_t(ParameterCount(*network)));
    InitParameters(*network, std::uint64_t(config.seed), start);
    value.assign(start.begin(), start.end());
    target = value;
    m_.assign(value.size(), 0);
    v_.assign(value.size(), 0);
  }

  void Update(const SampleBatch& b, double progress) {
    SmallNetReference online(net_, value), old(net_, target);
    online.numbers = old.numbers = values_.numbers;
    loss = 0;
    priority.clear();
    for (std::int64_t i = 0; i < b.size(); ++i) {
      const Doubles x = Row(b.observation, i), next = Row(b.next_observation, i);
      const Doubles judge = old.Forward(next);
      const std::size_t best =
          values_.Best(config_.learner.double_q ? online.Forward(next) : judge);
      const auto become = [&](double g) {
        for (std::int64_t k = b.length[std::size_t(i)] - 1; k >= 0; --k) {
          const auto at = std::size_t(i * b.reward.dim(1) + k);
          g = double(b.reward.as<float>()[at]) +
              config_.learner.gamma * double(b.discount.as<float>()[at]) * g;
        }
        return g;
      };
      const auto action = std::size_t(b.action.as<std::int32_t>()[std::size_t(i)]);
      const Doubles q = online.Forward(x);
      const auto item = values_.Learn(values_.Of(q, action), values_.Of(judge, best), become);
      const double weight = b.weight[std::size_t(i)] / double(b.size());
      loss += weight * item.loss;
      priority.push_back(item.priority);
      Doubles dq(q.size());
      for (std::size_t k = 0; k < values_.numbers; ++k) {
        dq[action * values_.numbers + k] = weight * item.dout[k];
      }
      online.Backward(dq);
    }
    Step(online.gradient, progress);
  }

  Doubles value, target, priority;
  double loss = 0, norm = 0;

 private:
  static Doubles Row(const Tensor& t, std::int64_t i) {
    const std::span<const float> row = t.as<float>().subspan(std::size_t(i * kInputs), kInputs);
    return {row.begin(), row.end()};
  }

  void Step(Doubles gradient, double progress) {
    double sum = 0;
    for (double g : gradient) sum += g * g;
    norm = std::sqrt(sum);
    const auto& o = config_.optimizer;
    const double rate = o.learning_rate * (1 + (o.final_lr_fraction - 1) * progress);
    ++updates_;
    for (std::size_t i = 0; i < value.size(); ++i) {
      const double limit = config_.learner.max_grad_norm;
      const double g = norm > limit ? gradient[i] * limit / norm : gradient[i];
      if (o.type == OptimizerType::kAdam) {
        m_[i] = o.beta1 * m_[i] + (1 - o.beta1) * g;
        v_[i] = o.beta2 * v_[i] + (1 - o.beta2) * g * g;
        const double m = m_[i] / (1 - std::pow(o.beta1, updates_));
        const double v = v_[i] / (1 - std::pow(o.beta2, updates_));
        value[i] -= rate * m / (std::sqrt(v) + o.epsilon);
      } else {
        m_[i] = o.decay * m_[i] + (1 - o.decay) * g;
        v_[i] = o.decay * v_[i] + (1 - o.decay) * g * g;
        value[i] -= rate * g / std::sqrt(v_[i] - m_[i] * m_[i] + o.epsilon);
      }
    }
    if (updates_ % config_.learner.target_update_every_updates != 0) return;
    for (std::size_t i = 0; i < value.size(); ++i) {
      target[i] += config_.learner.target_tau * (value[i] - target[i]);
    }
  }

  const TrainingConfig config_;
  const ValueReference values_;
  FusedNet net_;
  Doubles m_, v_;
  int updates_ = 0;
};

constexpr CriticKind kForms[] = {CriticKind::kScalar, CriticKind::kCategorical,
                                 CriticKind::kQuantile};

TEST(DqnTest, UpdatesMatchF64ReferenceInEveryVariant) {
  for (int variant = 0; variant < 192; ++variant) {
    TrainingConfig config = SmallConfig();
    config.learner.critic = kForms[variant / 64];
    config.learner.atoms = 6;
    config.learner.v_min = -1.5, config.learner.v_max = 2;  // less than some returns
    config.learner.double_q = (variant & 1) != 0;
    config.network.dueling = (variant & 2) != 0;
    config.learner.loss = variant & 4 ? TdLoss::kHuber : TdLoss::kMse;
    config.optimizer.type = variant & 8 ? OptimizerType::kAdam : OptimizerType::kRmsProp;
    config.learner.max_grad_norm = variant & 16 ? 0.05 : 10;
    config.learner.target_tau = variant & 32 ? 0.25 : 1;
    config.optimizer.final_lr_fraction = 0.5;
    const auto algorithm = Make(config);
    Reference reference(config);
    for (std::uint64_t step = 0; step < 6; ++step) {
      const std::int64_t items = step % 2 == 0 ? 5 : 8;  // the batch may change its size
      const SampleBatch batch = RandomBatch(items, 3, 100 + step);
      std::vector<float> priority(std::size_t(batch.size()), 0);
      const double progress = double(step) / 6;
      const LossReport report = UpdateOnce(algorithm.get(), batch, progress, &priority);
      reference.Update(batch, progress);
      EXPECT_NEAR(report.loss, reference.loss, 1e-5);
      EXPECT_NEAR(report.gradient_norm, reference.norm, 1e-5);
      for (std::size_t i = 0; i < priority.size(); ++i) {
        EXPECT_NEAR(priority[i], reference.priority[i], 1e-5);
      }
      for (std::size_t i = 0; i < reference.value.size(); ++i) {
        ASSERT_NEAR(algorithm->value()[i], reference.value[i], 2e-6) << variant << " " << step;
      }
    }
    const TensorFile state = algorithm->State();
    const auto target = state.tensors.at("target").as<float>();
    for (std::size_t i = 0; i < target.size(); ++i) {
      ASSERT_NEAR(target[i], reference.target[i], 2e-6) << variant;
    }
  }
}

// ---- Learning.

// Three states, four actions, deterministic: next state (s + a) mod 3, reward (s * a) mod 3 - 0.5;
// action 3 in state 2 ends the episode. Observations are one-hot.
struct Mdp {
  static std::int64_t Next(std::int64_t s, std::int64_t a) { return (s + a) % 3; }
  static double Reward(std::int64_t s, std::int64_t a) { return double((s * a) % 3) - 0.5; }
  static bool Ends(std::int64_t s, std::int64_t a) { return s == 2 && a == 3; }

  static std::vector<Doubles> ValueIteration(double gamma) {
    std::vector<Doubles> q(3, Doubles(4));
    for (int sweep = 0; sweep < 1000; ++sweep) {
      for (std::int64_t s = 0; s < 3; ++s) {
        for (std::int64_t a = 0; a < 4; ++a) {
          const double next = std::ranges::max(q[std::size_t(Next(s, a))]);
          q[std::size_t(s)][std::size_t(a)] = Reward(s, a) + (Ends(s, a) ? 0 : gamma * next);
        }
      }
    }
    return q;
  }
  static SampleBatch Everything() {
    SampleBatch b = EmptyBatch(12, 1);
    for (std::int64_t i = 0; i < 12; ++i) {
      const std::int64_t s = i / 4, a = i % 4;
      b.observation.as<float>()[std::size_t(i * 3 + s)] = 1;
      b.next_observation.as<float>()[std::size_t(i * 3 + Next(s, a))] = 1;
      b.action.as<std::int32_t>()[std::size_t(i)] = std::int32_t(a);
      b.reward.as<float>()[std::size_t(i)] = float(Reward(s, a));
      b.discount.as<float>()[std::size_t(i)] = Ends(s, a) ? 0 : 1;
    }
    return b;
  }
};

std::vector<float> QValues(const TrainingConfig& config, std::span<const float> value,
                           const Tensor& observation) {
  const auto network = std::move(MakeNetwork(ModelSetupOf(config), Env())).value();
  const TensorSpec spec = observation.spec();
  const Plan plan = std::move(network->MakePlan({&spec, 1})).value();
  MutableBuffer workspace(plan.workspace_bytes);
  const auto packed = network->MakePacked(Precision::kF32);
  network->Pack(value, packed.get());
  const Tensor q(DType::kF32, plan.out[0].shape);
  const ConstTensor in(observation);
  network->Forward({.value = value, .packed = packed.get(), .workspace = workspace.bytes()},
                   {&in, 1}, {&q, 1}, {});
  const ValueReference values = ValuesOf(config);
  const Doubles all(q.as<float>().begin(), q.as<float>().end());
  std::vector<float> means;
  for (std::size_t i = 0; i < all.size() / values.numbers; ++i) {
    means.push_back(float(values.Mean(values.Of(all, i))));
  }
  return means;
}

void ExpectLearned(TrainingConfig config, int updates, double tolerance) {
  config.network.layers[0].units = 32;
  config.learner.target_update_every_updates = 20;
  config.optimizer.epsilon = 1e-8;
  config.optimizer.final_lr_fraction = 0.01;
  const auto algorithm = Make(config);
  const SampleBatch batch = Mdp::Everything();
  for (int i = 0; i < updates; ++i) UpdateOnce(algorithm.get(), batch, double(i) / updates);
  const std::vector<float> q = QValues(config, algorithm->value(), batch.observation);
  const std::vector<Doubles> want = Mdp::ValueIteration(config.learner.gamma);
  for (std::size_t i = 0; i < 12; ++i) {
    EXPECT_NEAR(q[i * 4 + i % 4], want[i / 4][i % 4], tolerance)
        << EnumName(config.learner.critic) << i;
  }
}

TEST(DqnTest, LearnsExactValuesOfSmallProblem) {
  for (bool double_q : {true, false}) {
    TrainingConfig config = SmallConfig();
    config.learner.double_q = double_q;
    config.learner.loss = TdLoss::kMse;
    ExpectLearned(config, 5000, 5e-3);
  }
}

// Values are means of atoms whose range contains them, or means of quantiles.
TEST(DqnTest, LearnsDistributionalValuesOfSmallProblem) {
  for (const CriticKind form : {CriticKind::kCategorical, CriticKind::kQuantile}) {
    TrainingConfig config = SmallConfig();
    config.learner.critic = form;
    config.learner.atoms = 11;
    config.learner.v_min = -4, config.learner.v_max = 8;
    ExpectLearned(config, 1500, 0.03);
  }
}

TEST(DqnTest, BootstrapsTruncatedButNotTerminatedSteps) {
  const TrainingConfig config = SmallConfig();
  SampleBatch b = RandomBatch(1, 3, 4);
  b.length[0] = 1;
  std::ranges::fill(b.reward.as<float>(), 0.0f);
  b.reward.as<float>()[0] = 2;
  const auto first = Make(config), second = Make(config);
  const std::vector<float> q = QValues(config, first->value(), b.observation);
  const std::vector<float> next = QValues(config, first->value(), b.next_observation);
  const double chosen = q[std::size_t(b.action.as<std::int32_t>()[0])];
  std::vector<float> priority(1);
  std::ranges::fill(b.discount.as<float>(), 1.0f);
  UpdateOnce(first.get(), b, 0, &priority);
  EXPECT_NEAR(priority[0], std::abs(2 + 0.9 * double(std::ranges::max(next)) - chosen), 1e-5);
  b.discount.as<float>()[0] = 0;
  UpdateOnce(second.get(), b, 0, &priority);
  EXPECT_NEAR(priority[0], std::abs(2 - chosen), 1e-5);
}

// ---- State.

bool SameState(const TensorFile& a, const TensorFile& b) {
  if (a.metadata != b.metadata || a.tensors.size() != b.tensors.size()) return false;
  for (const auto& [name, tensor] : a.tensors) {
    const auto found = b.tensors.find(name);
    if (found == b.tensors.end() || !(found->second.spec() == tensor.spec())) return false;
    if (!std::ranges::equal(found->second.bytes(), tensor.bytes())) return false;
  }
  return true;
}

TEST(DqnTest, SameBatchesGiveSameBytes) {
  const auto first = Make(SmallConfig()), second = Make(SmallConfig());
  for (std::uint64_t i = 0; i < 5; ++i) {
    UpdateOnce(first.get(), RandomBatch(6, 3, i));
    UpdateOnce(second.get(), RandomBatch(6, 3, i));
  }
  EXPECT_TRUE(SameState(first->State(), second->State()));
}

TEST(DqnTest, RestoredStateContinuesBitForBit) {
  constexpr OptimizerType kTypes[] = {OptimizerType::kAdam, OptimizerType::kRmsProp,
                                      OptimizerType::kRAdam};
  for (int variant = 0; variant < 6; ++variant) {
    TrainingConfig config = SmallConfig();
    config.optimizer.type = kTypes[variant % 3];
    if (variant >= 3) config.network.layers[0].units = 300;  // general layers, with packed weights
    const auto first = Make(config);
    for (std::uint64_t i = 0; i < 3; ++i) UpdateOnce(first.get(), RandomBatch(6, 3, i));
    // Through the bytes of a file, into an algorithm that started elsewhere.
    const auto read = DecodeSafetensors(EncodeSafetensors(first->State()));
    ASSERT_TRUE(read.ok()) << read.status().ToString();
    config.seed = 77;
    const auto second = Make(config);
    UpdateOnce(second.get(), RandomBatch(6, 3, 50));
    const Status restored = second->SetState(*read);
    ASSERT_TRUE(restored.ok()) << restored.ToString();
    EXPECT_EQ(second->updates(), 3u);
    for (std::uint64_t i = 3; i < 8; ++i) {
      UpdateOnce(first.get(), RandomBatch(6, 3, i));
      UpdateOnce(second.get(), RandomBatch(6, 3, i));
    }
    EXPECT_TRUE(SameState(first->State(), second->State())) << variant;
  }
}

// Normalization statistics are counted, not trained, and are copied to the target network with the
// weights.
TEST(DqnTest, ObservationStatisticsMatchSampledBatches) {
  for (const OptimizerType optimizer : {OptimizerType::kAdam, OptimizerType::kRmsProp}) {
    TrainingConfig config = SmallConfig();
    config.network.normalize_observations = true;
    config.optimizer.type = optimizer;
    const auto dqn = Make(config);
    std::vector<double> sum(kInputs), squares(kInputs);
    for (std::uint64_t i = 0; i < 4; ++i) {
      const SampleBatch batch = RandomBatch(6, 3, i);
      for (std::size_t at = 0; at < 6 * kInputs; ++at) {
        const double x = double(batch.observation.as<float>()[at]);
        sum[at % kInputs] += x;
        squares[at % kInputs] += x * x;
      }
      UpdateOnce(dqn.get(), batch);
    }
    const TensorFile state = dqn->State();
    for (const char* name : {"value", "target"}) {  // the last update moved the target
      const auto value = state.tensors.at(name).as<float>();
      for (std::size_t i = 0; i < kInputs; ++i) {
        EXPECT_NEAR(value[i], sum[i] / 24, 1e-6) << name;
        EXPECT_NEAR(value[16 + i], squares[i] / 24 - sum[i] * sum[i] / 576, 1e-5) << name;
      }
      EXPECT_EQ(value[32], 24) << name;
    }
  }
}

TEST(DqnTest, RejectsMismatchedStateWithoutChange) {
  const auto algorithm = Make(SmallConfig());
  UpdateOnce(algorithm.get(), RandomBatch(6, 3, 1));
  const TensorFile before = algorithm->State();
  const Tensor short_one(DType::kF32, {3});
  std::vector<TensorFile> bad(8, before);
  bad[0].tensors.erase("target");
  bad[1].tensors["value"] = short_one;
  bad[2].tensors["optimizer.v"] = Tensor(DType::kF64, before.tensors.at("value").shape());
  bad[3].metadata.erase("updates");
  bad[4].metadata["updates"] = "3x";
  bad[5].metadata["optimizer_steps"] = "-1";
  bad[6].metadata["optimizer"] = "rmsprop";
  bad[7].metadata["algorithm"] = "dpg";
  for (std::size_t i = 0; i < bad.size(); ++i) {
    EXPECT_EQ(algorithm->SetState(bad[i]).code(), Code::kInvalidArgument) << i;
    EXPECT_TRUE(SameState(algorithm->State(), before)) << i;
  }
}

// ---- What goes wrong.

TEST(DqnTest, RejectsNonFiniteBatchWithoutChange) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float infinity = std::numeric_limits<float>::infinity();
  const auto poison = std::vector<std::function<void(SampleBatch&)>>{
      [&](SampleBatch& b) { b.reward.as<float>()[0] = nan; },
      [&](SampleBatch& b) { b.reward.as<float>()[0] = infinity; },
      [&](SampleBatch& b) { b.observation.as<float>()[1] = nan; },
      [&](SampleBatch& b) { b.weight[2] = nan; },
      [&](SampleBatch& b) {  // finite, but their sum is not
        b.length[0] = 3;
        std::ranges::fill(b.reward.as<float>().first(3), 3e38f);
        std::ranges::fill(b.discount.as<float>().first(3), 1.0f);
      },
  };
  const std::string made =
      "(slot 100, generation 7 of shard 1; made with the weights of update 40)";
  const std::string origin[] = {"reward[0] of item 0 " + made + " is nan", "reward[0] of item 0 ",
                                "observation[1] of item 0 ",
                                "importance weight[0] of item 2 (slot 102,",
                                "the TD error of item 0 " + made + " is inf"};
  for (std::size_t i = 0; i < poison.size(); ++i) {
    const auto algorithm = Make(SmallConfig()), twin = Make(SmallConfig());
    UpdateOnce(algorithm.get(), RandomBatch(6, 3, 1));
    UpdateOnce(twin.get(), RandomBatch(6, 3, 1));
    SampleBatch bad = RandomBatch(6, 3, 2);
    for (std::uint32_t k = 0; k < 6; ++k) {
      bad.key[k] = {.slot = 100 + k, .generation = 7, .shard = 1};
    }
    bad.policy_version.assign(6, WeightsVersion(3, 40));
    poison[i](bad);
    std::vector<float> priority(6, -1);
    const auto report = algorithm->Update(bad, 0, priority);
    ASSERT_FALSE(report.ok()) << i;
    EXPECT_EQ(report.status().code(), Code::kDataLoss) << i;
    EXPECT_THAT(report.status().message(), testing::HasSubstr(origin[i]));
    EXPECT_EQ(priority, std::vector<float>(6, -1)) << i;
    EXPECT_TRUE(SameState(algorithm->State(), twin->State())) << i;
    UpdateOnce(algorithm.get(), RandomBatch(6, 3, 3));
    UpdateOnce(twin.get(), RandomBatch(6, 3, 3));
    EXPECT_TRUE(SameState(algorithm->State(), twin->State())) << i;
  }
}

// The loss is summed in f64, the gradient in f32: it may be the only one that overflows.
TEST(DqnTest, RejectsBatchWithNonFiniteGradientWithoutChange) {
  TrainingConfig config = SmallConfig();
  config.learner.loss = TdLoss::kMse;
  const auto algorithm = Make(config), twin = Make(config);
  SampleBatch bad = RandomBatch(6, 3, 2);
  bad.weight[2] = 3e38f;
  bad.reward.as<float>()[2 * 3] = 1000;
  std::vector<float> priority(6, -1);
  const auto report = algorithm->Update(bad, 0, priority);
  ASSERT_FALSE(report.ok());
  EXPECT_EQ(report.status().code(), Code::kDataLoss);
  EXPECT_THAT(report.status().message(), testing::HasSubstr("the gradient of layers.0.weight["));
  EXPECT_THAT(report.status().message(),
              testing::HasSubstr("largest input is 3e+38, importance weight[0] of "
                                 "item 2"));
  EXPECT_EQ(priority, std::vector<float>(6, -1));
  EXPECT_TRUE(SameState(algorithm->State(), twin->State()));
}

TEST(DqnTest, NamesNonFiniteValueInState) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const auto network = std::move(MakeNetwork(ModelSetupOf(SmallConfig()), Env())).value();
  const ParamSpec& last = network->params().back();
  const auto at = std::size_t(last.offset + last.shape.elements() - 1);
  const std::string name = fmt::format("{}[{}] is nan", last.name, last.shape.elements() - 1);
  const auto algorithm = Make(SmallConfig());
  UpdateOnce(algorithm.get(), RandomBatch(6, 3, 1));
  const TensorFile good = algorithm->State();
  EXPECT_TRUE(algorithm->CheckFinite().ok());
  const std::pair<const char*, const char*> kinds[] = {{"value", "the weight "},
                                                       {"target", "the target network's weight "},
                                                       {"optimizer.v", "the optimizer's v of "}};
  for (const auto& [tensor, words] : kinds) {
    TensorFile bad = good;
    Tensor spoilt(DType::kF32, good.tensors.at(tensor).shape());
    std::ranges::copy(good.tensors.at(tensor).bytes(), spoilt.bytes().begin());
    spoilt.as<float>()[at] = nan;
    bad.tensors[tensor] = spoilt;
    ASSERT_TRUE(algorithm->SetState(bad).ok());
    EXPECT_EQ(algorithm->CheckFinite().message(), words + name);
    std::vector<float> priority(6);
    const auto report = algorithm->Update(RandomBatch(6, 3, 2), 0, priority);
    if (report.ok()) continue;  // what the optimizer keeps shows later
    EXPECT_THAT(report.status().message(), testing::HasSubstr(words + name));
  }
}

TEST(DqnTest, RollbackRestoresAllButUpdateCount) {
  const auto algorithm = Make(SmallConfig()), twin = Make(SmallConfig());
  for (std::uint64_t i = 0; i < 3; ++i) UpdateOnce(algorithm.get(), RandomBatch(6, 3, i));
  const TensorFile good = algorithm->State();
  for (std::uint64_t i = 3; i < 8; ++i) UpdateOnce(algorithm.get(), RandomBatch(6, 3, i));
  ASSERT_TRUE(algorithm->RollBack(good).ok());
  EXPECT_EQ(algorithm->updates(), 9u);  // newer than the eight before
  TensorFile state = algorithm->State();
  EXPECT_EQ(state.metadata.at("updates"), "9");
  state.metadata["updates"] = "3";
  EXPECT_TRUE(SameState(state, good));
  TensorFile wrong = good;
  wrong.tensors.erase("target");
  EXPECT_FALSE(algorithm->RollBack(wrong).ok());
  EXPECT_EQ(algorithm->updates(), 9u);
}

TEST(DqnTest, RejectsMismatchedBatchWithoutChange) {
  const auto algorithm = Make(SmallConfig());
  const TensorFile before = algorithm->State();
  const auto breakage = std::vector<std::function<void(SampleBatch&)>>{
      [](SampleBatch& b) { b.action.as<std::int32_t>()[3] = kActions; },
      [](SampleBatch& b) { b.action.as<std::int32_t>()[3] = -1; },
      [](SampleBatch& b) { b.length[0] = 0; },
      [](SampleBatch& b) { b.length[5] = 4; },
      [](SampleBatch& b) {
        b.observation = Tensor(DType::kF32, {6, kInputs + 1});
      },
      [](SampleBatch& b) {
        b.next_observation = Tensor(DType::kU8, {6, kInputs});
      },
      [](SampleBatch& b) { b.reward = Tensor(DType::kF32, {6}); },
      [](SampleBatch& b) {
        b.discount = Tensor(DType::kF32, {6, 2});
      },
      [](SampleBatch& b) { b.weight.pop_back(); },
      [](SampleBatch& b) { b = SampleBatch{}; },
  };
  for (std::size_t i = 0; i < breakage.size(); ++i) {
    SampleBatch bad = RandomBatch(6, 3, 2);
    breakage[i](bad);
    std::vector<float> priority(std::size_t(bad.size()));
    const auto report = algorithm->Update(bad, 0, priority);
    ASSERT_FALSE(report.ok()) << i;
    EXPECT_EQ(report.status().code(), Code::kInvalidArgument) << report.status().ToString();
    EXPECT_TRUE(SameState(algorithm->State(), before)) << i;
  }
}

// A run of one update whose learning rate falls to 0 changed nothing.
TEST(DqnTest, SingleUpdateChangesWeights) {
  TrainingConfig config = SmallConfig();
  config.run.max_updates = 1;
  config.optimizer.final_lr_fraction = 0;
  const auto algorithm = Make(config), constant = Make([&] {
                                         config.optimizer.final_lr_fraction = 1;
                                         return config;
                                       }());
  UpdateOnce(algorithm.get(), RandomBatch(6, 3, 1), 1.0);
  UpdateOnce(constant.get(), RandomBatch(6, 3, 1), 0.0);
  EXPECT_TRUE(std::ranges::equal(algorithm->value(), constant->value()));
  EXPECT_FALSE(std::ranges::equal(algorithm->value(), Make(config)->value()));
}

TEST(DqnTest, RejectsUnsupportedConfigNamingKey) {
  TrainingConfig config = SmallConfig();
  config.learner.algorithm = AlgorithmKind::kDpg;
  auto made = MakeAlgorithm(config, Env());
  ASSERT_FALSE(made.ok());
  EXPECT_NE(made.status().message().find("learner.algorithm"), std::string::npos);
  config = SmallConfig();
  EnvSpec continuous = Env();
  continuous.action = {ActionSpec::Kind::kContinuous, 0, {-1}, {1}};
  EXPECT_FALSE(MakeAlgorithm(SmallConfig(), continuous).ok());
}

}  // namespace
}  // namespace troop
