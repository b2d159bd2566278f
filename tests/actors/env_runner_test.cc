#include "actors/env_runner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdlib.h>

#include <set>
#include <sstream>

#include "core/base/log.h"
#include "tests/testing/captured_log.h"

namespace troop {
namespace {

using testing::HasSubstr;

// Runs a plug-in that fails on request (tests/envs/faulty_plugin.cc).
class EnvRunnerTest : public testing::Test {
 protected:
  EnvRunnerTest() { setenv("TROOP_PROGRAM", TROOP_ENV_WORKER, 1); }

  static constexpr int kSize = 3;
  static constexpr std::uint64_t kFirst = 7;

  void Make(const std::string& fault, std::int64_t at_step = 5) {
    config_.env.id = "Walk-v0";
    config_.env.plugin = TROOP_PLUGIN_FOLDER "/walk.so";
    config_.env.isolation = isolation_;
    config_.env.options = {{"at_step", at_step}, {"fault", fault}};
    auto made = EnvRunner::Make(
        config_, kSize,
        {.env = EnvOptionsFor(config_.env, config_.serial), .seed = SeedOf, .first = kFirst});
    ASSERT_TRUE(made.ok()) << made.status().ToString();
    runner_ = std::move(*made);
  }
  static std::uint64_t SeedOf(std::size_t i, std::uint64_t episode) {
    return 1000 * (i + 1) + episode;
  }
  // A whole step of all; false: it is over.
  bool Step() {
    bool stepped = false;
    while (runner_->status().ok()) {
      if (runner_->ready()) {
        if (stepped) return true;
        std::vector<ExploreKey> keys(kSize);
        for (std::size_t i = 0; i < kSize; ++i) {
          keys[i] = {
              .env = i, .episode = runner_->episode(i), .step = runner_->step(i), .epsilon = 1};
          counted_[i] = runner_->step(i);
        }
        runner_->Act(keys);
      }
      stepped |= runner_->Poll();
    }
    return false;
  }

  ActingConfig config_;
  Isolation isolation_ = Isolation::kNone;
  std::unique_ptr<EnvRunner> runner_;
  std::array<std::uint64_t, kSize> counted_{};
};

// In this process, and in a separate process that receives seeds in advance.
class IsolationTest : public EnvRunnerTest, public testing::WithParamInterface<Isolation> {
 protected:
  IsolationTest() { isolation_ = GetParam(); }
};
INSTANTIATE_TEST_SUITE_P(Envs, IsolationTest,
                         testing::Values(Isolation::kNone, Isolation::kProcess),
                         [](const auto& info) { return std::string(EnumName(info.param)); });

TEST_P(IsolationTest, FaultyStepIsNotCountedAndEndsOnlyItsEpisode) {
  Make("throws");
  std::int64_t faults = 0;
  for (int k = 0; k < 300; ++k) {
    std::array<std::uint64_t, kSize> episode{};
    for (std::size_t i = 0; k > 0 && i < kSize; ++i) episode[i] = runner_->episode(i);
    ASSERT_TRUE(Step()) << runner_->status().ToString();
    for (std::size_t i = 0; i < kSize; ++i) {
      const EnvRunner::One& one = runner_->one(i);
      ASSERT_EQ(one.good, counted_[i] != 4);  // the fifth step throws, and no other
      ASSERT_FALSE(!one.good && one.ended());
      const bool next = !one.good || one.ended();
      ASSERT_EQ(runner_->episode(i), episode[i] + (next ? 1 : 0));
      ASSERT_EQ(runner_->step(i), next ? 0 : counted_[i] + 1);
      faults += !one.good;
    }
  }
  EXPECT_GT(faults, 50);
  EXPECT_EQ(runner_->faults(), faults);
  EXPECT_EQ(runner_->nonfinite_values(), 0);
}

TEST_F(EnvRunnerTest, NamesFaultsAndFailsAfterTooMany) {
  config_.env.faults_max = 20;
  const CapturedLog log;
  Make("throws");
  while (Step()) {
  }
  for (const char* part :
       {"Walk-v0: ", "planted: step 5", "at step 5 of episode ", "of environment ",
        "20 faults without a complete episode", "env.faults_max", "fix the environment"}) {
    EXPECT_THAT(runner_->status().message(), HasSubstr(part));
  }
  EXPECT_EQ(runner_->status().code(), Code::kCancelled);  // no restart cures it
  // The first fault is logged with the seed that reproduces it.
  EXPECT_THAT(log.text(), testing::ContainsRegex(
                              "at step 5 of episode 0 of environment [789] \\(seed [123]000,"));
}

TEST_F(EnvRunnerTest, ReportsBlockedOnFaultsUntilCompleteEpisode) {
  Make("throws", 38);  // most walks end before
  std::int64_t first = 0, cleared = 0;
  for (int k = 0; k < 20000; ++k) {
    const std::int64_t faults = runner_->faults();
    const bool was = !runner_->blocked().empty();
    ASSERT_TRUE(Step()) << runner_->status().ToString();
    if (faults == 0 && runner_->faults() == 1) {
      ++first;
      EXPECT_THAT(runner_->blocked(), HasSubstr("planted: step 5"));
      EXPECT_THAT(runner_->blocked(), HasSubstr("1 of 100 in a row (env.faults_max)"));
    }
    cleared += was && runner_->blocked().empty();
  }
  EXPECT_EQ(first, 1);
  EXPECT_GT(cleared, 0);
  Make("throws", 1);
  while (runner_->faults() < 30) ASSERT_TRUE(Step());
  EXPECT_THAT(runner_->blocked(), HasSubstr(" of 100 in a row (env.faults_max)"));
}

TEST_F(EnvRunnerTest, CompleteEpisodeResetsFaultCount) {
  config_.env.faults_max = 15;  // in a row: about one walk in five lasts that long
  Make("throws", 38);           // most walks are shorter
  for (int k = 0; k < 20000; ++k) ASSERT_TRUE(Step()) << runner_->status().ToString();
  EXPECT_GT(runner_->faults(), 100);
}

TEST_F(EnvRunnerTest, RetriesFailedStart) {
  Make("reset_throws");  // each third
  int whole = 0;
  for (int k = 0; k < 2000; ++k) {
    ASSERT_TRUE(Step()) << runner_->status().ToString();
    for (std::size_t i = 0; i < kSize; ++i) whole += runner_->one(i).ended();
  }
  EXPECT_GT(whole, 50);
  EXPECT_GT(runner_->faults(), 20);
}

TEST_P(IsolationTest, RestartWithOtherSeedsPlaysOtherEpisodes) {
  Make("");
  const auto observed = [&] {
    EXPECT_TRUE(Step());
    std::string bytes;
    for (std::size_t i = 0; i < kSize; ++i) {
      const auto row = runner_->acted_on(i);
      bytes.append(reinterpret_cast<const char*>(row.data()), row.size());
    }
    return bytes;
  };
  const std::string first = observed();
  for (int k = 0; k < 10; ++k) ASSERT_TRUE(Step());
  runner_->Restart([](std::size_t i, std::uint64_t e) { return 77 + SeedOf(i, e); });
  EXPECT_NE(observed(), first);
  EXPECT_EQ(runner_->episode(0), 0u);
  runner_->Restart(SeedOf);
  EXPECT_EQ(observed(), first);
}

}  // namespace
}  // namespace troop
