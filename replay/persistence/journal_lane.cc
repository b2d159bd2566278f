// JournalLane: submits a journal's jobs to an executor, one after the other.
#include "replay/persistence/journal_lane.h"

#include <utility>

#include "core/base/status.h"

namespace troop {
namespace {

constexpr Duration kQueueFull = Milliseconds(10);  // retry interval when the executor refuses a job

}  // namespace

JournalLane::JournalLane(Storage* storage, Executor* executor, std::shared_ptr<StorageLock> lock)
    : storage_(storage),
      executor_(executor),
      lock_(std::move(lock)),
      file_(std::make_shared<JournalFile>()) {}

// The job shares ownership of all that it uses, so it may outlive this object.
bool JournalLane::Start(std::string_view name, std::shared_ptr<JournalJob> job, Time now) {
  job->storage = storage_;
  job->lock = lock_;
  job->file = file_;
  const Result<Executor::Job> ticket = executor_->Submit(name, [job] { job->Run(); });
  // The executor's queue is full: the caller keeps the job and tries again.
  if (!ticket.ok()) {
    retry_at_ = now + kQueueFull;
    return false;
  }
  ticket_ = *ticket;
  job_ = std::move(job);
  return true;
}

// A ticket of 0 means that no job was started.
std::shared_ptr<JournalJob> JournalLane::TakeDone() {
  if (ticket_ == 0 || !executor_->TakeDone(ticket_)) return nullptr;
  ticket_ = 0;
  return std::exchange(job_, nullptr);
}

}  // namespace troop
