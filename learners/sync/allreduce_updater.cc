// Implements the updater for synchronous SGD with the other learners of a run.

#include <algorithm>
#include <deque>

#include "core/base/log.h"
#include "learners/sync/allreduce_step.h"
#include "learners/sync/learner_group.h"
#include "learners/sync/updater.h"

namespace troop {
namespace {

constexpr std::size_t kJobsMax = 2;  // the next job is ready when one ends
// A short job limits how long the other ranks wait.
constexpr std::size_t kBatchesMax = 4;
// A learner without batches joins a round after this time, because other learners may have some.
constexpr Duration kPatience = Seconds(1);
constexpr Duration kPollEvery = Milliseconds(10);  // between polls of a rendezvous without threads

// The rounds of one job. On a thread that may block, one executor job runs all of them; otherwise
// an executor job starts each round, and polls finish it.
struct Rounds {
  std::unique_ptr<UpdateJob> job;  // without batches: one round, to participate
  Executor::Job id = 0;
  bool exhausted = false;
  std::size_t next = 0;  // the next batch of the job
  std::unique_ptr<AllReduceStep> round;
  Status group;  // the error that ended the group; later batches were not used
  bool all_exhausted = false;
  bool done = false;
};

// Runs jobs as rounds of the group that LearnerGroup forms, and reports a lost group to it.
class AllReduceUpdater final : public Updater {
 public:
  explicit AllReduceUpdater(const AllReduceUpdaterOptions& options)
      : options_(options),
        group_({.learners = options.learners,
                .parts = options.parts,
                .go_back = options.go_back,
                .nccl = options.nccl,
                .rendezvous = options.rendezvous,
                .member = options.member,
                .executor = options.executor,
                .algorithm = options.algorithm}) {}
  ~AllReduceUpdater() override = default;

  // Order: the group, the rounds, completed jobs, and rounds without a batch.
  Status Poll(Time now) override {
    // Polled while jobs follow each other, too: a learner may have joined.
    if (jobs_.empty() ? !leaving_ || group_.joining() : group_.in_step() != nullptr) {
      group_.Poll(now);
      TROOP_RETURN_IF_ERROR(group_.failure());
    }
    if (leaving_) group_.Regroup();
    if (!options_.rendezvous->waits()) Drive();
    TakeEnds();
    // Without a batch: join rounds anyway if the others need it (see kPatience).
    if (group_.in_step() == nullptr || !jobs_.empty()) {
      last_work_ = now;
    } else if (group_.wanted() || (!over_ && !options_.all_have_batches &&
                                   (exhausted_ || now - last_work_ >= kPatience))) {
      Submit(std::make_unique<UpdateJob>());
    }
    // Nothing else wakes a learner that only polls.
    next_ = now + (jobs_.empty() || options_.rendezvous->waits() ? kPatience : kPollEvery);
    return Status::Ok();
  }
  Time next_poll() const override { return std::min(next_, group_.next_poll()); }

  bool CanTake() const override {
    return jobs_.size() < (options_.rendezvous->waits() ? kJobsMax : 1) && ended_.ok() && !over_ &&
           !leaving_ && group_.in_step() != nullptr;
  }
  std::size_t batches_max() const override { return kBatchesMax; }
  void Take(std::unique_ptr<UpdateJob> job) override { Submit(std::move(job)); }

  std::unique_ptr<UpdateJob> Collect() override {
    TakeEnds();
    if (finished_.empty()) return nullptr;
    std::unique_ptr<UpdateJob> job = std::move(finished_.front());
    finished_.pop_front();
    return job;
  }
  bool busy() const override { return !jobs_.empty() || !finished_.empty() || group_.joining(); }

  bool Finished(bool exhausted) override {
    exhausted_ = exhausted;
    return over_;
  }
  // A new group starts with a state exchange, which distributes the change.
  void StateChanges() override { group_.Regroup(); }
  // In a single thread the group is aborted at once, even between jobs: an idle learner may not be
  // stepped again, and the others would wait for its contribution. Between processes the closed
  // connection signals the end after all sent data; an abort could overtake the last update.
  void Deregister() override {
    leaving_ = true;
    group_.Regroup();
    if (options_.rendezvous->waits() || !jobs_.empty() || group_.in_step() == nullptr) return;
    group_.in_step()->Abort(Aborted("a learner has left"));
    group_.Ended(Status::Ok());
  }
  bool is_leader() const override { return group_.is_leader(); }
  std::uint64_t generation() const override { return group_.generation(); }
  int learners() const override { return group_.size(); }

 private:
  // Starts a job, on a blocking thread if the rendezvous has one.
  void Submit(std::unique_ptr<UpdateJob> job) {
    auto rounds = std::make_unique<Rounds>();
    rounds->job = std::move(job);
    rounds->exhausted = exhausted_;
    if (options_.rendezvous->waits()) {
      rounds->id = InJob("rounds", [this, work = rounds.get(), group = group_.in_step()] {
        while (!work->done) {
          if (BeginRound(group, work)) EndRound(work, work->round->Wait());
        }
      });
    }
    jobs_.push_back(std::move(rounds));
  }

