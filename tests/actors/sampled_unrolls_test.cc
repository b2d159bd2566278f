#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "tests/actors/actor_world.h"

namespace troop {
namespace {

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
          double sum = 0;
          for (const float x : logits) sum += std::exp(double(x));
          const auto action = batch.action.as<std::int32_t>()[at];
          const double log_pi = double(logits[std::size_t(action)]) - std::log(sum);
          EXPECT_NEAR(batch.state.as<float>()[at], log_pi, 1e-5);
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

}  // namespace
}  // namespace troop
