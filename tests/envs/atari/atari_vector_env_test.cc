#include "envs/atari/atari_vector_env.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <stdlib.h>
#include <zlib.h>

#include <chrono>
#include <set>
#include <vector>

#include "core/base/philox.h"
#include "tests/core/python.h"
#include "tests/envs/fixture.h"

namespace troop {
namespace {

// The next batch; nullptr: the status is not ok, or the test's deadline passed.
const StepBatch* Await(VectorEnv* env) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (env->status().ok() && std::chrono::steady_clock::now() < end) {
    if (const StepBatch* batch = env->Poll()) return batch;
    pollfd ready{env->fd(), POLLIN, 0};
    poll(&ready, 1, 100);
  }
  return nullptr;
}

std::uint32_t CrcOf(const ConstTensor& rows, int i) {
  const std::size_t bytes = rows.bytes().size() / std::size_t(rows.dim(0));
  const auto* const row = rows.as<std::uint8_t>().data() + std::size_t(i) * bytes;
  return std::uint32_t(crc32(0, row, uInt(bytes)));
}

class AtariVectorEnvTest : public testing::Test {
 protected:
  void SetUp() override {
    TROOP_SKIP_WITHOUT_PYTHON();
    setenv("TROOP_PYTHON_PATH", TROOP_SOURCE_DIR "/python", 1);
    options_.python = getenv("TROOP_TEST_PYTHON");
    options_.action_repeat = 4;
    options_.sticky_actions = 0;
  }
  std::unique_ptr<VectorEnv> Open(const std::string& id, int size) {
    auto env = MakeVectorEnv(id, options_, size, [this](int i) {
      return std::uint64_t(i) + 100 * std::uint64_t(episodes_++);
    });
    EXPECT_TRUE(env.ok()) << env.status().ToString();
    if (!env.ok()) return nullptr;
    (*env)->SubmitReset();
    return std::move(*env);
  }
  std::string ErrorOf(const std::string& id) {
    return MakeVectorEnv(id, options_, 1, [](int) { return 0; }).status().message();
  }

