// `troop experiment imdb-parallel`: runs the four combinations in turn and reports the times.
#include "apps/experiments/imdb_parallel.h"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <optional>
#include <utility>

#include "apps/experiments/imdb_parallel_report.h"
#include "apps/experiments/network_sandbox.h"
#include "apps/planner/mesh_planner.h"
#include "core/config/enum_format.h"
#include "core/storage/storage.h"
#include "fleet/config/resolve_supervised.h"
#include "fleet/launcher/error_line.h"
#include "fleet/launcher/exit_code.h"
#include "fleet/launcher/resource_estimate.h"
#include "fleet/launcher/subprocess.h"
#include "fleet/roles/node_runner.h"
#include "fleet/run/run_directory.h"

namespace troop {
namespace {

namespace fs = std::filesystem;
constexpr ModelArchitecture kFamilies[] = {ModelArchitecture::kBert, ModelArchitecture::kAlbert};
constexpr std::size_t kMetricsBytesMax = 256 << 20;
constexpr std::int64_t kUpdatesMin = 12, kUpdatesMax = 5000;
constexpr int kPort = 7400;  // first port in the sandbox, whose ports are all free
constexpr int kLookEveryMs = 20;
// Time limit of a run besides its updates, such as for tokenizing a new data set.
constexpr double kPatienceS = 900;

// Key prefixes that the experiment sets itself, so that overrides may not.
constexpr const char* kOwn[] = {"name",
                                "model.architecture",
                                "model.embedding_size",
                                "mesh",
                                "fleet.",
                                "learner.algorithm",
                                "log.dir",
                                "run.max_updates",
                                "run.epochs",
                                "evaluator.",
                                "learner.sync"};

// Errors: kInvalidArgument: a required key is missing, or an override is reserved.
Status CheckOverrides(const std::vector<std::string>& overrides) {
  for (const char* const needed : {"data.reviews=", "data.vocabulary="}) {
    if (std::ranges::any_of(overrides,
                            [&](const std::string& text) { return text.starts_with(needed); })) {
      continue;
    }
    return InvalidArgument(
        "{} is missing; give the reviews, and one vocabulary for both models: "
        "data.reviews=aclImdb data.vocabulary=vocab.txt (docs/guide/supervised.md)",
        needed);
  }
  for (const std::string& text : overrides) {
    const auto own =
        std::ranges::find_if(kOwn, [&text](const char* key) { return text.starts_with(key); });
    if (own == std::end(kOwn)) continue;
    return InvalidArgument("{}: the experiment sets this key itself; remove the override", text);
  }
  return Status::Ok();
}

// The config that all runs share. Overrides come last, so that they win over these values.
Result<Config> BaseConfig(const ParallelOptions& options) {
  TROOP_RETURN_IF_ERROR(CheckOverrides(options.overrides));
  Config config;
  config.name = "imdb_parallel";
  config.log.dir = fs::absolute(options.out).lexically_normal().string();
  config.log.metrics_every_s = 0.5;
  config.learner.algorithm = AlgorithmKind::kClassifier;
  config.learner.batch_size = options.quick ? 6 : 32;
  config.run.max_updates = kUpdatesMin;
  config.run.epochs = 1e6;  // max_updates ends the run
  config.learner.max_grad_norm = 1;
  config.learner.publish_every_updates =
      1'000'000;  // only at the end: keeps the links free for learners
  config.learner.allreduce_timeout_s = 60;
  config.optimizer.learning_rate = 1e-3;
  config.evaluator.enabled = false;
  config.checkpoint.every_s = 0;
  config.data.max_length = options.quick ? 16 : 256;
  config.model.hidden_size = options.quick ? 32 : 128;
  // Tensor parallelism splits the heads, so there must be at least one per learner.
  config.model.num_attention_heads = std::max<std::int64_t>(4, options.learners);
  config.fleet.learners = options.learners;
  config.mesh.dp = options.learners;
  TROOP_ASSIGN_OR_RETURN(
      config, ParseConfig(ToToml(config), "troop experiment imdb-parallel", options.overrides));
  // Absolute, so that the working directory of a run does not matter.
  for (std::string* path : {&config.data.reviews, &config.data.vocabulary}) {
    *path = fs::absolute(*path).lexically_normal().string();
  }
  return config;
}

// The config of one run. Tensor-parallel swaps mesh.dp and mesh.tp.
Config RunConfigOf(const Config& base, ModelArchitecture family, bool tensor,
                   const std::string& name) {
  Config config = base;
  config.name = name;
  config.model.architecture = family;
  config.model.embedding_size =
      family == ModelArchitecture::kAlbert ? config.model.hidden_size / 2 : 0;
  if (tensor) std::swap(config.mesh.dp, config.mesh.tp);
  return config;
}

// CPU model, for the report.
std::string MachineName() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  }
  return "unknown processor";
}

