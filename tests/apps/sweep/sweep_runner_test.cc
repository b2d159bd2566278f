#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include "apps/sweep/search_space.h"
#include "apps/sweep/sweep_grid.h"
#include "apps/sweep/sweep_summary.h"
#include "core/graphics/plot/line_plot.h"
#include "core/storage/json.h"
#include "tests/core/temp_folder.h"

namespace troop {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

TEST(SweepPlanTest, SplitsAtCommasOutsideBracketsAndQuotes) {
  EXPECT_THAT(SplitValues("1,2,3"), ElementsAre("1", "2", "3"));
  EXPECT_THAT(SplitValues("[1,2],[3]"), ElementsAre("[1,2]", "[3]"));
  EXPECT_THAT(SplitValues("\"a,b\",'c,d',{e=1,f=2}"), ElementsAre("\"a,b\"", "'c,d'", "{e=1,f=2}"));
  EXPECT_THAT(SplitValues(""), ElementsAre(""));
}

using Words = std::vector<std::string>;

class SweepTest : public testing::Test {
 protected:
  SweepTest() { std::ofstream(config()) << "name = \"trial\"\n"; }
  std::string config() const { return temp_.path() + "/config.toml"; }
  Result<SweepPlan> Plan(std::vector<std::string> overrides, std::int64_t seeds = 2) const {
    overrides.push_back("log.dir=" + temp_.path());
    return PlanSweep({config(), std::move(overrides), seeds, 7});
  }
  Result<SweepPlan> Search(Words overrides, std::int64_t trials,
                           std::optional<std::int64_t> seed = {}) const {
    overrides.push_back("log.dir=" + temp_.path());
    return PlanSweep({.config = config(),
                      .overrides = std::move(overrides),
                      .seeds = 2,
                      .trials = trials,
                      .search_seed = seed});
  }
  void ExpectRefused(const std::vector<std::string>& overrides, const std::string& why) const {
    const auto plan = Plan(overrides);
    EXPECT_EQ(plan.status().code(), Code::kInvalidArgument);
    EXPECT_THAT(plan.status().message(), HasSubstr(why));
  }
  TempFolder temp_;
};

TEST_F(SweepTest, RunsAllCombinationsWithEachSeed) {
  const auto plan = Plan({"actor.n_step=1,3", "learner.gamma=0.9", "replay.alpha=0,0.6"});
  ASSERT_TRUE(plan.ok()) << plan.status().ToString();
  EXPECT_THAT(plan->path, testing::EndsWith("/trial"));
  EXPECT_THAT(plan->seeds, ElementsAre(7, 8));
  ASSERT_EQ(plan->points.size(), 4u);
  EXPECT_EQ(plan->points[1].label, "actor.n_step=1 replay.alpha=0.6");
  ASSERT_EQ(plan->runs.size(), 8u);
  const SweepRun& run = plan->runs[6];  // seed by seed
  EXPECT_EQ(run.point, 2u);
  EXPECT_EQ(run.config.seed, 8);
  EXPECT_EQ(run.config.actor.n_step, 3);
  EXPECT_EQ(run.config.replay.alpha, 0);
  EXPECT_EQ(run.config.learner.gamma, 0.9);
  EXPECT_EQ(run.config.name, "actor.n_step-3-replay.alpha-0-seed-8");
  EXPECT_EQ(run.config.log.dir, plan->path);
}

TEST_F(SweepTest, RunsSingleConfigWithEachSeed) {
  const auto plan = Plan({}, 3);
  ASSERT_TRUE(plan.ok()) << plan.status().ToString();
  ASSERT_EQ(plan->runs.size(), 3u);
  EXPECT_EQ(plan->runs[2].config.name, "seed-9");
}

TEST_F(SweepTest, MakesFolderNamesUnique) {
  const auto plan = Plan({"env.id=\"a/b\",\"a b\""}, 1);
  ASSERT_TRUE(plan.ok()) << plan.status().ToString();
  EXPECT_EQ(plan->runs[0].config.name, "env.id--a-b--seed-7");
  EXPECT_EQ(plan->runs[1].config.name, "env.id--a-b--seed-7-2");
}

TEST_F(SweepTest, RejectsIncomparableRuns) {
  ExpectRefused({"seed=1,2"}, "--seeds");
  ExpectRefused({"name=a,b"}, "one folder");
  ExpectRefused({"actor.n_step=1,1"}, "duplicate value");
  ExpectRefused({"actor.n_step=1,2", "actor.n_step=3,4"}, "is given twice with several values");
  ExpectRefused({"evaluator.final_episodes=0"}, "final_episodes");
  ExpectRefused({"actor.n_stp=1,2"}, "actor.n_step");
  EXPECT_FALSE(Plan({}, 0).ok());
}

TEST_F(SweepTest, TrialsHaveSampledValuesInConfig) {
  const auto plan = Search(
      {"learner.gamma=uniform:0.9,0.99", "actor.n_step=1,3", "learner.batch_size=choice:16,32"}, 3);
  ASSERT_TRUE(plan.ok()) << plan.status().ToString();
  ASSERT_EQ(plan->points.size(), 6u);
  ASSERT_EQ(plan->runs.size(), 12u);
  const SweepRun& run = plan->runs[6 + 5];
  EXPECT_EQ(run.config.name, "trial-2-actor.n_step-3-seed-2");
  const SearchRange gamma = **ParseRange("learner.gamma=uniform:0.9,0.99");
  EXPECT_EQ(run.config.learner.gamma, std::stod(SampleValue(gamma, 1, 2)));
  EXPECT_EQ(run.config.learner.gamma, plan->runs[6 + 4].config.learner.gamma)
      << "combinations of a trial share its values";
  EXPECT_NE(run.config.learner.gamma, plan->runs[6 + 3].config.learner.gamma);
  EXPECT_THAT(plan->points[5].label,
              testing::StartsWith("trial 2: actor.n_step=3 learner.gamma=0.9"));
  // The written config has the same bits.
  const auto read = ParseConfig(ToToml(run.config), "config.toml", {});
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(read->learner.gamma, run.config.learner.gamma);
}

TEST_F(SweepTest, MoreTrialsKeepFirstOnes) {
  const Words ranges{"learner.gamma=uniform:0.9,0.99", "actor.n_step=int:1,9"};
  const auto few = Search(ranges, 4), many = Search(ranges, 40), other = Search(ranges, 4, 2);
  ASSERT_TRUE(few.ok() && many.ok() && other.ok());
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(few->runs[i].config, many->runs[i].config);
    EXPECT_EQ(few->points[i].label, many->points[i].label);
    EXPECT_NE(few->runs[i].config.learner.gamma, other->runs[i].config.learner.gamma);
  }
}

