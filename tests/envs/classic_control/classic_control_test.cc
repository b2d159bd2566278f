#include "envs/classic_control/classic_control.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numbers>

#include "core/base/philox.h"
#include "envs/classic_control/cartpole_batch.h"
#include "envs/classic_control/cartpole_dynamics.h"
#include "tests/envs/fixture.h"

// The oracle is Gymnasium 1.4: tests/fixtures/envs holds what it did.
namespace troop {
namespace {

// How many representable numbers lie between two finite ones (both zeros are one number).
template <class Float, class Int>
std::uint64_t UlpsApart(Float a, Float b) {
  const auto ordered = [](Float value) {
    const Int bits = std::bit_cast<Int>(value);
    return std::int64_t(bits < 0 ? std::numeric_limits<Int>::min() - bits : bits);
  };
  const std::int64_t x = ordered(a), y = ordered(b);
  return x > y ? std::uint64_t(x) - std::uint64_t(y) : std::uint64_t(y) - std::uint64_t(x);
}
std::uint64_t Ulps(float a, float b) { return UlpsApart<float, std::int32_t>(a, b); }
std::uint64_t Ulps(double a, double b) { return UlpsApart<double, std::int64_t>(a, b); }

std::vector<std::byte> ActionBytes(const Environment& env, float action) {
  std::vector<std::byte> bytes(4);
  const std::int32_t discrete = std::int32_t(action);
  std::memcpy(bytes.data(),
              env.spec().action.discrete() ? static_cast<const void*>(&discrete)
                                           : static_cast<const void*>(&action),
              4);
  return bytes;
}

template <class Env>
constexpr const char* kFile = nullptr;
template <>
constexpr const char* kFile<CartPole> = "cartpole.bin";
template <>
constexpr const char* kFile<Acrobot> = "acrobot.bin";
template <>
constexpr const char* kFile<MountainCar> = "mountain_car.bin";
template <>
constexpr const char* kFile<Pendulum> = "pendulum.bin";

template <class Env>
class ClassicControlTest : public testing::Test {
 protected:
  using State = typename Env::State;

  State ReadState() {
    State state{};
    const std::vector<double> values = fixture_.ReadMany<double>(state.size());
    std::ranges::copy(values, state.begin());
    return state;
  }

  StepResult Step(float action) {
    return env_.Step(ActionBytes(env_, action), std::as_writable_bytes(std::span(observation_)));
  }

  void CompareStep(int index) {
    env_.set_state(ReadState());
    const float action = fixture_.Read<float>();
    const State want = ReadState();
    const std::vector<float> observation = fixture_.ReadMany<float>(observation_.size());
    const float reward = fixture_.Read<float>();
    const bool terminated = fixture_.Read<std::uint32_t>() != 0;
    const StepResult step = Step(action);
    for (std::size_t i = 0; i < want.size(); ++i) {
      EXPECT_LE(Ulps(env_.state()[i], want[i]), 1u) << "step " << index << ", state " << i;
    }
    for (std::size_t i = 0; i < observation.size(); ++i) {
      EXPECT_LE(Ulps(observation_[i], observation[i]), 1u) << "step " << index << ", value " << i;
    }
    EXPECT_LE(Ulps(step.reward, reward), 1u) << "step " << index;
    EXPECT_EQ(step.terminated, terminated) << "step " << index;
    EXPECT_FALSE(step.truncated);
  }

  void CompareRollout(int index) {
    env_.set_state(ReadState());
    const auto length = fixture_.Read<std::uint32_t>(), ending = fixture_.Read<std::uint32_t>();
    const std::vector<float> actions = fixture_.ReadMany<float>(length);
    for (std::uint32_t t = 0; t < length; ++t) {
      const StepResult step = Step(actions[t]);
      if (t < 50) {
        const std::vector<float> want = fixture_.ReadMany<float>(observation_.size());
        for (std::size_t i = 0; i < want.size(); ++i) {
          EXPECT_NEAR(observation_[i], want[i], 1e-5) << "rollout " << index << ", step " << t;
        }
      }
      const std::uint32_t now = t + 1 == length ? ending : 0;
      ASSERT_EQ(step.terminated, (now & 1) != 0) << "rollout " << index << ", step " << t;
      ASSERT_EQ(step.truncated, (now & 2) != 0) << "rollout " << index << ", step " << t;
      endings_ |= now;
    }
  }

