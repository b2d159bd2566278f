#include "envs/minatar/breakout.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "core/base/philox.h"
#include "envs/minatar/minatar_env.h"
#include "tests/envs/fixture.h"

// The oracle is the MinAtar package, used as a black box: tests/fixtures/envs holds what it did.
namespace troop {
namespace {

using Cells = std::array<std::uint8_t, Breakout::kCells>;

struct Game {
  explicit Game(double sticky_actions)
      : env(minatar::ActionSet::kFull, {.max_episode_steps = 0, .sticky_actions = sticky_actions}) {
  }
  void Reset(std::uint64_t seed) { env.Reset(seed, std::as_writable_bytes(std::span(cells))); }
  StepResult Step(std::int32_t action) {
    return env.Step(std::as_bytes(std::span(&action, 1)), std::as_writable_bytes(std::span(cells)));
  }
  MinAtarEnv<Breakout> env;
  Cells cells{};
};

Cells Unpack(const std::vector<std::uint8_t>& bits) {
  Cells cells;
  for (std::size_t i = 0; i < cells.size(); ++i) cells[i] = (bits[i / 8] >> (i % 8)) & 1;
  return cells;
}

TEST(BreakoutTest, MatchesMinAtarOpeningsCellByCell) {
  Fixture fixture("breakout_openings.bin");
  const auto episodes = fixture.Read<std::uint32_t>();
  int bricks = 0, ends = 0;
  for (std::uint32_t episode = 0; episode < episodes; ++episode) {
    const auto length = fixture.Read<std::uint32_t>();
    const bool from_the_right = fixture.Read<std::uint8_t>() != 0;
    const auto actions = fixture.ReadMany<std::uint8_t>(length);
    const auto rewards = fixture.ReadMany<std::uint8_t>(length);
    const auto terminated = fixture.ReadMany<std::uint8_t>(length);
    Game game(0);
    std::uint64_t seed = 0;
    do {  // the side is chance: every second seed
      game.Reset(seed++);
    } while ((game.env.state().x == Breakout::kSide - 1) != from_the_right);
    ASSERT_EQ(game.cells, Unpack(fixture.ReadMany<std::uint8_t>(50))) << "episode " << episode;
    for (std::uint32_t t = 0; t < length; ++t) {
      const StepResult step = game.Step(actions[t]);
      ASSERT_EQ(game.cells, Unpack(fixture.ReadMany<std::uint8_t>(50)))
          << "episode " << episode << ", step " << t;
      ASSERT_EQ(step.reward, rewards[t]);
      ASSERT_EQ(step.terminated, terminated[t] != 0);
      bricks += rewards[t];
      ends += terminated[t];
    }
  }
  EXPECT_TRUE(fixture.at_end());
  EXPECT_GT(bricks, 60) << "the recordings go past the first wall";
  EXPECT_GE(ends, 30);
}

// tools/make_env_fixtures.py, keep(): goes to where the ball comes down.
std::int32_t SkilledAction(const Breakout::State& s) {
  int x = s.x, dx = s.x - s.trail_x;
  if (s.y > s.trail_y && dx != 0) {
    for (int y = s.y; y < 8; ++y) {
      x += dx;
      if (x < 0 || x > 9) {
        x -= dx;
        dx = -dx;
      }
    }
  }
  return s.paddle > x ? minatar::kLeft : s.paddle < x ? minatar::kRight : 0;
}

struct Samples {
  std::vector<std::uint16_t> returns, lengths;
};

Samples Play(double sticky, double skilled_share, std::size_t episodes, std::uint32_t longest) {
  Samples samples;
  Game game(sticky);
  Rng rng({.index = 17});
  for (std::size_t episode = 0; episode < episodes; ++episode) {
    game.Reset(episode);
    int total = 0;
    std::uint32_t length = 0;
    for (bool end = false; !end && length < longest; ++length) {
      const bool skilled = rng.Uniform() < skilled_share;
      const StepResult step =
          game.Step(skilled ? SkilledAction(game.env.state()) : std::int32_t(rng.Below(6)));
      total += int(step.reward);
      end = step.terminated;
    }
    samples.returns.push_back(std::uint16_t(total));
    samples.lengths.push_back(std::uint16_t(length));
  }
  return samples;
}

// The largest distance between two empirical distributions (Kolmogorov-Smirnov).
double Distance(std::vector<std::uint16_t> a, std::vector<std::uint16_t> b) {
  std::ranges::sort(a);
  std::ranges::sort(b);
  double distance = 0;
  for (const std::uint16_t value : a) {
    const auto below = [&](const std::vector<std::uint16_t>& sorted) {
      const auto count = std::ranges::upper_bound(sorted, value) - sorted.begin();
      return double(count) / double(sorted.size());
    };
    distance = std::max(distance, std::abs(below(a) - below(b)));
  }
  return distance;
}

// Two samples of n from one distribution are further apart than this with probability 1e-4; for
// discrete values, as here, less often. Six comparisons: a false alarm in less than 6e-4 of all
// choices of the seed, and never with the one chosen.
double DistanceMax(std::size_t n) { return std::sqrt(-std::log(1e-4 / 2) / double(n)); }

TEST(BreakoutTest, ReturnAndLengthDistributionsMatchMinAtar) {
  Fixture fixture("breakout_returns.bin");
  const auto policies = fixture.Read<std::uint32_t>();
  const auto episodes = fixture.Read<std::uint32_t>(), longest = fixture.Read<std::uint32_t>();
  ASSERT_EQ(policies, 3u);
  for (std::uint32_t policy = 0; policy < policies; ++policy) {
    const auto sticky = fixture.Read<float>(), skilled_share = fixture.Read<float>();
    const Samples want{fixture.ReadMany<std::uint16_t>(episodes),
                       fixture.ReadMany<std::uint16_t>(episodes)};
    const Samples ours = Play(double(sticky), double(skilled_share), episodes, longest);
    const double limit = DistanceMax(episodes);
    EXPECT_LT(Distance(ours.returns, want.returns), limit) << sticky << " " << skilled_share;
    EXPECT_LT(Distance(ours.lengths, want.lengths), limit) << sticky << " " << skilled_share;
    if (policy == 2) {  // the comparison can tell: without sticky actions skill goes further
      const Samples other = Play(0, double(skilled_share), episodes, longest);
      EXPECT_GT(Distance(other.lengths, want.lengths), limit);
    }
  }
  EXPECT_TRUE(fixture.at_end());
}

TEST(BreakoutTest, BallStartsOnEitherSideEquallyOften) {
  Game game(0);
  int right = 0;
  for (std::uint64_t seed = 0; seed < 10000; ++seed) {
    game.Reset(seed);
    right += game.env.state().x == Breakout::kSide - 1;
  }
  EXPECT_NEAR(right, 5000, 300);  // 6 standard deviations: false alarm 2e-9
}

TEST(BreakoutTest, StickyActionsRepeatPlayedAction) {
  Game always(1);
  always.Reset(3);
  for (int t = 0; t < 4; ++t) always.Step(minatar::kLeft);
  EXPECT_EQ(always.env.state().paddle, 4) << "before the first step nothing was played";
  // After one move to the left is played, a stuck step moves left, whatever is wanted.
  Game game(0.1);
  int stuck = 0, trials = 0;
  for (std::uint64_t seed = 0; seed < 20000; ++seed) {
    game.Reset(seed);
    game.Step(minatar::kLeft);
    if (game.env.state().paddle != 3) continue;
    ++trials;
    game.Step(0);
    stuck += game.env.state().paddle == 2;
  }
  // 10 % of about 18,000, within 6 standard deviations: false alarm 2e-9.
  EXPECT_NEAR(stuck, 0.1 * trials, 6 * std::sqrt(0.09 * trials));
}

TEST(BreakoutTest, IncrementalUpdateMatchesFullWrite) {
  Rng rng({.index = 4});
  Breakout::State state = Breakout::Start(true);
  Cells changed, whole;
  Breakout::Write(state, changed.data());
  int walls = 0;
  for (int t = 0; t < 200000; ++t) {
    const Breakout::State before = state;
    const std::int32_t action =
        rng.Uniform() < 0.98 ? SkilledAction(state) : std::int32_t(rng.Below(6));
    const Breakout::Change change = Breakout::Advance(&state, action);
    Breakout::Update(before, state, change, changed.data());
    Breakout::Write(state, whole.data());
    ASSERT_EQ(changed, whole) << "step " << t;
    walls += change.new_wall;
    if (!change.lost) continue;
    state = Breakout::Start(rng.Below(2) == 1);
    Breakout::Write(state, changed.data());
  }
  EXPECT_GT(walls, 0);
}

TEST(BreakoutTest, MinimalActionSetIsNoneLeftRight) {
  MinAtarEnv<Breakout> env(minatar::ActionSet::kMinimal,
                           {.max_episode_steps = 0, .sticky_actions = 0});
  Cells cells;
  const auto bytes = std::as_writable_bytes(std::span(cells));
  const std::map<std::int32_t, int> paddle_after{{0, 4}, {1, 3}, {2, 5}};
  for (const auto& [action, paddle] : paddle_after) {
    env.Reset(1, bytes);
    env.Step(std::as_bytes(std::span(&action, 1)), bytes);
    EXPECT_EQ(env.state().paddle, paddle);
  }
  EXPECT_EQ(env.spec().action.count, 3);
}

TEST(BreakoutTest, LossOnLastAllowedStepTerminatesAndTruncates) {
  Breakout::State low = Breakout::Start(false);
  low.y = low.trail_y = 8;
  for (const std::int64_t limit : {1, 2}) {
    MinAtarEnv<Breakout> env(minatar::ActionSet::kFull,
                             {.max_episode_steps = limit, .sticky_actions = 0});
    Cells cells;
    const auto bytes = std::as_writable_bytes(std::span(cells));
    env.Reset(1, bytes);
    env.set_state(low);
    const std::int32_t action = 0;
    const StepResult step = env.Step(std::as_bytes(std::span(&action, 1)), bytes);
    EXPECT_TRUE(step.terminated);
    EXPECT_EQ(step.truncated, limit == 1);
  }
}

}  // namespace
}  // namespace troop
