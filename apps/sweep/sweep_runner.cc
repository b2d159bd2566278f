// `troop sweep`: trains the runs of a SweepPlan as child processes, several at a time.
#include "apps/sweep/sweep_runner.h"

#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <deque>
#include <filesystem>
#include <utility>

#include "apps/sweep/sweep_summary.h"
#include "core/graphics/plot/line_plot.h"
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
constexpr int kLookEveryMs = 20;  // poll interval for signals and ended children
constexpr Duration kFirstShown = Seconds(2), kShowEveryMax = Seconds(30);

// The first line in which two configs differ, for an error message.
std::string FirstDifference(const Config& there, const Config& wanted) {
  const std::string a = ToToml(there), b = ToToml(wanted);
  std::size_t at = 0;
  while (at < a.size() && at < b.size() && a[at] == b[at]) ++at;
  // The whole line around the first different byte, which shows the key.
  const auto line = [at](const std::string& text) {
    const std::size_t begin = at == 0 ? 0 : text.rfind('\n', at - 1) + 1;
    return text.substr(begin, text.find('\n', at) - begin);
  };
  return fmt::format("there \"{}\", now \"{}\"", line(a), line(b));
}

// Trains the unfinished runs of a plan, `jobs` at a time.
class SweepRunner {
 public:
  SweepRunner(SweepPlan plan, Storage* folder)
      : plan_(std::move(plan)), folder_(folder), standings_(plan_.runs.size()) {}

  // Reads the state of each run. Errors: kAlreadyExists: a folder holds a run of another config.
  Status Look(bool overwrite);
  // Prints the runs that will be started or resumed.
  void Describe(int jobs) const;
  // Trains until all runs have ended, or a signal stops them. Returns the exit code.
  int Run(int jobs);

 private:
  // A running process and the index of its run in the plan.
  struct Child {
    std::size_t run = 0;
    pid_t process = 0;
  };
  std::string PathOf(std::size_t run) const { return plan_.path + "/" + NameOf(run); }
  const std::string& NameOf(std::size_t run) const { return plan_.runs[run].config.name; }
  std::string LogOf(std::size_t run) const { return plan_.path + "/logs/" + NameOf(run) + ".log"; }
  std::string TitleOf(std::size_t run) const;
  std::optional<SweepScore> ScoreOf(std::size_t run) const;
  Result<RunStatus> GetRunStatus(std::size_t run) const;
  // Starts or resumes one run as a child process.
  Status Start(std::size_t run);
  // Collects ended children and prints their results.
  void Reap();
  // Prints the last log line of each running run and the estimated time left: after 2 s, 4 s, 8 s
  // and 16 s, then every 30 s.
  void ShowProgress();
  void HandleSignals(int count);
  // Writes and prints the table, also for an interrupted sweep.
  int Conclude(bool interrupted);

  const SweepPlan plan_;
  Storage* const folder_;
  std::vector<RunStatus> standings_;
  std::deque<std::size_t> waiting_;
  std::vector<Child> children_;
  std::size_t ended_ = 0, failed_ = 0;
  const SystemClock clock_;
  const Time begun_ = clock_.Now();
  Time show_ = begun_ + kFirstShown;  // time of the next progress output
  std::size_t ended_before_ = 0;      // runs that earlier calls of the command finished
  int signalled_ = 0;                 // signals passed on to the children
};

// Name for messages: the point's label, if there is one, and the seed.
std::string SweepRunner::TitleOf(std::size_t run) const {
  const std::string& label = plan_.points[plan_.runs[run].point].label;
  return fmt::format("{}{}seed {}", label, label.empty() ? "" : " ", plan_.runs[run].seed);
}

std::optional<SweepScore> SweepRunner::ScoreOf(std::size_t run) const {
  // A run is finished only when its result has a score.
  const Result<Buffer> text = folder_->Read(NameOf(run) + "/result.json", kResultBytesMax);
  return text.ok() ? ParseScore(text->text()) : std::nullopt;
}

// A folder with the same name but another config is an error: its results would not be comparable.
Result<RunStatus> SweepRunner::GetRunStatus(std::size_t run) const {
  if (!folder_->Exists(NameOf(run) + "/config.toml")) return RunStatus::kNew;
  TROOP_ASSIGN_OR_RETURN(const Config there, ReadRunConfig(PathOf(run), {}));
  if (there != plan_.runs[run].config) {
    return AlreadyExists(
        "{} holds a run of another config ({}); choose another folder (name=...), or replace all "
        "runs with --overwrite",
        PathOf(run), FirstDifference(there, plan_.runs[run].config));
  }
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
  std::vector<std::string> words{"troop", "resume", PathOf(run), "--plain"};
  if (standings_[run] == RunStatus::kNew) {
    const std::string config = "configs/" + NameOf(run) + ".toml";
    TROOP_RETURN_IF_ERROR(folder_->WriteAtomic(config, ToToml(plan_.runs[run].config)));
    // --overwrite discards an earlier attempt without a checkpoint.
    words = {"troop", "train", plan_.path + "/" + config, "--plain", "--overwrite"};
  }
  fs::create_directories(plan_.path + "/logs");
  // If the sweep dies, SIGTERM drains the run, which can then be resumed.
  TROOP_ASSIGN_OR_RETURN(const pid_t process,
                         StartChild("/proc/self/exe", std::move(words), LogOf(run), SIGTERM));
  children_.push_back({run, process});
  return Status::Ok();
}