// Load average of the last minute.
double Load() {
  double load = 0;
  return getloadavg(&load, 1) == 1 ? load : 0;
}

// Runs the combinations one after another and collects their results.
class ParallelRunner {
 public:
  ParallelRunner(Config base, const ParallelOptions& options, Storage* folder,
                 std::optional<NetworkSandbox> links, double bits_per_s)
      : base_(std::move(base)),
        options_(options),
        folder_(folder),
        links_(std::move(links)),
        signals_(nullptr, false),
        setting_{.learners = options.learners,
                 .link_bits_per_s = bits_per_s,
                 .layers = base_.model.num_hidden_layers,
                 .hidden = base_.model.hidden_size,
                 .batch = base_.learner.batch_size,
                 .machine = MachineName(),
                 .load = Load(),
                 .cores = CoresHere()} {}
  ~ParallelRunner() { KillAll(); }
  ParallelRunner(const ParallelRunner&) = delete;

  // Errors: kCancelled: signalled; those of a run.
  Status Run();

 private:
  Status ChooseUpdates();
  Result<ParallelRun> Train(const Config& config);
  Status Start(const Config& config);
  Status Await(const std::string& name);
  void KillAll();
  std::string LogOf(const std::string& name) const {
    return base_.log.dir + "/logs/" + name + ".log";
  }

  Config base_;
  const ParallelOptions& options_;
  Storage* const folder_;
  const std::optional<NetworkSandbox> links_;
  const SignalWatch signals_;
  const ParallelSetting setting_;
  std::vector<pid_t> children_;  // of the current run: its launcher, then the joining learners
  int runs_ = 0;
};

// Chooses the number of updates for the wanted duration, from a plan measured on this machine.
Status ParallelRunner::ChooseUpdates() {
  if (options_.quick) return Status::Ok();
  fs::create_directories(base_.log.dir);
  Config config = RunConfigOf(base_, ModelArchitecture::kBert, false, "plan");
  TROOP_RETURN_IF_ERROR(ResolveSupervised(&config));
  TROOP_ASSIGN_OR_RETURN(const MeshPlan plan, PlanRun(config));
  // The plan measured links within this machine: add the time that the shaped links take.
  double seconds = plan.seconds();
  if (links_) seconds += 8 * plan.bytes / setting_.link_bits_per_s;
  base_.run.max_updates =
      std::clamp(std::int64_t(options_.seconds / seconds), kUpdatesMin, kUpdatesMax);
  return Status::Ok();
}

