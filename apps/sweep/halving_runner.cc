// Trains the trials of a sweep with successive halving.
#include "apps/sweep/halving_runner.h"

#include <fmt/format.h>
#include <sys/wait.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <deque>
#include <map>
#include <utility>

#include "apps/sweep/halving_journal.h"
#include "apps/sweep/sweep_processes.h"
#include "apps/sweep/sweep_summary.h"
#include "fleet/launcher/exit_code.h"
#include "fleet/launcher/subprocess.h"
#include "fleet/roles/node_runner.h"
#include "fleet/run/run_directory.h"
#include "fleet/run/run_status.h"

namespace troop {
namespace {

using Job = SuccessiveHalving::Job;
constexpr std::size_t kResultBytesMax = 1 << 20;
// A run that is still draining after its sweep was killed holds its folder for at most this long.
constexpr double kInUseSecondsMax = 120, kInUseRetrySeconds = 1;

// Folders of the runs, by which the journal recognizes the trials.
std::vector<std::string> NamesOf(const SweepPlan& plan) {
  std::vector<std::string> names;
  for (const SweepRun& run : plan.runs) names.push_back(run.config.name);
  return names;
}

// Trains the jobs of a history, and those that follow.
class HalvingRunner {
 public:
  HalvingRunner(const SweepPlan& plan, Storage* folder, HalvingJournal::History history,
                HalvingJournal journal)
      : plan_(plan),
        folder_(folder),
        history_(std::move(history)),
        journal_(std::move(journal)),
        processes_(plan.path) {
    for (const Job& job : history_.halving.open()) waiting_.push_back({job, 0});
  }

  // Trains until no job is left, or a signal stops the runs. Returns the exit code.
  int Run(int jobs);

 private:
  // A job that has begun and has no process, and the earliest time of its start.
  struct Waiting {
    Job job;
    double not_before_s = 0;
  };
  // Starts processes up to the limit. Errors: those of the journal and of the start.
  Status Fill(int jobs);
  // The next job to start: a waiting one, else the next decision if there is room for it. nullopt:
  // none now. Errors: those of the journal.
  Result<std::optional<Job>> TakeJob(bool has_room);
  Status Start(const Job& job);
  bool HasCheckpoint(const Job& job) const;
  Status Reap();
  // Records one ended process.
  Status Finish(const Job& job, int wait_status);
  // Appends the end to the journal and prints it.
  Status Record(const Job& job, const std::optional<SweepScore>& score,
                const std::string& how_ended);
  // True if the run could not start because its folder is in use, and is repeated.
  Result<bool> Retry(const Job& job, int wait_status);
  int Conclude(const Status& trouble, bool interrupted);
  std::string TitleOf(const Job& job) const {
    return fmt::format("{} rung {}", TitleOfRun(plan_, job.trial), job.rung);
  }
  const std::string& NameOf(const Job& job) const { return plan_.runs[job.trial].config.name; }

