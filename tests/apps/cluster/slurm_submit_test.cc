#include "apps/cluster/slurm_submit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "net/security/keys.h"
#include "tests/core/temp_folder.h"

namespace troop {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

Config ConfigOf(const std::vector<std::string>& overrides) {
  std::vector<std::string> all{"log.dir=/shared/runs", "name=first"};
  all.insert(all.end(), overrides.begin(), overrides.end());
  const auto config = ParseConfig("", "test", all);
  EXPECT_TRUE(config.ok()) << config.status().message();
  return *config;
}

TEST(SlurmCommandTest, ScriptRequestsConfiguredResources) {
  const Config config = ConfigOf(
      {"slurm.nodes=4", "slurm.partition=gpu", "slurm.account=lab", "slurm.time_limit=1-02:00:00",
       "slurm.cpus=16", "slurm.memory=64G", "slurm.gpus=2", "slurm.signal_s=120",
       "slurm.options=[\"--qos=high\"]", "slurm.setup=[\"module load x\"]"});
  const std::string script = MakeSubmission(config, "/opt/it's/troop", {}).script;
  EXPECT_EQ(script,
            "#!/bin/bash\n"
            "#SBATCH --job-name=first\n"
            "#SBATCH --nodes=4\n"
            "#SBATCH --ntasks-per-node=1\n"
            "#SBATCH --cpus-per-task=16\n"
            "#SBATCH --mem=64G\n"
            "#SBATCH --gpus-per-node=2\n"
            "#SBATCH --partition=gpu\n"
            "#SBATCH --account=lab\n"
            "#SBATCH --time=1-02:00:00\n"
            "#SBATCH --signal=B:USR1@120\n"
            "#SBATCH --requeue\n"
            "#SBATCH --no-kill\n"
            "#SBATCH --open-mode=append\n"
            "#SBATCH --output=\"/shared/runs/first.slurm/%j.out\"\n"
            "#SBATCH --qos=high\n"
            "module load x\n"
            "exec '/opt/it'\\''s/troop' slurm-job '/shared/runs/first.slurm/train.toml'\n");
}

TEST(SlurmCommandTest, OmitsUnsetOptions) {
  const std::string script = MakeSubmission(ConfigOf({}), "/troop", {}).script;
  EXPECT_THAT(script, HasSubstr("#SBATCH --exclusive\n"));
  for (const char* option : {"--mem", "--gpus", "--partition", "--account", "--time="}) {
    EXPECT_THAT(script, Not(HasSubstr(option)));
  }
  const std::string quiet =
      MakeSubmission(ConfigOf({"slurm.signal_s=0", "slurm.requeue=false"}), "/troop", {}).script;
  EXPECT_THAT(quiet, Not(HasSubstr("--signal")));
  EXPECT_THAT(quiet, HasSubstr("#SBATCH --no-requeue\n"));
}

TEST(SlurmCommandTest, JobReadsSameConfigAndStartMode) {
  const Config config = ConfigOf({"learner.batch_size=77", "fleet.engine=slurm"});
  const SlurmSubmission submission = MakeSubmission(config, "/troop", {.overwrite = true});
  const auto read = ParseConfig(submission.config, "train.toml", {});
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(*read, config);
  EXPECT_THAT(submission.script, HasSubstr("train.toml' --overwrite\n"));
  EXPECT_THAT(MakeSubmission(config, "/troop", {.resume = true}).script,
              HasSubstr("train.toml' --resume\n"));
}

TEST(SlurmCommandTest, EscapesPercentSignInPath) {
  const Config config = ConfigOf({"log.dir=/a%j b"});
  EXPECT_THAT(MakeSubmission(config, "/troop", {}).script,
              HasSubstr("--output=\"/a%%j b/first.slurm/%j.out\""));
}

TEST(SlurmCommandTest, RejectsInvalidSlurmKeysWithRemedy) {
  const struct {
    const char* key;
    const char* says;
  } cases[] = {
      {"slurm.time_limit=soon", "HH:MM:SS"},
      {"slurm.partition=\"a b\"", "not a valid value for sbatch"},
      {"slurm.memory=\"1G\\n#SBATCH\"", "not a valid value for sbatch"},
      {"slurm.options=[\"qos=high\"]", "begin it with"},
      {"slurm.options=[\"--a\\nrm\"]", "one option per string"},
      {"slurm.learner_node=1", "nodes are counted from 0"},
      {"slurm.nodes=0", "[1, 10000]"},
  };
  for (const auto& c : cases) {
    const auto config = ParseConfig("", "test", std::vector<std::string>{c.key});
    ASSERT_FALSE(config.ok()) << c.key;
    EXPECT_THAT(config.status().message(), HasSubstr(c.says)) << c.key;
  }
  for (const char* limit : {"90", "90:00", "1:30:00", "1-12", "1-12:30", "1-12:30:00"}) {
    EXPECT_TRUE(
        ParseConfig("", "test",
                    std::vector<std::string>{std::string("slurm.time_limit=\"") + limit + "\""})
            .ok())
        << limit;
  }
  EXPECT_FALSE(
      ParseConfig("", "test", std::vector<std::string>{"fleet.engine=slurm", "fleet.mode=serial"})
          .ok());
}

TEST(SlurmCommandTest, GeneratesKeysOnceWhenUnset) {
  const TempFolder temp;
  const std::string folder = temp.path() + "/keys";
  Config config;
  ASSERT_TRUE(GiveKeys(&config, folder).ok());
  EXPECT_EQ(config.security.keys, folder);
  struct stat info {};
  ASSERT_EQ(stat(folder.c_str(), &info), 0);
  const auto first = LoadKeys(KeyFileOf(folder, Role::kCoordinator));
  Config again;
  ASSERT_TRUE(GiveKeys(&again, folder).ok());
  const auto second = LoadKeys(KeyFileOf(folder, Role::kCoordinator));
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_EQ((*first)->public_key, (*second)->public_key);
  Config insecure;
  insecure.security.insecure = true;
  ASSERT_TRUE(GiveKeys(&insecure, temp.path() + "/none").ok());
  EXPECT_EQ(insecure.security.keys, "");
}

}  // namespace
}  // namespace troop