  Env env_;
  Fixture fixture_{kFile<Env>};
  std::vector<float> observation_ = std::vector<float>(env_.spec().observation.shape.elements());
  std::uint32_t endings_ = 0;
};

using AllClassic = testing::Types<CartPole, Acrobot, MountainCar, Pendulum>;
TYPED_TEST_SUITE(ClassicControlTest, AllClassic);

TYPED_TEST(ClassicControlTest, StepsAndRolloutsMatchGymnasium) {
  const std::vector<std::uint32_t> header = this->fixture_.template ReadMany<std::uint32_t>(4);
  ASSERT_EQ(header[0], this->env_.state().size());
  ASSERT_EQ(header[1], this->observation_.size());
  ASSERT_GE(header[2], 300u);
  for (std::uint32_t i = 0; i < header[2]; ++i) this->CompareStep(int(i));
  for (std::uint32_t i = 0; i < header[3]; ++i) this->CompareRollout(int(i));
  EXPECT_TRUE(this->fixture_.at_end());
  // The recordings hold all kinds of endings.
  EXPECT_EQ(this->endings_, this->env_.spec().id == "Pendulum-v1" ? 2u : 3u);
}

// Steps `env` once with the discrete action `action`.
StepResult StepOnce(Environment* env, float action) {
  std::vector<std::byte> observation(env->spec().observation.bytes());
  return env->Step(ActionBytes(*env, action), observation);
}

TEST(CartPoleTest, FallOnLastAllowedStepTerminatesAndTruncates) {
  CartPole env;
  env.set_state({0, 0, 0.2, 3}, 499);
  const StepResult both = StepOnce(&env, 0);
  EXPECT_TRUE(both.terminated);
  EXPECT_TRUE(both.truncated);
  env.set_state({0, 0, 0.2, 3}, 498);
  const StepResult fall = StepOnce(&env, 0);
  EXPECT_TRUE(fall.terminated);
  EXPECT_FALSE(fall.truncated);
  env.set_state({0, 0, 0, 0}, 499);
  const StepResult clock = StepOnce(&env, 0);
  EXPECT_FALSE(clock.terminated);
  EXPECT_TRUE(clock.truncated);
}

TEST(CartPoleTest, StatelessCartPoleShowsPositionAndAngleOfSameEpisode) {
  StatelessCartPole env;
  CartPole whole;
  ASSERT_EQ(env.spec().observation.shape, Shape{2});
  std::vector<float> got(2), want(4);
  const auto bytes = [](std::vector<float>& v) { return std::as_writable_bytes(std::span(v)); };
  int endings = 0;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    env.Reset(seed, bytes(got));
    whole.Reset(seed, bytes(want));
    for (int t = 0;; ++t) {
      ASSERT_EQ(got, (std::vector<float>{want[0], want[2]})) << seed << ", step " << t;
      // Leans against the fall for some episodes, so that they last until the step limit.
      const float action = seed % 2 == 0 ? float(want[2] + want[3] > 0) : float(t % 2);
      const StepResult result = env.Step(ActionBytes(env, action), bytes(got));
      const StepResult wanted = whole.Step(ActionBytes(whole, action), bytes(want));
      ASSERT_EQ(result.reward, wanted.reward);
      ASSERT_EQ(result.terminated, wanted.terminated);
      ASSERT_EQ(result.truncated, wanted.truncated);
      if (!wanted.terminated && !wanted.truncated) continue;
      endings |= wanted.truncated ? 2 : 1;
      break;
    }
  }
  EXPECT_EQ(endings, 3);
}

TEST(CartPoleTest, NeverTruncatesWithoutStepLimit) {
  CartPole env(0);
  for (int t = 0; t < 2000; ++t) {
    env.set_state({0, 0, 0, 0}, t);
    EXPECT_FALSE(StepOnce(&env, 1).truncated);
  }
}

TEST(CartPoleTest, SineAndCosineAreWithinOneUlpOfLibm) {
  Rng rng({.index = 1});
  for (int i = 0; i < 100000; ++i) {
    const double angle = rng.Uniform(-cartpole::kAngleMax, cartpole::kAngleMax);
    double sine, cosine;
    cartpole::SinCos(angle, &sine, &cosine);
    ASSERT_LE(Ulps(sine, std::sin(angle)), 1u) << angle;
    ASSERT_LE(Ulps(cosine, std::cos(angle)), 1u) << angle;
  }
}

// The batch of 1,000 random states after a step on one path.
struct BatchAfter {
  std::vector<double> states;
  std::vector<float> observation;
  std::vector<std::uint8_t> terminated;
  bool operator==(const BatchAfter&) const = default;
};

BatchAfter StepBatchOn(cartpole::Path path) {
  constexpr int kCount = 1000;
  BatchAfter after{std::vector<double>(4 * kCount), std::vector<float>(4 * kCount),
                   std::vector<std::uint8_t>(kCount)};
  std::vector<std::int32_t> action(kCount);
  Rng rng({.index = 2});
  constexpr double kRange[] = {2.4, 3, cartpole::kAngleMax, 3};
  for (int i = 0; i < 4 * kCount; ++i) {
    after.states[i] = rng.Uniform(-kRange[i / kCount], kRange[i / kCount]);
  }
  for (auto& a : action) a = std::int32_t(rng.Below(2));
  double* const x = after.states.data();
  cartpole::StepFor(path)({kCount, x, x + kCount, x + 2 * kCount, x + 3 * kCount, action.data(),
                           after.observation.data(), after.terminated.data()});
  return after;
}

TEST(CartPoleTest, InstructionSetsGiveEqualBytes) {
  const BatchAfter baseline = StepBatchOn(cartpole::Path::kBaseline);
  const auto ended = std::ranges::count(baseline.terminated, 1);
  EXPECT_GT(ended, 50);
  EXPECT_LT(ended, 950);
  for (const auto path : {cartpole::Path::kAvx2, cartpole::Path::kAvx512}) {
    if (!cartpole::Supported(path)) continue;
    EXPECT_TRUE(StepBatchOn(path) == baseline) << cartpole::PathName(path);
  }
}

TEST(MountainCarTest, GoalOnLastAllowedStepTerminatesAndTruncates) {
  MountainCar env;
  env.set_state({0.49, 0.05}, 199);
  const StepResult step = StepOnce(&env, 2);
  EXPECT_TRUE(step.terminated);
  EXPECT_TRUE(step.truncated);
}

TEST(MountainCarTest, LeftWallStopsCar) {
  MountainCar env;
  env.set_state({-1.19, -0.05});
  StepOnce(&env, 0);
  EXPECT_EQ(env.state(), (MountainCar::State{-1.2, 0}));
}

TEST(PendulumTest, ClipsTorque) {
  Pendulum clipped, most;
  clipped.set_state({1, 0.5});
  most.set_state({1, 0.5});
  EXPECT_EQ(StepOnce(&clipped, 100).reward, StepOnce(&most, 2).reward);
  EXPECT_EQ(clipped.state(), most.state());
}

// Where an episode starts: uniform over the box of Gymnasium's reset.
template <class Env>
void CheckStarts(const typename Env::State& low, const typename Env::State& high) {
  constexpr int kEpisodes = 20000;
  Env env;
  std::vector<std::byte> observation(env.spec().observation.bytes());
  typename Env::State sum{}, least = high, most = low;
  for (int i = 0; i < kEpisodes; ++i) {
    env.Reset(std::uint64_t(i), observation);
    for (std::size_t k = 0; k < sum.size(); ++k) {
      sum[k] += env.state()[k];
      least[k] = std::min(least[k], env.state()[k]);
      most[k] = std::max(most[k], env.state()[k]);
    }
  }
  for (std::size_t k = 0; k < sum.size(); ++k) {
    const double width = high[k] - low[k];
    EXPECT_GE(least[k], low[k] - 1e-8 * width);  // Acrobot rounds to f32
    EXPECT_LE(most[k], high[k] + 1e-7 * width);
    EXPECT_LE(least[k], low[k] + 1e-3 * width);
    EXPECT_GE(most[k], high[k] - 1e-3 * width);
    // 6 standard deviations of the mean: false alarm 2e-9 per run with other seeds.
    EXPECT_NEAR(sum[k] / kEpisodes, (low[k] + high[k]) / 2,
                6 * width / std::sqrt(12.0 * kEpisodes));
  }
}

TEST(ClassicControlStartTest, InitialStatesMatchGymnasium) {
  constexpr double kPi = std::numbers::pi;
  CheckStarts<CartPole>({-0.05, -0.05, -0.05, -0.05}, {0.05, 0.05, 0.05, 0.05});
  CheckStarts<Acrobot>({-0.1, -0.1, -0.1, -0.1}, {0.1, 0.1, 0.1, 0.1});
  CheckStarts<MountainCar>({-0.6, 0}, {-0.4, 0});
  CheckStarts<Pendulum>({-kPi, -1}, {kPi, 1});
}

}  // namespace
}  // namespace troop
