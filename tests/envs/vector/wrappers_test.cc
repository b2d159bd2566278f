#include "envs/vector/wrappers.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "core/base/philox.h"
#include "tests/envs/seeds.h"

namespace troop {
namespace {

std::unique_ptr<VectorEnv> Make(std::string_view id, const EnvOptions& options, int size) {
  auto env = MakeVectorEnv(id, options, size, CountingSeeder());
  EXPECT_TRUE(env.ok()) << env.status().ToString();
  return std::move(*env);
}

// Actions without an order, the same in each run.
void Fill(const Tensor& action, const ActionSpec& spec, Rng* rng) {
  if (spec.discrete()) {
    for (std::int32_t& a : action.as<std::int32_t>()) a = rng->Below(std::uint32_t(spec.count));
  } else {
    for (float& a : action.as<float>()) a = float(rng->Uniform(spec.low[0], spec.high[0]));
  }
}
Tensor ActionsFor(const VectorEnv& env) {
  const TensorSpec one = env.spec().action.tensor();
  return Tensor(one.dtype, one.shape.Prepend(env.size()));
}
const StepBatch& Stepped(VectorEnv* env, const Tensor& action) {
  env->Submit(action);
  return *env->Poll();
}

TEST(WrappedVectorEnvTest, ScalesOnlyRewards) {
  const auto plain = Make("Acrobot-v1", {}, 3);
  const auto scaled = Make("Acrobot-v1", {.reward_scale = -0.25}, 3);
  plain->SubmitReset();
  scaled->SubmitReset();
  plain->Poll();
  scaled->Poll();
  const Tensor action = ActionsFor(*plain);
  Rng rng({.run_seed = 1});
  for (int i = 0; i < 1200; ++i) {  // an episode ends after 500
    Fill(action, plain->spec().action, &rng);
    const StepBatch &a = Stepped(plain.get(), action), &b = Stepped(scaled.get(), action);
    for (int k = 0; k < 3; ++k) {
      ASSERT_EQ(b.reward.as<float>()[k], a.reward.as<float>()[k] * -0.25f);
      ASSERT_EQ(a.truncated.as<std::uint8_t>()[k], b.truncated.as<std::uint8_t>()[k]);
    }
    ASSERT_TRUE(std::ranges::equal(a.observation.bytes(), b.observation.bytes()));
  }
}

// The torque that a pendulum was given, from its speeds: they change by 0.05 s · (15 sin θ + 3 u).
float TorqueOf(std::span<const float> before, std::span<const float> after) {
  return ((after[2] - before[2]) / 0.05f - 15 * before[1]) / 3;
}

// With 3,000 draws the frequency is off by more than 0.04 once in a million.
TEST(WrappedVectorEnvTest, StickyActionsRepeatLastWithGivenProbability) {
  const auto env = Make("Pendulum-v1", {.max_episode_steps = 20, .sticky_actions = 0.3}, 2);
  env->SubmitReset();
  env->Poll();
  const Tensor action = ActionsFor(*env);
  Tensor before(DType::kF32, {2, 3});
  Rng rng({.run_seed = 1});
  std::array<float, 2> last{};  // NaN if unknown
  std::array<int, 2> step{};
  int stuck = 0, draws = 0;
  const StepBatch* batch = nullptr;
  for (int i = 0; i < 2000; ++i) {
    if (batch != nullptr) std::ranges::copy(batch->observation.bytes(), before.bytes().begin());
    Fill(action, env->spec().action, &rng);
    batch = &Stepped(env.get(), action);
    for (std::size_t k = 0; k < 2; ++k) {
      const bool ended = batch->truncated.as<std::uint8_t>()[k] != 0;
      const auto after =
          (ended ? batch->final_observation : batch->observation).as<float>().subspan(3 * k, 3);
      const float wanted = action.as<float>()[k];
      const float torque = TorqueOf(before.as<float>().subspan(3 * k, 3), after);
      const bool first = step[k]++ == 0;
      // Before the first step there is nothing to compare with, and a speed has a limit.
      const bool told = i > 0 && std::abs(after[2]) < 8;
      const bool is_wanted = std::abs(torque - wanted) < 0.01f;
      if (told && first) {
        ASSERT_TRUE(is_wanted) << torque << " is not " << wanted;
      }
      if (told && !first && !std::isnan(last[k])) {
        ASSERT_TRUE(is_wanted || std::abs(torque - last[k]) < 0.01f)
            << torque << " is neither " << wanted << " nor " << last[k];
        ++draws;
        stuck += !is_wanted;
      }
      last[k] = told ? torque : std::nanf("");
      if (ended) step[k] = 0;
    }
  }
  ASSERT_GT(draws, 3000);
  EXPECT_NEAR(double(stuck) / draws, 0.3, 0.04);
}

TEST(WrappedVectorEnvTest, StickyActionsDoNotDependOnVectorSize) {
  const auto one = Make("Pendulum-v1", {.sticky_actions = 0.5}, 1);
  const auto four = Make("Pendulum-v1", {.sticky_actions = 0.5}, 4);
  one->SubmitReset();
  four->SubmitReset();
  one->Poll();
  four->Poll();
  Rng rng({.run_seed = 1});
  const Tensor a = ActionsFor(*one), b = ActionsFor(*four);
  for (int i = 0; i < 450; ++i) {
    Fill(b, one->spec().action, &rng);
    a.as<float>()[0] = b.as<float>()[0];
    const StepBatch &x = Stepped(one.get(), a), &y = Stepped(four.get(), b);
    ASSERT_TRUE(std::ranges::equal(x.observation.bytes(), y.observation.bytes().subspan(0, 12)));
  }
}

// A vector of one gives the same steps, and after an end the next episode's first observation.
TEST(WrappedEnvironmentTest, GivesBytesOfVectorOfOne) {
  for (const char* id : {"Pendulum-v1", "CartPole-v1", "MinAtar/Breakout-v0"}) {
    SCOPED_TRACE(id);
    EnvOptions options{.max_episode_steps = 30, .sticky_actions = 0.4, .reward_scale = -3};
    if (id != std::string_view("MinAtar/Breakout-v0")) options.observation_clip = 0.03;
    const auto vector = Make(id, options, 1);
    const auto single = std::move(*MakeSingleEnvironment(id, options));
    std::vector<std::byte> observation(single->spec().observation.bytes());
    vector->SubmitReset();
    vector->Poll();
    int episode = 0;
    single->Reset(SeedOf(0, episode), observation);
    const Tensor action = ActionsFor(*vector);
    Rng rng({.run_seed = 1});
    for (int i = 0; i < 300; ++i) {
      Fill(action, single->spec().action, &rng);
      const StepBatch& batch = Stepped(vector.get(), action);
      const StepResult step = single->Step(action.bytes(), observation);
      ASSERT_EQ(batch.reward.as<float>()[0], step.reward);
      ASSERT_EQ(batch.terminated.as<std::uint8_t>()[0], step.terminated);
      ASSERT_EQ(batch.truncated.as<std::uint8_t>()[0], step.truncated);
      const bool ended = step.terminated || step.truncated;
      const ConstTensor& want = ended ? batch.final_observation : batch.observation;
      ASSERT_TRUE(std::ranges::equal(want.bytes(), observation));
      if (ended) single->Reset(SeedOf(0, ++episode), observation);
    }
    EXPECT_GE(episode, 9);
  }
}

// Step by step with the plain environment.
TEST(RepeatedEnvironmentTest, RepeatsActionAndSumsRewards) {
  for (const char* id : {"CartPole-v1", "Pendulum-v1", "Catch-v0"}) {
    const auto plain = MakeEnvironment(id, {});
    const auto held = MakeEnvironment(id, {.action_repeat = 3});
    std::vector<std::byte> a((*plain)->spec().observation.bytes()), b(a);
    Rng rng({.run_seed = 1});
    const TensorSpec action_spec = (*plain)->spec().action.tensor();
    const Tensor action(action_spec.dtype, action_spec.shape);
    for (std::uint64_t seed = 0; seed < 20; ++seed) {
      (*plain)->Reset(seed, a);
      (*held)->Reset(seed, b);
      for (bool over = false; !over;) {
        Fill(action, (*plain)->spec().action, &rng);
        float reward = 0;
        StepResult step;
        for (int k = 0; k < 3 && !over; ++k) {
          step = (*plain)->Step(action.bytes(), a);
          reward += step.reward;
          over = step.terminated || step.truncated;
        }
        const StepResult got = (*held)->Step(action.bytes(), b);
        ASSERT_EQ(got.reward, reward) << id;
        ASSERT_EQ(got.terminated, step.terminated);
        ASSERT_EQ(got.truncated, step.truncated);
        ASSERT_EQ(a, b);
      }
    }
  }
}

TEST(RepeatedEnvironmentTest, StepLimitCountsActions) {
  const auto own = MakeEnvironment("MountainCar-v0", {.action_repeat = 3});
  EXPECT_EQ((*own)->spec().max_episode_steps, 67);  // 200 steps without action_repeat
  const auto given = Make("MountainCar-v0", {.max_episode_steps = 5, .action_repeat = 3}, 2);
  EXPECT_EQ(given->spec().max_episode_steps, 5);
  given->SubmitReset();
  given->Poll();
  const Tensor action = ActionsFor(*given);
  for (int i = 1; i <= 20; ++i) {
    EXPECT_EQ(Stepped(given.get(), action).truncated.as<std::uint8_t>()[1], i % 5 == 0);
  }
}

// Element by element against the plain environment: first observations, steps and last
// observations.
TEST(WrappedVectorEnvTest, ClipsObservationsElementwise) {
  constexpr float kLimit = 0.5f;
  const EnvOptions plain_options{.max_episode_steps = 20};
  EnvOptions options = plain_options;
  options.observation_clip = kLimit;
  const auto plain = Make("Pendulum-v1", plain_options, 3),
             clipped = Make("Pendulum-v1", options, 3);
  EXPECT_EQ(clipped->spec(), plain->spec());
  int changed = 0;
  const auto compare = [&](std::span<const float> want, std::span<const float> got) {
    ASSERT_EQ(got.size(), want.size());
    for (std::size_t i = 0; i < want.size(); ++i) {
      const float x = want[i];
      ASSERT_EQ(got[i], x > kLimit ? kLimit : x < -kLimit ? -kLimit : x);
      changed += got[i] != x;
    }
  };
  plain->SubmitReset();
  clipped->SubmitReset();
  compare(plain->Poll()->observation.as<float>(), clipped->Poll()->observation.as<float>());
  const Tensor action = ActionsFor(*plain);
  Rng rng({.run_seed = 4});
  for (int i = 0; i < 100; ++i) {
    Fill(action, plain->spec().action, &rng);
    const StepBatch &a = Stepped(plain.get(), action), &b = Stepped(clipped.get(), action);
    compare(a.observation.as<float>(), b.observation.as<float>());
    ASSERT_TRUE(std::ranges::equal(a.reward.bytes(), b.reward.bytes()));
    for (std::size_t k = 0; k < 3; ++k) {
      if (a.truncated.as<std::uint8_t>()[k] == 0) continue;
      compare(a.final_observation.as<float>().subspan(3 * k, 3),
              b.final_observation.as<float>().subspan(3 * k, 3));
    }
  }
  EXPECT_GT(changed, 100);
}

// An environment whose observations are what the test says.
class GivenObservations final : public Environment {
 public:
  explicit GivenObservations(std::vector<float> values) : values_(std::move(values)) {
    spec_.id = "given";
    spec_.observation = {DType::kF32, {std::int64_t(values_.size())}};
    spec_.action.count = 2;
  }
  const EnvSpec& spec() const override { return spec_; }
  void Reset(std::uint64_t, std::span<std::byte> observation) override {
    std::ranges::copy(std::as_bytes(std::span(values_)), observation.begin());
  }
  StepResult Step(std::span<const std::byte>, std::span<std::byte> observation) override {
    Reset(0, observation);
    return {};
  }

