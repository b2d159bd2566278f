#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "core/storage/json.h"
#include "tests/core/temp_folder.h"
#include "tests/testing/patience.h"

namespace troop {

// Polls a condition until it holds; false after `seconds`, or longer on a busy machine. Generous:
// no test waits longer than it must. A condition that starts a process, as `troop status`, is
// evaluated for a third of the time, so that the run that is waited for has the processors.
inline bool Await(const std::function<bool()>& condition, double seconds = 60) {
  using std::chrono::steady_clock;
  constexpr steady_clock::duration kShortest = std::chrono::milliseconds(5);
  constexpr steady_clock::duration kLongest = std::chrono::milliseconds(250);
  Patience patience(seconds);
  for (;;) {
    const auto asked = steady_clock::now();
    if (condition()) return true;
    if (patience.Ended()) return condition();
    std::this_thread::sleep_for(std::clamp(2 * (steady_clock::now() - asked), kShortest, kLongest));
  }
}

// Text of a file; empty when it can't be read.
inline std::string FileText(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}
inline bool FileHas(const std::string& path, const std::string& part) {
  return FileText(path).find(part) != std::string::npos;
}

// A `troop` whose output goes to a file and whose sockets to folder/tmp, with more environment
// variables ("NAME=value") if wanted, and started by another program ("ip netns exec NAME"), which
// it replaces. Killed at its end.
class Troop {
 public:
  Troop(std::vector<std::string> words, const std::string& folder,
        std::vector<std::string> environment = {}, const std::vector<std::string>& starter = {})
      : output_(folder + "/output-" + std::to_string(++Count())) {
    std::filesystem::create_directories(folder + "/tmp");
    const std::string program = TROOP_PROGRAM;  // a copy: GCC 12 warns of a moved literal
    words.insert(words.begin(), program);
    words.insert(words.begin(), starter.begin(), starter.end());
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    process_ = fork();
    if (process_ != 0) return;
    setenv("TMPDIR", (folder + "/tmp").c_str(), 1);
    for (std::string& variable : environment) putenv(variable.data());
    const int file = open(output_.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
    dup2(file, STDOUT_FILENO);
    dup2(file, STDERR_FILENO);
    execvp(argv[0], argv.data());
    _exit(127);
  }
  Troop(const Troop&) = delete;
  ~Troop() {
    if (!Running()) return;
    kill(process_, SIGKILL);
    waitpid(process_, nullptr, 0);
  }

  void Signal(int number) { kill(process_, number); }
  bool Running() {
    int status = 0;
    if (!code_ && waitpid(process_, &status, WNOHANG) == process_) {
      code_ = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    }
    return !code_;
  }
  // Its exit code, or 128 + the signal that ended it; -1: it still runs after `seconds`.
  int Wait(double seconds = 100) {
    return Await([this] { return !Running(); }, seconds) ? *code_ : -1;
  }
  pid_t process() const { return process_; }
  std::string output() const { return FileText(output_); }

 private:
  static int& Count() {
    static int count = 0;
    return count;
  }
  std::string output_;
  pid_t process_ = 0;
  std::optional<int> code_;
};

// kill() of a process that was not found would be a kill() of the whole group.
inline void SendSignal(pid_t process, int number) {
  ASSERT_GT(process, 1);
  kill(process, number);
}

// The words of a process's command line, by /proc; empty when it is gone (or a zombie).
inline std::vector<std::string> CommandLine(pid_t process) {
  std::istringstream text(FileText("/proc/" + std::to_string(process) + "/cmdline"));
  std::vector<std::string> words;
  for (std::string word; std::getline(text, word, '\0');) words.push_back(word);
  return words;
}

inline std::vector<pid_t> AllProcesses() {
  std::vector<pid_t> processes;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const std::string name = entry.path().filename();
    if (std::ranges::all_of(name, [](char c) { return c >= '0' && c <= '9'; })) {
      processes.push_back(pid_t(std::stol(name)));
    }
  }
  return processes;
}

// The living role processes that belong to the run with this coordinator, of one role or all.
inline std::vector<pid_t> RoleProcesses(const std::string& coordinator,
                                        const std::string& role = "") {
  std::vector<pid_t> found;
  for (const pid_t process : AllProcesses()) {
    const std::vector<std::string> words = CommandLine(process);
    const bool ours = words.size() > 2 && words[1] == "role" &&
                      std::ranges::find(words, coordinator) != words.end();
    if (ours && (role.empty() || words[2] == role)) found.push_back(process);
  }
  return found;
}

// TCP ports on which a process listens: sockets in its /proc/…/fd, by their inode in /proc/net/tcp.
inline std::set<int> ListeningPorts(pid_t process) {
  std::set<std::string> inodes;
  std::error_code error;
  const std::string folder = "/proc/" + std::to_string(process) + "/fd";
  for (std::filesystem::directory_iterator it(folder, error), end; !error && it != end;
       it.increment(error)) {
    std::error_code gone;
    const std::string target = std::filesystem::read_symlink(it->path(), gone);
    if (target.starts_with("socket:[")) inodes.insert(target.substr(8, target.size() - 9));
  }
  std::set<int> ports;
  std::ifstream table("/proc/net/tcp");
  std::string line;
  std::getline(table, line);
  while (std::getline(table, line)) {
    std::istringstream fields(line);
    std::string number, local, remote, state, skipped, inode;
    fields >> number >> local >> remote >> state;
    for (int i = 0; i < 5; ++i) fields >> skipped;
    fields >> inode;
    constexpr char kListen[] = "0A";
    if (state != kListen || !inodes.contains(inode)) continue;
    ports.insert(int(std::stol(local.substr(local.find(':') + 1), nullptr, 16)));
  }
  return ports;
}

// A folder with a small config, and the runs in it.
class SystemTest : public testing::Test {
 protected:
  SystemTest() {
    std::ofstream(config()) << R"(
name = "run"
env.id = "CartPole-v1"
network.layers = [{type = "linear", units = 64}, {type = "linear", units = 64}]
fleet = {actors = 2, backoff_initial_s = 0.05}
actor = {envs = 4, lease_steps = 300, weight_sync_steps = 20}
replay = {capacity_items = 20000, min_items = 500, samples_per_insert = 8}
learner = {batch_size = 64}
run = {total_steps = 8001}
evaluator = {every_s = 0.5, episodes = 2, final_episodes = 4}
checkpoint = {every_s = 0.3}
log.metrics_every_s = 0.1
)";
  }
  std::string folder() const { return temp_.path(); }
  std::string config() const { return folder() + "/config.toml"; }
  std::string run(const std::string& name = "run") const { return folder() + "/" + name; }

