#pragma once

#ifdef TROOP_HAS_CUDA

#include <cstddef>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "collective/collective.h"
#include "core/time.h"
#include "nn/cuda/transformer.h"
#include "nn/tensor_parallel.h"

namespace troop {

// The ranks that have a model's other parts, as a GPU's steps ask for them. Over a group of devices
// the host only says what comes after what: it waits in Settle alone, at most for the group's
// timeout. Over one of hosts each operation is copied to the host and back. A failure ends the
// group for all ranks. Owner: the thread of the steps.
class DevicePeers final : public cuda::TensorPeers {
 public:
  // All outlive it. devices: the same ranks (MakeNcclGroup); nullptr: there is none.
  DevicePeers(cuda::Device* device, Collective* host, Collective* devices)
      : device_(*device), host_(*host), devices_(devices) {}
  ~DevicePeers() override { Settle(); }

  void Sum(cuda::Stream& stream, void* x, DType dtype, std::int64_t n) override {
    AllReduce(stream, Reduction::kSum, x, dtype, n);
  }
  void Max(cuda::Stream& stream, float* x, std::int64_t n) override {
    AllReduce(stream, Reduction::kMax, x, DType::kF32, n);
  }
  void Settle() override;

  // The first failure; ok: none so far.
  const Status& status() const { return status_; }
  const TensorTraffic& traffic() const { return traffic_; }  // since it was made
  // Since it was asked last, how long streams stood still for the others. REQUIRES: they were
  // waited for.
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
  std::deque<Work> open_;  // of devices_
  cuda::PinnedArray<std::byte> staged_;
  double waited_s_ = 0;  // by the host's clock
  // Before and behind what the stream waits for; the first `timed_` since TakeWaited.
  std::vector<std::pair<std::unique_ptr<cuda::Event>, std::unique_ptr<cuda::Event>>> timers_;
  std::size_t timed_ = 0;
};

}  // namespace troop

#endif
