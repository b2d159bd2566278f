// `troop sweep`: trains the runs of a SweepPlan as child processes, several at a time.
#include "apps/sweep/sweep_runner.h"

#include <cstdio>
#include <deque>
#include <filesystem>
#include <utility>

#include "apps/sweep/halving_runner.h"
#include "apps/sweep/sweep_processes.h"
#include "apps/sweep/sweep_summary.h"
#include "fleet/launcher/exit_code.h"
#include "fleet/launcher/resource_estimate.h"
#include "fleet/launcher/subprocess.h"
#include "fleet/roles/node_runner.h"
#include "fleet/run/run_directory.h"
#include "fleet/run/run_status.h"
#include "fleet/run/task_info.h"
#include "fleet/run/throughput.h"

namespace troop {
namespace {

namespace fs = std::filesystem;
constexpr std::size_t kResultBytesMax = 1 << 20;

// Trains the unfinished runs of a plan, `jobs` at a time.
class SweepRunner {
 public:
  SweepRunner(SweepPlan plan, Storage* folder)
      : plan_(std::move(plan)),
        folder_(folder),
        standings_(plan_.runs.size()),
        processes_(plan_.path) {}

  // Reads the state of each run. Errors: kAlreadyExists: a folder holds a run of another config.
  Status Look(bool overwrite);
  // Prints the runs that will be started or resumed.
  void Describe(int jobs) const;
  // Trains until all runs have ended, or a signal stops them. Returns the exit code.
  int Run(int jobs);

 private:
  std::string PathOf(std::size_t run) const { return plan_.path + "/" + NameOf(run); }
  const std::string& NameOf(std::size_t run) const { return plan_.runs[run].config.name; }
  std::string TitleOf(std::size_t run) const { return TitleOfRun(plan_, run); }
  std::optional<SweepScore> ScoreOf(std::size_t run) const;
  Result<RunStatus> GetRunStatus(std::size_t run) const;
  // Starts or resumes one run as a child process.
  Status Start(std::size_t run);
  // Collects ended children and prints their results.
  void Reap();
  // Prints the last log line of each running run and the estimated time left.
  void ShowProgress();
  // Writes and prints the table, also for an interrupted sweep.
  int Conclude(bool interrupted);