  std::vector<std::string> TrainWords(const std::vector<std::string>& overrides = {}) const {
    std::vector<std::string> words{"train", config(), "log.dir=" + folder()};
    words.insert(words.end(), overrides.begin(), overrides.end());
    return words;
  }
  std::unique_ptr<Troop> Start(const std::vector<std::string>& words,
                               const std::vector<std::string>& environment = {}) const {
    return std::make_unique<Troop>(words, folder(), environment);
  }
  std::unique_ptr<Troop> Train(const std::vector<std::string>& overrides = {}) const {
    return Start(TrainWords(overrides));
  }
  // Writes the config of a small text classifier. Returns the words that train it on the reviews of
  // the fixtures, with more overrides.
  std::vector<std::string> ClassifierWords(const std::vector<std::string>& more) const {
    std::ofstream(config()) << R"(
name = "run"
learner = {algorithm = "classifier", batch_size = 12}
run.epochs = 10
optimizer = {type = "adam", learning_rate = 2e-3}
data = {max_length = 16, validation_split = 0.3}
[model]
architecture = "bert"
hidden_size = 32
num_hidden_layers = 2
num_attention_heads = 4
intermediate_size = 48
max_position_embeddings = 24
)";
    const std::string data = TROOP_SOURCE_DIR "/tests/fixtures/supervised/";
    std::vector<std::string> words = TrainWords(
        {"data.reviews=" + data + "reviews.csv", "data.vocabulary=" + data + "vocab.txt"});
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  // Enough steps that the run is surely under way when something is done to it.
  std::unique_ptr<Troop> TrainLong(std::vector<std::string> overrides = {}) const {
    overrides.push_back("run.total_steps=" + std::to_string(kLongSteps));
    return Train(overrides);
  }
  static constexpr int kLongSteps = 40003;