// A run with a score has finished; after a signal, a run without one was stopped and has not
// failed.
void SweepRunner::Reap() {
  std::erase_if(children_, [this](const Child& child) {
    int wait_status = 0;
    if (waitpid(child.process, &wait_status, WNOHANG) != child.process) return false;
    const std::optional<SweepScore> score = ScoreOf(child.run);
    if (score) {
      const std::string spread = SpreadText(
          IsSupervised(plan_.runs[child.run].config),
          {.return_std = score->std, .return_min = score->low, .return_max = score->high});
      fmt::print("[{}/{}] {}: {:.2f}{}, {:.1f} minutes\n", ++ended_, plan_.runs.size(),
                 TitleOf(child.run), score->mean, spread, score->wall_s / 60);
    } else if (signalled_ == 0) {
      ++failed_;
      fmt::print(stderr, "troop: {} failed ({}); last log line: {}; see {}\n", TitleOf(child.run),
                 DescribeExit(wait_status), LastLine(LogOf(child.run)), LogOf(child.run));
    }
    std::fflush(stdout);
    return true;
  });
}

// The interval doubles, since it is the time since the start, up to its limit.
void SweepRunner::ShowProgress() {
  const Time now = clock_.Now();
  if (now < show_) return;
  show_ = now + std::min(now - begun_, kShowEveryMax);
  for (const Child& child : children_) {
    fmt::print("  {}: {}\n", TitleOf(child.run), LastLine(LogOf(child.run)));
  }
  // Estimate from the runs of this call; runs that were finished before took no time.
  const std::size_t done = ended_ + failed_ - ended_before_;
  if (done > 0 && !(children_.empty() && waiting_.empty())) {
    const std::size_t left = waiting_.size() + children_.size();
    const double left_s = ToSeconds(now - begun_) * double(left) / double(done);
    fmt::print("  {} of {} runs ended, about {} left\n", ended_ + failed_, plan_.runs.size(),
               Span(left_s));
  }
  std::fflush(stdout);
}

// The first signal drains the runs, a second one kills them.
void SweepRunner::HandleSignals(int count) {
  if (count == 0 || signalled_ >= 2 || count == signalled_) return;
  if (signalled_ == 0) {
    fmt::print("stopping {} runs after a checkpoint (signal again to kill them)\n",
               children_.size());
    std::fflush(stdout);
  }
  signalled_ = count;
  waiting_.clear();
  for (const Child& child : children_) kill(child.process, count == 1 ? SIGTERM : SIGKILL);
}

int SweepRunner::Run(int jobs) {
  ended_before_ = ended_;
  if (jobs > 1) {  // as for the roles of a fleet; results do not depend on it
    setenv("OMP_NUM_THREADS", "1", 0);
    setenv("OMP_WAIT_POLICY", "passive", 0);
  }
  const SignalWatch signals(nullptr, false);
  Status trouble;
  // Start runs up to the limit, then poll. A failed start stops further ones.
  while (!children_.empty() || (!waiting_.empty() && trouble.ok())) {
    while (trouble.ok() && !waiting_.empty() && children_.size() < std::size_t(jobs)) {
      const std::size_t run = waiting_.front();
      waiting_.pop_front();
      trouble = Start(run);
    }
    poll(nullptr, 0, kLookEveryMs);
    HandleSignals(signals.count());
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
  const Status written = WriteSweep(folder_, plan_, scores);
  fmt::print("\n{}\n", SweepTable(plan_, scores));
  for (const std::string& line : SweepCaption(plan_, scores)) fmt::print("{}\n", line);
  if (!written.ok()) {
    fmt::print(stderr, "troop: {}\n", written.message());
    return kExitFailed;
  }
  fmt::print("wrote {}/sweep.md, {}sweep.json\n", plan_.path, HasPlots() ? "sweep.png, " : "");
  if (!HasPlots()) fmt::print("no sweep.png: {}\n", CheckPlots().message());
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
    TROOP_ASSIGN_OR_RETURN(lock, folder->Lock("lock", fmt::format("process {}", getpid())));
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