// Starts the launcher, and with links one `troop join` per learner.
Status ParallelRunner::Start(const Config& config) {
  const std::string file = "configs/" + config.name + ".toml";
  TROOP_RETURN_IF_ERROR(folder_->WriteAtomic(file, ToToml(config)));
  fs::create_directories(base_.log.dir + "/logs");
  const std::string program = fs::read_symlink("/proc/self/exe").string();
  std::vector<std::string> words{"troop", "train", base_.log.dir + "/" + file, "--plain",
                                 "--overwrite"};
  // The sandbox's network is isolated, so no keys are needed.
  if (links_) words.push_back("--insecure");
  TROOP_ASSIGN_OR_RETURN(const pid_t launcher,
                         StartChild(program, words, LogOf(config.name), SIGTERM));
  children_.push_back(launcher);
  for (int i = 0; links_ && i < options_.learners; ++i) {
    // The command prefix that enters the network namespace of learner i.
    std::vector<std::string> join = links_->On(i);
    join.insert(join.end(), {program, "join", config.fleet.listen, "--role", "learner",
                             "--advertise-host", links_->AddressOf(i), "--logs",
                             fmt::format("{}/logs/{}-learner{}", base_.log.dir, config.name, i)});
    TROOP_ASSIGN_OR_RETURN(const pid_t learner,
                           StartChild(FindProgram(join[0]), join,
                                      LogOf(fmt::format("{}-learner{}", config.name, i)), SIGKILL));
    children_.push_back(learner);
  }
  return Status::Ok();
}

// Blocks until the launcher has exited, then kills what is left. The first signal drains the run, a
// second one kills it.
Status ParallelRunner::Await(const std::string& name) {
  const SystemClock clock;
  // Twenty times the wanted duration, since the plan's time per update is only an estimate.
  const Time end = clock.Now() + Seconds(kPatienceS + 20 * options_.seconds);
  int status = 0, handled_signals = 0;
  while (waitpid(children_[0], &status, WNOHANG) != children_[0]) {
    if (const int count = signals_.count(); count > handled_signals) {
      handled_signals = count;
      kill(children_[0], count == 1 ? SIGTERM : SIGKILL);
    }
    if (clock.Now() > end) {
      KillAll();
      return DeadlineExceeded("{} did not end within {:.0f} s; see {}", name,
                              kPatienceS + 20 * options_.seconds, LogOf(name));
    }
    poll(nullptr, 0, kLookEveryMs);
  }
  // The launcher is reaped already; its process id may belong to another process now.
  children_.erase(children_.begin());
  KillAll();
  if (handled_signals > 0) return Cancelled("interrupted during {}", name);
  if (WIFEXITED(status) && WEXITSTATUS(status) == kExitOk) return Status::Ok();
  return FailedPrecondition("{} failed ({}); last log line: {}; see {}", name, DescribeExit(status),
                            LastLine(LogOf(name)), LogOf(name));
}

// Children are reaped as well, so that their process ids cannot be reused meanwhile.
void ParallelRunner::KillAll() {
  for (const pid_t child : children_) kill(child, SIGKILL);
  for (const pid_t child : children_) waitpid(child, nullptr, 0);
  children_.clear();
}

// Runs one combination once and reads its figures from the last metrics line.
Result<ParallelRun> ParallelRunner::Train(const Config& config) {
  TROOP_RETURN_IF_ERROR(Start(config));
  TROOP_RETURN_IF_ERROR(Await(config.name));
  TROOP_ASSIGN_OR_RETURN(const Config ran, ReadRunConfig(RunPath(config), {}));
  TROOP_ASSIGN_OR_RETURN(const Buffer metrics,
                         folder_->Read(config.name + "/metrics.jsonl", kMetricsBytesMax));
  std::string_view text = metrics.text();
  while (text.ends_with('\n')) text.remove_suffix(1);
  // The last line has the totals of the run.
  return ReadParallelRun(ran, text.substr(text.rfind('\n') + 1));
}

