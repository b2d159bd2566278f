// Implements collectives between tensor-parallel ranks, called from GPU steps.

#include "learners/gpu/tensor_parallel_comm.h"

#ifdef TROOP_HAS_CUDA

#include <span>

namespace troop {

void GpuTensorParallelComm::Note(const Status& status) {
  if (status.ok() || !status_.ok()) return;
  status_ = status;
  // The other ranks may wait for this one, whatever the error was.
  if (host_.status().ok()) host_.Abort(status);
}

// One operation of the step, over devices if possible.
void GpuTensorParallelComm::AllReduce(cuda::Stream& stream, Reduction reduction, void* x,
                                      DType dtype, std::int64_t n) {
  // After a failure all operations are skipped; results are invalid then.
  if (n == 0 || !status_.ok() || !device_.ok()) return;
  const std::span bytes(static_cast<std::byte*>(x), std::size_t(n) * DTypeSize(dtype));
  const Tensor there = Tensor::View(nullptr, bytes, {dtype, {n}});
  const Op op{.kind = OpKind::kAllReduce, .reduction = reduction};
  Note(devices_ != nullptr ? OverDevices(stream, op, there) : OverHosts(stream, op, there));
  ++traffic_.operations;
  traffic_.bytes += bytes.size();
}

// Fallback without NCCL: device to host, all-reduce on the host, and back. Blocks.
Status GpuTensorParallelComm::OverHosts(cuda::Stream& stream, const Op& op, const Tensor& there) {
  const std::span<std::byte> bytes = there.bytes();
  if (staged_.bytes() < bytes.size())
    staged_ = cuda::PinnedArray<std::byte>(device_, std::int64_t(bytes.size()), "an all-reduce");
  if (!device_.ok()) return Unavailable("{}: {}", device_.info().name, device_.error());
  stream.CopyToHost(staged_.data(), bytes.data(), bytes.size());
  stream.Synchronize();
  const Time from = clock_.Now();
  const Tensor here = Tensor::View(nullptr, {staged_.data(), bytes.size()}, there.spec());
  TROOP_RETURN_IF_ERROR(RunOp(host_, op, here, here));
  waited_s_ += ToSeconds(clock_.Now() - from);
  stream.CopyToDevice(bytes.data(), staged_.data(), bytes.size());
  stream.Synchronize();  // the next operation overwrites staged_
  return Status::Ok();
}

// Enqueues the all-reduce on the stream, between two events that measure the wait.
Status GpuTensorParallelComm::OverDevices(cuda::Stream& stream, const Op& op, const Tensor& there) {
  DropEnded();
  if (timers_.size() == timed_) {
    timers_.emplace_back(std::make_unique<cuda::Event>(device_),
                         std::make_unique<cuda::Event>(device_));
  }
  const auto& [before, behind] = timers_[timed_++];
  before->Record(stream);
  troop::Stream shared{stream.Share()};
  TROOP_ASSIGN_OR_RETURN(const Work work, devices_->Start(op, there, there, shared));
  if (device_.info().emulated) {  // the emulator's streams do not order other libraries' work
    const Time from = clock_.Now();
    const Status ended = devices_->Wait(work);
    waited_s_ += ToSeconds(clock_.Now() - from);
    return ended;
  }
  open_.push_back(work);
  TROOP_RETURN_IF_ERROR(devices_->EnqueueWait(work, shared));
  behind->Record(stream);
  return Status::Ok();
}

// Polls operations in order, to notice a failure early.
void GpuTensorParallelComm::DropEnded() {
  while (!open_.empty()) {
    const std::optional<Status> ended = devices_->Poll(open_.front());
    if (!ended) return;
    open_.pop_front();
    Note(*ended);
  }
}

void GpuTensorParallelComm::Settle() {
  while (!open_.empty()) {
    Note(devices_->Wait(open_.front()));
    open_.pop_front();
  }
}

double GpuTensorParallelComm::TakeWaited() {
  // After a failure the events may not be recorded.
  double waited = std::exchange(waited_s_, 0);
  for (std::size_t i = 0; status_.ok() && i < timed_; ++i)
    waited += timers_[i].second->MillisecondsSince(*timers_[i].first) / 1e3;
  timed_ = 0;
  return waited;
}

}  // namespace troop

#endif