  const SweepPlan& plan_;
  Storage* const folder_;
  HalvingJournal::History history_;
  HalvingJournal journal_;
  SweepProcesses processes_;
  std::size_t ended_ = 0;  // jobs that this call completed
  std::deque<Waiting> waiting_;
  std::map<std::size_t, Job> running_;          // by trial
  std::map<std::size_t, double> in_use_since_;  // by trial; of runs that are being repeated
};

// Jobs that had begun before come first, so that their ends do not depend on later decisions.
Result<std::optional<Job>> HalvingRunner::TakeJob(bool has_room) {
  const double now_s = processes_.elapsed_s();
  const auto ready = std::ranges::find_if(
      waiting_, [now_s](const Waiting& waiting) { return waiting.not_before_s <= now_s; });
  if (ready != waiting_.end()) {
    const Job job = ready->job;
    waiting_.erase(ready);
    return std::optional(job);
  }
  const std::optional<Job> next = has_room ? history_.halving.NextJob() : std::nullopt;
  if (!next) return std::optional<Job>();
  TROOP_RETURN_IF_ERROR(journal_.Begin(*next));
  history_.halving.Begin(*next);
  if (next->rung > 0) fmt::print("promoted: {}\n", TitleOf(*next));
  return next;
}

// A job that waits for its folder keeps its place among the concurrent ones.
Status HalvingRunner::Fill(int jobs) {
  const auto limit = std::size_t(jobs);
  while (running_.size() < limit) {
    TROOP_ASSIGN_OR_RETURN(const std::optional<Job> job,
                           TakeJob(running_.size() + waiting_.size() < limit));
    if (!job) break;
    TROOP_RETURN_IF_ERROR(Start(*job));
  }
  return Status::Ok();
}

// --continue starts a new run, resumes a stopped one, and extends a completed one by the larger
// budget of its config file.
Status HalvingRunner::Start(const Job& job) {
  TROOP_RETURN_IF_ERROR(RemoveUnbegunRun(folder_, NameOf(job)));
  const std::string file = "configs/" + NameOf(job) + ".toml";
  const std::int64_t budget = history_.halving.ResourceOf(job.rung);
  const Config config =
      WithHalvingBudget(plan_.runs[job.trial].config, plan_.halving->resource, budget);
  TROOP_RETURN_IF_ERROR(folder_->WriteAtomic(file, ToToml(config)));
  const char* flag = "--continue";
  if (job.rung > 0 && !HasCheckpoint(job)) {
    fmt::print("{} starts again, as its run has no checkpoint to continue from\n", TitleOf(job));
    flag = "--overwrite";
  }
  TROOP_RETURN_IF_ERROR(processes_.Start(job.trial, NameOf(job),
                                         {"train", plan_.path + "/" + file, "--plain", flag}));
  running_[job.trial] = job;
  return Status::Ok();
}

// A rung that ended before the first update leaves no checkpoint.
bool HalvingRunner::HasCheckpoint(const Job& job) const {
  const auto run = MakeDiskStorage(plan_.path + "/" + NameOf(job));
  return run.ok() && CanResume(run->get());
}

Status HalvingRunner::Reap() {
  for (const SweepProcesses::Ended& ended : processes_.Reap()) {
    const Job job = running_.at(ended.run);
    running_.erase(ended.run);
    TROOP_RETURN_IF_ERROR(Finish(job, ended.wait_status));
    std::fflush(stdout);
  }
  return Status::Ok();
}

// After a sweep was killed, its runs drain and hold their folders for a while.
Result<bool> HalvingRunner::Retry(const Job& job, int wait_status) {
  if (!WIFEXITED(wait_status) || WEXITSTATUS(wait_status) != kExitInUse) return false;
  const double now_s = processes_.elapsed_s();
  const double since_s = in_use_since_.try_emplace(job.trial, now_s).first->second;
  if (now_s - since_s > kInUseSecondsMax) {
    return AlreadyExists(
        "{}: its folder is in use for more than {} s; last log line: {}; wait until "
        "that run ends, and repeat the command",
        TitleOf(job), kInUseSecondsMax, LastLine(processes_.LogOf(NameOf(job))));
  }
  waiting_.push_back({job, now_s + kInUseRetrySeconds});
  return true;
}

// A run that was stopped has neither a score nor failed: its job stays open, and the next call of
// the command continues it.
Status HalvingRunner::Finish(const Job& job, int wait_status) {
  const int code = WIFEXITED(wait_status) ? WEXITSTATUS(wait_status) : -1;
  std::optional<SweepScore> score;
  if (code == kExitOk) {
    const Result<Buffer> text = folder_->Read(NameOf(job) + "/result.json", kResultBytesMax);
    if (text.ok()) score = ParseScore(text->text());
  }
  if (!score) {
    if (processes_.signalled()) return Status::Ok();
    if (code == kExitInterrupted) {
      return Cancelled("{} was stopped by a signal from outside; repeat the command to resume",
                       TitleOf(job));
    }
    TROOP_ASSIGN_OR_RETURN(const bool repeated, Retry(job, wait_status));
    if (repeated) return Status::Ok();
  }
  in_use_since_.erase(job.trial);
  TROOP_RETURN_IF_ERROR(Record(job, score, DescribeExit(wait_status)));
  history_.End(job, std::move(score));
  return Status::Ok();
}

// The line is in the journal before the decision that follows from it.
Status HalvingRunner::Record(const Job& job, const std::optional<SweepScore>& score,
                             const std::string& how_ended) {
  if (score) {
    TROOP_RETURN_IF_ERROR(journal_.End(job, *score));
    fmt::print("[{}] {}: {}\n", ++ended_, TitleOf(job), ScoreLine(plan_, *score));
    return Status::Ok();
  }
  TROOP_RETURN_IF_ERROR(journal_.EndFailed(job, how_ended));
  const std::string log = processes_.LogOf(NameOf(job));
  fmt::print(stderr, "troop: {} failed ({}) and counts as the worst; last log line: {}; see {}\n",
             TitleOf(job), how_ended, LastLine(log), log);
  return Status::Ok();
}

// After trouble or a signal no further jobs start, and the running ones end first.
int HalvingRunner::Run(int jobs) {
  SweepProcesses::LimitThreads(jobs);
  const SignalWatch signals(nullptr, false);
  Status trouble;
  const auto title = [this](std::size_t trial) { return TitleOf(running_.at(trial)); };
  for (;;) {
    processes_.HandleSignals(signals.count());
    const bool fills = trouble.ok() && !processes_.signalled();
    if (fills) trouble = Fill(jobs);
    // Waiting jobs count as work to do only while processes may still start.
    if (running_.empty() && (!fills || !trouble.ok() || waiting_.empty())) break;
    SweepProcesses::WaitBriefly();
    const Status reaped = Reap();
    if (trouble.ok()) trouble = reaped;
    processes_.ShowProgress(title);
  }
  return Conclude(trouble, signals.count() > 0);
}

// Scores come from the journal: the result of a run that continues is removed when it starts.
int HalvingRunner::Conclude(const Status& trouble, bool interrupted) {
  const Status written = ReportSweep(folder_, plan_, history_.scores);
  for (const Status& status : {trouble, written}) {
    if (!status.ok()) fmt::print(stderr, "troop: {}\n", status.message());
  }
  if (!written.ok()) return kExitFailed;
  // In f64, as the product of both limits exceeds 64 bits.
  fmt::print("used {} {} of {:.0f} for all trials at the full budget\n",
             history_.halving.resource_used(), EnumName(plan_.halving->resource),
             double(plan_.runs.size()) * double(plan_.halving->max_resource));
  if (interrupted || trouble.code() == Code::kCancelled) {
    fmt::print("stopped; repeat the command to resume\n");
    return kExitInterrupted;
  }
  if (!trouble.ok()) return ExitCodeFor(trouble);
  const bool any =
      std::ranges::any_of(history_.scores, [](const auto& s) { return s && !std::isnan(s->mean); });
  if (!any) fmt::print(stderr, "troop: every trial failed; see {}/logs\n", plan_.path);
  return any ? kExitOk : kExitFailed;
}

// The budget of a run folder must be that of a rung that the journal has begun.
Status CheckFolders(const SweepPlan& plan, Storage* folder,
                    const HalvingJournal::History& history) {
  const HalvingResource resource = plan.halving->resource;
  for (std::size_t trial = 0; trial < plan.runs.size(); ++trial) {
    const Config& config = plan.runs[trial].config;
    if (!folder->Exists(config.name + "/config.toml")) continue;
    const std::string path = plan.path + "/" + config.name;
    TROOP_ASSIGN_OR_RETURN(const Config there, ReadRunConfig(path, {}));
    // The last rung that completed, or the one that began after it.
    const auto& score = history.scores[trial];
    const bool has_rung = score && !std::isnan(score->mean);
    std::size_t rung = has_rung ? score->rung : 0;
    const std::int64_t budget = HalvingBudget(there, resource);
    if (has_rung && budget != history.halving.ResourceOf(rung)) ++rung;
    rung = std::min(rung, history.halving.rungs() - 1);
    TROOP_RETURN_IF_ERROR(CheckSameRun(
        path, there, WithHalvingBudget(config, resource, history.halving.ResourceOf(rung))));
  }
  return Status::Ok();
}

// Removes the journal before the runs: after a crash in between, runs of other budgets are rejected
// until the command is repeated with --overwrite.
Status RemoveAll(const SweepPlan& plan, Storage* folder) {
  TROOP_RETURN_IF_ERROR(folder->Remove(HalvingJournal::kFile));
  for (const SweepRun& run : plan.runs) {
    if (!folder->Exists(run.config.name + "/config.toml")) continue;
    // Removes the files under the run's own lock.
    TROOP_RETURN_IF_ERROR(OpenRunFolder(run.config, FolderUse::kOverwrite).status());
  }
  return Status::Ok();
}

// Prints the rungs with their progress, and the jobs that an earlier call left open.
void Describe(const SweepPlan& plan, const HalvingJournal::History& history, int jobs) {
  const SuccessiveHalving& halving = history.halving;
  std::string rungs;
  for (std::size_t rung = 0; rung < halving.rungs(); ++rung) {
    rungs += fmt::format("{}{} ({} completed)", rung > 0 ? ", " : "", halving.ResourceOf(rung),
                         halving.CompletedIn(rung));
  }
  fmt::print("{}: {} trials in {}, {} concurrent; rungs of {} {}\n", plan.name, plan.runs.size(),
             plan.path, jobs, rungs, EnumName(plan.halving->resource));
  for (const Job& job : halving.open()) {
    fmt::print("  continues: {} rung {}\n", TitleOfRun(plan, job.trial), job.rung);
  }
  const std::int64_t top = halving.ResourceOf(halving.rungs() - 1);
  if (top < plan.halving->max_resource) {
    fmt::print("  the highest rung ends at {} of {} {}\n", top, plan.halving->max_resource,
               EnumName(plan.halving->resource));
  }
}

}  // namespace

// Everything is read and checked before the first file is written, so that a rejected command
// changes nothing.
Result<int> RunHalving(const SweepPlan& plan, Storage* folder, const HalvingOptions& options) {
  if (options.overwrite && !options.dry_run) TROOP_RETURN_IF_ERROR(RemoveAll(plan, folder));
  const std::vector<std::string> names = NamesOf(plan);
  TROOP_ASSIGN_OR_RETURN(HalvingJournal::History history,
                         HalvingJournal::Read(folder, *plan.halving, names));
  TROOP_RETURN_IF_ERROR(CheckFolders(plan, folder, history));
  Describe(plan, history, options.jobs);
  std::fflush(stdout);
  if (options.dry_run) return kExitOk;
  TROOP_ASSIGN_OR_RETURN(HalvingJournal journal,
                         HalvingJournal::Open(folder, *plan.halving, names, history.intact_bytes));
  return HalvingRunner(plan, folder, std::move(history), std::move(journal)).Run(options.jobs);
}

}  // namespace troop