// Writes table.md and results.json at the end, when all runs have succeeded.
Status ParallelRunner::Run() {
  TROOP_RETURN_IF_ERROR(ChooseUpdates());
  const std::int64_t repeats = options_.quick ? 1 : options_.repeats;
  const std::size_t all = std::size_t(repeats) * 4;
  fmt::print("{}: {} runs of {} updates\n", base_.log.dir, all, base_.run.max_updates);
  std::vector<ParallelModel> models;
  for (const ModelArchitecture family : kFamilies) models.push_back({.architecture = family});
  // Interleave the combinations, so that other load on the machine affects all of them alike.
  for (std::int64_t repeat = 1; repeat <= repeats; ++repeat) {
    for (ParallelModel& model : models) {
      for (const bool tensor : {false, true}) {
        Config config = RunConfigOf(
            base_, model.architecture, tensor,
            fmt::format("{}-{}-{}", model.architecture, tensor ? "tensor" : "data", repeat));
        if (links_) {
          config.fleet.external_roles = {"learner"};
          config.fleet.join_timeout_s = 60;
          config.fleet.listen =
              fmt::format("tcp://{}:{}", NetworkSandbox::kOurAddress, kPort + runs_);
        }
        TROOP_ASSIGN_OR_RETURN(const ParallelRun run, Train(config));
        (tensor ? model.tensor : model.data).runs.push_back(run);
        fmt::print("[{}/{}] {}: {:.1f} ms/update\n", ++runs_, all, config.name, 1e3 * run.step_s);
        std::fflush(stdout);
      }
    }
  }
  const std::string report = ParallelReport(setting_, models);
  TROOP_RETURN_IF_ERROR(folder_->WriteAtomic("table.md", report));
  TROOP_RETURN_IF_ERROR(folder_->WriteAtomic("results.json", ParallelJson(setting_, models)));
  fmt::print("\n{}\nwrote {}/table.md, results.json\n", report, base_.log.dir);
  return Status::Ok();
}

// Prints an error and returns its exit code; an interruption is 130.
int ReportError(const Status& status) {
  fmt::print(stderr, "troop: {}\n", status.message());
  return status.code() == Code::kCancelled ? int(kExitInterrupted) : ExitCodeFor(status);
}

// Holds the lock of the output folder meanwhile. In a sandbox this runs in the child process.
Status TryExperiment(const ParallelOptions& options, double bits_per_s) {
  TROOP_ASSIGN_OR_RETURN(Config base, BaseConfig(options));
  TROOP_ASSIGN_OR_RETURN(const auto folder, MakeDiskStorage(base.log.dir));
  TROOP_ASSIGN_OR_RETURN(const auto lock,
                         folder->Lock("lock", fmt::format("process {}", getpid())));
  // results.json marks a complete experiment; an incomplete one is overwritten.
  if (folder->Exists("results.json")) {
    if (!options.overwrite) {
      return AlreadyExists(
          "{} already holds an experiment; replace it with --overwrite, or choose another --out",
          base.log.dir);
    }
    TROOP_RETURN_IF_ERROR(folder->Remove("results.json"));
  }
  std::optional<NetworkSandbox> links;
  if (bits_per_s > 0) {
    TROOP_ASSIGN_OR_RETURN(links, NetworkSandbox::Make(int(options.learners), bits_per_s));
  }
  // Like the roles of a fleet: one OpenMP thread each, without spinning.
  setenv("OMP_NUM_THREADS", "1", 0);
  setenv("OMP_WAIT_POLICY", "passive", 0);
  return ParallelRunner(std::move(base), options, folder.get(), std::move(links), bits_per_s).Run();
}

}  // namespace

// The arguments are validated before a sandbox is created.
int ParallelExperiment(const ParallelOptions& options) {
  if (const Result<Config> base = BaseConfig(options); !base.ok()) {
    PrintError(base.status());
    return kExitUsage;
  }
  const auto work = [&options](double bits_per_s) {
    const Status status = TryExperiment(options, bits_per_s);
    return status.ok() ? int(kExitOk) : ReportError(status);
  };
  if (options.link.empty()) return work(0);
  const Result<double> rate = ParseLinkRate(options.link);
  if (!rate.ok()) return ReportError(rate.status());
  const Result<int> code = RunInSandbox([&] { return work(*rate); });
  return code.ok() ? *code : ReportError(code.status());
}

}  // namespace troop
