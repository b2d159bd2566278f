#include "actors/experience/trajectory_builder.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <tuple>

#include "core/base/philox.h"

namespace troop {
namespace {

TrajectorySpec Spec() { return {.observation = {DType::kF32, {1}}, .action = {DType::kI32, {}}}; }

// One environment's row of steps, and what the paper's formula says of them.
struct TestStep {
  float observation = 0, q_taken = 0, q_max = 0, reward = 0;
  bool terminated = false, truncated = false;
  float final_observation = 0;
  std::int32_t action = 0;
  std::uint64_t version = 0;
};

void AppendStep(TrajectoryBuilder* builder, const TestStep& s) {
  builder->Append({.observation = std::as_bytes(std::span(&s.observation, 1)),
                   .action = std::as_bytes(std::span(&s.action, 1)),
                   .q_taken = s.q_taken,
                   .q_max = s.q_max,
                   .reward = s.reward,
                   .terminated = s.terminated,
                   .truncated = s.truncated,
                   .final_observation = std::as_bytes(std::span(&s.final_observation, 1)),
                   .policy_version = s.version});
}

// Item of step t: Σ γ^k r + γ^n max q at the step n later, in the same episode; nullopt: not yet
// complete. Straight from the formula, one item at a time.
std::optional<Item> ItemAt(const std::vector<TestStep>& steps, std::size_t t, int n, double gamma,
                           double clip, std::uint64_t first_frame, StreamId stream) {
  double value = 0, scale = 1;
  std::uint32_t length = 0;
  for (std::size_t i = t;; ++i) {
    if (i == steps.size()) return std::nullopt;
    if (int(length) == n) {
      value += scale * steps[i].q_max;
      break;
    }
    const double r = steps[i].reward;
    value += scale * (clip > 0 ? std::min(std::max(r, -clip), clip) : r);
    scale *= gamma;
    ++length;
    if (steps[i].terminated) break;
    if (steps[i].truncated) {
      value += scale * steps[i].q_max;
      break;
    }
  }
  return Item{.stream = stream,
              .first_frame = first_frame,
              .length = length,
              .priority = float(std::abs(value - steps[t].q_taken)),
              .policy_version = steps[t].version};
}

std::vector<TestStep> RandomSteps(std::size_t count, std::uint64_t seed) {
  Rng rng({.run_seed = seed, .purpose = Purpose::kTest});
  std::vector<TestStep> steps(count);
  for (std::size_t i = 0; i < count; ++i) {
    TestStep& s = steps[i];
    s.observation = float(i);
    s.final_observation = float(1000 + i);
    s.q_taken = float(rng.Normal());
    s.q_max = s.q_taken + float(rng.Uniform());
    s.reward = float(3 * rng.Normal());
    s.action = std::int32_t(rng.Below(4));
    s.version = i / 7;
    const double ends = rng.Uniform();
    s.terminated = ends < 0.12;
    s.truncated = !s.terminated && ends < 0.2;
  }
  return steps;
}

TEST(TrajectoryBuilderTest, ItemsAndPrioritiesMatchFormulaOverManyEpisodes) {
  for (const int n : {1, 2, 3, 5}) {
    for (const double clip : {0.0, 1.0}) {
      const StreamId stream = 7;
      const std::vector<TestStep> steps = RandomSteps(400, std::uint64_t(n));
      TrajectoryBuilder builder({.spec = Spec(), .n_step = n, .gamma = 0.9, .reward_clip = clip},
                                stream);
      for (const TestStep& s : steps) AppendStep(&builder, s);
      std::vector<Item> items;
      const Chunk chunk = builder.Take(&items);
      std::vector<Item> expected;
      std::uint64_t frame = 0;
      for (std::size_t t = 0; t < steps.size(); ++t) {
        if (const auto item = ItemAt(steps, t, n, 0.9, clip, frame, stream)) {
          expected.push_back(*item);
        }
        frame += steps[t].terminated || steps[t].truncated ? 2 : 1;
      }
      ASSERT_EQ(items.size(), expected.size());
      for (std::size_t i = 0; i < items.size(); ++i) {
        EXPECT_EQ(items[i].first_frame, expected[i].first_frame);
        EXPECT_EQ(items[i].length, expected[i].length);
        EXPECT_EQ(items[i].stream, stream);
        EXPECT_EQ(items[i].policy_version, expected[i].policy_version);
        EXPECT_NEAR(items[i].priority, expected[i].priority, 1e-5);
      }
      EXPECT_EQ(chunk.frames, frame);
    }
  }
}

// The formula with rewards that are multiplied before they are clipped; the factor changes once.
TEST(TrajectoryBuilderTest, PrioritiesUseScaledRewardsAndFramesRawOnes) {
  std::vector<TestStep> scaled = RandomSteps(200, 5);
  const std::vector<TestStep> steps = scaled;
  TrajectoryBuilder builder({.spec = Spec(), .n_step = 3, .gamma = 0.9, .reward_clip = 1}, 7);
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const double scale = i < 90 ? 0.25 : 2.0;
    builder.SetRewardScale(scale);
    AppendStep(&builder, steps[i]);
    scaled[i].reward = float(steps[i].reward * scale);
  }
  std::vector<Item> items;
  const Chunk chunk = builder.Take(&items);
  std::size_t at = 0, frame = 0;
  for (std::size_t t = 0; t < steps.size(); ++t) {
    EXPECT_EQ(chunk.reward.as<float>()[frame], steps[t].reward);
    if (const auto item = ItemAt(scaled, t, 3, 0.9, 1, frame, 7)) {
      ASSERT_LT(at, items.size());
      EXPECT_NEAR(items[at++].priority, item->priority, 1e-5);
    }
    frame += steps[t].terminated || steps[t].truncated ? 2 : 1;
  }
  EXPECT_EQ(at, items.size());
  EXPECT_GT(at, 150u);
}

TEST(TrajectoryBuilderTest, FramesHoldObservationsAndActions) {
  const std::vector<TestStep> steps = RandomSteps(100, 3);
  TrajectoryBuilder builder({.spec = Spec()}, 1);
  for (const TestStep& s : steps) AppendStep(&builder, s);
  std::vector<Item> items;
  const Chunk chunk = builder.Take(&items);
  std::size_t frame = 0;
  for (const TestStep& s : steps) {
    EXPECT_EQ(chunk.observation.as<float>()[frame], s.observation);
    EXPECT_EQ(chunk.action.as<std::int32_t>()[frame], s.action);
    EXPECT_EQ(chunk.reward.as<float>()[frame], s.reward);
    EXPECT_EQ(chunk.discount.as<float>()[frame], s.terminated ? 0.0f : 1.0f);
    EXPECT_EQ(chunk.final.as<std::uint8_t>()[frame], 0);
    ++frame;
    if (!s.terminated && !s.truncated) continue;
    EXPECT_EQ(chunk.observation.as<float>()[frame], s.final_observation);
    EXPECT_EQ(chunk.action.as<std::int32_t>()[frame], 0);
    EXPECT_EQ(chunk.reward.as<float>()[frame], 0.0f);
    EXPECT_EQ(chunk.discount.as<float>()[frame], 0.0f);
    EXPECT_EQ(chunk.final.as<std::uint8_t>()[frame], 1);
    ++frame;
  }
  EXPECT_EQ(frame, chunk.frames);
}

TEST(TrajectoryBuilderTest, BootstrapsFromLastQOnlyOnTruncation) {
  for (const bool truncated : {false, true}) {
    TrajectoryBuilder builder({.spec = Spec(), .n_step = 3, .gamma = 0.5}, 1);
    AppendStep(
        &builder,
        {.q_taken = 1, .q_max = 8, .reward = 4, .terminated = !truncated, .truncated = truncated});
    std::vector<Item> items;
    builder.Take(&items);
    ASSERT_EQ(items.size(), 1u);  // an episode shorter than n gives an item of its length
    EXPECT_EQ(items[0].length, 1u);
    EXPECT_FLOAT_EQ(items[0].priority, truncated ? 4 + 0.5f * 8 - 1 : 4 - 1);
  }
}

TEST(TrajectoryBuilderTest, CompletesItemOnlyAfterActionOnBootstrapFrame) {
  TrajectoryBuilder builder({.spec = Spec(), .n_step = 3}, 1);
  for (int i = 0; i < 3; ++i) AppendStep(&builder, {});
  EXPECT_EQ(builder.items(), 0u);
  AppendStep(&builder, {});
  EXPECT_EQ(builder.items(), 1u);
  EXPECT_EQ(builder.frames(), 4u);
}

TEST(TrajectoryBuilderTest, ItemCopiesAreIdenticalAndShareFrames) {
  const std::vector<TestStep> steps = RandomSteps(100, 7);
  TrajectoryBuilder one({.spec = Spec(), .n_step = 3}, 2);
  TrajectoryBuilder many({.spec = Spec(), .n_step = 3, .copies = 4}, 2);
  for (const TestStep& s : steps) AppendStep(&one, s), AppendStep(&many, s);
  EXPECT_EQ(many.items(), 4 * one.items());
  EXPECT_EQ(many.frames(), one.frames());
  std::vector<Item> items, copies;
  (void)one.Take(&items);
  (void)many.Take(&copies);
  ASSERT_GT(items.size(), 50u);
  ASSERT_EQ(copies.size(), 4 * items.size());
  for (std::size_t i = 0; i < copies.size(); ++i) {
    const Item& item = items[i / 4];
    EXPECT_EQ(copies[i].stream, item.stream);
    EXPECT_EQ(copies[i].first_frame, item.first_frame);
    EXPECT_EQ(copies[i].length, item.length);
    EXPECT_EQ(copies[i].priority, item.priority);
  }
}

TEST(TrajectoryBuilderTest, ChunksAreContiguousAndItemsMaySpanThem) {
  const std::vector<TestStep> steps = RandomSteps(200, 5);
  TrajectoryBuilder whole({.spec = Spec(), .n_step = 3}, 2), cut({.spec = Spec(), .n_step = 3}, 2);
  std::vector<Item> expected, items;
  std::uint64_t next_frame = 0;
  for (std::size_t t = 0; t < steps.size(); ++t) {
    AppendStep(&whole, steps[t]);
    AppendStep(&cut, steps[t]);
    if (t % 7 != 6 && t + 1 != steps.size()) continue;
    const std::size_t before = items.size();
    const Chunk chunk = cut.Take(&items);
    EXPECT_EQ(chunk.first_frame, next_frame);
    next_frame += chunk.frames;
    for (std::size_t i = before; i < items.size(); ++i) {
      EXPECT_LT(items[i].first_frame + items[i].length, next_frame);  // no frame of the future
    }
  }
  whole.Take(&expected);
  ASSERT_EQ(items.size(), expected.size());
  for (std::size_t i = 0; i < items.size(); ++i) {
    EXPECT_EQ(items[i].first_frame, expected[i].first_frame);
    EXPECT_EQ(items[i].priority, expected[i].priority);
  }
}

// The items of the steps before were lost, and stacks of frames reached into the episode that was
// cut off.
TEST(TrajectoryBuilderTest, CutEndsEpisodeBeforeLostStep) {
  for (const bool known : {true, false}) {
    TrajectoryBuilder builder({.spec = Spec(), .n_step = 2, .gamma = 0.5}, 1);
    for (int i = 0; i < 3; ++i) AppendStep(&builder, {.q_taken = 1, .q_max = 2, .reward = 4});
    const float lost = 7;
    builder.Cut(std::as_bytes(std::span(&lost, 1)), known ? std::optional(8.0f) : std::nullopt);
    for (int i = 0; i < 3; ++i) AppendStep(&builder, {});
    std::vector<Item> items;
    const Chunk chunk = builder.Take(&items);
    ASSERT_EQ(chunk.frames, 7u);
    EXPECT_EQ(chunk.observation.as<float>()[3], 7);
    for (std::size_t i = 0; i < 7; ++i) {
      EXPECT_EQ(chunk.final.as<std::uint8_t>()[i], i == 3) << i;
    }
    const auto expect = [&items](std::size_t i, std::uint64_t first, std::uint32_t length,
                                 float priority) {
      EXPECT_EQ(items[i].first_frame, first);
      EXPECT_EQ(items[i].length, length);
      EXPECT_FLOAT_EQ(items[i].priority, priority);
    };
    ASSERT_EQ(items.size(), known ? 4u : 2u);
    expect(0, 0, 2, 4 + 2 + 0.25f * 2 - 1);
    if (known) {
      expect(1, 1, 2, 4 + 2 + 0.25f * 8 - 1);
      expect(2, 2, 1, 4 + 0.5f * 8 - 1);
    }
    expect(items.size() - 1, 4, 2, 0);
  }
}

TEST(TrajectoryBuilderTest, CutBeforeFirstStepAddsNothing) {
  TrajectoryBuilder builder({.spec = Spec()}, 1);
  const float lost = 7;
  const auto bytes = std::as_bytes(std::span(&lost, 1));
  builder.Cut(bytes, 1);
  EXPECT_EQ(builder.frames(), 0u);
  AppendStep(&builder, {.terminated = true});
  builder.Cut(bytes, 1);
  builder.Cut(bytes, 1);
  EXPECT_EQ(builder.frames(), 2u);
  AppendStep(&builder, {});
  builder.Cut(bytes, 1);
  builder.Cut(bytes, 1);  // of two lost steps in a row the second adds nothing
  EXPECT_EQ(builder.frames(), 4u);
}

// Unrolls cover every step of every episode once; the priority is the mean of the one-step errors.
TEST(TrajectoryBuilderTest, UnrollsPartitionEpisodes) {
  for (const int length : {1, 4, 7}) {
    for (const double clip : {0.0, 1.0}) {
      const std::vector<TestStep> steps = RandomSteps(400, std::uint64_t(length));
      TrajectoryBuilder builder(
          {.spec = Spec(), .unroll = length, .gamma = 0.9, .reward_clip = clip, .copies = 2}, 7);
      for (const TestStep& s : steps) AppendStep(&builder, s);
      std::vector<Item> items;
      const Chunk chunk = builder.Take(&items);
      std::size_t at = 0, t = 0;
      std::uint64_t frame = 0;
      while (t < steps.size()) {
        // The unroll of step t: up to the end of its episode, at most `length` steps.
        std::size_t end = t;
        double error = 0;
        const auto ends = [&steps](std::size_t i) {
          return steps[i].terminated || steps[i].truncated;
        };
        do {
          const TestStep& s = steps[end];
          const double r = s.reward;
          double next = s.terminated ? 0 : double(s.q_max);
          if (!ends(end) && end + 1 < steps.size()) next = double(steps[end + 1].q_max);
          error += std::abs((clip > 0 ? std::min(std::max(r, -clip), clip) : r) + 0.9 * next -
                            double(s.q_taken));
          ++end;
        } while (end < steps.size() && int(end - t) < length && !ends(end - 1));
        // The last one may still be open.
        if (end == steps.size() && !ends(end - 1)) break;
        ASSERT_LT(at + 1, items.size());
        for (int copy = 0; copy < 2; ++copy, ++at) {
          EXPECT_EQ(items[at].first_frame, frame);
          EXPECT_EQ(items[at].length, end - t);
          EXPECT_EQ(items[at].stream, 7u);
          EXPECT_EQ(items[at].policy_version, steps[t].version);
          EXPECT_NEAR(items[at].priority, error / double(end - t), 1e-5);
        }
        frame += end - t + (ends(end - 1) ? 1 : 0);
        t = end;
      }
      EXPECT_EQ(at, items.size());
      EXPECT_GE(chunk.frames, frame);
    }
  }
}

TEST(TrajectoryBuilderTest, UnrollsHaveLogProbabilitiesOfTheirSteps) {
  TrajectorySpec spec = Spec();
  spec.state = TensorSpec{DType::kF32, {4}};
  TrajectoryBuilder builder({.spec = spec, .unroll = 4, .copies = 2}, 7);
  const float frame = 0;
  const std::int32_t action = 0;
  for (int i = 0; i < 6; ++i) {
    builder.Append({.observation = std::as_bytes(std::span(&frame, 1)),
                    .action = std::as_bytes(std::span(&action, 1)),
                    .terminated = i == 5,
                    .final_observation = std::as_bytes(std::span(&frame, 1)),
                    .log_mu = -0.5f * float(i)});
  }
  std::vector<Item> items;
  builder.Take(&items);
  // The second unroll ends with the episode.
  const std::vector<std::vector<float>> wanted{{0, -0.5, -1, -1.5}, {-2, -2.5, 0, 0}};
  ASSERT_EQ(items.size(), 4u);
  for (std::size_t i = 0; i < 4; ++i) {
    ASSERT_EQ(items[i].state.size(), 16u);
    std::vector<float> state(4);
    std::memcpy(state.data(), items[i].state.data(), 16);
    EXPECT_EQ(state, wanted[i / 2]) << i;
  }
}

// [recurrent state | log-probabilities | values]; the second unroll has one step.
TEST(TrajectoryBuilderTest, UnrollsHaveValuesOfTheirSteps) {
  TrajectorySpec spec = Spec();
  spec.state = TensorSpec{DType::kF32, {1 + 2 * 3}};
  TrajectoryBuilder builder({.spec = spec, .unroll = 3, .state_columns = 1}, 7);
  const float frame = 0;
  const std::int32_t action = 0;
  const auto bytes = std::as_bytes(std::span(&frame, 1));
  for (int t = 0; t < 4; ++t) {
    const float state = float(t) / 4;
    builder.Append({.observation = bytes,
                    .action = std::as_bytes(std::span(&action, 1)),
                    .q_taken = float(10 + t),
                    .terminated = t == 3,
                    .final_observation = bytes,
                    .log_mu = float(-t),
                    .state = std::span(&state, 1)});
  }
  std::vector<Item> items;
  builder.Take(&items);
  const std::vector<float> wanted[] = {{0, 0, -1, -2, 10, 11, 12}, {0.75, -3, 0, 0, 13, 0, 0}};
  ASSERT_EQ(items.size(), 2u);
  for (std::size_t i = 0; i < items.size(); ++i) {
    const auto state = items[i].state.as<float>();
    EXPECT_EQ(std::vector<float>(state.begin(), state.end()), wanted[i]) << i;
  }
}

// [recurrent state before the first step | log-probabilities].
TEST(TrajectoryBuilderTest, UnrollsBeginWithRecurrentStateBeforeTheirFirstStep) {
  TrajectorySpec spec = Spec();
  spec.state = TensorSpec{DType::kF32, {2 + 3}};
  TrajectoryBuilder builder({.spec = spec, .unroll = 3, .copies = 2, .state_columns = 2}, 7);
  const float frame = 0;
  const std::int32_t action = 0;
  const auto bytes = std::as_bytes(std::span(&frame, 1));
  for (int t = 0; t < 8; ++t) {
    const std::array state{float(10 * t), float(10 * t + 1)};
    builder.Append({.observation = bytes,
                    .action = std::as_bytes(std::span(&action, 1)),
                    .terminated = t == 4,
                    .final_observation = bytes,
                    .log_mu = float(-t),
                    .state = state});
  }
  builder.Cut(bytes, 1);
  std::vector<Item> items;
  builder.Take(&items);
  const std::vector<float> wanted[] = {
      {0, 1, 0, -1, -2}, {30, 31, -3, -4, 0}, {50, 51, -5, -6, -7}};
  ASSERT_EQ(items.size(), 6u);
  for (std::size_t i = 0; i < items.size(); ++i) {
    const auto state = items[i].state.as<float>();
    EXPECT_EQ(std::vector<float>(state.begin(), state.end()), wanted[i / 2]) << i;
  }
}

// Neighbours share `overlap` steps; together the unrolls of an episode cover every step, and the
// last one has at least one further step. Each carries the recurrent state before its burn-in.
TEST(TrajectoryBuilderTest, OverlappingUnrollsCoverEpisodes) {
  TrajectorySpec spec = Spec();
  spec.state = TensorSpec{DType::kF32, {1}};
  for (const auto& [length, overlap, burn_in] :
       {std::tuple(4, 2, 3), {5, 4, 1}, {3, 0, 7}, {4, 1, 0}}) {
    const std::vector<TestStep> steps = RandomSteps(300, std::uint64_t(10 * length + overlap));
    TrajectoryBuilder builder({.spec = spec,
                               .unroll = length,
                               .state_columns = 1,
                               .overlap = overlap,
                               .burn_in = burn_in},
                              7);
    for (std::size_t t = 0; t < steps.size(); ++t) {
      const float state = float(t);
      const TestStep& s = steps[t];
      builder.Append({.observation = std::as_bytes(std::span(&s.observation, 1)),
                      .action = std::as_bytes(std::span(&s.action, 1)),
                      .terminated = s.terminated,
                      .truncated = s.truncated,
                      .final_observation = std::as_bytes(std::span(&s.final_observation, 1)),
                      .policy_version = t,
                      .state = std::span(&state, 1)});
    }
    std::vector<Item> items;
    builder.Take(&items);
    std::size_t item = 0, begin = 0, frame = 0;
    while (begin < steps.size()) {
      std::size_t end = begin;
      while (end < steps.size() && !steps[end].terminated && !steps[end].truncated) ++end;
      const bool open = end == steps.size();
      end += open ? 0 : 1;
      for (std::size_t first = begin;; first += std::size_t(length - overlap)) {
        const std::size_t last = std::min(end, first + std::size_t(length));
        // An open unroll waits for more steps, a full one for the q-value of the next frame.
        if (open && last == end) break;
        ASSERT_LT(item, items.size());
        EXPECT_EQ(items[item].first_frame, frame + first - begin);
        EXPECT_EQ(items[item].length, last - first);
        EXPECT_EQ(items[item].burn_in, burn_in);
        EXPECT_EQ(items[item].policy_version, first);
        const std::size_t from = first - std::min(first - begin, std::size_t(burn_in));
        EXPECT_EQ(items[item].state.as<float>()[0], float(from));
        ++item;
        if (last == end) break;
      }
      frame += end - begin + 1;
      begin = end;
    }
    EXPECT_EQ(item, items.size());
  }
}

// Priorities of R2D2 by the formula, one step at a time.
TEST(TrajectoryBuilderTest, PriorityOfUnrollMixesLargestAndMeanRescaledErrors) {
  const auto h = [](double x) {
    return (x < 0 ? -1 : 1) * (std::sqrt(std::abs(x) + 1) - 1) + 0.001 * x;
  };
  constexpr int kUnroll = 6, kN = 3;
  const double gamma = 0.9, eta = 0.75;
  TrajectoryBuilder builder({.spec = Spec(),
                             .unroll = kUnroll,
                             .gamma = gamma,
                             .unroll_n_step = kN,
                             .rescale = true,
                             .largest_share = eta},
                            7);
  // q-values on the rescaled scale; `raw` is h⁻¹ of q_max.
  const double raw[] = {3, -2, 10, 0.5, 40, -7, 12};
  const float taken[] = {1, -1, 2, 0.5, 3, -2}, reward[] = {5, -3, 20, 0, -40, 8};
  for (int t = 0; t <= kUnroll; ++t) {
    AppendStep(&builder, {.q_taken = t < kUnroll ? taken[t] : 0,
                          .q_max = float(h(raw[t])),
                          .reward = t < kUnroll ? reward[t] : 0});
  }
  std::vector<Item> items;
  builder.Take(&items);
  ASSERT_EQ(items.size(), 1u);
  double largest = 0, sum = 0;
  for (int t = 0; t < kUnroll; ++t) {
    const int end = std::min(kUnroll, t + kN);
    double value = std::pow(gamma, end - t) * raw[end];
    for (int k = t; k < end; ++k) value += std::pow(gamma, k - t) * double(reward[k]);
    const double error = std::abs(h(value) - double(taken[t]));
    largest = std::max(largest, error);
    sum += error;
  }
  EXPECT_NEAR(items[0].priority, eta * largest + (1 - eta) * sum / kUnroll, 1e-5);
}

TEST(TrajectoryBuilderTest, CutCompletesUnrollOnlyWithKnownValue) {
  for (const bool known : {true, false}) {
    TrajectoryBuilder builder({.spec = Spec(), .unroll = 8, .gamma = 0.5}, 1);
    for (int i = 0; i < 3; ++i) AppendStep(&builder, {.q_taken = 1, .q_max = 2, .reward = 4});
    const float lost = 7;
    builder.Cut(std::as_bytes(std::span(&lost, 1)), known ? std::optional(8.0f) : std::nullopt);
    AppendStep(&builder, {.terminated = true});
    std::vector<Item> items;
    builder.Take(&items);
    ASSERT_EQ(items.size(), known ? 2u : 1u);
    EXPECT_EQ(items.back().first_frame, 4u);
    EXPECT_EQ(items.back().length, 1u);
    if (!known) continue;
    EXPECT_EQ(items[0].length, 3u);
    EXPECT_FLOAT_EQ(items[0].priority, (2 * (4 + 0.5f * 2 - 1) + (4 + 0.5f * 8 - 1)) / 3);
  }
}

// It became infinite, and the replay refused the push.
TEST(TrajectoryBuilderTest, PriorityOfHugeRewardsIsFinite) {
  const float huge = std::numeric_limits<float>::max();
  TrajectoryBuilder builder({.spec = Spec(), .n_step = 2}, 1);
  AppendStep(&builder, {.reward = huge});
  AppendStep(&builder, {.reward = huge, .terminated = true});
  std::vector<Item> items;
  builder.Take(&items);
  ASSERT_EQ(items.size(), 2u);
  EXPECT_EQ(items[0].priority, huge);
}

TEST(TrajectoryBuilderTest, TakeOfNothingReturnsEmptyChunk) {
  TrajectoryBuilder builder({.spec = Spec()}, 1);
  std::vector<Item> items;
  EXPECT_EQ(builder.Take(&items).frames, 0u);
  EXPECT_TRUE(items.empty());
}

}  // namespace
}  // namespace troop
