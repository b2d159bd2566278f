// troop sweep and troop plot, with real runs.

#include <fmt/format.h>

#include "core/graphics/plot/line_plot.h"
#include "tests/system/troop_process.h"

namespace troop {
namespace {

namespace fs = std::filesystem;

class SweepSystemTest : public SystemTest {
 protected:
  std::unique_ptr<Troop> Sweep(const std::vector<std::string>& more,
                               const std::vector<std::string>& environment = {}) const {
    std::vector<std::string> words =
        TrainWords({"name=trial", "fleet.mode=serial", "run.total_steps=2001",
                    "checkpoint.every_updates=60", "actor.n_step=1,3", "--seeds", "2"});
    words[0] = "sweep";
    words.insert(words.end(), more.begin(), more.end());
    return Start(words, environment);
  }
  std::string trial() const { return run("trial"); }
  std::map<std::string, std::string> Results() const {
    std::map<std::string, std::string> results;
    for (const auto& entry : fs::recursive_directory_iterator(trial())) {
      const std::string path = entry.path().string();
      if (path.ends_with("result.json")) results[path] = FileText(path);
    }
    return results;
  }
  static bool HasCheckpoint(const std::string& run) {
    std::error_code error;
    const fs::directory_iterator entries(run + "/checkpoints", error);
    return !error && std::ranges::any_of(entries, [](const auto& entry) {
      return !entry.path().has_extension();  // not .tmp: whole
    });
  }
  static int Lines(const std::string& text, const std::string& begin) {
    int count = 0;
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) count += line.starts_with(begin);
    return count;
  }
};

TEST_F(SweepSystemTest, DoesNotRepeatFinishedRuns) {
  const auto first = Sweep({});
  ASSERT_EQ(first->Wait(), 0) << first->output();
  EXPECT_EQ(Lines(first->output(), "["), 4) << first->output();
  const auto results = Results();
  EXPECT_EQ(results.size(), 4u);
  const JsonValue sweep = Json(trial() + "/sweep.json");
  EXPECT_EQ(sweep.Find("runs")->array.size(), 4u);
  EXPECT_EQ(sweep.Find("points")->array[1].Find("seeds")->number, 2);
  EXPECT_TRUE(FileHas(trial() + "/sweep.md", "| actor.n_step=3 |"));
  EXPECT_EQ(HasPlots(), fs::exists(trial() + "/sweep.png") &&
                            FileText(trial() + "/sweep.png").starts_with("\x89PNG"));
  const auto again = Sweep({});
  ASSERT_EQ(again->Wait(), 0) << again->output();
  EXPECT_EQ(Lines(again->output(), "["), 0) << again->output();
  EXPECT_TRUE(FileHas(trial() + "/sweep.md", "| actor.n_step=3 |"));
  EXPECT_EQ(Results(), results);
  const auto other = Sweep({"replay.alpha=0.9"});
  EXPECT_EQ(other->Wait(), 3) << other->output();
  EXPECT_NE(other->output().find("alpha = 0.9"), std::string::npos) << other->output();
  EXPECT_EQ(Results(), results);
  const auto plot =
      Start({"plot", trial(), trial() + "/actor.n_step-1-seed-1", "--out", folder() + "/both.svg"});
  if (!HasPlots()) {
    EXPECT_EQ(plot->Wait(), 1) << plot->output();
    EXPECT_NE(plot->output().find("this build has no plots"), std::string::npos);
    return;
  }
  EXPECT_EQ(plot->Wait(), 0) << plot->output();
  EXPECT_NE(plot->output().find("(3 curves)"), std::string::npos) << plot->output();
  EXPECT_TRUE(FileText(folder() + "/both.svg").starts_with("<svg "));
}

TEST_F(SweepSystemTest, LargerRandomSearchKeepsItsTrials) {
  const auto search = [this](const std::string& trials, const std::string& range) {
    auto words = TrainWords({"name=search", "fleet.mode=serial", "run.total_steps=1001", range,
                             "actor.n_step=choice:1,3", "--seeds", "1", "--trials", trials});
    words[0] = "sweep";
    return Start(words);
  };
  // A run that was killed before its config was written left files, which the next one rejected.
  fs::create_directories(run("search") + "/configs");
  fs::create_directories(run("search") + "/trial-0-seed-1");
  std::ofstream(run("search") + "/configs/trial-0-seed-1.toml") << "name = \"early\"\n";
  std::ofstream(run("search") + "/trial-0-seed-1/incarnation") << "1\n";
  const std::string range = "optimizer.learning_rate=loguniform:1e-5,1e-2";
  const auto first = search("2", range);
  ASSERT_EQ(first->Wait(), 0) << first->output();
  EXPECT_EQ(Lines(first->output(), "["), 2) << first->output();
  const std::string config = FileText(run("search") + "/trial-1-seed-1/config.toml");
  const auto larger = search("3", range);
  ASSERT_EQ(larger->Wait(), 0) << larger->output();
  EXPECT_EQ(Lines(larger->output(), "[3/3] trial 2: "), 1) << larger->output();
  EXPECT_EQ(Lines(larger->output(), "["), 1) << larger->output();
  EXPECT_EQ(FileText(run("search") + "/trial-1-seed-1/config.toml"), config);
  const JsonValue sweep = Json(run("search") + "/sweep.json");
  const auto& points = sweep.Find("points")->array;
  ASSERT_EQ(points.size(), 3u);
  const std::string label = *points[1].String("point");
  const std::string rate = label.substr(label.find("learning_rate=") + 14);
  EXPECT_NE(config.find("learning_rate = " + rate.substr(0, rate.find(' ')) + "\n"), config.npos)
      << label;
  EXPECT_EQ(HasPlots(), fs::exists(run("search") + "/sweep.png"));
  const auto other = search("3", "optimizer.learning_rate=loguniform:1e-4,1e-2");
  EXPECT_EQ(other->Wait(), 3) << other->output();
  EXPECT_NE(other->output().find("learning_rate = "), std::string::npos) << other->output();
  const auto bad = search("3", "optimizer.learning_rate=loguniform:0,1e-2");
  EXPECT_EQ(bad->Wait(), 2) << bad->output();
}

TEST_F(SweepSystemTest, KilledRunFailsAloneAndResumesNextTime) {
  const auto first =
      Sweep({"--jobs", "2"}, {"TROOP_FAILPOINT=checkpoint.installed:2:kill:" + folder() + "/dead"});
  EXPECT_EQ(first->Wait(), 1) << first->output();
  EXPECT_NE(first->output().find("killed by signal 9"), std::string::npos) << first->output();
  const auto results = Results();
  EXPECT_EQ(results.size(), 3u) << "the others were trained";
  const auto again = Sweep({});
  ASSERT_EQ(again->Wait(), 0) << again->output();
  EXPECT_EQ(Lines(again->output(), "  resumes:"), 1) << again->output();
  EXPECT_EQ(Lines(again->output(), "["), 1) << again->output();
  EXPECT_EQ(Results().size(), 4u);
  for (const auto& [path, text] : results) EXPECT_EQ(FileText(path), text);
}

TEST_F(SweepSystemTest, StoppedSweepDrainsRuns) {
  const auto sweep = Sweep({"--jobs", "1", "run.total_steps=4e6"});
  const std::string first = trial() + "/actor.n_step-1-seed-1";
  ASSERT_TRUE(Await([&] { return HasCheckpoint(first); })) << sweep->output();
  ASSERT_TRUE(Await([&] {
    const std::string text = sweep->output();
    const std::size_t line = text.find("  actor.n_step=1 seed 1: ");
    return line != text.npos && text.find("/4000000 (", line) != text.npos;
  })) << "how far the run is: "
      << sweep->output();
  sweep->Signal(SIGTERM);
  EXPECT_EQ(sweep->Wait(), 130) << sweep->output();
  EXPECT_NE(sweep->output().find("repeat the command to resume"), std::string::npos);
  EXPECT_EQ(*Json(first + "/result.json").String("status"), "interrupted");
  EXPECT_FALSE(fs::exists(trial() + "/actor.n_step-3-seed-1/config.toml")) << "no new one began";
  const auto look = Sweep({"--dry-run", "run.total_steps=4e6"});
  EXPECT_EQ(look->Wait(), 0) << look->output();
  EXPECT_EQ(Lines(look->output(), "  starts:"), 3) << look->output();
}

// Sweeps with successive halving: 6 trials, rungs of 600, 1200 and 2400 steps, one job at a time.
class HalvingSystemTest : public SweepSystemTest {
 protected:
  std::unique_ptr<Troop> Halve(const std::string& name, const std::vector<std::string>& more = {},
                               const std::vector<std::string>& environment = {}) const {
    auto words =
        TrainWords({"name=" + name, "fleet.mode=serial", "run.total_steps=2400",
                    "checkpoint.every_updates=60", "evaluator.final_episodes=3",
                    "optimizer.learning_rate=loguniform:1e-4,1e-2", "--trials", "6", "--asha",
                    "steps", "--min-resource", "600", "--reduction-factor", "2", "--jobs", "1"});
    words[0] = "sweep";
    words.insert(words.end(), more.begin(), more.end());
    return Start(words, environment);
  }
  std::string Journal(const std::string& name) const { return run(name) + "/halving.jsonl"; }
  // Each begin and end: trial, rung and score, without the durations.
  std::vector<std::string> Decisions(const std::string& name) const {
    std::vector<std::string> decisions;
    std::istringstream lines(FileText(Journal(name)));
    for (std::string line; std::getline(lines, line);) {
      const Result<JsonValue> value = ParseJson(line);
      EXPECT_TRUE(value.ok()) << line;
      if (!value.ok() || value->Find("trial") == nullptr) continue;
      const JsonValue* const mean = value->Find("final_return_mean");
      decisions.push_back(fmt::format("{} {} {} {}",
                                      value->Find("begin") != nullptr ? "begin" : "end",
                                      value->Find("trial")->number, value->Find("rung")->number,
                                      mean != nullptr ? mean->number : -1));
    }
    return decisions;
  }
};

TEST_F(HalvingSystemTest, KilledSweepMakesSameDecisions) {
  const auto whole = Halve("whole");
  ASSERT_EQ(whole->Wait(), 0) << whole->output();
  const std::vector<std::string> decisions = Decisions("whole");
  ASSERT_GE(decisions.size(), 2u * (6 + 3 + 1)) << "trials, and those promoted to rungs 1 and 2";
  // Killed while a new trial, a promoted one, and a trial after several promotions is trained.
  const auto first_promotion = std::ranges::find_if(
      decisions, [](const std::string& d) { return d.starts_with("begin") && d[8] == '1'; });
  ASSERT_NE(first_promotion, decisions.end());
  const auto promoted = std::size_t(first_promotion - decisions.begin()) + 1;
  for (const std::size_t count : {std::size_t{1}, promoted, decisions.size() - 5}) {
    const auto sweep = Halve("killed");
    ASSERT_TRUE(Await([&] { return Decisions("killed").size() >= count; })) << sweep->output();
    sweep->Signal(SIGKILL);
    sweep->Wait();
  }
  const auto last = Halve("killed");
  ASSERT_EQ(last->Wait(), 0) << last->output();
  EXPECT_EQ(Decisions("killed"), decisions);
  EXPECT_EQ(Lines(FileText(run("killed") + "/sweep.md"), "| trial "), 6);
  EXPECT_EQ(HasPlots(), fs::exists(run("killed") + "/sweep.png"));

  // A promoted trial continued: its run has the steps of its rung, and no step more.
  std::int64_t in_top = 0;
  const JsonValue json = Json(run("killed") + "/sweep.json");
  for (const JsonValue& row : json.Find("runs")->array) {
    const auto rung = *row.Integer("rung");
    EXPECT_EQ(*row.Integer("steps"), 600 << rung);
    EXPECT_TRUE(row.Find("finished")->boolean);
    in_top += rung == 2;
  }
  EXPECT_GE(in_top, 1);
  // Nothing is left to do; another rule is rejected.
  const auto again = Halve("killed");
  EXPECT_EQ(again->Wait(), 0) << again->output();
  EXPECT_EQ(Decisions("killed"), decisions);
  const auto other = Halve("killed", {"--early-stopping-rate", "1"});
  EXPECT_EQ(other->Wait(), 3) << other->output();
  EXPECT_NE(other->output().find("other settings of --asha"), std::string::npos);
  const auto values = Halve("killed", {"replay.alpha=0.9"});
  EXPECT_EQ(values->Wait(), 3) << values->output();
  EXPECT_NE(values->output().find("alpha = 0.9"), std::string::npos) << values->output();
}

TEST_F(HalvingSystemTest, CrashedTrialCountsAsWorstAndStaysSo) {
  const auto sweep =
      Halve("crash", {}, {"TROOP_FAILPOINT=checkpoint.installed:1:kill:" + folder() + "/dead"});
  ASSERT_EQ(sweep->Wait(), 0) << sweep->output();
  EXPECT_NE(sweep->output().find("rung 0 failed (killed by signal 9 (Killed)) and counts as the "
                                 "worst"),
            std::string::npos)
      << sweep->output();
  EXPECT_TRUE(FileHas(run("crash") + "/sweep.md", "| – | – | – | failed |"));
  const std::vector<std::string> decisions = Decisions("crash");
  EXPECT_EQ(decisions[1], "end 0 0 -1");
  EXPECT_EQ(std::ranges::count(decisions, "begin 0 1 -1"), 0) << "a failed trial is not promoted";
  const auto again = Halve("crash");
  EXPECT_EQ(again->Wait(), 0) << again->output();
  EXPECT_EQ(Decisions("crash"), decisions);
  const auto overwritten = Halve("crash", {"--overwrite"});
  ASSERT_EQ(overwritten->Wait(), 0) << overwritten->output();
  EXPECT_FALSE(FileHas(run("crash") + "/sweep.md", "failed"));
}

TEST_F(HalvingSystemTest, StoppedSweepContinues) {
  const auto sweep = Halve("stop");
  ASSERT_TRUE(Await([&] { return Decisions("stop").size() >= 3; })) << sweep->output();
  sweep->Signal(SIGTERM);
  EXPECT_EQ(sweep->Wait(), 130) << sweep->output();
  const auto before = Decisions("stop");
  const auto dry = Halve("stop", {"--dry-run"});
  EXPECT_EQ(dry->Wait(), 0);
  EXPECT_EQ(Decisions("stop"), before) << "a dry run writes nothing";
  // A run that was killed before its config was written left files, which the next one rejected.
  fs::create_directories(run("stop") + "/trial-5-seed-1");
  std::ofstream(run("stop") + "/configs/trial-5-seed-1.toml") << "name = \"early\"\n";
  std::ofstream(run("stop") + "/trial-5-seed-1/incarnation") << "1\n";
  const auto again = Halve("stop");
  EXPECT_EQ(again->Wait(), 0) << again->output();
  const auto after = Decisions("stop");
  ASSERT_GT(after.size(), before.size());
  EXPECT_TRUE(std::equal(before.begin(), before.end(), after.begin()));
}

TEST_F(HalvingSystemTest, RejectsSettingsThatDoNotFit) {
  const auto refused = [this](const std::vector<std::string>& words, const std::string& why) {
    std::vector<std::string> all{"sweep", config(), "log.dir=" + folder()};
    all.insert(all.end(), words.begin(), words.end());
    const auto sweep = Start(all);
    EXPECT_EQ(sweep->Wait(), 2) << sweep->output();
    EXPECT_NE(sweep->output().find(why), std::string::npos) << sweep->output();
  };
  refused({"actor.n_step=1,3", "--asha", "steps"}, "needs --min-resource");
  refused({"actor.n_step=1,3", "--min-resource", "9"}, "only with --asha");
  refused({"actor.n_step=1,3", "--asha", "miles", "--min-resource", "9"}, "miles");
  refused({"actor.n_step=1,3", "--asha", "updates", "--min-resource", "9"}, "run.max_updates");
  refused({"run.total_steps=1000,2000", "--asha", "steps", "--min-resource", "9"}, "single value");
  refused({"actor.n_step=1,3", "--asha", "steps", "--min-resource", "9", "--seeds", "2"},
          "--seeds is 2, must be 1");
}

TEST_F(SweepSystemTest, RejectsInvalidPlot) {
  EXPECT_EQ(Start({"plot", folder()})->Wait(), 2);
  EXPECT_EQ(Start({"plot", folder() + "/none"})->Wait(), 2);
  const auto other = Start({"plot", folder(), "--out", "curves.pdf"});
  EXPECT_EQ(other->Wait(), 2) << other->output();
  EXPECT_NE(other->output().find("must end in .png or .svg"), std::string::npos) << other->output();
  EXPECT_EQ(Start({"plot", folder(), "--x", "miles"})->Wait(), 2);
  EXPECT_EQ(Start({"plot"})->Wait(), 2);
}

}  // namespace
}  // namespace troop
