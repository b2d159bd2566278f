#include "envs/minatar/game.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "core/base/philox.h"
#include "envs/minatar/asterix.h"
#include "envs/minatar/freeway.h"
#include "envs/minatar/minatar_env.h"
#include "envs/minatar/seaquest.h"
#include "envs/minatar/space_invaders.h"
#include "tests/envs/fixture.h"

// The oracle is the MinAtar package, used as a black box: tests/fixtures/envs holds what it did and
// what it drew (tools/make_minatar_fixtures.py describes the files).
namespace troop {
namespace {

using Bytes = std::vector<std::uint8_t>;

Fixture Inflated(const std::string& name) {
  const Fixture packed(name);
  std::vector<char> bytes(16 << 20);
  uLongf size = bytes.size();
  TROOP_CHECK(uncompress(reinterpret_cast<Bytef*>(bytes.data()), &size,
                         reinterpret_cast<const Bytef*>(packed.bytes().data()),
                         packed.bytes().size()) == Z_OK,
              "{} is damaged", name);
  bytes.resize(size);
  return Fixture(std::move(bytes));
}

// The layout of a game's random state in the recordings.
template <class Game>
struct Recorded;

template <>
struct Recorded<Asterix> {
  static constexpr const char* kFile = "asterix";
  static constexpr int kBytes = 4;
  static Asterix::State Start(bool ramping, const Bytes&) {
    return Asterix::Start(ramping, nullptr);
  }
  static Asterix::Luck Luck(const Bytes& b) {
    return {b[0] != 0, b[1] != 0, b[2] != 0, std::int8_t(b[3])};
  }
  static Bytes Write(const Asterix::Luck& luck) {
    return {luck.spawn, luck.from_the_left, luck.gold, std::uint8_t(luck.rank)};
  }
};

template <>
struct Recorded<Freeway> {
  static constexpr const char* kFile = "freeway";
  static constexpr int kBytes = 9;
  static Freeway::State Start(bool, const Bytes& b) { return Freeway::Start(Luck(b).speed); }
  static Freeway::Luck Luck(const Bytes& b) {
    Freeway::Luck luck{.fresh = b[0] != 0};
    std::memcpy(luck.speed.data(), b.data() + 1, luck.speed.size());
    return luck;
  }
  static Bytes Write(const Freeway::Luck& luck) {
    Bytes bytes(kBytes);
    bytes[0] = luck.fresh;
    std::memcpy(bytes.data() + 1, luck.speed.data(), luck.speed.size());
    return bytes;
  }
};

template <>
struct Recorded<SpaceInvaders> {
  static constexpr const char* kFile = "space_invaders";
  static constexpr int kBytes = 0;
  static SpaceInvaders::State Start(bool ramping, const Bytes&) {
    return SpaceInvaders::Start(ramping, nullptr);
  }
  static SpaceInvaders::Luck Luck(const Bytes&) { return {}; }
  static Bytes Write(const SpaceInvaders::Luck&) { return {}; }
};

template <>
struct Recorded<Seaquest> {
  static constexpr const char* kFile = "seaquest";
  static constexpr int kBytes = 7;
  static Seaquest::State Start(bool ramping, const Bytes&) {
    return Seaquest::Start(ramping, nullptr);
  }
  static Seaquest::Luck Luck(const Bytes& b) {
    return {.enemy = {b[0] != 0, b[1] != 0, b[2] != 0, std::int8_t(b[3])},
            .diver = {b[4] != 0, b[5] != 0, false, std::int8_t(b[6])}};
  }
  static Bytes Write(const Seaquest::Luck& luck) {
    const Seaquest::Newcomer &enemy = luck.enemy, &diver = luck.diver;
    return {enemy.comes, enemy.from_the_left, enemy.submarine,        std::uint8_t(enemy.row),
            diver.comes, diver.from_the_left, std::uint8_t(diver.row)};
  }
};

template <class Game>
class MinAtarTest : public testing::Test {};
using Games = testing::Types<Asterix, Freeway, SpaceInvaders, Seaquest>;
struct GameNames {
  template <class Game>
  static std::string GetName(int) {
    return std::string(Game::kName);
  }
};
TYPED_TEST_SUITE(MinAtarTest, Games, GameNames);

template <class Game>
constexpr int kCells = MinAtarEnv<Game>::kCells;

template <class Game>
Bytes Pack(const typename Game::State& state) {
  Bytes cells(kCells<Game>), bits((kCells<Game> + 7) / 8);
  Game::Write(state, cells.data());
  for (std::size_t i = 0; i < cells.size(); ++i) bits[i / 8] |= std::uint8_t(cells[i] << (i % 8));
  return bits;
}

// Where packed observations differ: " (row, column, channel)" each.
template <class Game>
std::string Differences(const Bytes& ours, const Bytes& want) {
  std::string differences;
  for (int i = 0; i < kCells<Game>; ++i) {
    if ((((ours[std::size_t(i / 8)] ^ want[std::size_t(i / 8)]) >> (i % 8)) & 1) == 0) continue;
    const int cell = i / Game::kChannels;
    differences += fmt::format(" ({}, {}, {})", cell / minatar::kSide, cell % minatar::kSide,
                               i % Game::kChannels);
  }
  return differences;
}

TYPED_TEST(MinAtarTest, MatchesRecordedGamesCellByCell) {
  using Game = TypeParam;
  using Of = Recorded<Game>;
  Fixture fixture(Inflated("minatar_" + std::string(Of::kFile) + ".bin"));
  const auto episodes = fixture.Read<std::uint32_t>();
  ASSERT_EQ(fixture.Read<std::uint32_t>(), std::uint32_t(Of::kBytes));
  ASSERT_EQ(fixture.Read<std::uint32_t>(), std::uint32_t(Game::kChannels));
  std::map<bool, int> steps;  // by ramping
  int rewards = 0, ends = 0;
  for (std::uint32_t episode = 0; episode < episodes; ++episode) {
    const bool ramping = fixture.Read<std::uint8_t>() != 0;
    typename Game::State state =
        Of::Start(ramping, fixture.ReadMany<std::uint8_t>(std::size_t(Of::kBytes)));
    const auto length = fixture.Read<std::uint32_t>();
    std::vector<Bytes> moves;
    for (std::uint32_t t = 0; t < length; ++t) {
      moves.push_back(fixture.ReadMany<std::uint8_t>(3 + std::size_t(Of::kBytes)));
    }
    Bytes want(std::size_t(kCells<Game> + 7) / 8);
    for (std::uint32_t t = 0; t <= length; ++t) {
      if (t > 0) {
        const Bytes& move = moves[t - 1];
        const minatar::Outcome outcome =
            Game::Advance(&state, move[0], Of::Luck(Bytes(move.begin() + 3, move.end())));
        ASSERT_EQ(outcome.reward, move[1]) << "episode " << episode << ", step " << t;
        ASSERT_EQ(outcome.lost, move[2] != 0) << "episode " << episode << ", step " << t;
        rewards += outcome.reward;
        ends += outcome.lost;
      }
      const Bytes changes = fixture.ReadMany<std::uint8_t>(want.size());
      for (std::size_t i = 0; i < want.size(); ++i) want[i] ^= changes[i];
      ASSERT_EQ(Differences<Game>(Pack<Game>(state), want), "")
          << "episode " << episode << ", step " << t;
    }
    steps[ramping] += int(length);
  }
  EXPECT_TRUE(fixture.at_end());
  EXPECT_GT(rewards, 20);
  EXPECT_GT(ends, 0);
  EXPECT_GT(std::min(steps[false], steps[true]), 500);
}

struct Policy {
  float sticky = 0, share = 0;
  std::int32_t favourite = 0;
  bool ramping = true;
};

struct Samples {
  std::vector<std::uint16_t> returns, lengths;
  std::vector<Bytes> lucks;
};

// Plays like tools/make_minatar_fixtures.py: the preferred action, or a random one.
template <class Game>
Samples Play(const Policy& policy, std::uint32_t episodes, std::uint32_t longest) {
  Samples samples;
  Rng rng({.index = 17});
  const Bytes none(std::size_t{Recorded<Game>::kBytes});
  for (std::uint32_t episode = 0; episode < episodes; ++episode) {
    minatar::Chance chance(episode, double(policy.sticky));
    auto state = Game::Start(policy.ramping, chance.rng());
    int total = 0;
    std::uint32_t length = 0;
    for (bool end = false; !end && length < longest; ++length) {
      const bool favours = rng.Uniform() < double(policy.share);
      const auto action = chance.Play(favours ? policy.favourite : std::int32_t(rng.Below(6)));
      const auto luck = Game::Draw(state, action, chance.rng());
      const minatar::Outcome outcome = Game::Advance(&state, action, luck);
      total += outcome.reward;
      end = outcome.lost;
      Bytes bytes = Recorded<Game>::Write(luck);
      if (bytes != none) samples.lucks.push_back(std::move(bytes));
    }
    samples.returns.push_back(std::uint16_t(total));
    samples.lengths.push_back(std::uint16_t(length));
  }
  return samples;
}

// Kolmogorov and Smirnov: the largest distance between two empirical distributions. Two samples of
// one distribution are further apart than DistanceMax with probability 1e-5; for discrete values,
// as here, less often.
double Distance(std::vector<std::uint16_t> a, std::vector<std::uint16_t> b) {
  std::ranges::sort(a);
  std::ranges::sort(b);
  const auto below = [](const std::vector<std::uint16_t>& sorted, std::uint16_t value) {
    return double(std::ranges::upper_bound(sorted, value) - sorted.begin()) / double(sorted.size());
  };
  double distance = 0;
  for (const auto& values : {a, b}) {
    for (const std::uint16_t value : values) {
      distance = std::max(distance, std::abs(below(a, value) - below(b, value)));
    }
  }
  return distance;
}
double DistanceMax(std::size_t n, std::size_t m) {
  return std::sqrt(-std::log(1e-5 / 2) / 2 * (1.0 / double(n) + 1.0 / double(m)));
}

std::vector<std::uint16_t> Column(const std::vector<Bytes>& lucks, std::size_t index) {
  std::vector<std::uint16_t> values;
  for (const Bytes& luck : lucks) values.push_back(luck[index]);
  return values;
}

// At most 2 policies times 2 + 9 comparisons in each of 4 games: a false alarm in less than 1e-3 of
// all choices of the seeds, and never with those chosen.
TYPED_TEST(MinAtarTest, ReturnLengthAndRandomStateDistributionsMatch) {
  using Game = TypeParam;
  using Of = Recorded<Game>;
  Fixture fixture(Inflated("minatar_" + std::string(Of::kFile) + "_returns.bin"));
  const auto policies = fixture.Read<std::uint32_t>(), episodes = fixture.Read<std::uint32_t>();
  const auto longest = fixture.Read<std::uint32_t>();
  ASSERT_EQ(fixture.Read<std::uint32_t>(), std::uint32_t(Of::kBytes));
  std::size_t lucks_compared = 0;
  for (std::uint32_t i = 0; i < policies; ++i) {
    Policy policy{.sticky = fixture.Read<float>(), .share = fixture.Read<float>()};
    policy.favourite = fixture.Read<std::int32_t>();
    policy.ramping = fixture.Read<std::uint32_t>() != 0;
    Samples want{.returns = fixture.ReadMany<std::uint16_t>(episodes),
                 .lengths = fixture.ReadMany<std::uint16_t>(episodes)};
    want.lucks.resize(fixture.Read<std::uint32_t>());
    for (Bytes& luck : want.lucks) luck = fixture.ReadMany<std::uint8_t>(std::size_t(Of::kBytes));
    const Samples ours = Play<Game>(policy, episodes, longest);
    const double limit = DistanceMax(episodes, episodes);
    EXPECT_LT(Distance(ours.returns, want.returns), limit) << "policy " << i;
    EXPECT_LT(Distance(ours.lengths, want.lengths), limit) << "policy " << i;
    for (std::size_t column = 0; column < std::size_t(Of::kBytes); ++column) {
      EXPECT_LT(Distance(Column(ours.lucks, column), Column(want.lucks, column)),
                DistanceMax(ours.lucks.size(), want.lucks.size()))
          << "policy " << i << ", luck " << column;
    }
    lucks_compared += std::min(ours.lucks.size(), want.lucks.size());
  }
  EXPECT_TRUE(fixture.at_end());
  EXPECT_GE(lucks_compared, Of::kBytes > 0 ? 500u : 0u);
}

TYPED_TEST(MinAtarTest, MinimalActionsEqualThoseOfFullSet) {
  using Game = TypeParam;
  const EnvOptions options{.max_episode_steps = 0, .sticky_actions = 0};
  MinAtarEnv<Game> full(minatar::ActionSet::kFull, options);
  MinAtarEnv<Game> minimal(minatar::ActionSet::kMinimal, options);
  EXPECT_EQ(full.spec().action.count, 6);
  EXPECT_EQ(minimal.spec().action.count, std::int64_t(Game::kActions.size()));
  std::vector<std::byte> a(std::size_t(kCells<Game>)), b(a.size());
  full.Reset(1, a);
  minimal.Reset(1, b);
  Rng rng({.index = 2});
  for (int t = 0; t < 200; ++t) {
    const auto index = std::int32_t(rng.Below(std::uint32_t(Game::kActions.size())));
    const std::int32_t action = Game::kActions[std::size_t(index)];
    const StepResult step = full.Step(std::as_bytes(std::span(&action, 1)), a);
    minimal.Step(std::as_bytes(std::span(&index, 1)), b);
    ASSERT_EQ(a, b) << "step " << t;
    if (!step.terminated) continue;
    full.Reset(std::uint64_t(t), a);
    minimal.Reset(std::uint64_t(t), b);
  }
}

TYPED_TEST(MinAtarTest, ActionsOutsideMinimalSetDoNothing) {
  using Game = TypeParam;
  Rng rng({.index = 3});
  auto state = Game::Start(true, &rng);
  for (std::int32_t action = 0; action < minatar::kFullActions; ++action) {
    if (std::ranges::count(Game::kActions, action) != 0) continue;
    auto idle = state, acting = state;
    Game::Advance(&idle, minatar::kNone, {});
    Game::Advance(&acting, action, {});
    EXPECT_EQ(Pack<Game>(idle), Pack<Game>(acting)) << "action " << action;
  }
}

// The observations of 400 steps of a vector of 16 with the action "none": episodes last about 100
// steps.
Bytes PlayVector(bool ramping) {
  EnvOptions options{.max_episode_steps = 0, .sticky_actions = 0, .difficulty_ramping = ramping};
  auto vector = MakeMinAtarVector<Asterix>(minatar::ActionSet::kFull, options, 16,
                                           [seed = 0u](int) mutable { return ++seed; });
  Tensor action(DType::kI32, {16});
  Bytes all;
  vector->SubmitReset();
  vector->Poll();
  for (int t = 0; t < 400; ++t) {
    vector->Submit(action);
    const auto seen = vector->Poll()->observation.as<std::uint8_t>();
    all.insert(all.end(), seen.begin(), seen.end());
  }
  return all;
}

TEST(MinAtarEnvTest, DifficultyRampingFollowsOption) {
  for (const bool ramping : {false, true}) {
    MinAtarEnv<Asterix> env(
        minatar::ActionSet::kFull,
        {.max_episode_steps = 0, .sticky_actions = 0, .difficulty_ramping = ramping});
    std::vector<std::byte> cells(std::size_t(kCells<Asterix>));
    env.Reset(1, cells);
    EXPECT_EQ(env.state().ramping, ramping);
  }
  EXPECT_NE(PlayVector(false), PlayVector(true));
}

template <class Game>
class MinAtarUpdateTest : public testing::Test {};
using GamesWithUpdate = testing::Types<Freeway, SpaceInvaders>;
TYPED_TEST_SUITE(MinAtarUpdateTest, GamesWithUpdate, GameNames);

TYPED_TEST(MinAtarUpdateTest, IncrementalUpdateMatchesFullWrite) {
  using Game = TypeParam;
  Rng rng({.index = 4});
  auto state = Game::Start(true, &rng);
  Bytes changed(std::size_t(kCells<Game>)), whole(changed.size());
  Game::Write(state, changed.data());
  int rewards = 0;
  for (int t = 0; t < 20000; ++t) {
    const auto before = state;
    const std::int32_t good = Game::kActions[Game::kName == "Freeway" ? 1 : 3];  // up, fire
    const std::int32_t action = rng.Below(4) > 0 ? good : std::int32_t(rng.Below(6));
    const auto change = Game::Advance(&state, action, Game::Draw(state, action, &rng));
    Game::Update(before, state, change, changed.data());
    Game::Write(state, whole.data());
    ASSERT_EQ(changed, whole) << "step " << t;
    rewards += change.reward;
    if (!change.lost) continue;
    state = Game::Start(true, &rng);
    Game::Write(state, changed.data());
  }
  EXPECT_GT(rewards, 20);
}

}  // namespace
}  // namespace troop
