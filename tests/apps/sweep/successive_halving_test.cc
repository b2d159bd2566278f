#include "apps/sweep/successive_halving.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <random>
#include <set>

#include "apps/sweep/halving_journal.h"
#include "core/storage/memory_storage.h"

namespace troop {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Job = SuccessiveHalving::Job;
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

HalvingSettings Settings(std::int64_t r, std::int64_t R, std::int64_t eta, std::int64_t s = 0) {
  return {.min_resource = r, .max_resource = R, .reduction_factor = eta, .early_stopping_rate = s};
}

std::vector<std::int64_t> Resources(const HalvingSettings& settings) {
  const SuccessiveHalving halving(settings, 1);
  std::vector<std::int64_t> resources;
  for (std::size_t k = 0; k < halving.rungs(); ++k) resources.push_back(halving.ResourceOf(k));
  return resources;
}

TEST(SuccessiveHalvingTest, RungsAreThoseOfPaper) {
  EXPECT_THAT(Resources(Settings(1, 9, 3)), ElementsAre(1, 3, 9));
  EXPECT_THAT(Resources(Settings(1, 9, 3, 1)), ElementsAre(3, 9));
  EXPECT_THAT(Resources(Settings(1000, 50'000, 4)), ElementsAre(1000, 4000, 16'000));
  // log(243) / log(3) is below 5, and log10(1000) / log10(10) may be below 3, in f64.
  EXPECT_EQ(Resources(Settings(1, 243, 3)).size(), 6u);
  EXPECT_EQ(Resources(Settings(1, 1000, 10)).size(), 4u);
  EXPECT_EQ(Resources(Settings(1, 1'000'000'000'000'000, 2)).size(), 50u);
}

TEST(SuccessiveHalvingTest, RejectsFewerThanTwoRungs) {
  const auto refused = [](const HalvingSettings& settings, const std::string& why) {
    EXPECT_EQ(CheckHalving(settings).code(), Code::kInvalidArgument);
    EXPECT_THAT(CheckHalving(settings).message(), HasSubstr(why));
  };
  EXPECT_TRUE(CheckHalving(Settings(1, 3, 3)).ok());
  refused(Settings(1, 2, 3), "fewer than two rungs");
  refused(Settings(1, 9, 3, 2), "fewer than two rungs");
  refused(Settings(0, 9, 3), "--min-resource is 0");
  refused(Settings(1, 9, 1), "--reduction-factor is 1");
  refused(Settings(1, 9, 3, -1), "--early-stopping-rate is -1");
  refused(Settings(1, 9, 3, std::numeric_limits<std::int64_t>::max() - 1), "fewer than two rungs");
}

// Algorithm 2 of the paper as loops over plain tables, with the documented differences.
class PaperHalving {
 public:
  PaperHalving(int rungs, int eta, int trials)
      : eta_(eta), trials_(trials), rung_(std::size_t(rungs)), promoted_(std::size_t(rungs)) {}
  // get_job: (trial, rung), or (-1, 0) if all trials have begun.
  std::pair<int, int> GetJob() {
    for (int k = int(rung_.size()) - 2; k >= 0; --k) {
      for (const int trial : TopOf(k, int(rung_[std::size_t(k)].size()) / eta_)) {
        if (promoted_[std::size_t(k)].contains(trial)) continue;
        if (rung_[std::size_t(k)][trial] == kFailed) continue;
        promoted_[std::size_t(k)].insert(trial);
        return {trial, k + 1};
      }
    }
    if (next_ == trials_) return {-1, 0};
    return {next_++, 0};
  }
  void Complete(int trial, int rung, double score) {
    rung_[std::size_t(rung)][trial] = std::isnan(score) ? kFailed : score;
  }

 private:
  static constexpr double kFailed = -1e300;
  // The `count` best trials, by repeated search for the maximum; the first of equal ones.
  std::vector<int> TopOf(int k, int count) const {
    std::map<int, double> left = rung_[std::size_t(k)];
    std::vector<int> top;
    while (int(top.size()) < count) {
      int best = left.begin()->first;
      for (const auto& [trial, score] : left) {
        if (score > left.at(best)) best = trial;
      }
      top.push_back(best);
      left.erase(best);
    }
    return top;
  }
  const int eta_, trials_;
  int next_ = 0;
  std::vector<std::map<int, double>> rung_;
  std::vector<std::set<int>> promoted_;
};

// Few distinct scores, so that many are equal; every tenth result is a failure.
double RandomScore(std::mt19937* random) {
  const int value = int((*random)() % 20);
  return value < 2 ? kNan : value;
}

TEST(SuccessiveHalvingTest, DecisionsEqualAlgorithmOfPaper) {
  std::mt19937 random(1);
  int promotions = 0;
  for (int table = 0; table < 300; ++table) {
    const int eta = 2 + int(random() % 3), trials = 1 + int(random() % 60);
    const std::size_t workers = 1 + random() % 8;
    const HalvingSettings settings = Settings(1, 100, eta, std::int64_t(random() % 2));
    SuccessiveHalving halving(settings, std::size_t(trials));
    PaperHalving paper(int(halving.rungs()), eta, trials);
    std::vector<Job> running;
    std::int64_t resource = 0;
    for (;;) {
      while (running.size() < workers) {
        const auto [trial, rung] = paper.GetJob();
        const std::optional<Job> job = halving.NextJob();
        ASSERT_EQ(job.has_value(), trial >= 0);
        if (!job) break;
        ASSERT_EQ(*job, (Job{std::size_t(trial), std::size_t(rung)}));
        promotions += rung > 0;
        halving.Begin(*job);
        running.push_back(*job);
      }
      ASSERT_EQ(halving.open(), running);
      if (running.empty()) break;
      // Workers end in any order.
      const std::size_t ends = random() % running.size();
      const Job job = running[ends];
      running.erase(running.begin() + std::ptrdiff_t(ends));
      const double score = RandomScore(&random);
      paper.Complete(int(job.trial), int(job.rung), score);
      halving.End(job, std::isnan(score) && random() % 2 == 0 ? std::nullopt
                                                              : std::optional<double>(score));
      // r * eta^(s + k), less what the trial had used before.
      const auto budget = [&](double k) {
        return std::int64_t(std::pow(eta, double(settings.early_stopping_rate) + k) + 0.5);
      };
      resource += budget(double(job.rung)) - (job.rung > 0 ? budget(double(job.rung) - 1) : 0);
    }
    EXPECT_EQ(halving.resource_used(), resource);
    EXPECT_EQ(halving.CompletedIn(0), std::size_t(trials));
    EXPECT_LE(resource, trials * halving.ResourceOf(halving.rungs() - 1));
  }
  EXPECT_GT(promotions, 1000);
}

// Runs one job at a time; the scores of trial 0, 1, ... are scores[0], scores[1], ... in all rungs.
SuccessiveHalving RunAll(const HalvingSettings& settings, const std::vector<double>& scores) {
  SuccessiveHalving halving(settings, scores.size());
  while (const auto job = halving.NextJob()) {
    halving.Begin(*job);
    halving.End(*job, scores[job->trial]);
  }
  return halving;
}

std::vector<std::size_t> Sizes(const SuccessiveHalving& halving) {
  std::vector<std::size_t> sizes;
  for (std::size_t k = 0; k < halving.rungs(); ++k) sizes.push_back(halving.CompletedIn(k));
  return sizes;
}

TEST(SuccessiveHalvingTest, BestFirstOrderCostsAsMuchAsSynchronousHalving) {
  std::vector<double> scores(27);
  for (std::size_t i = 0; i < scores.size(); ++i) scores[i] = -double(i);
  const SuccessiveHalving halving = RunAll(Settings(1, 27, 3), scores);
  // floor(n / eta^k) trials in rung k, each for r * (eta^k - eta^(k - 1)).
  EXPECT_THAT(Sizes(halving), ElementsAre(27, 9, 3, 1));
  EXPECT_EQ(halving.resource_used(), 27 * 1 + 9 * 2 + 3 * 6 + 1 * 18);
}

// Each rung holds at least the fraction 1 / eta of the one below. Promotions that a later, better
// trial overtakes add to it: in the worst order every trial but the first ones is promoted.
TEST(SuccessiveHalvingTest, WorstFirstOrderPromotesAtMostEveryTrial) {
  std::vector<double> scores(27);
  for (std::size_t i = 0; i < scores.size(); ++i) scores[i] = double(i);
  const SuccessiveHalving halving = RunAll(Settings(1, 27, 3), scores);
  for (std::size_t k = 1; k < halving.rungs(); ++k) {
    EXPECT_GE(halving.CompletedIn(k), halving.CompletedIn(k - 1) / 3);
  }
  EXPECT_LE(halving.resource_used(), 27 * 27);
  EXPECT_GT(halving.CompletedIn(1), 9u);
}

TEST(SuccessiveHalvingTest, FailedTrialCountsAsWorst) {
  SuccessiveHalving halving(Settings(1, 4, 2), 4);
  std::vector<Job> jobs;
  for (std::size_t i = 0; i < 4; ++i) {
    halving.Begin({i, 0});
    if (i == 1) halving.End({0, 0}, std::nullopt);
  }
  halving.End({1, 0}, -1e9);
  EXPECT_EQ(halving.NextJob(), (Job{1, 1})) << "a failure is one of the two that completed";
  halving.Begin({1, 1});
  halving.End({2, 0}, kNan);
  halving.End({3, 0}, kNan);
  EXPECT_EQ(halving.NextJob(), std::nullopt) << "a failed trial of the best two is not promoted";
}

// A journal of a sweep with one job at a time, in memory.
class HalvingJournalTest : public testing::Test {
 protected:
  static constexpr std::size_t kTrials = 9;
  HalvingJournalTest() {
    for (std::size_t i = 0; i < kTrials; ++i) names_.push_back("trial-" + std::to_string(i));
  }
  // The score of a job; trial 7 fails in rung 1, trial 2 in rung 0.
  static std::optional<SweepScore> ScoreOf(const Job& job) {
    if (job == Job{7, 1} || job == Job{2, 0}) return std::nullopt;
    return SweepScore{.mean = double((job.trial * 5) % 9) + 0.1,
                      .std = 0.5,
                      .steps = std::int64_t(job.rung),
                      .version = "0.1.0"};
  }
  Result<HalvingJournal::History> Read(const HalvingSettings& settings = Settings(1, 9, 2)) {
    return HalvingJournal::Read(storage_.get(), settings, names_);
  }
  // Continues from the file for at most `lines` further lines; returns the jobs that begin.
  std::vector<Job> Continue(int lines = 1000) {
    auto history = Read();
    EXPECT_TRUE(history.ok()) << history.status().ToString();
    auto journal =
        HalvingJournal::Open(storage_.get(), Settings(1, 9, 2), names_, history->intact_bytes);
    EXPECT_TRUE(journal.ok());
    std::vector<Job> begun;
    SuccessiveHalving& halving = history->halving;
    while (lines-- > 0) {
      if (halving.open().empty()) {
        const auto job = halving.NextJob();
        if (!job) break;
        EXPECT_TRUE(journal->Begin(*job).ok());
        halving.Begin(*job);
        begun.push_back(*job);
        continue;
      }
      const Job job = halving.open()[0];
      const auto score = ScoreOf(job);
      EXPECT_TRUE(
          (score ? journal->End(job, *score) : journal->EndFailed(job, "exit code 1")).ok());
      history->End(job, score);
    }
    return begun;
  }
  std::string Text() {
    const auto text = storage_->Read(HalvingJournal::kFile, 1 << 20);
    return text.ok() ? std::string(text->text()) : "";
  }
  void SetText(const std::string& text) {
    ASSERT_TRUE(storage_->WriteAtomic(HalvingJournal::kFile, text).ok());
  }
  std::unique_ptr<Storage> storage_ = MakeMemoryStorage();
  std::vector<std::string> names_;
};

TEST_F(HalvingJournalTest, SweepThatStopsAtAnyLineMakesSameDecisions) {
  const std::vector<Job> all = Continue();
  const std::string whole = Text();
  ASSERT_GT(all.size(), kTrials) << "some were promoted";
  const auto lines = std::ranges::count(whole, '\n');
  EXPECT_EQ(lines, 1 + 2 * std::int64_t(all.size()));
  for (std::int64_t stop = 0; stop < lines; ++stop) {
    ASSERT_TRUE(storage_->Remove(HalvingJournal::kFile).ok());
    Continue(int(stop));
    Continue();
    ASSERT_EQ(Text(), whole) << "stopped after " << stop << " lines";
  }
}

TEST_F(HalvingJournalTest, CutLineIsRemoved) {
  Continue();
  const std::string whole = Text();
  for (const std::size_t bytes : {whole.size() - 1, whole.size() - 40, std::size_t{20}}) {
    SetText(whole.substr(0, bytes));
    Continue();
    EXPECT_EQ(Text(), whole);
  }
}

TEST_F(HalvingJournalTest, KeepsScoreOfLastCompletedRung) {
  Continue();
  const auto history = Read();
  ASSERT_TRUE(history.ok());
  ASSERT_TRUE(history->scores[7] && history->scores[2]);
  EXPECT_TRUE(history->scores[7]->failed);
  EXPECT_EQ(history->scores[7]->mean, double(7 * 5 % 9) + 0.1);
  EXPECT_EQ(history->scores[7]->rung, 0u);
  EXPECT_TRUE(std::isnan(history->scores[2]->mean));
  std::size_t highest = 0;
  for (const auto& score : history->scores) highest = std::max(highest, score->rung);
  EXPECT_GE(highest, 2u);
}

TEST_F(HalvingJournalTest, MoreTrialsContinue) {
  Continue();
  const std::string before = Text();
  names_.push_back("trial-9");
  names_.push_back("trial-10");
  const std::vector<Job> more = Continue();
  ASSERT_FALSE(more.empty());
  EXPECT_EQ(more[0], (Job{9, 0}));
  EXPECT_TRUE(Text().starts_with(before));
}

TEST_F(HalvingJournalTest, RejectsOtherSweep) {
  Continue();
  const auto refused = [](const Status& status, const std::string& why) {
    EXPECT_EQ(status.code(), Code::kAlreadyExists);
    EXPECT_THAT(status.message(), HasSubstr(why));
  };
  refused(Read(Settings(1, 9, 3)).status(), "other settings of --asha");
  refused(Read(Settings(1, 10, 2)).status(), "other settings of --asha");
  names_[3] = "trial-x";
  refused(Read().status(), "trial 3 is trial-3, but in this command it is trial-x");
  names_.resize(3);
  refused(Read().status(), "there is none");
}

TEST_F(HalvingJournalTest, RejectsDamagedLine) {
  Continue();
  const std::string whole = Text();
  const auto refused = [&](std::string text, const std::string& why) {
    SetText(text);
    EXPECT_EQ(Read().status().code(), Code::kDataLoss) << why;
    EXPECT_THAT(Read().status().message(), HasSubstr(why));
  };
  const std::string head = whole.substr(0, whole.find('\n') + 1);
  refused(head + "{\n", "line 2 is damaged: it is not JSON");
  refused(head + "{\"begin\": \"trial-0\"}\n", "neither a begin nor an end");
  refused(head + "{\"begin\": \"trial-1\", \"trial\": 1, \"rung\": 0}\n", "does not follow");
  refused(head + "{\"begin\": \"trial-0\", \"trial\": 0, \"rung\": 1}\n", "does not follow");
  refused(head + "{\"end\": \"trial-0\", \"trial\": 0, \"rung\": 0, \"status\": \"failed\"}\n",
          "has not begun");
  refused(head + "{\"begin\": \"trial-0\", \"trial\": 0, \"rung\": 0}\n" +
              "{\"end\": \"trial-0\", \"trial\": 0, \"rung\": 0, \"status\": \"ok\", "
              "\"final_return_mean\": null}\n",
          "no score");
}

}  // namespace
}  // namespace troop