  JsonValue Json(const std::string& path) const {
    Result<JsonValue> value = ParseJson(FileText(path));
    EXPECT_TRUE(value.ok()) << path << ": " << FileText(path);
    return value.ok() ? std::move(*value) : JsonValue();
  }
  std::string Coordinator(const std::string& name = "run") const {
    const Result<JsonValue> value = ParseJson(FileText(run(name) + "/run.json"));
    return value.ok() && value->String("coordinator").ok() ? *value->String("coordinator") : "";
  }
  // Returns the newest complete line of metrics.jsonl. Errors: no complete line.
  Result<JsonValue> LastMetrics(const std::string& name = "run") const {
    std::string text = FileText(run(name) + "/metrics.jsonl");
    text.resize(text.rfind('\n') == std::string::npos ? 0 : text.rfind('\n'));
    return ParseJson(text.substr(text.rfind('\n') + 1));
  }
  std::int64_t Steps(const std::string& name = "run") const {
    const Result<JsonValue> line = LastMetrics(name);
    return line.ok() && line->Integer("steps").ok() ? *line->Integer("steps") : 0;
  }
  // Returns a metric of the whole fleet from the run's last line; 0 if it is missing.
  double Metric(const std::string& name, const std::string& of_run = "run") const {
    std::string text = FileText(run(of_run) + "/metrics.jsonl");
    while (text.ends_with('\n')) text.pop_back();
    const auto line = ParseJson(text.substr(text.rfind('\n') + 1));
    if (!line.ok()) return 0;
    const JsonValue* value = line->Find(name);
    return value == nullptr ? 0 : value->number;
  }
  bool AwaitSteps(std::int64_t steps, const std::string& name = "run") const {
    return Await([&] { return Steps(name) >= steps; });
  }
  bool AwaitCheckpoint() const {
    return Await([this] {
      std::error_code error;
      const std::filesystem::path folder = run() + "/checkpoints";
      for (std::filesystem::directory_iterator it(folder, error), end; !error && it != end;
           it.increment(error)) {
        if (!it->path().has_extension()) return true;  // not .tmp: whole
      }
      return false;
    });
  }
  std::string LauncherLog(const std::string& name = "run") const {
    return FileText(run(name) + "/logs/launcher.log");
  }
  std::string RoleLog(const std::string& role) const {
    return FileText(run() + "/logs/" + role + ".log");
  }
  std::string ActorLogs() const { return RoleLog("actor-0") + RoleLog("actor-1"); }
  // Folders of sockets in what the runs take for the system's temporary folder.
  bool SocketFolderLeft() const {
    return std::ranges::any_of(
        std::filesystem::directory_iterator(folder() + "/tmp"),
        [](const auto& entry) { return entry.path().filename().string().starts_with("troop-"); });
  }
  // The one process that plays a role, once there is one.
  pid_t AwaitRole(const std::string& role, const std::string& name = "run") const {
    pid_t process = 0;
    EXPECT_TRUE(Await([&] {
      const std::string coordinator = Coordinator(name);
      const auto found =
          coordinator.empty() ? std::vector<pid_t>() : RoleProcesses(coordinator, role);
      if (!found.empty()) process = found[0];
      return !found.empty();
    })) << role;
    return process;
  }
  // The one of index 0, of roles that there are several of.
  pid_t AwaitFirst(const std::string& role) const {
    pid_t process = 0;
    EXPECT_TRUE(Await([&] {
      for (const pid_t found : RoleProcesses(Coordinator(), role)) {
        const std::vector<std::string> words = CommandLine(found);
        if (words.size() > 4 && words[4] == "0") process = found;
      }
      return process != 0;
    })) << role;
    return process;
  }
  void ExpectDone(Troop* troop, std::int64_t steps, const std::string& name = "run") const {
    ASSERT_EQ(troop->Wait(), 0) << troop->output() << LauncherLog(name);
    const JsonValue result = Json(run(name) + "/result.json");
    EXPECT_EQ(*result.Integer("steps"), steps);
    EXPECT_EQ(*result.String("status"), "ok");
    EXPECT_EQ(*result.String("phase"), "done");
  }

  TempFolder temp_;
};

}  // namespace troop
