// Runs that learn from recorded episodes: behavior cloning and mixtures, their death, resume,
// repetition and export, and datasets that are refused. The episodes are those of a fixed linear
// controller, played here.
#include <cstring>

#include "envs/environment.h"
#include "replay/episodes/episode.h"
#include "tests/system/troop_process.h"

namespace troop {
namespace {

// This rule balances CartPole's pole to the limit of 500 steps.
std::int32_t ActionOfRule(std::span<const float> seen) {
  return 0.5F * seen[0] + seen[1] + 10 * seen[2] + 3 * seen[3] > 0 ? 1 : 0;
}

// One episode of the rule. Each fifth action is random, but the recorded one is the rule's, so that
// the episodes contain states off the rule's own path.
Episode PlayRule(std::uint64_t seed) {
  const auto env = *MakeEnvironment("CartPole-v1", {});
  const EnvSpec& spec = env->spec();
  std::vector<float> frame(4), seen, rewards;
  std::vector<std::int32_t> actions;
  env->Reset(seed, std::as_writable_bytes(std::span(frame)));
  StepResult step;
  while (!step.terminated && !step.truncated) {
    seen.insert(seen.end(), frame.begin(), frame.end());
    actions.push_back(ActionOfRule(frame));
    const auto count = std::int32_t(actions.size());
    const std::int32_t played =
        count % 5 == 0 ? (count / 5 + std::int32_t(seed)) % 2 : actions.back();
    step =
        env->Step(std::as_bytes(std::span(&played, 1)), std::as_writable_bytes(std::span(frame)));
    rewards.push_back(step.reward);
  }
  seen.insert(seen.end(), frame.begin(), frame.end());
  return {.env = spec.id,
          .observation = spec.observation,
          .action = spec.action,
          .steps = std::ssize(actions),
          .terminated = step.terminated,
          .truncated = step.truncated,
          .observations = Buffer::Copy(std::as_bytes(std::span(seen))),
          .actions = Buffer::Copy(std::as_bytes(std::span(actions))),
          .rewards = Buffer::Copy(std::as_bytes(std::span(rewards)))};
}

class OfflineRunTest : public SystemTest {
 protected:
  OfflineRunTest() {
    std::ofstream file(dataset(), std::ios::binary);
    for (std::uint64_t seed = 0; seed < 10; ++seed) {
      const auto bytes = EncodeEpisode(PlayRule(seed));
      file.write(reinterpret_cast<const char*>(bytes.data()), std::streamsize(bytes.size()));
    }
  }
  std::string dataset() const { return folder() + "/rule.episodes"; }
  std::vector<std::string> CloneWords(const std::vector<std::string>& more) const {
    std::vector<std::string> words{"learner.algorithm=behavior_cloning",
                                   "learner.demonstrations=" + dataset(),
                                   "learner.demonstration_share=1",
                                   "network.dueling=false",
                                   "optimizer.type=adam",
                                   "optimizer.learning_rate=3e-3",
                                   "run.max_updates=600"};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  std::string FinalWeights() const {
    return FileText(run() + "/" + *Json(run() + "/result.json").String("checkpoint") +
                    "/weights.safetensors");
  }
  double FinalReturn() const {
    return Json(run() + "/result.json").Find("final_return_mean")->number;
  }
  void ExpectRefused(const std::vector<std::string>& words, const std::string& part) const {
    const auto troop = Train(words);
    EXPECT_NE(troop->Wait(), 0);
    EXPECT_NE(troop->output().find(part), std::string::npos) << troop->output();
  }
};

// Random actions last 20 steps; an imitation of the rule lasts many times longer.
TEST_F(OfflineRunTest, CloneBalancesPoleAsItsEpisodesDo) {
  const auto troop = Train(CloneWords({}));
  ExpectDone(troop.get(), 600 * 64);
  EXPECT_GT(FinalReturn(), 300);
  EXPECT_GT(Metric("learner/accuracy"), 0.9);
  EXPECT_EQ(Metric("learner/demonstration_fraction"), 1);
  EXPECT_EQ(Metric("learner/updates"), 600);
  EXPECT_FALSE(std::filesystem::exists(run() + "/logs/actor-0.log"));
  EXPECT_FALSE(std::filesystem::exists(run() + "/logs/replay-0.log"));
  const auto eval = Start({"eval", run(), "--episodes", "3"});
  EXPECT_EQ(eval->Wait(), 0) << eval->output();
  const auto exported = Start({"export", run(), "--format", "onnx", "--out", folder() + "/x"});
  EXPECT_EQ(exported->Wait(), 0) << exported->output();
  // More updates continue the run, from its own weights.
  const auto resumed = Start({"resume", run(), "run.max_updates=700"});
  ExpectDone(resumed.get(), 700 * 64);
  EXPECT_GT(FinalReturn(), 300);
}

TEST_F(OfflineRunTest, LearnerThatDiesIsRestarted) {
  const auto troop = Train(CloneWords({"run.max_updates=40000"}));
  ASSERT_TRUE(AwaitCheckpoint()) << LauncherLog();
  SendSignal(AwaitRole("learner"), SIGKILL);
  ExpectDone(troop.get(), 40000 * 64);
  EXPECT_GT(FinalReturn(), 300);
}

// An access to a mapped page beyond the new end of the file would end the learner with SIGBUS.
TEST_F(OfflineRunTest, LearnerOutlivesTruncationOfItsFile) {
  const auto troop = Train(CloneWords({"run.max_updates=10000"}));
  ASSERT_TRUE(AwaitCheckpoint()) << LauncherLog();
  std::filesystem::resize_file(dataset(), 0);
  ExpectDone(troop.get(), 10000 * 64);
  EXPECT_GT(FinalReturn(), 300);
}

// Equal seeds give equal bytes, also if the run ends early and is resumed.
TEST_F(OfflineRunTest, SerialRunIsReproducibleAlsoIfResumed) {
  std::vector<std::string> serial = {"fleet.mode=serial", "evaluator.every_s=3600",
                                     "evaluator.final_episodes=1", "run.max_updates=200"};
  ExpectDone(Train(CloneWords(serial)).get(), 200 * 64);
  const std::string whole = FinalWeights();
  ASSERT_FALSE(whole.empty());
  std::filesystem::remove_all(run());
  ExpectDone(Train(CloneWords(serial)).get(), 200 * 64);
  EXPECT_EQ(FinalWeights(), whole);
  std::filesystem::remove_all(run());
  serial.back() = "run.max_updates=70";
  ExpectDone(Train(CloneWords(serial)).get(), 70 * 64);
  EXPECT_NE(FinalWeights(), whole);
  ExpectDone(Start({"resume", run(), "run.max_updates=200"}).get(), 200 * 64);
  EXPECT_EQ(FinalWeights(), whole);
}

// A quarter of each batch, exactly.
TEST_F(OfflineRunTest, MixtureHasExactShareOfDemonstrations) {
  const auto troop =
      Train({"learner.demonstrations=" + dataset(), "learner.demonstration_share=0.25"});
  ExpectDone(troop.get(), 8001);
  EXPECT_EQ(Metric("learner/demonstration_fraction"), 0.25);
}

TEST_F(OfflineRunTest, BadDatasetsAndKeysAreRefused) {
  ExpectRefused({"learner.algorithm=behavior_cloning"}, "learner.demonstrations");
  ExpectRefused(CloneWords({"learner.demonstration_share=0.5"}), "set 1");
  ExpectRefused(CloneWords({"run.max_updates=0"}), "run.max_updates");
  ExpectRefused(CloneWords({"learner.demonstrations=" + folder() + "/none"}), "none");
  ExpectRefused(CloneWords({"env.id=Acrobot-v1"}), "use episodes of this environment");
  // A sparse file: its size is refused before it is read.
  std::filesystem::resize_file(dataset(), std::uintmax_t{8} << 40);
  ExpectRefused(CloneWords({}), "take 8192.");
}

// A part of the episodes is not taken for all of them, and no exception ends the program.
TEST_F(OfflineRunTest, FolderThatFailsWhileListedIsRefused) {
  const std::string episodes = folder() + "/rules";
  std::filesystem::create_directory(episodes);
  for (const char* name : {"/a.episodes", "/b.episodes", "/c.episodes"})
    std::filesystem::copy_file(dataset(), episodes + name);
  const std::string fault = folder() + "/fault";
  std::ofstream(fault) << "unlisted";
  const auto troop =
      Start(TrainWords(CloneWords({"learner.demonstrations=" + episodes, "fleet.mode=serial"})),
            {"LD_PRELOAD=" TROOP_DISK_FAULT, "TROOP_DISK_FAULT_FILE=" + fault,
             "TROOP_DISK_FAULT_FOLDER=" + std::filesystem::canonical(episodes).string()});
  EXPECT_EQ(troop->Wait(), 2) << troop->output();
  EXPECT_NE(troop->output().find("can't list the folder: Input/output error"), std::string::npos)
      << troop->output();
}

// ---- troop eval --record ----

std::vector<Episode> EpisodesIn(const std::string& folder) {
  std::vector<Episode> found;
  const auto files = FindEpisodeFiles(folder);
  EXPECT_TRUE(files.ok()) << files.status().ToString();
  for (const std::string& file : *files) {
    EpisodeReader reader(Buffer::Copy(FileText(file)));
    for (auto next = reader.Next(); next.ok() && next->has_value(); next = reader.Next()) {
      found.push_back(std::move(**next));
    }
    EXPECT_EQ(reader.torn_bytes(), 0u);
  }
  return found;
}

// A clone is evaluated, its recorded episodes return the same rewards in the environment, and
// another run clones it from them.
TEST_F(OfflineRunTest, RecordedEvaluationCanBeReplayedAndCloned) {
  ExpectDone(Train(CloneWords({})).get(), 600 * 64);
  const std::string record = folder() + "/new/record";
  const auto eval = Start({"eval", run(), "--episodes", "10", "--record", record, "--json"});
  ASSERT_EQ(eval->Wait(), 0) << eval->output();
  const Result<JsonValue> report = ParseJson(eval->output());
  ASSERT_TRUE(report.ok()) << eval->output();
  EXPECT_EQ(*report->Integer("recorded_episodes"), 10);
  EXPECT_EQ(*report->String("record"), record);
  const std::vector<Episode> episodes = EpisodesIn(record);
  ASSERT_EQ(episodes.size(), 10u);
  double sum = 0;
  for (const Episode& e : episodes) {
    const auto env = *MakeEnvironment("CartPole-v1", {});
    std::vector<float> seen(4);
    const auto bytes = std::as_writable_bytes(std::span(seen));
    env->Reset(e.seed.value(), bytes);
    for (std::size_t t = 0; t < std::size_t(e.steps); ++t) {
      ASSERT_TRUE(std::ranges::equal(seen, e.observations.as<float>().subspan(4 * t, 4)));
      const StepResult step = env->Step(e.actions.bytes().subspan(4 * t, 4), bytes);
      ASSERT_EQ(step.reward, e.rewards.as<float>()[t]);
      sum += double(step.reward);
    }
    EXPECT_EQ(e.policy_updates, 600u);
    EXPECT_EQ(e.exploration, report->Find("epsilon")->number);
  }
  EXPECT_NEAR(sum / 10, report->Find("return_mean")->number, 1e-9);
  ExpectDone(Train(CloneWords({"name=second", "learner.demonstrations=" + record})).get(), 600 * 64,
             "second");
  EXPECT_GT(Json(run("second") + "/result.json").Find("final_return_mean")->number, 300);
}

TEST_F(OfflineRunTest, RecordNeedsNewFolder) {
  ExpectDone(Train(CloneWords({"run.max_updates=20"})).get(), 20 * 64);
  const auto expect = [&](const std::string& path, int code, const std::string& part) {
    const auto eval = Start({"eval", run(), "--episodes", "2", "--record", path});
    EXPECT_EQ(eval->Wait(), code) << eval->output();
    const std::string output = eval->output();
    EXPECT_NE(output.find(part), std::string::npos) << output;
    const bool one_line = std::ranges::count(output, '\n') == 1;
    EXPECT_TRUE(code == 0 || one_line) << output;
  };
  expect(folder() + "/record", 0, "recorded 2 episodes in " + folder() + "/record");
  expect(folder() + "/record", 3, "has recorded episodes or is a file; give a new folder");
  expect(dataset(), 3, "give a new folder");
  expect("/proc/none", 2, "troop: --record: ");
  EXPECT_EQ(EpisodesIn(folder() + "/record").size(), 2u);
}

}  // namespace
}  // namespace troop
