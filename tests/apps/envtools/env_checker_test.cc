#include "apps/envtools/env_checker.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <string>
#include <vector>

#ifdef __SANITIZE_ADDRESS__
// The sanitizer quarantines up to 256 MiB of freed memory, which would look like a leak.
extern "C" const char* __asan_default_options() { return "quarantine_size_mb=1"; }
#endif

namespace troop {
namespace {

using testing::HasSubstr;
using Kind = Verdict::Kind;

std::string Text(const std::vector<Verdict>& verdicts) {
  std::string text;
  for (const Verdict& verdict : verdicts) {
    constexpr const char* kNames[] = {"ok", "note", "FAIL"};
    text +=
        std::string(kNames[int(verdict.kind)]) + " " + verdict.item + ": " + verdict.text + "\n";
  }
  return text;
}

std::vector<Verdict> Check(const std::string& id, EnvOptions env = {},
                           Isolation isolation = Isolation::kNone) {
  env.isolation = isolation;
  int reported = 0;
  auto verdicts = CheckEnvironment({.id = id, .env = std::move(env), .quick = true},
                                   [&](const Verdict&) { ++reported; });
  EXPECT_EQ(reported, int(verdicts.size())) << "each verdict must be reported immediately";
  return verdicts;
}

EnvOptions Walk(const std::string& fault, std::vector<EnvOption> more = {}) {
  EnvOptions env{.plugin = TROOP_PLUGIN_FOLDER "/walk.so", .options = std::move(more)};
  if (!fault.empty()) env.options.push_back({"fault", fault});
  return env;
}

std::vector<std::string> Items(const std::vector<Verdict>& verdicts, Kind kind) {
  std::vector<std::string> items;
  for (const Verdict& verdict : verdicts) {
    if (verdict.kind == kind) items.push_back(verdict.item);
  }
  return items;
}

struct Planted {
  std::string fault, item, text;
  Kind kind = Kind::kFail;
};
void PrintTo(const Planted& planted, std::ostream* out) { *out << planted.fault; }

class EnvCheckTest : public testing::TestWithParam<Planted> {};

TEST_P(EnvCheckTest, FindsPlantedFault) {
  const Planted& planted = GetParam();
  const std::vector<Verdict> verdicts = Check("Walk-v0", Walk(planted.fault));
  const auto it = std::ranges::find(verdicts, planted.item, &Verdict::item);
  ASSERT_NE(it, verdicts.end()) << Text(verdicts);
  EXPECT_EQ(it->kind, planted.kind) << Text(verdicts);
  EXPECT_THAT(it->text, HasSubstr(planted.text)) << Text(verdicts);
}

INSTANTIATE_TEST_SUITE_P(
    Walk, EnvCheckTest,
    testing::Values(Planted{"create", "environment", "planted: no licence"},
                    Planted{"throws", "environment",
                            "planted: step 5 at step 5 of the episode with seed"},
                    Planted{"reset_throws", "environment", "planted: reset at step 0"},
                    Planted{"nan", "numbers", "observation[1] is nan at step 5"},
                    Planted{"infinite_reward", "numbers", "reward is inf at step 5"},
                    Planted{"clock_seed", "determinism", "use only randomness from the seed"},
                    Planted{"keeps_state", "reset", "reset must reinitialize every member"},
                    Planted{"stays_ended", "reset", "reset must reinitialize every member"},
                    Planted{"shares_state", "vector", "environments must not share state"},
                    Planted{"both_ends", "ends", "both terminated and truncated"},
                    Planted{"endless", "length", "no episode ended within 10000 steps"},
                    Planted{"resets_itself", "last observation", "return the true final one"},
                    Planted{"few_views", "last observation",
                            "is an initial one, as are 100 % of all", Kind::kOk},
                    Planted{"refuses_action", "environment", "planted: action 2"},
                    Planted{"constant", "effect", "the observation never changes"},
                    Planted{"stands_still", "effect",
                            "observations change, and depend on the actions", Kind::kOk},
                    Planted{"ignores_action", "effect", "use the action"},
                    Planted{"leaks", "memory", "free what reset and step allocate"},
                    Planted{"ignores_seed", "seeds", "seeds give the same episode", Kind::kNote}),
    [](const auto& info) { return info.param.fault; });

TEST(EnvCheckSoundTest, SoundPluginPassesAllItems) {
  for (const auto& [id, file] : std::vector<std::pair<std::string, std::string>>{
           {"Walk-v0", "walk"}, {"TwoTanks-v0", "two_tanks"}, {"Inventory-v0", "inventory"}}) {
    const auto verdicts = Check(id, {.plugin = TROOP_PLUGIN_FOLDER "/" + file + ".so"});
    EXPECT_THAT(Items(verdicts, Kind::kFail), testing::IsEmpty()) << Text(verdicts);
    EXPECT_THAT(Items(verdicts, Kind::kOk),
                testing::ElementsAre("start", "steps", "numbers", "determinism", "reset", "vector",
                                     "seeds", "ends", "limit", "last observation", "actions",
                                     "effect", "memory", "speed"))
        << Text(verdicts);
  }
}

// Some of its episodes end on the third step, which the limit that is tried is.
TEST(EnvCheckSoundTest, AllowsTerminationOnStepOfLimit) {
  const auto verdicts = Check("Walk-v0", Walk("", {{"length", std::int64_t{4}}}));
  EXPECT_THAT(Items(verdicts, Kind::kFail), testing::IsEmpty()) << Text(verdicts);
}

// Which is given seeds ahead.
TEST(EnvCheckSoundTest, SoundPluginPassesInSeparateProcess) {
  setenv("TROOP_PROGRAM", TROOP_ENV_WORKER, 1);
  const auto verdicts = Check("Walk-v0", Walk(""), Isolation::kProcess);
  EXPECT_THAT(Items(verdicts, Kind::kFail), testing::IsEmpty()) << Text(verdicts);
}

// No random action hits the corner.
TEST(EnvCheckSoundTest, TriesCornersOfContinuousActions) {
  const auto verdicts = Check("Corner-v0", Walk(""));
  EXPECT_THAT(Items(verdicts, Kind::kFail), testing::ElementsAre("actions")) << Text(verdicts);
  EXPECT_THAT(Text(verdicts), HasSubstr("action [1, 1] is declared but was rejected: step failed "
                                        "(-1): planted: corner"));
}

TEST(EnvCheckSoundTest, BuiltInEnvironmentsPass) {
  for (const std::string& id : EnvironmentIds()) {
    const auto verdicts = Check(id);
    EXPECT_THAT(Items(verdicts, Kind::kFail), testing::IsEmpty()) << id << "\n" << Text(verdicts);
    EXPECT_EQ(verdicts.back().item, "speed");
  }
}

TEST(EnvCheckSoundTest, UnknownEnvironmentIsOnlyVerdict) {
  const auto verdicts = Check("Nothing-v3");
  ASSERT_EQ(verdicts.size(), 1u);
  EXPECT_EQ(verdicts[0].kind, Kind::kFail);
  EXPECT_THAT(verdicts[0].text, HasSubstr("unknown environment"));
}

}  // namespace
}  // namespace troop
