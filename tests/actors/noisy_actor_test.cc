// Actors with noisy networks explore by their noise alone.
#include <gtest/gtest.h>

#include <set>

#include "tests/actors/actor_world.h"

namespace troop {
namespace {

// All parameters are equal, so both actions have the same value, and the greedy one is the first.
TEST(NoisyActorTest, NoiseChoosesActionsInPlaceOfEpsilon) {
  for (const InferencePlace place : {InferencePlace::kLocal, InferencePlace::kServer}) {
    for (const bool noisy : {true, false}) {
      ActingConfig config;
      config.env.id = "CartPole-v1";
      config.actor.envs = 3;
      config.actor.insert_batch_size = 5;
      config.replay.min_items = 50;
      config.actor.epsilon_base = noisy ? ActorConfig().epsilon_base : 0;
      config.actor.inference = place;
      config.model.network.noisy = noisy;
      ActorWorld world(config);
      world.GrantUpTo(200);
      world.PublishFilled(1, 1);
      ASSERT_TRUE(world.Rounds(3000));
      for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(world.node().epsilon(i), 0);
      ASSERT_EQ(world.coordinator().told.steps_done, 200) << EnumName(place);
      EXPECT_EQ(world.Actions(), noisy ? std::set({0, 1}) : std::set({0})) << EnumName(place);
    }
  }
}

}  // namespace
}  // namespace troop
