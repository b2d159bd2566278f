#include "fleet/serial/serial_run.h"

#include <gtest/gtest.h>

#include <functional>
#include <map>

#include "core/storage/memory_storage.h"
#include "fleet/config/resolve_supervised.h"
#include "learners/checkpoint.h"
#include "tests/fleet/small_serial.h"

namespace troop {
namespace {

Config SmallConfig() {
  Config config = SmallSerial();
  config.replay.capacity_items = 1000;
  config.run.total_steps = 4000;
  config.learner.target_update_every_updates = 30;
  config.evaluator.final_episodes = 4;
  config.checkpoint.every_updates = 150;
  config.actor.record_episodes = true;  // the files are compared, too
  return config;
}

// Every file of the run's folder but locks.
void Collect(Storage* run, const std::string& folder, std::map<std::string, std::string>* out) {
  const auto names = run->List(folder);
  ASSERT_TRUE(names.ok()) << names.status().ToString();
  for (const std::string& name : *names) {
    const std::string path = folder.empty() ? name : folder + name;
    if (name.ends_with('/')) {
      Collect(run, path, out);
    } else if (name != "lock") {
      const auto bytes = run->Read(path, std::size_t{1} << 30);
      ASSERT_TRUE(bytes.ok()) << bytes.status().ToString();
      (*out)[path] = bytes->text();
    }
  }
}

// Compares only the newest checkpoint: an abandoned leg may have evicted an older one.
std::map<std::string, std::string> FilesOf(Storage* run) {
  std::map<std::string, std::string> files;
  Collect(run, "", &files);
  const auto newest = NewestCheckpoint(run);
  EXPECT_TRUE(newest.ok()) << newest.status().ToString();
  std::erase_if(files, [&](const auto& file) {
    return file.first.starts_with("checkpoints/") && !file.first.starts_with(*newest + "/");
  });
  return files;
}

void ExpectSameFiles(const std::map<std::string, std::string>& expected,
                     const std::map<std::string, std::string>& found, const std::string& what) {
  for (const auto& [path, bytes] : expected) {
    const auto it = found.find(path);
    if (it == found.end()) {
      ADD_FAILURE() << what << ": " << path << " is missing";
    } else {
      EXPECT_TRUE(it->second == bytes) << what << ": " << path << " differs";
    }
  }
  for (const auto& [path, bytes] : found) {
    EXPECT_TRUE(expected.contains(path)) << what << ": " << path << " should not be there";
  }
}

std::unique_ptr<SerialRun> Begin(const Config& config, Storage* run, const RestorePoint& from) {
  auto made = SerialRun::Make(config, run, from);
  EXPECT_TRUE(made.ok()) << made.status().ToString();
  return made.ok() ? std::move(*made) : nullptr;
}

std::unique_ptr<SerialRun> Resume(const Config& config, Storage* run) {
  const auto point = NewestRestorePoint(run);
  EXPECT_TRUE(point.ok()) << point.status().ToString();
  if (!point.ok()) return nullptr;
  const Status back = GoBackTo(run, *point);
  EXPECT_TRUE(back.ok()) << back.ToString();
  return Begin(config, run, *point);
}

double UpdatesOfRun(const SerialRun& run) { return run.View().metrics.at("learner/updates").value; }

// Rounds, one at least, until `enough` or the end.
void Go(SerialRun* run, const std::function<bool()>& enough) {
  for (int rounds = 0; run->Round() && !enough();) {
    ASSERT_LT(++rounds, 1'000'000) << "the run does not end";
  }
  EXPECT_TRUE(run->result().ok()) << run->result().ToString();
}
void Finish(SerialRun* run) {
  Go(run, [] { return false; });
}

struct Course {
  std::map<std::string, std::string> files;
  RunView view;
};
const Course& Unbroken() {
  static const Course course = [] {
    const auto storage = MakeMemoryStorage();
    const auto run = Begin(SmallConfig(), storage.get(), {});
    Finish(run.get());
    return Course{FilesOf(storage.get()), run->View()};
  }();
  return course;
}

TEST(SerialRunTest, CompletesAllLegs) {
  const Course& course = Unbroken();
  EXPECT_EQ(course.view.phase, Phase::kDone);
  EXPECT_EQ(course.view.steps, 4000);
  EXPECT_EQ(course.view.steps_at_start, 0);
  EXPECT_EQ(course.view.metrics.at("learner/updates").value,
            double(course.view.checkpoint_updates));
  // Counters cover all legs.
  EXPECT_GE(course.view.metrics.at("actor/steps").value, 4000);  // some at the end of each leg lost
  // Four samples an insert, sixteen an update.
  EXPECT_NEAR(double(course.view.checkpoint_updates), 4 * (4000.0 - 100) / 16, 100);
  ASSERT_FALSE(course.view.evaluations.empty());
  EXPECT_TRUE(course.view.evaluations.back().final);
  EXPECT_GT(course.view.evaluations.size(), 3u);  // of earlier legs, too
  int legs = 0;
  for (const auto& [path, bytes] : course.files) legs += path.ends_with("point.json");
  EXPECT_EQ(legs, 1);  // older points went
  EXPECT_GT(course.view.metrics.at("actor/recorded_episodes").value, 50);
}

// At the end of a leg one of two learners was stopped first, had nothing to wait for and
// was done; the other waited for its gradient for good, since no process had ended.
TEST(SerialRunTest, LeavingLearnerEndsRoundsOfOthers) {
  Config config;
  config.learner.algorithm = AlgorithmKind::kClassifier;
  config.learner.batch_size = 12;
  config.run.epochs = 50;
  config.data.reviews = TROOP_SOURCE_DIR "/tests/fixtures/supervised/reviews.csv";
  config.data.vocabulary = TROOP_SOURCE_DIR "/tests/fixtures/supervised/vocab.txt";
  config.data.max_length = 16;
  config.model.hidden_size = 16;
  config.model.num_hidden_layers = 1;
  config.model.max_position_embeddings = 24;
  config.evaluator.enabled = false;
  config.fleet.mode = FleetMode::kSerial;
  config.fleet.learners = 2;
  config.mesh.dp = 2;
  config.data.cache.clear();
  config.checkpoint.every_updates = 10;
  ASSERT_TRUE(ResolveSupervised(&config).ok());
  for (const double every_s : {0.02, 0.03, 0.05}) {  // news of a checkpoint ask for the end at once
    config.checkpoint.every_s = every_s;
    const auto storage = MakeMemoryStorage();
    const auto run = Begin(config, storage.get(), {});
    for (int rounds = 0; run->Round();) {
      ASSERT_LT(++rounds, 200'000) << "the run does not end, with a checkpoint each " << every_s;
    }
    EXPECT_TRUE(run->result().ok()) << run->result().ToString();
    EXPECT_EQ(run->View().checkpoint_updates, 50u);
  }
}

TEST(SerialRunTest, LegStartsWithReplayContents) {
  const auto storage = MakeMemoryStorage();
  const auto run = Begin(SmallConfig(), storage.get(), {});
  Go(run.get(), [&] {
    const auto point = NewestRestorePoint(storage.get());
    return point.ok() && point->leg == 2;
  });
  const auto point = NewestRestorePoint(storage.get());
  ASSERT_TRUE(point.ok());
  // No warm-up again: updates begin where they ended, before 100 items more could have come.
  const double steps = double(point->steps);
  Go(run.get(), [&] { return UpdatesOfRun(*run) > double(point->updates); });
  EXPECT_LT(double(run->View().steps), steps + 100);
}

// The statistics are those of all legs: each leg begins with those in the checkpoint of the one
// before, also after a stop.
TEST(SerialRunTest, ResumesNormalizedRewardsToSameBytes) {
  Config config = SmallConfig();
  config.env.normalize_rewards = true;
  config.env.reward_clip = 10;
  const auto unbroken = MakeMemoryStorage(), storage = MakeMemoryStorage();
  const auto whole = Begin(config, unbroken.get(), {});
  Finish(whole.get());
  {
    const auto run = Begin(config, storage.get(), {});
    Go(run.get(), [&] { return UpdatesOfRun(*run) >= 333; });
  }
  const auto run = Resume(config, storage.get());
  Finish(run.get());
  ExpectSameFiles(FilesOf(unbroken.get()), FilesOf(storage.get()), "killed");
  const auto last = NewestFiniteCheckpoint(unbroken.get());
  ASSERT_TRUE(last.ok()) << last.status().ToString();
  const RewardStatistics& rewards = last->checkpoint.rewards;
  EXPECT_GE(rewards.count, 3900);  // of 4000 steps; a heartbeat is older than the checkpoint
  // A counter reports the steps of all legs, some of which are lost at their ends.
  EXPECT_LE(rewards.count, whole->View().metrics.at("actor/steps").value + 100);
  EXPECT_GT(rewards.squares, 0);
}

class StoppedRunTest : public testing::TestWithParam<int> {};

TEST_P(StoppedRunTest, KillAtAnyUpdateResumesToSameBytes) {
  const auto storage = MakeMemoryStorage();
  {
    const auto run = Begin(SmallConfig(), storage.get(), {});
    Go(run.get(), [&] { return UpdatesOfRun(*run) >= GetParam(); });
  }
  const auto run = Resume(SmallConfig(), storage.get());
  Finish(run.get());
  ExpectSameFiles(Unbroken().files, FilesOf(storage.get()), "killed");
}

TEST_P(StoppedRunTest, StopAtAnyUpdateResumesToSameBytes) {
  const auto storage = MakeMemoryStorage();
  {
    const auto run = Begin(SmallConfig(), storage.get(), {});
    Go(run.get(), [&] { return UpdatesOfRun(*run) >= GetParam(); });
    run->Drain();
    Finish(run.get());
    EXPECT_TRUE(NewestCheckpoint(storage.get()).ok());
  }
  const auto run = Resume(SmallConfig(), storage.get());
  Finish(run.get());
  ExpectSameFiles(Unbroken().files, FilesOf(storage.get()), "stopped");
}
INSTANTIATE_TEST_SUITE_P(AtUpdates, StoppedRunTest,
                         testing::Values(0, 1, 77, 149, 150, 151, 333, 600, 800, 970));

TEST(SerialRunTest, RepeatedStopsGiveSameBytes) {
  const auto storage = MakeMemoryStorage();
  auto run = Begin(SmallConfig(), storage.get(), {});
  for (int rounds = 0; run->Round();) {
    if (++rounds % 400 != 0) continue;
    run.reset();
    run = Resume(SmallConfig(), storage.get());
    ASSERT_NE(run, nullptr);
    ASSERT_LT(rounds, 1'000'000);
  }
  EXPECT_TRUE(run->result().ok()) << run->result().ToString();
  ExpectSameFiles(Unbroken().files, FilesOf(storage.get()), "stopped many times");
}

TEST(SerialRunTest, RunsOneLegWithoutRestorePoints) {
  Config config = SmallConfig();
  config.checkpoint.every_updates = 0;
  const auto storage = MakeMemoryStorage();
  const auto run = Begin(config, storage.get(), {});
  Finish(run.get());
  EXPECT_EQ(run->View().steps, 4000);
  EXPECT_FALSE(storage->Exists("restore"));
  EXPECT_FALSE(storage->Exists("replay-0"));
  EXPECT_EQ(NewestRestorePoint(storage.get()).status().code(), Code::kNotFound);
}

}  // namespace
}  // namespace troop
