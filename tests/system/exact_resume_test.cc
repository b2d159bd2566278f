// Serial mode: a run that was stopped or killed ends with the bytes of one that never was.

#include <map>
#include <regex>

#include "tests/system/troop_process.h"

namespace troop {
namespace {

namespace fs = std::filesystem;

class ExactResumeTest : public SystemTest {
 protected:
  std::vector<std::string> Keys(const std::string& name) const {
    std::vector<std::string> keys{"name=" + name,
                                  "fleet.mode=serial",
                                  "run.total_steps=3001",
                                  "checkpoint.every_s=0.1",
                                  "checkpoint.every_updates=60",
                                  "checkpoint.keep=1",
                                  "log.metrics_every_s=0.01"};
    keys.insert(keys.end(), more_.begin(), more_.end());
    return keys;
  }
  // The final checkpoint, the replay, the restore point: all files that a continuation needs,
  // except for locks and for the parts of a checkpoint that contain the run's name.
  std::map<std::string, std::string> Bytes(const std::string& name) const {
    std::map<std::string, std::string> bytes;
    for (const auto& entry : fs::recursive_directory_iterator(run(name))) {
      const std::string path = fs::relative(entry.path(), run(name)).string();
      const bool kept = path.starts_with("checkpoints/") || path.starts_with("replay-") ||
                        path.starts_with("restore/") || path == "incarnation";
      const std::string file = entry.path().filename().string();
      if (!kept || !entry.is_regular_file() || file == "lock" || file == "state.json" ||
          file == "manifest.json") {
        continue;
      }
      bytes[path] = FileText(entry.path().string());
      if (file == "point.json") bytes[path] = WithoutName(bytes[path]);
    }
    return bytes;
  }
  // A restore point's list of files, without checksums of those that have the run's name.
  static std::string WithoutName(const std::string& point) {
    const std::regex named(
        R"("checkpoint/(state|manifest).json": \{[^}]*\}, |, "crc32c": \d+\}\n)");
    return std::regex_replace(point, named, "");
  }
  void ExpectAsUnbroken(const std::string& what) {
    if (unbroken_.empty()) {
      const auto troop = Train(Keys("unbroken"));
      ExpectDone(troop.get(), 3001, "unbroken");
      unbroken_ = Bytes("unbroken");
      EXPECT_GT(unbroken_.size(), 6u);
    }
    const auto found = Bytes("run");
    for (const auto& [path, bytes] : unbroken_) {
      const auto it = found.find(path);
      EXPECT_TRUE(it != found.end() && it->second == bytes)
          << what << ": " << path << (it == found.end() ? " is missing" : " differs");
    }
    EXPECT_EQ(found.size(), unbroken_.size()) << what;
  }
  bool HasPoint() const {
    std::error_code none;
    fs::recursive_directory_iterator files(run() + "/restore", none);
    return !none && std::ranges::any_of(files, [](const auto& entry) {
      return entry.path().filename() == "point.json";
    });
  }
  bool LegBegun(int leg) const {
    for (int k = leg; k < 10; ++k) {
      if (fs::exists(run() + "/restore/000000000" + std::to_string(k) + "/point.json")) return true;
    }
    return false;
  }
  // Killed when it writes its n-th file, and again and again when it is resumed. False: it ended
  // before.
  bool DiesAt(const std::string& failpoint, int n) {
    fs::remove_all(run());
    const std::string order = "TROOP_FAILPOINT=" + failpoint + ":" + std::to_string(n);
    auto words = TrainWords(Keys("run"));
    int lives = 0;
    for (;; ++lives) {
      const auto troop = Start(words, {order});
      const int code = troop->Wait();
      if (code == 0) break;
      EXPECT_EQ(code, 128 + SIGKILL) << order << troop->output();
      const bool began = HasPoint();
      words = began ? std::vector<std::string>{"resume", run()} : TrainWords(Keys("run"));
      if (!began) words.push_back("--overwrite");
      if (lives < 40 && code == 128 + SIGKILL) continue;
      const auto last = Start(words);  // so few files that it does not come to the next leg
      ExpectDone(last.get(), 3001);
      break;
    }
    if (lives > 0) ExpectAsUnbroken(order);
    return lives > 0;
  }