  EnvOptions options_;
  int episodes_ = 0;
};

TEST_F(AtariVectorEnvTest, WholeEpisodesMatchGymnasiumByteForByte) {
  Fixture fixture("atari_episodes.bin");
  const auto count = fixture.Read<std::uint32_t>();
  ASSERT_GE(count, 4u);
  for (std::uint32_t n = 0; n < count; ++n) {
    const auto name = fixture.ReadMany<char>(16);
    const std::string id = fmt::format("ALE/{}-v5", name.data());
    options_.action_repeat = int(fixture.Read<std::uint32_t>());
    const bool life_loss = fixture.Read<std::uint32_t>() != 0;
    options_.options = {{"terminal_on_life_loss", life_loss}};
    const auto steps = fixture.Read<std::uint32_t>();
    const auto env = Open(id, 2);  // both play the same
    ASSERT_NE(env, nullptr);
    EXPECT_EQ(env->spec().observation.ToString(), "u8[84, 84]");
    EXPECT_FLOAT_EQ(env->spec().observation_scale, 1 / 255.0F);
    const StepBatch* batch = Await(env.get());
    ASSERT_NE(batch, nullptr) << env->status().ToString();
    const auto first = fixture.Read<std::uint32_t>();
    EXPECT_EQ(CrcOf(batch->observation, 0), first) << id;
    Tensor action(DType::kI32, {2});
    for (std::uint32_t t = 0; t < steps; ++t) {
      const auto told = fixture.ReadMany<std::uint8_t>(4);
      const auto reward = fixture.Read<float>();
      const auto crc = fixture.Read<std::uint32_t>();
      for (auto& a : action.as<std::int32_t>()) a = told[0];
      env->Submit(action);
      batch = Await(env.get());
      ASSERT_NE(batch, nullptr) << env->status().ToString();
      const bool ended = told[1] != 0 || told[2] != 0;
      for (int i = 0; i < 2; ++i) {
        const std::string where =
            fmt::format("{}, repeat {}, step {}, row {}", id, options_.action_repeat, t, i);
        ASSERT_EQ(batch->terminated.as<std::uint8_t>()[std::size_t(i)], told[1]) << where;
        ASSERT_EQ(batch->truncated.as<std::uint8_t>()[std::size_t(i)], told[2]) << where;
        ASSERT_EQ(batch->reward.as<float>()[std::size_t(i)], reward) << where;
        ASSERT_EQ(CrcOf(ended ? batch->final_observation : batch->observation, i), crc) << where;
      }
    }
    const auto again = fixture.Read<std::uint32_t>();
    // After a lost life the game continues here, while Gymnasium starts another.
    if (!life_loss) {
      EXPECT_EQ(CrcOf(batch->observation, 0), again) << id;
    }
  }
  EXPECT_TRUE(fixture.at_end());
}

// Returns the observations and rewards of 60 random steps of two environments.
std::vector<std::uint32_t> Play(VectorEnv* env) {
  std::vector<std::uint32_t> seen;
  const StepBatch* batch = Await(env);
  Rng rng({.run_seed = 5});
  Tensor action(DType::kI32, {env->size()});
  for (int t = 0; t < 60 && batch != nullptr; ++t) {
    for (int i = 0; i < env->size(); ++i) seen.push_back(CrcOf(batch->observation, i));
    for (auto& a : action.as<std::int32_t>()) {
      a = std::int32_t(rng.Below(std::uint32_t(env->spec().action.count)));
    }
    env->Submit(action);
    batch = Await(env);
  }
  EXPECT_NE(batch, nullptr) << env->status().ToString();
  return seen;
}

TEST_F(AtariVectorEnvTest, StickyActionsAndNoOpsDependOnlyOnSeed) {
  options_.sticky_actions = -1;  // its own: a quarter
  options_.noop_max = 30;
  const auto both = [&](int processes) {
    options_.processes = processes;
    episodes_ = 0;
    const auto env = Open("ALE/Breakout-v5", 2);
    return env ? Play(env.get()) : std::vector<std::uint32_t>();
  };
  const auto one = both(1);
  EXPECT_EQ(one, both(2));
  EXPECT_GT(std::set<std::uint32_t>(one.begin(), one.end()).size(), 20u);
  options_.sticky_actions = 0;
  EXPECT_NE(one, both(1));
}

TEST_F(AtariVectorEnvTest, EpisodesDifferBetweenSeeds) {
  options_.noop_max = 30;
  const auto env = Open("ALE/Breakout-v5", 4);  // seeds 0, 101, 202, 303
  ASSERT_NE(env, nullptr);
  Tensor action(DType::kI32, {4});
  std::set<std::vector<std::uint32_t>> games;
  std::vector<std::vector<std::uint32_t>> seen(4);
  for (auto& a : action.as<std::int32_t>()) a = 1;  // fire: then the ball flies as chance has it
  for (int t = 0; t < 30; ++t) {
    const StepBatch* batch = Await(env.get());
    ASSERT_NE(batch, nullptr) << env->status().ToString();
    for (int i = 0; i < 4; ++i) seen[std::size_t(i)].push_back(CrcOf(batch->observation, i));
    env->Submit(action);
  }
  games.insert(seen.begin(), seen.end());
  EXPECT_GE(games.size(), 3u);
}

TEST_F(AtariVectorEnvTest, TruncatesEpisodeAtLimit) {
  options_.max_episode_steps = 7;
  const auto env = Open("ALE/Pong-v5", 1);
  ASSERT_NE(env, nullptr);
  EXPECT_EQ(env->spec().max_episode_steps, 7);
  ASSERT_NE(Await(env.get()), nullptr);
  for (int t = 1; t <= 21; ++t) {
    env->Submit(Tensor(DType::kI32, {1}));
    const StepBatch* batch = Await(env.get());
    ASSERT_NE(batch, nullptr);
    EXPECT_EQ(batch->truncated.as<std::uint8_t>()[0], t % 7 == 0);
    EXPECT_EQ(batch->terminated.as<std::uint8_t>()[0], 0);
  }
}

TEST_F(AtariVectorEnvTest, ReportsUnplayableGamesAndOptions) {
  EXPECT_NE(ErrorOf("ALE/Pnog-v5").find("ale-py has no game \"Pnog\"; known: adventure, "),
            std::string::npos)
      << ErrorOf("ALE/Pnog-v5");
  EXPECT_NE(ErrorOf("ALE/Pong").find("write \"ALE/Pong-v5\" for example"), std::string::npos);
  options_.options = {{"screen_size", std::int64_t{200}}};
  EXPECT_EQ(
      ErrorOf("ALE/Pong-v5"),
      "env.options.screen_size: cannot resize frames of 210x160 to 200x200; each side must be "
      "at least 1 and at most the source's, which is at most 1024");
  options_.options = {{"life_loss", true}};
  EXPECT_NE(ErrorOf("ALE/Pong-v5").find("env.options.life_loss is not an option of an Atari game"),
            std::string::npos)
      << ErrorOf("ALE/Pong-v5");
}

}  // namespace
}  // namespace troop
