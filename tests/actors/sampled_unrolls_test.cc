#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <span>
#include <vector>

#include "tests/actors/actor_world.h"

namespace troop {
namespace {

double LogSoftmax(std::span<const float> logits, std::int32_t action) {
  double sum = 0;
  for (const float x : logits) sum += std::exp(double(x));
  return double(logits[std::size_t(action)]) - std::log(sum);
}

// Actors of vtrace and ppo sample their policy, and insert the log-probabilities of their actions.
// The test recomputes them from the observations that the replay returns.
TEST(SampledUnrollsTest, HaveLogProbabilitiesOfThePolicyThatActed) {
  for (const InferencePlace place : {InferencePlace::kLocal, InferencePlace::kServer}) {
    ActingConfig config = Catch();
    config.model.algorithm = AlgorithmKind::kVtrace;
    config.actor.unroll_length = 4;
    config.actor.inference = place;
    config.replay.min_items = 20;
    config.replay.sampler = SelectorKind::kUniform;
    ActorWorld world(config);
    world.PublishWeights(1);
    world.GrantUpTo(400);
    ASSERT_TRUE(world.Rounds(3000));
    ASSERT_EQ(world.coordinator().told.steps_done, 400);
    std::map<std::int32_t, int> actions;
    int greedy = 0, steps = 0;
    for (const SampleBatch& batch : world.Draw()) {
      const auto width = std::size_t(world.spec().action.count);
      for (std::int64_t i = 0; i < batch.size(); ++i) {
        // Five frames of each unroll; those past its end are not used.
        const Tensor row = batch.observation.Rows(i, 1);
        const Tensor out = world.Forward(row.Reshape(Shape(row.shape().dims().subspan(1))));
        for (std::size_t t = 0; t < 4; ++t) {
          const std::size_t at = std::size_t(i) * 4 + t;
          if (t >= std::size_t(batch.length[std::size_t(i)])) {
            EXPECT_EQ(batch.state.as<float>()[at], 0);
            continue;
          }
          const auto logits = out.as<float>().subspan(t * (width + 1), width);
          const auto action = batch.action.as<std::int32_t>()[at];
          EXPECT_NEAR(batch.state.as<float>()[at], LogSoftmax(logits, action), 1e-5);
          ++actions[action];
          ++steps;
          greedy += logits[std::size_t(action)] == *std::ranges::max_element(logits);
        }
      }
    }
    EXPECT_EQ(actions.size(), 3u);
    EXPECT_LT(greedy, steps * 9 / 10);  // sampled
  }
}

// A rollout ends all unrolls, with the observation that the next one begins with. The actor waits
// for newer weights, or makes a refill with the old ones.
TEST(SampledUnrollsTest, SynchronousActorWaitsAfterEachRollout) {
  constexpr std::int64_t kUnroll = 8, kEnvs = 4, kRollout = kUnroll * kEnvs;
  ActingConfig config = Catch();
  config.model.algorithm = AlgorithmKind::kPpo;
  config.synchronous = true;
  config.actor.envs = kEnvs;
  config.actor.unroll_length = kUnroll;
  config.actor.refill_after_s = 4;
  config.actor.insert_batch_size = 3;
  config.actor.weight_sync_steps = 1;  // not used
  config.replay.sampler = SelectorKind::kFifo;
  config.replay.max_times_sampled = 1;
  config.replay.min_items = 1;
  ActorWorld world(config);
  const auto& done = world.coordinator().told.steps_done;
  world.PublishWeights(1);
  world.GrantUpTo(1 << 20);
  ASSERT_TRUE(world.Rounds(1500));
  EXPECT_EQ(done, kRollout) << "it waits with all its steps inserted";
  world.PublishWeights(2);
  ASSERT_TRUE(world.Rounds(1500));
  EXPECT_EQ(done, 2 * kRollout);
  EXPECT_EQ(world.Told("actor/rollout_refills"), 0);
  ASSERT_TRUE(world.Rounds(4000));
  EXPECT_EQ(done, 3 * kRollout) << "another actor is missing";
  EXPECT_EQ(world.Told("actor/rollout_refills"), 1);
  world.PublishWeights(3);
  ASSERT_TRUE(world.Rounds(1500));
  EXPECT_EQ(done, 4 * kRollout);
  // Steps per version, the refill included; the last frame of an unroll is the first of the next.
  std::map<std::uint64_t, std::int64_t> steps;
  std::map<std::uint64_t, std::set<std::vector<float>>> first, last;
  for (const SampleBatch& batch : world.Draw(1)) {
    for (std::size_t i = 0; i < batch.key.size(); ++i) {
      const auto length = std::size_t(batch.length[i]);
      steps[batch.policy_version[i]] += std::int64_t(length);
      const std::size_t frame =
          batch.observation.spec().shape.elements() / (batch.key.size() * std::size_t(kUnroll + 1));
      const auto row = batch.observation.as<float>().subspan(i * frame * std::size_t(kUnroll + 1),
                                                             frame * std::size_t(kUnroll + 1));
      const auto begin = row.first(frame), end = row.subspan(length * frame, frame);
      first[batch.policy_version[i]].insert({begin.begin(), begin.end()});
      if (batch.discount.as<float>()[i * std::size_t(kUnroll) + length - 1] == 1)
        last[batch.policy_version[i]].insert({end.begin(), end.end()});
    }
  }
  EXPECT_EQ(steps, (std::map<std::uint64_t, std::int64_t>{
                       {1, kRollout}, {2, 2 * kRollout}, {3, kRollout}}));
  ASSERT_FALSE(last[1].empty());
  for (const std::vector<float>& frame : last[1]) EXPECT_TRUE(first[2].contains(frame));
}

// log N of an action inside the bounds, log Φ of a tail at a bound, in units of half the range.
double LogClippedGaussian(float action, const ActionSpec& spec, std::span<const float> row) {
  const double half = (double(spec.high[0]) - double(spec.low[0])) / 2;
  const double mean = double(row[0]), std = std::exp(double(row[1]));
  const auto log_tail = [](double z) { return std::log(0.5 * std::erfc(-z / std::sqrt(2.0))); };
  if (action == spec.low[0]) return log_tail((-1 - mean) / std);
  if (action == spec.high[0]) return log_tail((mean - 1) / std);
  const double e = ((double(action) - double(spec.low[0])) / half - 1 - mean) / std;
  return -0.5 * e * e - std::log(std * std::sqrt(2 * M_PI));
}

TEST(SampledUnrollsTest, HaveLogProbabilitiesOfContinuousActions) {
  for (const InferencePlace place : {InferencePlace::kLocal, InferencePlace::kServer}) {
    ActingConfig config = Catch();
    config.env.id = "Pendulum-v1";
    config.model.algorithm = AlgorithmKind::kPpo;
    config.model.network.critic_layers = {{.type = LayerType::kLinear, .units = 8}};
    config.actor.unroll_length = 4;
    config.actor.inference = place;
    config.replay.min_items = 20;
    config.replay.sampler = SelectorKind::kUniform;
    ActorWorld world(config);
    world.PublishWeights(1);
    world.GrantUpTo(400);
    ASSERT_TRUE(world.Rounds(3000));
    int inside = 0, bounds = 0;
    for (const SampleBatch& batch : world.Draw()) {
      for (std::int64_t i = 0; i < batch.size(); ++i) {
        const Tensor row = batch.observation.Rows(i, 1);
        const Tensor out = world.Forward(row.Reshape(Shape(row.shape().dims().subspan(1))));
        for (std::size_t t = 0; t < std::size_t(batch.length[std::size_t(i)]); ++t) {
          const std::size_t at = std::size_t(i) * 4 + t;
          const float action = batch.action.as<float>()[at];
          EXPECT_NEAR(
              batch.state.as<float>()[at],
              LogClippedGaussian(action, world.spec().action, out.as<float>().subspan(t * 3, 3)),
              1e-4);
          ++(std::abs(action) < 2 ? inside : bounds);
        }
      }
    }
    // An initial deviation of half the range reaches both bounds with probability 0.32.
    EXPECT_GT(inside, 0);
    EXPECT_GT(bounds, 0);
  }
}

// A recurrent actor inserts the state before the first step of each unroll: from there on, its
// policy can be computed without the steps before. Two layers have their own columns.
TEST(SampledUnrollsTest, HaveRecurrentStateFromWhichThePolicyFollows) {
  constexpr std::size_t kSteps = 4, kColumns = 2 * 5 + 3;
  ActingConfig config = Catch();
  config.model.algorithm = AlgorithmKind::kPpo;
  config.model.network.layers = {{.type = LayerType::kLstm, .units = 5},
                                 {.type = LayerType::kLinear, .units = 6},
                                 {.type = LayerType::kGru, .units = 3}};
  config.actor.unroll_length = std::int64_t(kSteps);
  config.replay.min_items = 20;
  config.replay.sampler = SelectorKind::kUniform;
  ActorWorld world(config);
  world.PublishWeights(1);
  world.GrantUpTo(400);
  ASSERT_TRUE(world.Rounds(3000));
  const auto width = std::size_t(world.spec().action.count);
  int begins = 0, continues = 0;
  for (const SampleBatch& batch : world.Draw()) {
    ASSERT_EQ(batch.state.shape(), (Shape{batch.size(), kColumns + kSteps}));
    for (std::int64_t i = 0; i < batch.size(); ++i) {
      const auto state =
          batch.state.as<float>().subspan(std::size_t(i) * (kColumns + kSteps), kColumns + kSteps);
      const std::vector<std::int32_t> length{std::int32_t(kSteps + 1)};
      const Sequences sequences{length, state.first(kColumns), {}, kColumns};
      const Tensor row = batch.observation.Rows(i, 1);
      const Tensor out =
          world.Forward(row.Reshape(Shape(row.shape().dims().subspan(1))), &sequences);
      for (std::size_t t = 0; t < std::size_t(batch.length[std::size_t(i)]); ++t) {
        const auto action = batch.action.as<std::int32_t>()[std::size_t(i) * kSteps + t];
        const auto logits = out.as<float>().subspan(t * (width + 1), width);
        EXPECT_NEAR(state[kColumns + t], LogSoftmax(logits, action), 1e-5);
      }
      // An episode begins with zeros; Catch shows the ball in the first row there.
      const bool zero = std::ranges::all_of(state.first(kColumns), [](float x) { return x == 0; });
      const auto first_row = row.as<float>().first(5);
      EXPECT_EQ(zero, std::ranges::any_of(first_row, [](float x) { return x != 0; }));
      ++(zero ? begins : continues);
    }
  }
  EXPECT_GT(begins, 0);
  EXPECT_GT(continues, 0);
}

// The sequences of R2D2 overlap. Each comes with its burn-in and the state before that, from which
// the policy's state at its first step follows, and with the priority of its TD errors.
TEST(SampledUnrollsTest, SequencesOfR2d2HaveBurnInAndStateBeforeIt) {
  constexpr std::size_t kSteps = 4, kBurnIn = 2, kColumns = 5;
  for (const std::int64_t stack : {1, 2}) {
    ActingConfig config = Catch();
    config.model.algorithm = AlgorithmKind::kR2d2;
    config.model.network.layers = {{.type = LayerType::kGru, .units = std::int64_t(kColumns)}};
    config.model.frame_stack = config.env.frame_stack = stack;
    config.actor.unroll_length = std::int64_t(kSteps);
    config.actor.unroll_overlap = 2;
    config.actor.burn_in = std::int64_t(kBurnIn);
    config.actor.n_step = 2;
    config.actor.epsilon_base = 0;
    config.replay.min_items = 20;
    config.replay.sampler = SelectorKind::kUniform;
    ActorWorld world(config);
    world.PublishWeights(1);
    world.GrantUpTo(400);
    ASSERT_TRUE(world.Rounds(3000));
    const auto actions = std::size_t(world.spec().action.count);
    const std::size_t frame = world.spec().observation.shape.elements();
    std::map<std::int32_t, int> burn_ins;
    for (const SampleBatch& batch : world.Draw()) {
      ASSERT_EQ(batch.state.shape(), (Shape{batch.size(), std::int64_t(kColumns)}));
      ASSERT_EQ(batch.observation.dim(1), std::int64_t(kSteps + kBurnIn) + stack);
      for (std::size_t i = 0; i < std::size_t(batch.size()); ++i) {
        const auto before = std::size_t(batch.burn_in[i]), length = std::size_t(batch.length[i]);
        ++burn_ins[batch.burn_in[i]];
        // Rows of the burn-in and of the steps, each with its stack.
        std::vector<float> rows;
        const auto window = batch.observation.Rows(std::int64_t(i), 1).as<float>();
        for (std::size_t t = kBurnIn - before; t < kBurnIn + length; ++t) {
          const auto row = window.subspan(t * frame, std::size_t(stack) * frame);
          rows.insert(rows.end(), row.begin(), row.end());
        }
        const Shape one = NetworkInput(config.model, world.spec()).shape;
        const ConstTensor in =
            ConstTensor::Borrow(std::as_bytes(std::span<const float>(rows)),
                                {DType::kF32, one.Prepend(std::int64_t(before + length))});
        const std::vector<std::int32_t> steps{std::int32_t(before + length)};
        const Sequences sequences{
            steps, batch.state.Rows(std::int64_t(i), 1).as<float>(), {}, std::int64_t(kColumns)};
        const Tensor out = world.Forward(in, &sequences);
        // Without exploration, each action is the greedy one of the recomputed values.
        for (std::size_t t = 0; t < length; ++t) {
          const auto q = out.as<float>().subspan((before + t) * actions, actions);
          const auto action = batch.action.as<std::int32_t>()[i * (kSteps + kBurnIn) + kBurnIn + t];
          EXPECT_NEAR(q[std::size_t(action)], *std::ranges::max_element(q), 1e-6);
        }
      }
    }
    EXPECT_GT(burn_ins[0], 0);                      // starts of episodes
    EXPECT_GT(burn_ins[std::int32_t(kBurnIn)], 0);  // later ones
  }
}

}  // namespace
}  // namespace troop
