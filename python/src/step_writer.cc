// Buffering between a trajectory cutter and a sink.

#include "python/src/step_writer.h"

namespace troop {

StepWriter::StepWriter(const TrajectoryCutter::Options& options, int steps_per_push,
                       std::unique_ptr<ExperienceSink> sink)
    : cutter_(options),
      steps_per_push_(std::uint64_t(steps_per_push)),
      sink_(std::move(sink)),
      due_(std::uint64_t(steps_per_push)) {
  TROOP_CHECK(steps_per_push >= 1, "steps_per_push is {}, must be at least 1", steps_per_push);
}

Status StepWriter::Append(const TrajectoryCutter::Steps& steps, Time deadline) {
  // A push that timed out goes first, so that buffered data stay bounded.
  if (!chunks_.empty()) TROOP_RETURN_IF_ERROR(Push(deadline));
  TROOP_RETURN_IF_ERROR(cutter_.Append(steps));
  if (++steps_ < due_) return Status::Ok();
  due_ = steps_ + steps_per_push_;
  const Status status = Push(deadline);
  // The step was taken. If there is no room until the deadline, the next call waits for it.
  return status.code() == Code::kDeadlineExceeded ? Status::Ok() : status;
}

Status StepWriter::Push(Time deadline) {
  if (chunks_.empty()) cutter_.Take(&chunks_, &ready_);
  if (chunks_.empty()) return Status::Ok();
  // A push that timed out is kept and sent again by the next call.
  const std::size_t items = ready_.size();
  const Status status = sink_->Push(&chunks_, &ready_, deadline);
  if (status.code() == Code::kDeadlineExceeded) return status;
  if (status.ok()) items_ += items;
  chunks_.clear();  // a rejected push would be rejected again
  ready_.clear();
  return status;
}

// Two pushes: one that timed out earlier, then the frames that are still in the cutter.
Status StepWriter::Flush(Time deadline) {
  if (!chunks_.empty()) TROOP_RETURN_IF_ERROR(Push(deadline));
  TROOP_RETURN_IF_ERROR(Push(deadline));
  return sink_->Flush(deadline);
}

}  // namespace troop