  const SweepPlan plan_;
  Storage* const folder_;
  std::vector<RunStatus> standings_;
  std::deque<std::size_t> waiting_;
  SweepProcesses processes_;
  std::size_t ended_ = 0, failed_ = 0;
  std::size_t ended_before_ = 0;  // runs that earlier calls of the command finished
};

std::optional<SweepScore> SweepRunner::ScoreOf(std::size_t run) const {
  // A run is finished only when its result has a score.
  const Result<Buffer> text = folder_->Read(NameOf(run) + "/result.json", kResultBytesMax);
  return text.ok() ? ParseScore(text->text()) : std::nullopt;
}

// A folder with the same name but another config is an error: its results would not be comparable.
Result<RunStatus> SweepRunner::GetRunStatus(std::size_t run) const {
  if (!folder_->Exists(NameOf(run) + "/config.toml")) return RunStatus::kNew;
  TROOP_ASSIGN_OR_RETURN(const Config there, ReadRunConfig(PathOf(run), {}));
  TROOP_RETURN_IF_ERROR(CheckSameRun(PathOf(run), there, plan_.runs[run].config));
  if (ScoreOf(run)) return RunStatus::kFinished;
  TROOP_ASSIGN_OR_RETURN(const auto storage, MakeDiskStorage(PathOf(run)));
  return CanResume(storage.get()) ? RunStatus::kResumable : RunStatus::kNew;
}

// With `overwrite` the folders are not read: all runs count as new.
Status SweepRunner::Look(bool overwrite) {
  for (std::size_t run = 0; run < plan_.runs.size(); ++run) {
    if (!overwrite) {
      TROOP_ASSIGN_OR_RETURN(standings_[run], GetRunStatus(run));
    }
    if (standings_[run] == RunStatus::kFinished) {
      ++ended_;
    } else {
      waiting_.push_back(run);
    }
  }
  return Status::Ok();
}

void SweepRunner::Describe(int jobs) const {
  fmt::print("{}: {} runs in {}, {} finished, {} concurrent\n", plan_.name, plan_.runs.size(),
             plan_.path, ended_, jobs);
  for (const std::size_t run : waiting_) {
    fmt::print("  {}: {}\n", standings_[run] == RunStatus::kResumable ? "resumes" : "starts",
               TitleOf(run));
  }
}

// New runs start from a written config, stopped ones from their folder.
Status SweepRunner::Start(std::size_t run) {
  std::vector<std::string> words{"resume", PathOf(run), "--plain"};
  if (standings_[run] == RunStatus::kNew) {
    TROOP_RETURN_IF_ERROR(RemoveUnbegunRun(folder_, NameOf(run)));
    const std::string config = "configs/" + NameOf(run) + ".toml";
    TROOP_RETURN_IF_ERROR(folder_->WriteAtomic(config, ToToml(plan_.runs[run].config)));
    // --overwrite discards an earlier attempt without a checkpoint.
    words = {"train", plan_.path + "/" + config, "--plain", "--overwrite"};
  }
  return processes_.Start(run, NameOf(run), std::move(words));
}

// A run with a score has finished; after a signal, a run without one was stopped and has not
// failed.
void SweepRunner::Reap() {
  for (const SweepProcesses::Ended& child : processes_.Reap()) {
    const std::optional<SweepScore> score = ScoreOf(child.run);
    if (score) {
      fmt::print("[{}/{}] {}: {}\n", ++ended_, plan_.runs.size(), TitleOf(child.run),
                 ScoreLine(plan_, *score));
    } else if (!processes_.signalled()) {
      ++failed_;
      const std::string log = processes_.LogOf(NameOf(child.run));
      fmt::print(stderr, "troop: {} failed ({}); last log line: {}; see {}\n", TitleOf(child.run),
                 DescribeExit(child.wait_status), LastLine(log), log);
    }
    std::fflush(stdout);
  }
}

void SweepRunner::ShowProgress() {
  if (!processes_.ShowProgress([this](std::size_t run) { return TitleOf(run); })) return;
  // Estimate from the runs of this call; runs that were finished before took no time.
  const std::size_t done = ended_ + failed_ - ended_before_;
  const std::size_t left = waiting_.size() + processes_.running();
  if (done > 0 && left > 0) {
    const double left_s = processes_.elapsed_s() * double(left) / double(done);
    fmt::print("  {} of {} runs ended, about {} left\n", ended_ + failed_, plan_.runs.size(),
               Span(left_s));
    std::fflush(stdout);
  }
}

int SweepRunner::Run(int jobs) {
  ended_before_ = ended_;
  SweepProcesses::LimitThreads(jobs);
  const SignalWatch signals(nullptr, false);
  Status trouble;
  // Start runs up to the limit, then poll. A failed start stops further ones.
  while (processes_.running() > 0 || (!waiting_.empty() && trouble.ok())) {
    while (trouble.ok() && !waiting_.empty() && processes_.running() < std::size_t(jobs)) {
      const std::size_t run = waiting_.front();
      waiting_.pop_front();
      trouble = Start(run);
    }
    SweepProcesses::WaitBriefly();
    // A signal ends the runs that are active; no further ones start.
    if (processes_.HandleSignals(signals.count())) waiting_.clear();
    Reap();
    ShowProgress();
  }
  if (!trouble.ok()) fmt::print(stderr, "troop: {}\n", trouble.message());
  // If a child could not be started, the others finish first; the exit code reports it.
  const int code = Conclude(signals.count() > 0);
  return code == kExitOk && !trouble.ok() ? kExitFailed : code;
}

// Scores are read again from the folders, which also hold those of earlier calls.
int SweepRunner::Conclude(bool interrupted) {
  SweepScores scores;
  for (std::size_t run = 0; run < plan_.runs.size(); ++run) scores.push_back(ScoreOf(run));
  const Status written = ReportSweep(folder_, plan_, scores);
  if (!written.ok()) {
    fmt::print(stderr, "troop: {}\n", written.message());
    return kExitFailed;
  }
  if (interrupted) {
    fmt::print("stopped; repeat the command to resume\n");
    return kExitInterrupted;
  }
  return failed_ > 0 ? kExitFailed : kExitOk;
}

// Plans the sweep, locks its folder and runs it. A dry run creates nothing.
Result<int> TrySweep(const SweepOptions& options) {
  TROOP_ASSIGN_OR_RETURN(SweepPlan plan, PlanSweep(options.arguments));
  // A sweep and a run of one name would mix their files.
  if (fs::exists(fs::path(plan.path) / "config.toml")) {
    return AlreadyExists("{} holds a run; choose another folder for the sweep: name=...",
                         plan.path);
  }
  const int jobs =
      options.jobs > 0 ? options.jobs : RunsAtOnce(plan.runs.front().config, CoresHere());
  const bool exists = fs::exists(plan.path);
  if (options.dry_run && !exists) fmt::print("{} will be created\n", plan.path);
  // A dry run on a new folder uses memory, so that nothing is created.
  std::unique_ptr<Storage> folder = MakeMemoryStorage();
  std::unique_ptr<StorageLock> lock;
  if (exists || !options.dry_run) {
    TROOP_ASSIGN_OR_RETURN(folder, MakeDiskStorage(plan.path));
  }
  if (!options.dry_run) {
    TROOP_ASSIGN_OR_RETURN(lock, LockRun(folder.get()));
  }
  if (plan.halving) {
    return RunHalving(plan, folder.get(),
                      {.jobs = jobs, .overwrite = options.overwrite, .dry_run = options.dry_run});
  }
  SweepRunner runner(std::move(plan), folder.get());
  TROOP_RETURN_IF_ERROR(runner.Look(options.overwrite));
  runner.Describe(jobs);
  std::fflush(stdout);
  return options.dry_run ? kExitOk : runner.Run(jobs);
}

}  // namespace

int Sweep(const SweepOptions& options) {
  const Result<int> code = TrySweep(options);
  if (code.ok()) return *code;
  fmt::print(stderr, "troop: {}\n", code.status().message());
  return ExitCodeFor(code.status());
}

}  // namespace troop