  Executor::Job InJob(std::string_view name, std::function<void()> work) {
    Result<Executor::Job> id = options_.executor->Submit(name, std::move(work));
    TROOP_CHECK(id.ok(), "{}", id.status().ToString());
    return *id;
  }

  // Without blocking threads: advances the first job as far as possible.
  void Drive() {
    while (!jobs_.empty() && !jobs_.front()->done) {
      Rounds* const work = jobs_.front().get();
      if (work->id != 0) {
        if (!options_.executor->TakeDone(work->id)) return;
        work->id = 0;
      } else if (work->round) {
        const std::optional<Result<AllReduceStep::Outcome>> end = work->round->Poll();
        if (!end) return;
        EndRound(work, *end);
      } else {
        work->id =
            InJob("gradient", [this, work, group = group_.in_step()] { BeginRound(group, work); });
      }
    }
  }

  // Starts the next round. Returns false if there is none.
  bool BeginRound(Collective* group, Rounds* work) {
    UpdateJob& job = *work->job;
    // Other ranks may have made updates since the previous job.
    if (!job.before) job.before = options_.algorithm->updates();
    const bool enough =
        options_.max_updates > 0 && options_.algorithm->updates() >= options_.max_updates;
    if (enough) {
      work->all_exhausted = true;  // all ranks have the same update count
    } else if (group_.wanted()) {
      group->Abort(Aborted("a learner waits for a new group"));
      work->group = group->status();
    }
    if (enough || !work->group.ok()) {
      EndJob(work);
      return false;
    }
    const SampleBatch* batch = job.batches.empty() ? nullptr : &job.batches[work->next];
    std::span<float> priority;
    if (batch != nullptr) priority = job.priority.emplace_back(batch->key.size());
    work->round =
        std::make_unique<AllReduceStep>(group, options_.algorithm,
                                        AllReduceStep::Options{.gradients = group_.same_part(),
                                                               .devices = group_.devices(),
                                                               .want_value = job.publish,
                                                               .want_state = job.want_state,
                                                               .last = options_.max_updates});
    const Status begun =
        work->round->Begin(batch, job.ProgressAt(work->next), work->exhausted, priority);
    if (begun.ok()) return true;
    EndRound(work, begun);
    return false;
  }

  // Stores the outcome of a round in its job.
  void EndRound(Rounds* work, const Result<AllReduceStep::Outcome>& end) {
    work->round.reset();
    UpdateJob& job = *work->job;
    const bool used = !job.priority.empty();
    if (!end.ok()) {
      work->group = end.status();
      if (used) job.priority.pop_back();  // the batch is not at fault
      return EndJob(work);
    }
    work->all_exhausted = end->all_exhausted;
    job.state_gathered = job.state_gathered || end->gathered;
    if (end->update.ok()) {
      if (end->given > 0) job.last = end->report;
    } else {
      job.status = end->update;
      if (used) job.Skip(job.priority.size() - 1, end->update);
    }
    if (++work->next >= job.batches.size()) EndJob(work);
  }

  void EndJob(Rounds* work) {
    // Batches that no round has used were not skipped; they are lost with the group.
    work->job->batches.resize(work->job->priority.size());
    FinishJob(*options_.algorithm, work->job.get());
    work->done = true;
  }

  // Moves completed jobs to finished_. A lost group is reported after its last job.
  void TakeEnds() {
    while (!jobs_.empty()) {
      Rounds& work = *jobs_.front();
      if (options_.rendezvous->waits() ? !options_.executor->TakeDone(work.id) : !work.done) break;
      if (work.all_exhausted) over_ = true;
      if (!work.group.ok()) ended_ = work.group;
      finished_.push_back(std::move(work.job));
      jobs_.pop_front();
    }
    // The group is dropped only when no job uses it.
    if (ended_.ok() || !jobs_.empty()) return;
    group_.Ended(leaving_ ? Status::Ok() : ended_);
    ended_ = Status::Ok();
    over_ = false;
  }

  const AllReduceUpdaterOptions options_;
  LearnerGroup group_;
  std::deque<std::unique_ptr<Rounds>> jobs_;
  std::deque<std::unique_ptr<UpdateJob>> finished_;
  Status ended_;            // error of the group, as seen by a job
  bool exhausted_ = false;  // no more batches at this learner
  bool over_ = false;       // no more batches in the whole group
  bool leaving_ = false;
  Time last_work_{}, next_ = kForever;
};

}  // namespace

std::unique_ptr<Updater> MakeAllReduceUpdater(const AllReduceUpdaterOptions& options) {
  return std::make_unique<AllReduceUpdater>(options);
}

}  // namespace troop