 private:
  EnvSpec spec_;
  const std::vector<float> values_;
};

// A fault of the environment must not look like a large number.
TEST(WrappedEnvironmentTest, ClippingKeepsNonFiniteElements) {
  const float inf = std::numeric_limits<float>::infinity();
  const auto env = MakeWrappedEnvironment(
      {.observation_clip = 2},
      std::make_unique<GivenObservations>(std::vector<float>{inf, -inf, std::nanf(""), 3, -4, 1}));
  std::vector<float> seen(6);
  env->Reset(1, std::as_writable_bytes(std::span(seen)));
  EXPECT_EQ(seen[0], inf);
  EXPECT_EQ(seen[1], -inf);
  EXPECT_TRUE(std::isnan(seen[2]));
  EXPECT_EQ((std::vector<float>{seen[3], seen[4], seen[5]}), (std::vector<float>{2, -2, 1}));
}

TEST(WrappedVectorEnvTest, RefusesToClipIntegerObservations) {
  const EnvOptions options{.observation_clip = 1};
  const Status vector = MakeVectorEnv("MinAtar/Breakout-v0", options, 1, CountingSeeder()).status();
  EXPECT_EQ(vector.code(), Code::kInvalidArgument);
  EXPECT_NE(vector.message().find("env.observation_clip is 1, but observations of"),
            std::string::npos)
      << vector.ToString();
  EXPECT_EQ(MakeSingleEnvironment("MinAtar/Breakout-v0", options).status().message(),
            vector.message());
  EXPECT_EQ(FindEnvSpec("MinAtar/Breakout-v0", options).status().message(), vector.message());
  for (const double bad : {-1.0, std::nan("")}) {
    EXPECT_EQ(MakeEnvironment("Pendulum-v1", {.observation_clip = bad}).status().code(),
              Code::kInvalidArgument);
  }
}

TEST(WrappedVectorEnvTest, RejectsInvalidWrapperOptions) {
  EXPECT_EQ(MakeVectorEnv("CartPole-v1", {.reward_scale = 0}, 1, CountingSeeder()).status().code(),
            Code::kInvalidArgument);
  EXPECT_EQ(MakeVectorEnv("CartPole-v1", {.action_repeat = 0}, 1, CountingSeeder()).status().code(),
            Code::kInvalidArgument);
  EXPECT_EQ(
      MakeVectorEnv("CartPole-v1", {.sticky_actions = 1.5}, 1, CountingSeeder()).status().code(),
      Code::kInvalidArgument);
}

}  // namespace
}  // namespace troop
