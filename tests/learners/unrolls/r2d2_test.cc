#include "learners/unrolls/r2d2.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "kernels/loss/sequence_q_loss.h"
#include "nn/models/model.h"
#include "tests/learners/dqn_testing.h"
#include "tests/learners/unroll_batch.h"

namespace troop {
namespace {

using testing::HasSubstr;

constexpr std::int64_t kBurnIn = 3, kColumns = 2 * 5 + 4;

TrainingConfig R2d2Config() {
  TrainingConfig config = SmallConfig();
  config.learner.algorithm = AlgorithmKind::kR2d2;
  config.learner.loss = TdLoss::kMse;
  config.network.layers = {{.type = LayerType::kLinear, .units = 6},
                           {.type = LayerType::kLstm, .units = 5},
                           {.type = LayerType::kGru, .units = 4}};
  config.unroll_length = kUnrollSteps;
  config.burn_in = kBurnIn;
  config.n_step = 2;
  return config;
}

// Sequences with 0 to kBurnIn steps before them, as the replay decodes them.
SampleBatch BurnInBatch(std::int64_t unrolls, std::uint64_t seed) {
  const SampleBatch plain = UnrollBatch(unrolls, seed);
  Rng rng({seed + 2000, Purpose::kTest});
  SampleBatch b = plain;
  const std::int64_t steps = kBurnIn + kUnrollSteps;
  b.observation = Tensor(DType::kF32, {unrolls, steps + 1, kInputs});
  b.action = Tensor(DType::kI32, {unrolls, steps});
  b.reward = Tensor(DType::kF32, {unrolls, steps});
  b.discount = Tensor(DType::kF32, {unrolls, steps});
  b.state = Tensor(DType::kF32, {unrolls, kColumns});
  for (float& x : b.state.as<float>()) x = float(rng.Normal());
  for (std::int64_t i = 0; i < unrolls; ++i) {
    b.burn_in[std::size_t(i)] = std::int32_t(i % (kBurnIn + 1));
    const auto shift = [&](const Tensor& from, const Tensor& to) {
      const auto source = from.Rows(i, 1).bytes();
      const auto target = to.Rows(i, 1).bytes();
      std::ranges::copy(source, target.begin() + std::ptrdiff_t(target.size() - source.size()));
    };
    shift(plain.observation, b.observation);
    shift(plain.action, b.action);
    shift(plain.reward, b.reward);
    shift(plain.discount, b.discount);
    const auto before = b.observation.Rows(i, 1).as<float>().subspan(
        std::size_t((kBurnIn - b.burn_in[std::size_t(i)]) * kInputs),
        std::size_t(b.burn_in[std::size_t(i)] * kInputs));
    for (float& x : before) x = float(rng.Normal());
    // Not used, whatever they are.
    for (std::int64_t t = 0; t < kBurnIn; ++t) {
      b.action.as<std::int32_t>()[std::size_t(i * steps + t)] = 77;
      b.reward.as<float>()[std::size_t(i * steps + t)] = 1e6F;
    }
  }
  return b;
}

// Outputs of the frames of the steps, [F, kActions]: frame by frame, with the states carried by the
// test, from the beginning of each burn-in on. `frozen`: the weights of the burn-in.
std::vector<float> Outputs(const TrainingConfig& config, const SampleBatch& b,
                           std::span<const float> value, std::span<const float> frozen) {
  const auto network = std::move(MakeNetwork(ModelSetupOf(config), Env())).value();
  const TensorSpec spec{DType::kF32, {1, kInputs}};
  const Plan plan = *network->MakePlan({&spec, 1});
  MutableBuffer workspace = MutableBuffer::Zeros(plan.workspace_bytes);
  const std::vector<std::int32_t> one{1};
  std::vector<float> outputs;
  for (std::int64_t i = 0; i < b.size(); ++i) {
    const auto given = b.state.Rows(i, 1).as<float>();
    std::vector<float> state(given.begin(), given.end()), next(state.size());
    const std::int32_t burn_in = b.burn_in[std::size_t(i)];
    for (std::int32_t t = -burn_in; t <= b.length[std::size_t(i)]; ++t) {
      const auto frame = b.observation.Rows(i, 1).as<float>().subspan(
          std::size_t((kBurnIn + t) * kInputs), std::size_t(kInputs));
      const ConstTensor in = ConstTensor::Borrow(std::as_bytes(frame), spec);
      const Tensor out(DType::kF32, {1, kActions});
      const Sequences sequences{one, state, next, kColumns};
      network->Forward({.value = t < 0 ? frozen : value,
                        .workspace = workspace.bytes(),
                        .sequences = &sequences},
                       {&in, 1}, {&out, 1}, {});
      state = next;
      if (t >= 0) outputs.insert(outputs.end(), out.as<float>().begin(), out.as<float>().end());
    }
  }
  return outputs;
}

// Loss, priorities and dq of outputs, by the loss that has its own test.
DqnLossSummary LossOf(const TrainingConfig& config, const SampleBatch& b,
                      const std::vector<float>& q, const std::vector<float>& target,
                      const DqnLossOutput& out) {
  return SequenceQLoss({.batch = b.size(),
                        .actions = kActions,
                        .q = q.data(),
                        .q_target = target.data(),
                        .stride = kBurnIn + kUnrollSteps,
                        .action = b.action.data<std::int32_t>() + kBurnIn,
                        .reward = b.reward.data<float>() + kBurnIn,
                        .discount = b.discount.data<float>() + kBurnIn,
                        .length = b.length.data(),
                        .weight = b.weight.data(),
                        .gamma = config.learner.gamma,
                        .n_step = config.n_step,
                        .double_q = config.learner.double_q,
                        .rescale = config.learner.value_rescaling,
                        .huber = config.learner.loss == TdLoss::kHuber,
                        .largest_share = config.learner.priority_max_share},
                       out);
}

// The whole update: burn-in of both networks without a gradient, target network, priorities. The
// target differs from the weights after an update.
TEST(R2d2Test, LossPrioritiesAndGradientMatchFramesOneByOne) {
  TrainingConfig config = R2d2Config();
  config.learner.target_update_every_updates = 1000;
  config.optimizer.learning_rate = 0.05;
  const auto made = Make(config);
  const std::vector<float> target(made->value().begin(), made->value().end());
  std::vector<float> priority(9);
  ASSERT_TRUE(made->Update(BurnInBatch(9, 1), 0, priority).ok());
  const SampleBatch b = BurnInBatch(9, 2);
  const auto report = made->ComputeGradient(b, priority);
  ASSERT_TRUE(report.ok()) << report.status().ToString();
  std::vector<float> value(made->value().begin(), made->value().end());
  const std::vector<float> frozen = value;
  ASSERT_NE(value, target);
  const std::vector<float> q = Outputs(config, b, value, value);
  const std::vector<float> q_target = Outputs(config, b, target, target);
  std::vector<float> dq(q.size()), errors(9);
  const DqnLossSummary want = LossOf(config, b, q, q_target, {dq.data(), errors.data()});
  EXPECT_NEAR(report->loss, want.loss, 1e-5 * (1 + want.loss));
  for (std::size_t i = 0; i < 9; ++i)
    EXPECT_NEAR(priority[i], errors[i], 1e-4 * (1 + errors[i])) << i;
  // The slope of Σ dq · q with the states after the burn-in held constant.
  const auto network = std::move(MakeNetwork(ModelSetupOf(config), Env())).value();
  for (const ParamSpec& spec : network->params()) {
    for (std::int64_t k = 0; k < spec.shape.elements(); k += 5) {
      const auto at = std::size_t(spec.offset + k);
      const float kept = value[at];
      value[at] = kept + 1e-2F;
      const std::vector<float> above = Outputs(config, b, value, frozen);
      value[at] = kept - 1e-2F;
      const std::vector<float> below = Outputs(config, b, value, frozen);
      value[at] = kept;
      double slope = 0;
      for (std::size_t i = 0; i < dq.size(); ++i)
        slope += double(dq[i]) * (double(above[i]) - double(below[i])) / 2e-2;
      EXPECT_NEAR(made->gradient()[at], slope, 5e-3) << spec.name << "[" << k << "]";
    }
  }
}

// The loss without stored states is that of items whose states are zero.
TEST(R2d2Test, ZeroStateIgnoresStoredStates) {
  TrainingConfig config = R2d2Config();
  const auto stored = Make(config);
  config.learner.stored_state = false;
  const auto zero = Make(config);
  SampleBatch b = BurnInBatch(4, 1);
  std::vector<float> priority(4);
  const double with_states = stored->ComputeGradient(b, priority)->loss;
  const double without = zero->ComputeGradient(b, priority)->loss;
  std::ranges::fill(b.state.as<float>(), 0.0F);
  EXPECT_EQ(without, stored->ComputeGradient(b, priority)->loss);
  EXPECT_NE(without, with_states);
}

// A task that needs memory: the first observation names the action that the last step rewards.
TEST(R2d2Test, LearnsActionThatOnlyTheFirstObservationShows) {
  TrainingConfig config = R2d2Config();
  config.burn_in = 0;
  config.n_step = 1;
  config.network.layers = {{.type = LayerType::kGru, .units = 16}};
  config.optimizer.epsilon = 1e-8;
  config.learner.gamma = 0.9;
  config.learner.target_update_every_updates = 20;
  const auto made = Make(config);
  // All pairs of a cue and a last action.
  SampleBatch b = UnrollBatch(kInputs * kActions, 1);
  b.state = Tensor(DType::kF32, {b.size(), 16});
  std::ranges::fill(b.observation.as<float>(), 0.0F);
  std::ranges::fill(b.weight, 1.0F);
  std::ranges::fill(b.action.as<std::int32_t>(), 0);
  std::ranges::fill(b.reward.as<float>(), 0.0F);
  std::ranges::fill(b.discount.as<float>(), 1.0F);
  for (std::size_t i = 0; i < std::size_t(b.size()); ++i) {
    const std::size_t cue = i / std::size_t(kActions), action = i % std::size_t(kActions);
    b.length[i] = 3;
    b.observation.as<float>()[i * (kUnrollSteps + 1) * kInputs + cue] = 1;
    b.action.as<std::int32_t>()[i * kUnrollSteps + 2] = std::int32_t(action);
    b.reward.as<float>()[i * kUnrollSteps + 2] = action == cue ? 10 : -10;
    b.discount.as<float>()[i * kUnrollSteps + 2] = 0;
  }
  std::vector<float> priority(std::size_t(b.size()));
  Result<LossReport> report = LossReport{};
  for (int i = 0; i < 1500; ++i) report = made->Update(b, 0, priority);
  ASSERT_TRUE(report.ok()) << report.status().ToString();
  EXPECT_LT(report->td_error_mean, 0.1);
}

TEST(R2d2Test, RestoredStateContinuesBitForBit) {
  TrainingConfig config = R2d2Config();
  config.learner.target_update_every_updates = 3;
  std::vector<float> priority(6);
  const auto update = [&](Algorithm* of, std::uint64_t seed) {
    EXPECT_TRUE(of->Update(BurnInBatch(6, seed), 0, priority).ok());
  };
  const auto first = Make(config);
  for (std::uint64_t i = 0; i < 4; ++i) update(first.get(), i);
  const auto read = DecodeSafetensors(EncodeSafetensors(first->State()));
  ASSERT_TRUE(read.ok()) << read.status().ToString();
  config.seed = 77;
  const auto second = Make(config);
  ASSERT_TRUE(second->SetState(*read).ok());
  for (std::uint64_t i = 4; i < 9; ++i) {
    update(first.get(), i);
    update(second.get(), i);
  }
  for (std::size_t k = 0; k < first->value().size(); ++k)
    ASSERT_EQ(first->value()[k], second->value()[k]);
}

TEST(R2d2Test, RejectsBatchesOfOtherConfigsAndNonFiniteStates) {
  const auto made = Make(R2d2Config());
  const std::vector<float> before(made->value().begin(), made->value().end());
  std::vector<float> priority(4);
  const auto error = [&](const SampleBatch& batch) {
    const auto report = made->Update(batch, 0, priority);
    EXPECT_FALSE(report.ok());
    return std::string(report.status().message());
  };
  SampleBatch b = BurnInBatch(4, 1);
  b.burn_in[2] = kBurnIn + 1;
  EXPECT_THAT(error(b), HasSubstr("unroll 2: burn-in 4 is not in [0, 3]"));
  b = BurnInBatch(4, 1);
  b.length[1] = kUnrollSteps + 1;
  EXPECT_THAT(error(b), HasSubstr("unroll 1: length 6 is not in [1, 5]"));
  b = BurnInBatch(4, 1);
  b.burn_in.clear();
  EXPECT_THAT(error(b), HasSubstr("0 burn-ins"));
  b = BurnInBatch(4, 1);
  b.state = Tensor(DType::kF32, {4, kColumns + 1});
  EXPECT_THAT(error(b), HasSubstr("the state of the unrolls is f32[4, 15], not f32[4, 14]"));
  b = BurnInBatch(4, 1);
  b.state.as<float>()[kColumns + 2] = std::numeric_limits<float>::infinity();
  EXPECT_THAT(error(b), HasSubstr("state[2] of item 1"));
  EXPECT_EQ(before, std::vector<float>(made->value().begin(), made->value().end()));
}

}  // namespace
}  // namespace troop
