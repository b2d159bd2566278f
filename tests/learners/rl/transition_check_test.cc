// Batches of an environment with an action mask: an action that it forbids is refused.
#include "learners/rl/transition_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "learners/unrolls/unroll_frames.h"

namespace troop {
namespace {

using testing::HasSubstr;

// Two numbers, then the mask of three actions.
EnvSpec MaskedEnv(std::int64_t stack) {
  EnvSpec env{.id = "Game", .observation = {DType::kF32, {5}}, .action = {.count = 3}};
  env.parts = {{.name = "numbers", .shape = {2}},
               {.name = "mask", .shape = {3}, .action_mask = true}};
  if (stack > 1) env.observation.shape = env.observation.shape.Prepend(stack);
  return env;
}

// Sets the mask of frame `at` of all frames in a tensor.
void SetMask(const Tensor& frames, std::int64_t at, std::initializer_list<float> mask) {
  std::ranges::copy(mask, frames.as<float>().subspan(std::size_t(at) * 5 + 2).begin());
}

class TransitionCheckTest : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Stack, TransitionCheckTest, testing::Values(1, 3));

// The mask is that of the newest frame; an empty one allows everything.
TEST_P(TransitionCheckTest, RefusesForbiddenActionOfTransition) {
  const std::int64_t stack = GetParam(), size = 4;
  const EnvSpec env = MaskedEnv(stack);
  const Tensor seen(DType::kF32, env.observation.shape.Prepend(size));
  SampleBatch batch{.key = std::vector<ItemKey>(std::size_t(size)),
                    .weight = std::vector<float>(std::size_t(size), 1.0F),
                    .observation = seen,
                    .next_observation = Tensor(DType::kF32, seen.shape()),
                    .action = Tensor(DType::kI32, {size}),
                    .reward = Tensor(DType::kF32, {size, 1}),
                    .discount = Tensor(DType::kF32, {size, 1}),
                    .length = std::vector<std::int32_t>(std::size_t(size), 1)};
  for (std::int64_t i = 0; i + 1 < size; ++i) {
    for (std::int64_t s = 0; s < stack; ++s) SetMask(seen, i * stack + s, {0, 1, 0});
    SetMask(seen, (i + 1) * stack - 1, {1, 0, 1});
    batch.action.as<std::int32_t>()[std::size_t(i)] = i == 1 ? 2 : 0;
  }
  const auto check = [&] { return CheckTransitions(batch, env, std::size_t(size)); };
  EXPECT_TRUE(check().ok()) << check().message();
  batch.action.as<std::int32_t>()[2] = 1;
  EXPECT_THAT(check().message(), HasSubstr("item 2: action 1 is not one that the action mask"));
}

// The actions of two unrolls with a burn-in, whose actions do not count.
TEST_P(TransitionCheckTest, RefusesForbiddenActionOfUnroll) {
  const std::int64_t stack = GetParam(), size = 2, burn_in = 2, steps = burn_in + 4;
  const EnvSpec env = MaskedEnv(stack);
  const std::int64_t window = steps + stack;
  const Tensor seen(DType::kF32, {size, window, 5});
  SampleBatch batch{.key = std::vector<ItemKey>(std::size_t(size)),
                    .weight = std::vector<float>(std::size_t(size), 1.0F),
                    .observation = seen,
                    .action = Tensor(DType::kI32, {size, steps}),
                    .reward = Tensor(DType::kF32, {size, steps}),
                    .discount = Tensor(DType::kF32, {size, steps}),
                    .length = {4, 3},
                    .burn_in = {2, 0}};
  // Step t allows action t % 3 alone; the frames of older steps are those of a stack.
  for (std::int64_t i = 0; i < size; ++i) {
    for (std::int64_t t = 0; t < 4; ++t) {
      const std::int64_t newest = i * window + burn_in + t + stack - 1;
      SetMask(seen, newest, {float(t % 3 == 0), float(t % 3 == 1), float(t % 3 == 2)});
      batch.action.as<std::int32_t>()[std::size_t(i * steps + burn_in + t)] = std::int32_t(t % 3);
    }
  }
  const auto check = [&] {
    return CheckUnrolls(batch, env, {.stack = stack, .burn_in = burn_in}, std::size_t(size));
  };
  EXPECT_TRUE(check().ok()) << check().message();
  // A step after the unroll's end.
  batch.action.as<std::int32_t>()[std::size_t(2 * steps - 1)] = 2;
  EXPECT_TRUE(check().ok()) << check().message();
  batch.action.as<std::int32_t>()[std::size_t(2 * steps - 2)] = 1;
  EXPECT_THAT(check().message(), HasSubstr("unroll 1, step 2: action 1 is not one"));
}

}  // namespace
}  // namespace troop
