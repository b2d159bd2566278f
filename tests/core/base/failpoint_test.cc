#include "core/base/failpoint.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "tests/core/temp_folder.h"

namespace troop {
namespace {

// Returns how a process ends that reaches a failpoint `times` times with this order: its exit code,
// or 128 + the signal that ended it.
int EndOf(const std::string& order, int times) {
  const pid_t process = fork();
  if (process == 0) {
    setenv("TROOP_FAILPOINT", order.c_str(), 1);
    ReloadFailpoint();
    for (int i = 0; i < times; ++i) {
      HitFailpoint(Failpoint::kDiskHalf);
      HitFailpoint(Failpoint::kDiskSynced);
    }
    _exit(0);
  }
  int status = 0;
  EXPECT_EQ(waitpid(process, &status, 0), process);
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

TEST(FailpointTest, NamesAreUniqueAndParseToTheirFailpoint) {
  std::set<std::string> names;
  int place = 0;
  for (const std::string_view name : FailpointNames()) {
    names.emplace(name);
    const auto order = ParseFailpoint(name);
    ASSERT_TRUE(order.ok()) << name;
    EXPECT_EQ(int(order->at), place++) << name;
  }
  EXPECT_EQ(names.size(), FailpointNames().size());
  EXPECT_EQ(ParseFailpoint("checkpoint.begin")->at, Failpoint::kCheckpointBegin);
  EXPECT_EQ(ParseFailpoint("evaluator.step")->at, Failpoint::kEvaluatorStep);
}

TEST(FailpointTest, ParsesOrderWithDefaults) {
  const auto plain = ParseFailpoint("disk.half");
  EXPECT_EQ(plain->n, 1);
  EXPECT_FALSE(plain->on);
  EXPECT_EQ(plain->act, FailpointSpec::kKill);
  EXPECT_EQ(plain->file, "");
  const auto full = ParseFailpoint("disk.half:12:hang:/a:b/c");
  EXPECT_EQ(full->n, 12);
  EXPECT_EQ(full->act, FailpointSpec::kHang);
  EXPECT_EQ(full->file, "/a:b/c");
  EXPECT_EQ(ParseFailpoint("actor.reward")->act, FailpointSpec::kNan);
  const auto number = ParseFailpoint("learner.weight:3+:inf:/a");
  EXPECT_EQ(number->n, 3);
  EXPECT_TRUE(number->on);
  EXPECT_EQ(number->act, FailpointSpec::kInf);
  EXPECT_EQ(number->file, "/a");
  EXPECT_EQ(ParseFailpoint("learner.device:5")->act, FailpointSpec::kFail);
  EXPECT_EQ(ParseFailpoint("learner.pace:20")->act, FailpointSpec::kSlow);
  EXPECT_EQ(ParseFailpoint("learner.push:100")->act, FailpointSpec::kCorruptGradientAndLoss);
  EXPECT_EQ(ParseFailpoint("learner.push:100:sly")->act, FailpointSpec::kCorruptGradient);
}

TEST(FailpointTest, RejectsInvalidOrderListingAllNames) {
  for (const char* wrong :
       {"", "disk.halb", "disk.half:0", "disk.half:x", "disk.half:1:stop", "disk.half:1:nan",
        "learner.pace:20:wild", "learner.push:100:slow", "learner.push:9+", "learner.push:0",
        "disk.half:2+:kill", "actor.reward:1:kill", "actor.reward:+", "actor.reward:1-",
        "learner.device:1:kill"}) {
    const auto order = ParseFailpoint(wrong);
    ASSERT_FALSE(order.ok()) << wrong;
    for (const std::string_view name : FailpointNames()) {
      EXPECT_NE(order.status().message().find(name), std::string::npos) << wrong;
    }
  }
}

TEST(FailpointTest, KillsOnlyAtGivenHitOfGivenFailpoint) {
  EXPECT_EQ(EndOf("", 5), 0);
  EXPECT_EQ(EndOf("disk.half:3", 2), 0);
  EXPECT_EQ(EndOf("disk.half:3", 3), 128 + SIGKILL);
  EXPECT_EQ(EndOf("disk.renamed", 3), 0);
  EXPECT_EQ(EndOf("disk.halb", 1), 128 + SIGABRT);
}

TEST(FailpointTest, FileLimitsFailpointToFirstProcess) {
  const TempFolder temp;
  const std::string order = "disk.half:1:kill:" + temp.path() + "/hit";
  EXPECT_EQ(EndOf(order, 1), 128 + SIGKILL);
  EXPECT_TRUE(std::filesystem::exists(temp.path() + "/hit"));
  EXPECT_EQ(EndOf(order, 5), 0);
}

// For each of `times` calls: 0 for none, 1 for NaN, 2 for infinity.
std::vector<int> Numbers(const std::string& order, int times) {
  setenv("TROOP_FAILPOINT", order.c_str(), 1);
  ReloadFailpoint();
  std::vector<int> numbers;
  for (int i = 0; i < times; ++i) {
    EXPECT_FALSE(InjectedValue(Failpoint::kLearnerWeight).has_value());
    const std::optional<float> number = InjectedValue(Failpoint::kActorReward);
    numbers.push_back(!number ? 0 : std::isnan(*number) ? 1 : std::isinf(*number) ? 2 : 3);
  }
  unsetenv("TROOP_FAILPOINT");
  ReloadFailpoint();
  return numbers;
}

TEST(FailpointTest, InjectsNonFiniteValueOnceOrPersistently) {
  using Is = std::vector<int>;
  EXPECT_EQ(Numbers("actor.reward:3", 5), (Is{0, 0, 1, 0, 0}));
  EXPECT_EQ(Numbers("actor.reward:2+:inf", 5), (Is{0, 2, 2, 2, 2}));
  const TempFolder temp;
  const std::string order = "actor.reward:2+:nan:" + temp.path() + "/hit";
  EXPECT_EQ(Numbers(order, 4), (Is{0, 1, 1, 1}));
  EXPECT_EQ(Numbers(order, 4), (Is{0, 0, 0, 0}));  // another process got there first
}

// Arms for as long as it lives.
class Ordered {
 public:
  explicit Ordered(const std::string& orders) {
    setenv("TROOP_FAILPOINT", orders.c_str(), 1);
    ReloadFailpoint();
  }
  ~Ordered() {
    unsetenv("TROOP_FAILPOINT");
    ReloadFailpoint();
  }
};

// How many of 10,000 keys are drawn, and whether a second query gives the same answer.
int DrawnOf10000(GradientCorruption what, std::uint64_t index) {
  int drawn = 0;
  for (std::uint64_t i = 0; i < 10000; ++i) {
    const RngKey key{.run_seed = 5, .index = index, .episode = i};
    const GradientCorruption spoilt = DrawGradientCorruption(Failpoint::kLearnerPush, key);
    EXPECT_EQ(DrawGradientCorruption(Failpoint::kLearnerPush, key), spoilt);
    EXPECT_TRUE(spoilt == what || spoilt == GradientCorruption::kNone);
    drawn += spoilt == what;
  }
  return drawn;
}

TEST(FailpointTest, SupportsSeveralOrdersAtOnce) {
  const Ordered both("learner.pace:20;learner.push:100:sly;actor.reward:1+:inf");
  EXPECT_EQ(SlowdownFactor(Failpoint::kLearnerPace), 20);
  EXPECT_EQ(SlowdownFactor(Failpoint::kLearnerPace), 20);
  EXPECT_EQ(DrawGradientCorruption(Failpoint::kActorStep, {}), GradientCorruption::kNone);
  EXPECT_TRUE(InjectedValue(Failpoint::kActorReward).has_value());
  EXPECT_FALSE(InjectedValue(Failpoint::kEvaluatorReward).has_value());
}

TEST(FailpointTest, SpoilsGivenFractionChosenByKey) {
  EXPECT_EQ(SlowdownFactor(Failpoint::kLearnerPace), 1);
  EXPECT_EQ(DrawnOf10000(GradientCorruption::kNone, 0), 10000);
  {
    const Ordered wild("learner.push:100");
    // 100 are expected with a standard deviation of 10: beyond these 2e-9. The keys are fixed.
    EXPECT_NEAR(DrawnOf10000(GradientCorruption::kGradientAndLoss, 0), 100, 60);
  }
  const Ordered sly("learner.push:10:sly");
  const int first = DrawnOf10000(GradientCorruption::kGradient, 0),
            second = DrawnOf10000(GradientCorruption::kGradient, 1);
  EXPECT_NEAR(first, 1000, 180);
  EXPECT_NE(first, second);  // the keys' own draws
}

TEST(FailpointTest, FileLimitsSlowdownToOneProcessPermanently) {
  const TempFolder temp;
  const std::string order = "learner.pace:20:slow:" + temp.path() + "/slow";
  {
    const Ordered here(order);
    for (int i = 0; i < 3; ++i) EXPECT_EQ(SlowdownFactor(Failpoint::kLearnerPace), 20);
  }
  const Ordered another(order);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(SlowdownFactor(Failpoint::kLearnerPace), 1);
}

}  // namespace
}  // namespace troop
