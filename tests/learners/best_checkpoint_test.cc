#include "learners/best_checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "core/base/failpoint.h"
#include "core/storage/json.h"
#include "core/tensor/trajectory.h"
#include "learners/algorithm.h"
#include "learners/checkpoint.h"
#include "learners/rollback.h"
#include "nn/models/model.h"
#include "tests/core/temp_folder.h"
#include "tests/learners/learner_world.h"

namespace troop {
namespace {

using testing::HasSubstr;

// The f32 values of a safetensors file by name, read without the product's decoder: 8 bytes with
// the size of the header, the header as JSON, then the bytes of the tensors.
std::map<std::string, std::vector<float>> PlainTensors(std::string_view bytes) {
  std::uint64_t header = 0;
  std::memcpy(&header, bytes.data(), sizeof header);
  const auto json = ParseJson(bytes.substr(sizeof header, header));
  EXPECT_TRUE(json.ok());
  std::map<std::string, std::vector<float>> tensors;
  for (const auto& [name, entry] : json->object) {
    if (name == "__metadata__") continue;
    EXPECT_EQ(*entry.String("dtype"), "F32") << name;
    const auto& ends = entry.Find("data_offsets")->array;
    const std::size_t first = std::size_t(ends[0].number), last = std::size_t(ends[1].number);
    std::vector<float> values((last - first) / sizeof(float));
    std::memcpy(values.data(), bytes.data() + sizeof header + header + first, last - first);
    tensors[name] = std::move(values);
  }
  return tensors;
}

class BestCheckpointTest : public testing::Test {
 protected:
  BestCheckpointTest() {
    env_.id = "test";
    env_.observation = {DType::kF32, {3}};
    env_.action.count = 2;
    LayerConfig layer;
    layer.type = LayerType::kLinear;
    layer.units = 8;
    config_.network.layers = {layer};
    config_.config_toml = "seed = 3\n";
    parameters_ = std::size_t(ParameterCount(*Network()));
  }
  std::unique_ptr<Module> Network() { return std::move(*MakeNetwork(ModelSetupOf(config_), env_)); }
  BestCheckpointKeeper Keeper(Storage* run) {
    return BestCheckpointKeeper(
        {.run = run, .module = Network(), .config_toml = config_.config_toml, .shards = shards_});
  }
  // Weights that are all different, from `first` on.
  std::vector<float> Weights(float first) const {
    std::vector<float> weights(parameters_);
    for (std::size_t i = 0; i < weights.size(); ++i) weights[i] = first + float(i) / 1024;
    return weights;
  }
  Result<bool> Offer(BestCheckpointKeeper* keeper, double score, std::uint64_t updates) {
    return keeper->Offer({.weights_version = WeightsVersion(7, updates),
                          .steps = std::int64_t(updates) * 8,
                          .episodes = 10,
                          .return_mean = score},
                         Weights(float(updates)));
  }
  bool Kept(BestCheckpointKeeper* keeper, double score, std::uint64_t updates) {
    const auto kept = Offer(keeper, score, updates);
    EXPECT_TRUE(kept.ok()) << kept.status().message();
    return kept.ok() && *kept;
  }
  // The best checkpoint has that score, and the weights of that number of updates.
  void ExpectBest(Storage* run, double score, std::uint64_t updates) {
    const auto path = BestCheckpoint(run);
    ASSERT_TRUE(path.ok()) << path.status().message();
    const auto text = run->Read(*path + "/state.json", 1 << 20);
    const auto json = ParseJson(text->text());
    ASSERT_TRUE(json.ok());
    EXPECT_EQ(json->Find("score")->number, score);
    EXPECT_EQ(*json->Integer("updates"), std::int64_t(updates));
    const auto bytes = run->Read(*path + "/weights.safetensors", 1 << 20);
    auto tensors = PlainTensors(bytes->text());
    const std::vector<float> expected = Weights(float(updates));
    const auto module = Network();
    ASSERT_EQ(tensors.size(), module->params().size());
    for (const ParamSpec& param : module->params()) {
      const auto first = expected.begin() + param.offset;
      EXPECT_TRUE(std::equal(first, first + param.shape.elements(), tensors[param.name].begin(),
                             tensors[param.name].end()))
          << param.name;
    }
    const auto read = ReadCheckpoint(run, *path);
    ASSERT_TRUE(read.ok()) << read.status().message();
    EXPECT_TRUE(std::ranges::equal(read->state.tensors.at("value").as<float>(), expected));
  }

