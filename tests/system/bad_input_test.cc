// User errors and faults of a run's environment: each one has one clear message.

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "core/base/philox.h"
#include "tests/system/troop_process.h"

namespace troop {
namespace {

namespace fs = std::filesystem;

class BadInputTest : public SystemTest {
 protected:
  // Ends with `code`, says all of `parts`, and leaves no run behind.
  void ExpectRefused(const std::vector<std::string>& overrides, int code,
                     const std::vector<std::string>& parts) {
    const auto troop = Train(overrides);
    EXPECT_EQ(troop->Wait(), code) << troop->output();
    for (const std::string& part : parts) {
      EXPECT_NE(troop->output().find(part), std::string::npos) << part << "\n" << troop->output();
    }
    EXPECT_FALSE(fs::exists(run()));
  }
  std::unique_ptr<Troop> StartLimited(const std::string& limit,
                                      const std::vector<std::string>& overrides) const {
    const std::vector<std::string> starter = {"bash", "-c", limit + "; exec \"$0\" \"$@\""};
    return std::make_unique<Troop>(TrainWords(overrides), folder(), std::vector<std::string>(),
                                   starter);
  }
  // A run of one checkpoint, ended.
  void TrainOnce() {
    const auto troop = Train({"run.total_steps=1000", "checkpoint.keep=1"});
    ASSERT_EQ(troop->Wait(), 0) << troop->output();
  }
};

TEST_F(BadInputTest, NamesAllMissingFilesBeforeStartAndInDryRun) {
  for (const char* dry : {"--plain", "--dry-run"}) {
    ExpectRefused(
        {"fleet.metrics=127.0.0.1:0", "fleet.metrics_token=no-token", "security.keys=no-keys", dry},
        2,
        {"troop: command line: fleet.metrics_token=no-token: ",
         "troop: command line: security.keys=no-keys: ", "learner.key"});
  }
}

TEST_F(BadInputTest, RejectsUnknownKeySuggestingNearest) {
  ExpectRefused({"replay.alhpa=0.5"}, 2, {"replay.alhpa", "replay.alpha"});
}

// ZeroMQ ended the process.
TEST_F(BadInputTest, RejectsLowOpenFileLimitBeforeStart) {
  const auto troop = StartLimited("ulimit -n 24", {});
  EXPECT_EQ(troop->Wait(), 2) << troop->output();
  EXPECT_NE(troop->output().find("open files: the limit is 24"), std::string::npos)
      << troop->output();
  EXPECT_FALSE(fs::exists(run()));
}

TEST_F(BadInputTest, RejectsLowFileSizeLimitBeforeStart) {
  const auto troop = StartLimited("ulimit -f 4", {});
  EXPECT_EQ(troop->Wait(), 2) << troop->output();
  EXPECT_NE(troop->output().find("ulimit -f is 4 KiB"), std::string::npos) << troop->output();
  EXPECT_FALSE(fs::exists(run()));
}

// SIGXFSZ ended it without a word.
TEST_F(BadInputTest, TreatsFileSizeLimitAsFullDisk) {
  const auto troop =
      StartLimited("ulimit -f 48", {"run.total_steps=3000", "evaluator.enabled=false"});
  EXPECT_EQ(troop->Wait(), 1) << troop->output();
  EXPECT_NE(troop->output().find("File too large (ulimit -f)"), std::string::npos)
      << troop->output() << LauncherLog();
}

TEST_F(BadInputTest, ExplainsConfigKey) {
  const auto known = Start({"config", "replay.alpha"});
  EXPECT_EQ(known->Wait(), 0);
  EXPECT_TRUE(known->output().starts_with("replay.alpha = 0.6\n    number, [0, 2]. "))
      << known->output();
  EXPECT_EQ(known->output().find("replay.beta ="), std::string::npos) << known->output();
  const auto other = Start({"config", "buffer_size"});
  EXPECT_EQ(other->Wait(), 2);
  EXPECT_NE(other->output().find("its name here is replay.capacity_items"), std::string::npos)
      << other->output();
}

TEST_F(BadInputTest, RejectsWrongTypeNamingExpectedOne) {
  ExpectRefused({"actor.envs=\"many\""}, 2, {"actor.envs", "integer"});
}

TEST_F(BadInputTest, ReportsAllConfigErrorsWithFileAndLine) {
  std::ofstream(config(), std::ios::app) << "nonsense = 1\n";
  ExpectRefused({"replay.alhpa=0.5", "seed=1.5"}, 2,
                {"config.toml:", "nonsense", "replay.alhpa", "seed"});
}

TEST_F(BadInputTest, ReportsMissingConfig) {
  const auto troop = Start({"train", folder() + "/none.toml"});
  EXPECT_EQ(troop->Wait(), 2);
  EXPECT_NE(troop->output().find("none.toml"), std::string::npos) << troop->output();
}

TEST_F(BadInputTest, RejectsReplayLargerThanMemory) {
  ExpectRefused({"replay.memory_bytes_max=1000000"}, 2,
                {"replay.capacity_items is 20000", "GiB", "replay.memory_bytes_max"});
}

TEST_F(BadInputTest, RejectsUnknownEnvironmentSuggestingNearest) {
  ExpectRefused({"env.id=CartPole-v2"}, 2, {"CartPole-v2", "CartPole-v1"});
}

TEST_F(BadInputTest, InvalidCommandLineIsUsageError) {
  for (const std::vector<std::string>& words :
       std::vector<std::vector<std::string>>{{},
                                             {"fly"},
                                             {"train"},
                                             {"train", config(), "--faster"},
                                             {"train", config(), "seed=x", "envy=1"},
                                             {"role", "king"},
                                             {"role", "king", "--coordinator", "ipc:///x"},
                                             {"eval"},
                                             {"status", folder() + "/none"},
                                             {"resume", folder() + "/none"},
                                             {"eval", folder()}}) {
    const auto troop = Start(words);
    EXPECT_EQ(troop->Wait(), 2);
    std::istringstream lines(troop->output());
    for (std::string line; std::getline(lines, line);) {
      EXPECT_TRUE(line.starts_with("troop: ")) << line;
    }
  }
}

TEST_F(BadInputTest, RejectsSecondRunInFolderDuringAndAfterFirst) {
  const auto first = TrainLong();
  ASSERT_TRUE(AwaitSteps(100)) << first->output();
  for (const char* flag : {"--plain", "--overwrite"}) {
    const auto second = Train({flag});
    EXPECT_EQ(second->Wait(), 3);
    EXPECT_NE(second->output().find("process " + std::to_string(first->process())),
              std::string::npos)
        << second->output();
  }
  const auto resumed = Start({"resume", run()});
  EXPECT_EQ(resumed->Wait(), 3) << resumed->output();
  ExpectDone(first.get(), kLongSteps);
  const auto third = Train();
  EXPECT_EQ(third->Wait(), 3);
  EXPECT_NE(third->output().find("troop resume"), std::string::npos) << third->output();
  const auto replaced = Train({"--overwrite", "run.total_steps=1000"});
  ExpectDone(replaced.get(), 1000);
}

TEST_F(BadInputTest, ResumeAndEvalRejectDamagedCheckpoint) {
  TrainOnce();
  const std::string result = FileText(run() + "/result.json");
  std::string file;
  for (const auto& entry : fs::recursive_directory_iterator(run() + "/checkpoints")) {
    if (entry.path().filename() == "state.safetensors") file = entry.path();
  }
  std::string bytes = FileText(file);
  ASSERT_GT(bytes.size(), 1000u);
  bytes[bytes.size() / 2] ^= 1;
  std::ofstream(file, std::ios::binary) << bytes;
  for (const char* command : {"resume", "eval", "play"}) {
    std::vector<std::string> words{command, run()};
    // A finished run is left as it is without a larger budget.
    if (words[0] == "resume") words.emplace_back("run.total_steps=2000");
    const auto troop = Start(words);
    EXPECT_EQ(troop->Wait(), 4) << command << troop->output();
    EXPECT_NE(troop->output().find("state.safetensors is damaged"), std::string::npos)
        << troop->output();
  }
  EXPECT_EQ(FileText(run() + "/result.json"), result);  // the failed resume changed nothing
}

TEST_F(BadInputTest, SurvivesGarbageOnEveryPort) {
  const auto troop = TrainLong({"fleet.transport=tcp"});
  ASSERT_TRUE(AwaitSteps(500)) << troop->output();
  std::set<int> ports = ListeningPorts(troop->process());
  for (const pid_t process : RoleProcesses(Coordinator())) ports.merge(ListeningPorts(process));
  EXPECT_EQ(ports.size(), 3u);  // coordinator, replay, paramserver
  Rng rng({.purpose = Purpose::kTest});
  for (int round = 0; round < 20; ++round) {
    for (const int port : ports) {
      const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
      sockaddr_in address{.sin_family = AF_INET, .sin_port = htons(std::uint16_t(port))};
      address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
      if (connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) {
        std::string bytes(round * 700 + 10, '\0');
        for (char& c : bytes) c = char(rng.NextU32());
        // Every other time behind a greeting of ZeroMQ's own, to get past its first check.
        if (round % 2 == 1) bytes.insert(0, "\xff\0\0\0\0\0\0\0\1\x7f\3", 11);
        send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      }
      close(fd);
    }
  }
  ExpectDone(troop.get(), kLongSteps);
  EXPECT_EQ(LauncherLog().find("restart"), std::string::npos) << LauncherLog();
}

// The replay dies, and another process takes its port before it is restarted.
TEST_F(BadInputTest, NamesAndRetriesPortInUse) {
  const auto troop = TrainLong({"fleet.transport=tcp", "fleet.backoff_initial_s=0.5"});
  ASSERT_TRUE(AwaitSteps(500)) << troop->output();
  const pid_t replay = AwaitRole("replay");
  const std::set<int> ports = ListeningPorts(replay);
  ASSERT_EQ(ports.size(), 1u);
  SendSignal(replay, SIGKILL);
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int on = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  sockaddr_in address{.sin_family = AF_INET, .sin_port = htons(std::uint16_t(*ports.begin()))};
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_TRUE(Await(
      [&] { return bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0; }));
  ASSERT_EQ(listen(fd, 1), 0);
  const std::string port = ":" + std::to_string(*ports.begin());
  EXPECT_TRUE(Await([&] {
    const std::string log = LauncherLog();
    const auto at = log.find("in use");
    return at != std::string::npos && log.rfind(port, at) != std::string::npos;
  })) << LauncherLog();
  close(fd);
  ExpectDone(troop.get(), kLongSteps);
}

// It left a run without a checkpoint: neither `train` nor `resume` could go on.
TEST_F(BadInputTest, TooLongSocketPathLeavesNoRun) {
  const std::string deep = folder() + "/" + std::string(120, 't');  // a socket's path has 107
  const auto refused = std::make_unique<Troop>(TrainWords(), deep);
  EXPECT_EQ(refused->Wait(), 2) << refused->output();
  EXPECT_FALSE(fs::exists(run() + "/config.toml"));
  const auto troop = Train({"run.total_steps=1000"});
  ExpectDone(troop.get(), 1000);
}

TEST_F(BadInputTest, ReportsRunFolderThatCannotBeCreated) {
  std::ofstream(folder() + "/file") << "x";
  const auto troop = Train({"log.dir=" + folder() + "/file"});
  EXPECT_NE(troop->Wait(), 0);
  EXPECT_NE(troop->output().find("/file"), std::string::npos) << troop->output();
}

TEST_F(BadInputTest, RoleReportsUnreachableCoordinator) {
  const auto troop = Start({"role", "actor", "--coordinator", "what://ever"});
  EXPECT_NE(troop->Wait(), 0);
  EXPECT_NE(troop->output().find("what://ever"), std::string::npos) << troop->output();
}

}  // namespace
}  // namespace troop
