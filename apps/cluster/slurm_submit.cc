// Slurm: writes and submits a job (login node), and runs the launcher inside it (first node).
#include "apps/cluster/slurm_submit.h"

#include <fmt/format.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <sstream>

#include "core/base/log.h"
#include "fleet/launcher/exit_code.h"
#include "fleet/launcher/resource_estimate.h"
#include "fleet/launcher/slurm_launcher.h"
#include "fleet/launcher/subprocess.h"
#include "fleet/run/run_directory.h"
#include "learners/checkpoint.h"
#include "net/security/keys.h"

namespace troop {
namespace {

namespace fs = std::filesystem;

constexpr char kScript[] = "job.sh";
constexpr char kConfig[] = "train.toml";
constexpr Duration kAsk = Seconds(60);  // for sbatch and scontrol
// A requeued job may start while its predecessor still drains on another node.
constexpr Duration kHeld = Seconds(60);

// Quotes one shell word.
std::string Quoted(const std::string& text) {
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? "'\\''" : std::string(1, c);
  return quoted + "'";
}

// Escapes %, which starts a pattern in #SBATCH lines.
std::string Escaped(const std::string& path) {
  std::string escaped;
  for (const char c : path) escaped += c == '%' ? "%%" : std::string(1, c);
  return escaped;
}

// The #SBATCH lines of the config.
std::string Directives(const Config& config, const std::string& folder) {
  const auto& s = config.slurm;
  std::string out;
  const auto add = [&out](const std::string& option) { out += "#SBATCH " + option + "\n"; };
  add("--job-name=" + config.name);
  add(fmt::format("--nodes={}", s.nodes));
  add("--ntasks-per-node=1");
  // Without a number of cores the job takes whole nodes.
  add(s.cpus > 0 ? fmt::format("--cpus-per-task={}", s.cpus) : "--exclusive");
  if (!s.memory.empty()) add("--mem=" + s.memory);
  if (s.gpus > 0) add(fmt::format("--gpus-per-node={}", s.gpus));
  if (!s.partition.empty()) add("--partition=" + s.partition);
  if (!s.account.empty()) add("--account=" + s.account);
  if (!s.time_limit.empty()) add("--time=" + s.time_limit);
  if (s.signal_s > 0) add(fmt::format("--signal=B:USR1@{}", s.signal_s));
  add(s.requeue ? "--requeue" : "--no-requeue");
  add("--no-kill");  // the launcher replaces what a lost node played
  add("--open-mode=append");
  add(fmt::format("--output=\"{}/%j.out\"", Escaped(folder)));
  // Last, so that options of the user replace those above.
  for (const std::string& option : s.options) add(option);
  return out;
}

// Writes the config and the script. The folder is private because it may get keys.
Status WriteSubmission(const SlurmSubmission& submission) {
  std::error_code error;
  fs::create_directories(submission.folder, error);
  if (error) return InvalidArgument("cannot create {}: {}", submission.folder, error.message());
  chmod(submission.folder.c_str(), 0700);  // may hold keys later
  TROOP_ASSIGN_OR_RETURN(const auto storage, MakeDiskStorage(submission.folder));
  TROOP_RETURN_IF_ERROR(storage->WriteAtomic(kConfig, submission.config));
  return storage->WriteAtomic(kScript, submission.script);
}

// Fails now if the job would fail at its run folder. Starts nothing.
Status CheckFolder(const Config& config, const TrainOptions& options) {
  const std::string path = RunPath(config);
  if (!options.resume && !fs::exists(path + "/config.toml")) return Status::Ok();
  return OpenRunFolder(config,
                       options.resume || options.overwrite ? FolderUse::kResume : FolderUse::kFresh)
      .status();
}

// Submits the job and returns its id. sbatch --parsable prints "ID" or "ID;CLUSTER" last.
Result<std::string> Submit(const SlurmSubmission& submission) {
  TROOP_RETURN_IF_ERROR(WriteSubmission(submission));
  TROOP_ASSIGN_OR_RETURN(
      const ProgramResult said,
      RunProgram({"sbatch", "--parsable", submission.folder + "/" + kScript}, kAsk));
  std::string words = said.output;
  while (!words.empty() && words.back() == '\n') words.pop_back();
  if (said.code != 0) {
    return Unavailable("sbatch rejected {}/{} (exit code {}): {}", submission.folder, kScript,
                       said.code, words);
  }
  std::istringstream last(words.substr(words.rfind('\n') + 1));
  std::string job;
  std::getline(last, job, ';');  // the cluster follows
  return job;
}

// Steps: check what can be checked here, build the files, submit them, print how to follow the job.
Status SubmitRun(const Config& config, const TrainOptions& options) {
  TROOP_RETURN_IF_ERROR(EstimateResources(config).status());  // checks environment and network
  std::error_code error;
  // The path of this program must be valid on the first node too.
  const std::string program = fs::read_symlink("/proc/self/exe", error).string();
  const SlurmSubmission submission = MakeSubmission(config, program, options);
  if (options.dry_run) {
    fmt::print("# {0}/{1}, for: sbatch {0}/{1}\n{2}\n# {0}/{3}\n{4}", submission.folder, kScript,
               submission.script, kConfig, submission.config);
    return Status::Ok();
  }
  TROOP_RETURN_IF_ERROR(CheckFolder(config, options));
  TROOP_ASSIGN_OR_RETURN(const std::string job, Submit(submission));
  const std::string path = RunPath(config);
  fmt::print(
      "submitted job {0}: {1}/{2}\n  job state: squeue -j {0}\n  output: tail -F {1}/{0}.out\n"
      "  run state: troop status {3}\n  stop with a checkpoint: scancel {0}\n",
      job, submission.folder, kScript, path);
  return Status::Ok();
}

// True if Slurm has requeued this job at least once.
bool BeganBefore() {
  const char* const count = getenv("SLURM_RESTART_COUNT");
  return count != nullptr && std::string_view(count) != "0" && *count != '\0';
}

// Sets `resume` or `overwrite` for a requeued job: a run without a checkpoint starts over.
Status ChooseBeginning(const Config& config, TrainOptions* options) {
  if (!BeganBefore()) return Status::Ok();
  const SystemClock clock;
  const Time end = clock.Now() + kHeld;
  options->resume = options->overwrite = false;
  // The folder stays locked until the previous launcher has exited: retry for kHeld.
  if (!fs::exists(RunPath(config))) return Status::Ok();
  for (;;) {
    const Result<RunFolder> folder = OpenRunFolder(config, FolderUse::kResume);
    if (folder.ok()) {
      options->resume = NewestCheckpoint(folder->storage.get()).ok();
      options->overwrite = !options->resume && folder->storage->Exists("config.toml");
      return Status::Ok();
    }
    if (folder.status().code() != Code::kAlreadyExists || clock.Now() > end) {
      return folder.status();
    }
    usleep(500'000);
  }
}

// Requeues the job after the signal before its time limit. Slurm then ends this process.
void QueueAgain(const std::string& job) {
  const Result<ProgramResult> said = RunProgram({"scontrol", "requeue", job}, kAsk);
  if (said.ok() && said->code == 0) {
    fmt::print("the time limit is near: requeued the job, which will resume from its checkpoint\n");
  } else {
    fmt::print(stderr, "troop: could not requeue job {}: {}\n", job,
               said.ok() ? said->output : said.status().message());
  }
}

// Adapts the config to the nodes of the job, then runs the launcher. Returns its exit code.
Result<int> RunJob(const SlurmJobOptions& given) {
  TROOP_ASSIGN_OR_RETURN(Config config, LoadConfigFile(given.config, {}));
  TROOP_ASSIGN_OR_RETURN(const SlurmLauncher::Options job, SlurmLauncher::ReadJob(config));
  TROOP_RETURN_IF_ERROR(GiveKeys(&config, fs::path(given.config).parent_path() / "keys"));
  // Only the port is configurable: the host is that of the job's first node.
  const std::string& listen = config.fleet.listen;
  const std::string port = listen.empty() ? "0" : listen.substr(listen.rfind(':') + 1);
  config.fleet.listen = fmt::format("tcp://{}:{}", job.addresses[0], port);
  config.fleet.listen_replay = config.fleet.listen_paramserver = "";
  // Actors get free indices from the coordinator; learners form groups over the network.
  config.fleet.external_roles = {"actor", "learner"};
  // A job has no terminal, so progress is printed as plain lines.
  TrainOptions options = given.train;
  options.plain = true;
  TROOP_RETURN_IF_ERROR(ChooseBeginning(config, &options));
  bool more = false;
  options.slurm = &job;
  options.requeue_requested = &more;
  const int code = Train(config, options);
  // Only after the drain: the requeued job must find the final checkpoint.
  if (more && config.slurm.requeue && code == kExitInterrupted) QueueAgain(job.job);
  return code;
}

}  // namespace

// Paths are absolute, as the job starts in another working directory.
SlurmSubmission MakeSubmission(const Config& config, const std::string& program,
                               const TrainOptions& options) {
  SlurmSubmission submission{.folder = RunPath(config) + ".slurm"};
  Config there = config;  // the job has another working directory
  there.log.dir = fs::path(RunPath(config)).parent_path().string();
  submission.config = ToToml(there);
  submission.script = "#!/bin/bash\n" + Directives(config, submission.folder);
  for (const std::string& line : config.slurm.setup) submission.script += line + "\n";
  // exec: Slurm's signals to the batch shell must reach the launcher.
  submission.script += fmt::format("exec {} slurm-job {}{}\n", Quoted(program),
                                   Quoted(submission.folder + "/" + kConfig),
                                   options.resume      ? " --resume"
                                   : options.overwrite ? " --overwrite"
                                                       : "");
  return submission;
}

// Generated once per submission, so a requeued job uses the same keys.
Status GiveKeys(Config* config, const std::string& folder) {
  if (!config->security.keys.empty() || config->security.insecure) return Status::Ok();
  if (!fs::exists(folder + "/coordinator.key")) {
    TROOP_RETURN_IF_ERROR(MakeKeys(folder, KeysOfAllRoles(), false));
  }
  config->security.keys = folder;
  return Status::Ok();
}

// The job itself fails later, if it does: this exit code covers only the submission.
int SubmitSlurm(const Config& config, const TrainOptions& options) {
  const Status status = SubmitRun(config, options);
  if (status.ok()) return kExitOk;
  fmt::print(stderr, "troop: {}\n", status.message());
  return ExitCodeFor(status);
}

int RunSlurmJob(const SlurmJobOptions& options) {
  const Result<int> code = RunJob(options);
  if (code.ok()) return *code;
  fmt::print(stderr, "troop: {}\n", code.status().message());
  return ExitCodeFor(code.status());
}

}  // namespace troop