TEST_F(SweepTest, RejectsTrialsWithoutRangesAndRangesWithoutTrials) {
  const auto refused = [](const Result<SweepPlan>& plan, const std::string& why) {
    EXPECT_EQ(plan.status().code(), Code::kInvalidArgument);
    EXPECT_THAT(plan.status().message(), HasSubstr(why));
  };
  refused(Search({"learner.gamma=uniform:0.9,0.99"}, 0), "add --trials");
  refused(Search({"actor.n_step=1,3"}, 4), "--trials needs a key with a range");
  refused(Search({"actor.n_step=1,3"}, 0, 5), "--search-seed needs a key with a range");
  refused(Search({"actor.n_step=int:1,3", "actor.n_step=1,3"}, 4), "given twice");
  refused(Search({"actor.n_step=int:1,3", "actor.n_step=int:1,4"}, 4), "given twice");
  refused(Search({"name=choice:a,b"}, 4), "one folder");
  refused(Search({"seed=int:1,9"}, 4), "--seeds");
  refused(Search({"actor.n_step=int:1,3"}, 10'001), "lower --trials");
  refused(Search({"actor.n_step=int:1,3"}, 6000), "more than 10000 runs");
  refused(Search({"actor.n_step=int:1,3"}, -1), "at least 1");
}

TEST_F(SweepTest, LimitsConcurrentRunsByCores) {
  Config config;
  config.fleet.actors = 3;
  EXPECT_EQ(RunsAtOnce(config, 2), 1);
  EXPECT_EQ(RunsAtOnce(config, 9), 2);
  config.fleet.mode = FleetMode::kSerial;
  EXPECT_EQ(RunsAtOnce(config, 9), 9);
}

std::string ResultJson(double mean, const std::string& status = "ok") {
  return JsonObject()
      .Add("status", status)
      .Add("steps", 1000)
      .Add("updates", 50)
      .Add("wall_s", 60.0)
      .Add("version", "0.1.0")
      .Add("final_return_mean", mean)
      .Add("final_return_std", 1.0)
      .Add("final_episodes", 100)
      .str();
}

TEST_F(SweepTest, ScoresOnlyFinishedRuns) {
  EXPECT_EQ(ParseScore(ResultJson(2.5)), (SweepScore{.mean = 2.5,
                                                     .std = 1,
                                                     .wall_s = 60,
                                                     .episodes = 100,
                                                     .steps = 1000,
                                                     .updates = 50,
                                                     .version = "0.1.0"}));
  EXPECT_EQ(ParseScore(ResultJson(2.5, "interrupted")), std::nullopt);
  EXPECT_EQ(ParseScore("{\"status\": \"ok\"}"), std::nullopt);
  EXPECT_EQ(ParseScore("{"), std::nullopt);
}

TEST_F(SweepTest, TableHasSeedsMeanAndInterval) {
  const auto plan = Plan({"actor.n_step=1,3"});
  ASSERT_TRUE(plan.ok()) << plan.status().ToString();
  const SweepScores scores{ParseScore(ResultJson(2)), std::nullopt, ParseScore(ResultJson(4)),
                           std::nullopt};
  EXPECT_EQ(
      SweepTable(*plan, scores),
      "| | seed 7 | seed 8 | mean | 95 % interval | IQM | 95 % interval |\n"
      "|---|--:|--:|--:|--:|--:|--:|\n"
      "| actor.n_step=1 | 2.00 | 4.00 | 3.00 | 2.00 to 4.00 (range of 2 seeds) | 3.00 | 2.00 to "
      "4.00 (range of 2 seeds) |\n"
      "| actor.n_step=3 | – | – | – | – | – | – |\n");
  EXPECT_THAT(SweepTable(*plan, {ParseScore(ResultJson(2)), {}, {}, {}}),
              HasSubstr("| 2.00 | – | 2.00 | – (1 seed) | 2.00 | – (1 seed) |\n"));
  const std::string caption = fmt::format("{}", fmt::join(SweepCaption(*plan, scores), "\n"));
  for (const char* part :
       {"CartPole-v1", "1,000 agent steps", "50 updates", "2 of 4 runs", "seeds 7 to 8",
        "last checkpoint", "100 episodes", "epsilon 0", "troop 0.1.0"}) {
    EXPECT_THAT(caption, HasSubstr(part));
  }
}

// Scores of environment a: 0 to 100, of b: 0 to 1; in both the first value is worse.
TEST_F(SweepTest, SummarizesOverEnvironments) {
  const auto plan = Plan({"env.id=a,b", "actor.n_step=1,3"}, 2);
  ASSERT_TRUE(plan.ok()) << plan.status().ToString();
  // Points: a 1, a 3, b 1, b 3; first seed 7, then seed 8.
  SweepScores scores;
  for (const double mean : {0.0, 50.0, 0.2, 0.6, 50.0, 100.0, 0.0, 1.0}) {
    scores.push_back(ParseScore(ResultJson(mean)));
  }
  // n_step=1: normalized a {0, 0.5}, b {0.2, 0}; n_step=3: a {0.5, 1}, b {0.6, 1}. The mean of the
  // middle two of four.
  const std::string table = SweepTable(*plan, scores);
  EXPECT_THAT(table, HasSubstr("| over 2 environments, scores normalized to 0 to 1 in each |"));
  EXPECT_THAT(table, HasSubstr("| actor.n_step=1 | 0.10 | 0.00 to 0.35 |\n"));
  EXPECT_THAT(table, HasSubstr("| actor.n_step=3 | 0.80 | 0.55 to 1.00 |\n"));
  scores[7].reset();  // one of the seeds is enough
  EXPECT_THAT(SweepTable(*plan, scores), HasSubstr("| actor.n_step=3 |"));
  scores[3].reset();
  EXPECT_THAT(SweepTable(*plan, scores), Not(HasSubstr("| actor.n_step=3 | 0.")))
      << "without a score in b";
  EXPECT_THAT(SweepTable(*plan, {scores[0], {}, {}, {}, {}, {}, {}, {}}),
              Not(HasSubstr("environments")));
}

TEST_F(SweepTest, UndefinedScoreIsNone) {
  EXPECT_EQ(ParseScore("{\"status\": \"ok\", \"final_return_mean\": null}"), std::nullopt);
  EXPECT_EQ(ParseScore("{\"status\": \"ok\", \"final_return_mean\": \"9\"}"), std::nullopt);
}

TEST_F(SweepTest, HalvingRanksTrialsByRungAndScore) {
  const auto plan = PlanSweep(
      {.config = config(),
       .overrides = {"log.dir=" + temp_.path(), "run.total_steps=64000", "actor.n_step=1,2,3,4,5"},
       .asha = "steps",
       .min_resource = 1000});
  ASSERT_TRUE(plan.ok()) << plan.status().ToString();
  EXPECT_EQ(plan->halving, (HalvingSettings{.min_resource = 1000, .max_resource = 64'000}));
  EXPECT_THAT(plan->seeds, ElementsAre(1));
  const auto score = [](double mean, std::size_t rung, bool failed) {
    return SweepScore{.mean = mean, .steps = 7, .updates = 3, .rung = rung, .failed = failed};
  };
  const SweepScores scores{score(5, 0, false), score(2, 1, false), std::nullopt, score(9, 0, true),
                           score(std::nan(""), 0, true)};
  EXPECT_EQ(SweepTable(*plan, scores),
            "| | rung | agent steps | updates | score |\n"
            "|---|--:|--:|--:|--:|\n"
            "| actor.n_step=2 | 1 | 7 | 3 | 2.00 |\n"
            "| actor.n_step=4 | 0 | 7 | 3 | 9.00 (failed later) |\n"
            "| actor.n_step=1 | 0 | 7 | 3 | 5.00 |\n"
            "| actor.n_step=3 | – | – | – | – |\n"
            "| actor.n_step=5 | – | – | – | failed |\n");
  const std::string caption = fmt::format("{}", fmt::join(SweepCaption(*plan, scores), "\n"));
  for (const char* part : {"3 of 5 runs", "steps from 1000 to 64000, eta 4, s 0"}) {
    EXPECT_THAT(caption, HasSubstr(part));
  }
  const auto folder = MakeDiskStorage(plan->path);
  ASSERT_TRUE(folder.ok() && WriteSweep(folder->get(), *plan, scores).ok());
  const auto text = (*folder)->Read("sweep.json", 1 << 20);
  ASSERT_TRUE(text.ok());
  const auto sweep = ParseJson(text->text());
  ASSERT_TRUE(sweep.ok());
  const auto& rows = sweep->Find("runs")->array;
  EXPECT_EQ(rows[1].Find("rung")->number, 1);
  EXPECT_TRUE(rows[3].Find("failed")->boolean);
  EXPECT_EQ(rows[4].Find("return_mean"), nullptr);
  EXPECT_FALSE(rows[4].Find("finished")->boolean);
}

TEST_F(SweepTest, HalvingCountsStepsOrUpdates) {
  Config config;
  config.run.max_updates = 70;
  EXPECT_EQ(HalvingBudget(config, HalvingResource::kUpdates), 70);
  const Config less = WithHalvingBudget(config, HalvingResource::kUpdates, 7);
  EXPECT_EQ(less.run.max_updates, 7);
  EXPECT_EQ(less.run.total_steps, config.run.total_steps);
  EXPECT_EQ(WithHalvingBudget(config, HalvingResource::kSteps, 900).run.total_steps, 900);
}

TEST_F(SweepTest, ReportsAccuracyForTextModels) {
  const auto plan = Plan({"learner.algorithm=\"classifier\"", "data.reviews=\"reviews.csv\"",
                          "data.vocabulary=\"vocab.txt\"", "learner.gamma=0.9,0.99"});
  ASSERT_TRUE(plan.ok()) << plan.status().ToString();
  const SweepScores scores(plan->runs.size(), ParseScore(ResultJson(90)));
  const std::string caption = fmt::format("{}", fmt::join(SweepCaption(*plan, scores), "\n"));
  for (const char* part : {"1,000 examples", "% accuracy", "100 held-out examples"}) {
    EXPECT_THAT(caption, HasSubstr(part));
  }
  EXPECT_THAT(caption, Not(HasSubstr("epsilon")));
}

TEST_F(SweepTest, FolderRecordsGroupsOfRuns) {
  const auto plan = Plan({"actor.n_step=1,3"});
  ASSERT_TRUE(plan.ok()) << plan.status().ToString();
  const auto folder = MakeDiskStorage(plan->path);
  ASSERT_TRUE(folder.ok());
  for (const SweepRun& run : plan->runs) {
    if (run.seed == 8 && run.point == 1) continue;  // has not begun
    const std::string path = run.config.name;
    ASSERT_TRUE((*folder)->WriteAtomic(path + "/config.toml", ToToml(run.config)).ok());
    ASSERT_TRUE(
        (*folder)
            ->WriteAtomic(path + "/evaluations.jsonl", "{\"steps\": 5, \"return_mean\": 1}\n")
            .ok());
  }
  const SweepScores scores(plan->runs.size());
  ASSERT_TRUE(WriteSweep(folder->get(), *plan, scores).ok());
  EXPECT_EQ((*folder)->Exists("sweep.png"), HasPlots());
  EXPECT_TRUE((*folder)->Exists("sweep.md"));
  const auto groups = ReadSweepCurves(plan->path, CurveAxis::kSteps);
  ASSERT_TRUE(groups.ok()) << groups.status().ToString();
  ASSERT_EQ(groups->size(), 2u);
  EXPECT_EQ((*groups)[0].label, "actor.n_step=1");
  EXPECT_EQ((*groups)[0].runs.size(), 2u);
  EXPECT_EQ((*groups)[1].runs.size(), 1u);
  EXPECT_EQ(ReadSweepCurves(temp_.path(), CurveAxis::kSteps).status().code(), Code::kNotFound);
}

}  // namespace
}  // namespace troop