  // Forgets the unbroken run, before other keys are tested.
  void Forget() {
    unbroken_.clear();
    fs::remove_all(run("unbroken"));
  }

  std::vector<std::string> more_;  // keys of the run

 private:
  std::map<std::string, std::string> unbroken_;
};

TEST_F(ExactResumeTest, KillDuringWriteResumesToSameBytes) {
  EXPECT_TRUE(DiesAt("disk.half", 30));
  EXPECT_TRUE(DiesAt("disk.renamed", 21));
  EXPECT_TRUE(DiesAt("checkpoint.aside", 1) || DiesAt("checkpoint.trim", 3));
}

TEST_F(ExactResumeTest, ContinuousActionsAndBetaResumeToSameBytes) {
  more_ = {"env.id=Pendulum-v1", "learner.algorithm=dpg", "learner.critic=categorical",
           "optimizer.policy_learning_rate=1e-4", "replay.final_beta=1"};
  EXPECT_TRUE(DiesAt("disk.half", 30));
}

TEST_F(ExactResumeTest, Td3ResumesToSameBytes) {
  more_ = {"env.id=Pendulum-v1", "learner.algorithm=td3", "learner.policy_delay=3"};
  EXPECT_TRUE(DiesAt("disk.half", 30));
}

TEST_F(ExactResumeTest, SacResumesToSameBytes) {
  more_ = {"env.id=Pendulum-v1", "learner.algorithm=sac"};
  EXPECT_TRUE(DiesAt("disk.half", 30));
}

// Two learners, whose noise differs.
TEST_F(ExactResumeTest, NoisyNetworkResumesToSameBytes) {
  more_ = {"network.noisy=true", "network.dueling_units=8", "learner.critic=quantile",
           "learner.atoms=8", "fleet.learners=2"};
  EXPECT_TRUE(DiesAt("disk.half", 30));
}

TEST_F(ExactResumeTest, UnrollsResumeToSameBytes) {
  const std::string memoryless = "[{type=\"linear\", units=16}]",
                    recurrent = "[{type=\"linear\", units=16}, {type=\"lstm\", units=8}]";
  for (const auto& [algorithm, layers] :
       {std::pair("pqn", memoryless), {"ppo", memoryless}, {"ppo", recurrent}}) {
    more_ = {std::string("learner.algorithm=") + algorithm,
             "network.layers=" + layers,
             "actor.unroll_length=8",
             "actor.insert_batch_size=4",
             "replay.sampler=fifo",
             "replay.max_times_sampled=1",
             "replay.samples_per_insert=1",
             "replay.min_items=8",
             "learner.batch_size=2",
             "optimizer.final_lr_fraction=0",
             "checkpoint.every_updates=15"};  // of about 190
    Forget();
    EXPECT_TRUE(DiesAt("disk.half", 30));
  }
}

TEST_F(ExactResumeTest, SequencesOfR2d2ResumeToSameBytes) {
  more_ = {"learner.algorithm=r2d2",
           "network.layers=[{type=\"lstm\", units=8}]",
           "actor.unroll_length=8",
           "actor.unroll_overlap=4",
           "actor.burn_in=4",
           "actor.insert_batch_size=4",
           "replay.min_items=8",
           "replay.samples_per_insert=1",
           "learner.batch_size=2",
           "learner.target_update_every_updates=10",
           "checkpoint.every_updates=15"};
  EXPECT_TRUE(DiesAt("disk.half", 30));
}

TEST_F(ExactResumeTest, ActionMasksResumeToSameBytes) {
  more_ = {"env.id=ConnectFour-v0", "env.plugin=" TROOP_PLUGIN_FOLDER "/connect_four.so",
           "env.isolation=none",
           "network.layers=[{type=\"conv2d\", filters=16, kernel=4}, {type=\"linear\", units=16}]"};
  EXPECT_TRUE(DiesAt("disk.half", 30));
}

TEST_F(ExactResumeTest, InferenceServerResumesToSameBytes) {
  more_ = {"actor.inference=server", "fleet.actors=2"};
  EXPECT_TRUE(DiesAt("disk.half", 30));
}

TEST_F(ExactResumeTest, SlowKillAtEachFileResumesToSameBytes) {
  int n = 1;
  while (DiesAt("disk.written", n)) n += 1 + n / 8;
  EXPECT_GT(n, 20);  // the faster the machine, the fewer there are
}

TEST_F(ExactResumeTest, OrderlyStopResumesToSameBytes) {
  auto words = TrainWords(Keys("run"));
  int stops = 0;
  bool ended = false;  // before it could be stopped
  for (int leg = 1; leg <= 5 && !ended; leg += 2) {
    const auto troop = Start(words);
    Await([&] { return !troop->Running() || LegBegun(leg); });
    troop->Signal(SIGINT);
    const int code = troop->Wait();
    EXPECT_EQ(troop->output().find("exactly") != std::string::npos, stops > 0);
    ended = code == 0;
    if (ended) break;
    ASSERT_EQ(code, 130) << troop->output();
    words = {"resume", run()};
    ++stops;
  }
  EXPECT_GT(stops, 0);
  if (!ended) {
    const auto last = Start(words);
    ExpectDone(last.get(), 3001);
    EXPECT_NE(last->output().find("exactly"), std::string::npos) << last->output();
  }
  ExpectAsUnbroken("stopped");
}

// Another mode cannot use the restore point of this one.
TEST_F(ExactResumeTest, ContinuesAsProcessesFromNewestCheckpoint) {
  auto keys = Keys("run");
  const auto troop = Train(keys);
  ExpectDone(troop.get(), 3001);
  const auto resumed = Start({"resume", run(), "fleet.mode=processes", "run.total_steps=4001"});
  ExpectDone(resumed.get(), 4001);
  EXPECT_EQ(resumed->output().find("exactly"), std::string::npos) << resumed->output();
  EXPECT_FALSE(fs::exists(run() + "/restore"));
}

// One digit of it, and the run went "exactly" to other results.
TEST_F(ExactResumeTest, NamesChangedConfigKey) {
  ExpectDone(Train(Keys("run")).get(), 3001);
  std::string config = FileText(run() + "/config.toml");
  const std::size_t gamma = config.find("gamma = 0.99");
  ASSERT_NE(gamma, config.npos) << config;
  config.replace(gamma, 12, "gamma = 0.89");
  std::ofstream(run() + "/config.toml") << config;
  const auto resumed = Start({"resume", run(), "run.total_steps=3501"});
  ExpectDone(resumed.get(), 3501);
  EXPECT_NE(resumed->output().find("learner.gamma = 0.89 (it was 0.99)"), std::string::npos)
      << resumed->output();
  EXPECT_EQ(resumed->output().find("exactly"), std::string::npos) << resumed->output();
}

TEST_F(ExactResumeTest, FallsBackToCheckpointOnDamagedRestorePoint) {
  const auto troop = Train(Keys("run"));
  ExpectDone(troop.get(), 3001);
  int steps = 3001;
  // Files that are damaged in turn: replay segments, the restore point's own data, and a missing
  // file.
  for (const std::string damage : {"segments", "point.json", "incarnation"}) {
    std::string damaged;
    for (const auto& entry : fs::recursive_directory_iterator(run() + "/restore")) {
      const std::string path = entry.path().string();
      if (entry.is_regular_file() && path.find(damage) != path.npos && entry.file_size() > 0) {
        damaged = path;
      }
    }
    ASSERT_NE(damaged, "") << damage;
    std::string bytes = FileText(damaged);
    fs::remove(damaged);
    bytes[bytes.size() / 2] ^= 4;
    if (damage != "incarnation") std::ofstream(damaged, std::ios::binary) << bytes;
    steps += 500;
    const auto resumed = Start({"resume", run(), "run.total_steps=" + std::to_string(steps)});
    ExpectDone(resumed.get(), steps);
    EXPECT_NE(resumed->output().find("not resumed exactly"), std::string::npos)
        << resumed->output();
    EXPECT_NE(resumed->output().find(damaged.substr(run().size() + 1)), std::string::npos)
        << resumed->output();
    EXPECT_EQ(resumed->output().find(" exactly, from"), std::string::npos) << resumed->output();
  }
}

}  // namespace
}  // namespace troop
