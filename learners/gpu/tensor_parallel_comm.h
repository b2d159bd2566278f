#pragma once

#ifdef TROOP_HAS_CUDA

#include <cstddef>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "collective/collective.h"
#include "core/base/time.h"
#include "nn/cuda/transformer.h"
#include "nn/parallel/tensor_parallel.h"

namespace troop {

// Collectives among tensor-parallel ranks, as the steps on a GPU call them. With a device group the
// host only enqueues operations: it blocks in Settle alone, at most for the group's timeout. With a
// host group each operation is copied to the host and back. A failure ends the group for all ranks.
// Owner: the thread that runs the steps.
class GpuTensorParallelComm final : public cuda::TensorParallelComm {
 public:
  // All must outlive this. devices: the same ranks (MakeNcclGroup); nullptr: no device group.
  GpuTensorParallelComm(cuda::Device* device, Collective* host, Collective* devices)
      : device_(*device), host_(*host), devices_(devices) {}
  ~GpuTensorParallelComm() override { Settle(); }

  void Sum(cuda::Stream& stream, void* x, DType dtype, std::int64_t n) override {
    AllReduce(stream, Reduction::kSum, x, dtype, n);
  }
  void Max(cuda::Stream& stream, float* x, std::int64_t n) override {
    AllReduce(stream, Reduction::kMax, x, DType::kF32, n);
  }
  // Waits for all open operations of the device group.
  void Settle() override;

  // The first failure; ok if there was none.
  const Status& status() const { return status_; }
  const TensorTraffic& traffic() const { return traffic_; }  // since construction
  // Seconds that streams were blocked on the other ranks since the last call. REQUIRES: the streams
  // have been synchronized.
  double TakeWaited();

 private:
  void AllReduce(cuda::Stream& stream, Reduction reduction, void* x, DType dtype, std::int64_t n);
  Status OverHosts(cuda::Stream& stream, const Op& op, const Tensor& there);
  Status OverDevices(cuda::Stream& stream, const Op& op, const Tensor& there);
  void Note(const Status& status);
  void DropEnded();

  cuda::Device& device_;
  Collective& host_;
  Collective* const devices_;
  const SystemClock clock_;
  Status status_;
  TensorTraffic traffic_;
  std::deque<Work> open_;  // on devices_
  cuda::PinnedArray<std::byte> staged_;
  double waited_s_ = 0;  // host clock
  // Events before and after each wait of the stream; the first `timed_` since TakeWaited.
  std::vector<std::pair<std::unique_ptr<cuda::Event>, std::unique_ptr<cuda::Event>>> timers_;
  std::size_t timed_ = 0;
};

}  // namespace troop

#endif