  EnvSpec env_;
  TrainingConfig config_;
  std::size_t parameters_ = 0;
  bool shards_ = false;
  FullDisk run_;
};

TEST_F(BestCheckpointTest, KeepsExactWeightsOfHighestScore) {
  auto keeper = Keeper(&run_);
  EXPECT_TRUE(Kept(&keeper, -20.5, 10));
  ExpectBest(&run_, -20.5, 10);
  EXPECT_TRUE(Kept(&keeper, 1.0 / 3, 20));
  EXPECT_FALSE(Kept(&keeper, 0.333, 30));
  ExpectBest(&run_, 1.0 / 3, 20);
  EXPECT_EQ(*run_.List(""), std::vector<std::string>{"best/"});
}

TEST_F(BestCheckpointTest, RecordsEvaluation) {
  auto keeper = Keeper(&run_);
  EXPECT_TRUE(Kept(&keeper, 12.25, 40));
  const auto read = ReadCheckpoint(&run_, "best");
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(read->updates, 40u);
  EXPECT_EQ(read->steps, 320);
  EXPECT_EQ(read->config_toml, config_.config_toml);
  ASSERT_TRUE(read->score);
  EXPECT_EQ(read->score->score, 12.25);
  EXPECT_EQ(read->score->episodes, 10);
  EXPECT_EQ(read->score->version, WeightsVersion(7, 40));
  EXPECT_GT(read->score->unix_time, 1'700'000'000);
  EXPECT_EQ(BestScore(&run_)->score, 12.25);
}

TEST_F(BestCheckpointTest, EarlierWeightsStayAtEqualScore) {
  auto keeper = Keeper(&run_);
  EXPECT_TRUE(Kept(&keeper, 500, 10));
  EXPECT_FALSE(Kept(&keeper, 500, 20));
  ExpectBest(&run_, 500, 10);
}

TEST_F(BestCheckpointTest, NonFiniteScoreIsNeverBest) {
  auto keeper = Keeper(&run_);
  using Limits = std::numeric_limits<double>;
  for (const double score : {Limits::quiet_NaN(), Limits::infinity(), -Limits::infinity()}) {
    EXPECT_EQ(Offer(&keeper, score, 10).status().code(), Code::kDataLoss);
    EXPECT_FALSE(BestCheckpoint(&run_).ok());
  }
  EXPECT_TRUE(Kept(&keeper, 1, 20));
  EXPECT_THAT(Offer(&keeper, Limits::quiet_NaN(), 30).status().message(), HasSubstr("nan"));
  ExpectBest(&run_, 1, 20);
}

TEST_F(BestCheckpointTest, RestartedKeeperComparesWithDisk) {
  auto first = Keeper(&run_);
  EXPECT_TRUE(Kept(&first, 0.1 + 0.2, 10));
  auto second = Keeper(&run_);
  EXPECT_FALSE(Kept(&second, 0.3, 20));  // 0.1 + 0.2 is slightly more
  ExpectBest(&run_, 0.1 + 0.2, 10);
  EXPECT_TRUE(Kept(&second, 0.4, 30));
  ExpectBest(&run_, 0.4, 30);
}

// An evaluator that was stopped, replaced and comes back compared with its own last score.
TEST_F(BestCheckpointTest, ReplacedKeeperSeesBetterBestOfSuccessor) {
  auto stopped = Keeper(&run_);
  EXPECT_TRUE(Kept(&stopped, 1, 10));
  auto successor = Keeper(&run_);
  EXPECT_TRUE(Kept(&successor, 5, 20));
  EXPECT_FALSE(Kept(&stopped, 3, 30));
  ExpectBest(&run_, 5, 20);
}

TEST_F(BestCheckpointTest, DamagedBestIsReplaced) {
  for (const char* file : {"weights.safetensors", "state.safetensors", "state.json"}) {
    auto first = Keeper(&run_);
    ASSERT_TRUE(run_.Remove("best").ok());
    EXPECT_TRUE(Kept(&first, 100, 10));
    ASSERT_TRUE(run_.WriteAtomic(std::string("best/") + file, std::string_view("{}")).ok());
    auto second = Keeper(&run_);
    EXPECT_TRUE(Kept(&second, 1, 20)) << file;
    ExpectBest(&run_, 1, 20);
  }
}

TEST_F(BestCheckpointTest, FullDiskKeepsPreviousAndLaterWriteSucceeds) {
  auto keeper = Keeper(&run_);
  EXPECT_TRUE(Kept(&keeper, 1, 10));
  for (int n = 0; n < 4; ++n) {
    run_.accepted = n;
    run_.refusals = 1;
    EXPECT_EQ(Offer(&keeper, 5, 20).status().code(), Code::kResourceExhausted) << n;
    ExpectBest(&run_, 1, 10);
    EXPECT_EQ(*run_.List(""), std::vector<std::string>{"best/"}) << n;
  }
  EXPECT_TRUE(Kept(&keeper, 2, 30)) << "the score that was not written must not count";
  ExpectBest(&run_, 2, 30);
}

TEST_F(BestCheckpointTest, VersionsOfShardsCountFromOne) {
  shards_ = true;
  auto keeper = Keeper(&run_);
  EXPECT_TRUE(
      keeper.Offer({.weights_version = WeightsVersion(7, 41), .return_mean = 1}, Weights(0)).ok());
  EXPECT_EQ(ReadCheckpoint(&run_, "best")->updates, 40u);
}

TEST_F(BestCheckpointTest, RejectsWeightsOfOtherSize) {
  auto keeper = Keeper(&run_);
  const std::vector<float> few(3);
  EXPECT_EQ(keeper.Offer({.return_mean = 1}, few).status().code(), Code::kInvalidArgument);
  EXPECT_FALSE(BestCheckpoint(&run_).ok());
}

TEST_F(BestCheckpointTest, MissingBestIsOneLineWithRemedy) {
  const auto found = ReadChosenCheckpoint(&run_, CheckpointChoice::kBest);
  EXPECT_EQ(found.status().code(), Code::kNotFound);
  EXPECT_THAT(found.status().message(), HasSubstr("evaluator.keep_best = true"));
  EXPECT_EQ(found.status().message().find('\n'), std::string::npos);
}

// The functions for checkpoints neither find nor remove it: not as the newest one, not at a
// rollback, and not when old ones are trimmed.
TEST_F(BestCheckpointTest, IsNoneOfTheCheckpointsOfTheLearner) {
  auto keeper = Keeper(&run_);
  EXPECT_TRUE(Kept(&keeper, 1, 999));
  EXPECT_EQ(NewestCheckpoint(&run_).status().code(), Code::kNotFound);
  EXPECT_EQ(NewestFiniteCheckpoint(&run_).status().code(), Code::kNotFound);
  EXPECT_TRUE(FindResumeCheckpoint(&run_, "")->path.empty());
  const auto algorithm = *MakeAlgorithm(config_, env_);
  const auto module = Network();
  for (const std::uint64_t updates : {10, 20, 30}) {
    ASSERT_TRUE(
        WriteCheckpoint(&run_, *module, {.updates = updates, .state = algorithm->State()}, 1).ok());
  }
  EXPECT_EQ(*NewestCheckpoint(&run_), "checkpoints/000000000030");
  EXPECT_EQ(ReadChosenCheckpoint(&run_, CheckpointChoice::kNewest)->checkpoint.updates, 30u);
  EXPECT_EQ(ReadChosenCheckpoint(&run_, CheckpointChoice::kBest)->checkpoint.updates, 999u);
  EXPECT_TRUE(RollBack(algorithm.get(), &run_, config_, env_).ok());
  ASSERT_TRUE(RemoveCheckpointsAfter(&run_, "").ok());
  ExpectBest(&run_, 1, 999);
}

TEST_F(BestCheckpointTest, LeavesUnfinishedCheckpointOfTheLearnerAlone) {
  ASSERT_TRUE(run_.WriteAtomic("checkpoints/000000000007.tmp/state.json", "x").ok());
  auto keeper = Keeper(&run_);
  EXPECT_TRUE(Kept(&keeper, 1, 10));
  EXPECT_TRUE(run_.Exists("checkpoints/000000000007.tmp/state.json"));
}

// A child process is killed at each point of the replacement of the best checkpoint, which is then
// the old or the new one; the next replacement succeeds.
class BestCheckpointCrashTest : public BestCheckpointTest,
                                public testing::WithParamInterface<std::string_view> {
 protected:
  bool DiesReplacing(const std::string& folder, int n) {
    const pid_t process = fork();
    if (process == 0) {
      setenv("TROOP_FAILPOINT", fmt::format("{}:{}", GetParam(), n).c_str(), 1);
      ReloadFailpoint();
      const auto run = MakeDiskStorage(folder);
      auto keeper = Keeper(run->get());
      _exit(Offer(&keeper, 2, 20).ok() ? 0 : 1);
    }
    int status = 0;
    EXPECT_EQ(waitpid(process, &status, 0), process);
    const bool killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
    EXPECT_TRUE(killed || (WIFEXITED(status) && WEXITSTATUS(status) == 0)) << status;
    return killed;
  }
};

TEST_P(BestCheckpointCrashTest, KillLeavesOldOrNewOne) {
  int deaths = 0;
  for (int n = 1;; ++n) {
    const TempFolder folder;
    const auto run = *MakeDiskStorage(folder.path());
    auto before = Keeper(run.get());
    ASSERT_TRUE(Kept(&before, 1, 10));
    if (!DiesReplacing(folder.path(), n)) break;
    ++deaths;
    const auto score = BestScore(run.get());
    ASSERT_TRUE(score.ok()) << n << ": " << score.status().message();
    const bool is_new = score->score == 2;
    ExpectBest(run.get(), is_new ? 2 : 1, is_new ? 20 : 10);
    // A restarted evaluator does not replace it by a worse one, but by a better one.
    auto after = Keeper(run.get());
    EXPECT_FALSE(Kept(&after, 0.5, 30)) << n;
    ExpectBest(run.get(), is_new ? 2 : 1, is_new ? 20 : 10);
    EXPECT_EQ(*run->List(""), std::vector<std::string>{"best/"}) << n << ": leftovers";
    EXPECT_TRUE(Kept(&after, 3, 40)) << n;
    ExpectBest(run.get(), 3, 40);
    EXPECT_EQ(*run->List(""), std::vector<std::string>{"best/"}) << "leftovers";
  }
  EXPECT_EQ(deaths, GetParam().starts_with("disk.") ? 4 : GetParam() == "checkpoint.file" ? 3 : 1);
}

INSTANTIATE_TEST_SUITE_P(Failpoints, BestCheckpointCrashTest,
                         testing::Values("checkpoint.begin", "checkpoint.file",
                                         "checkpoint.manifest", "checkpoint.aside",
                                         "checkpoint.installed", "disk.created", "disk.half",
                                         "disk.written", "disk.synced", "disk.renamed"),
                         [](const auto& info) {
                           std::string name(info.param);
                           std::ranges::replace(name, '.', '_');
                           return name;
                         });

}  // namespace
}  // namespace troop
