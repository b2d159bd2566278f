#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "kernels/cuda/runtime/device.h"
#include "learners/gpu/cuda/dqn_step.h"
#include "learners/gpu/parallel_copy.h"
#include "nn/models/trunk.h"
#include "replay/codec/sample_batch.h"

namespace troop {

// Double-buffered copy of batches from host to device memory: one batch is copied while an update
// uses the previous one. Owner: the algorithm.
class BatchUploader {
 public:
  // pictures: how observations are stacked for the network's first layer. The device must outlive
  // this.
  BatchUploader(cuda::Device* device, std::optional<PictureStack> pictures);

  // Starts copying; afterwards the caller may free the batch. REQUIRES: CheckTransitions.
  void Stage(const SampleBatch& batch);
  // True if this batch was staged last and has not been placed since.
  bool holds(const SampleBatch& batch) const { return staged_ == &batch; }
  // Copies the staged batch to the update's buffers, in the order of `stream`. REQUIRES: a batch of
  // these sizes is staged.
  void Place(cuda::Stream& stream, const cuda::DqnBatch& to);

 private:
  struct Parts {  // sizes in bytes
    std::size_t observation = 0, steps = 0, items = 0;
    std::size_t all() const { return 2 * observation + 2 * steps + 3 * items; }
  };
  struct Slot {
    explicit Slot(cuda::Device& device) : copied(device), placed(device) {}
    cuda::PinnedArray<std::byte> host;
    cuda::DeviceArray<std::byte> device;
    cuda::Event copied, placed;
    Parts parts;
    std::int64_t rows = 0;
    DType input = DType::kU8;
    bool used = false;
  };

  cuda::Device* const device_;
  const std::optional<PictureStack> pictures_;
  ParallelCopy copy_{ParallelCopy::DefaultHelpers()};
  cuda::Stream copies_;
  Slot slots_[2];
  int turn_ = 0;  // the slot staged last
  const SampleBatch* staged_ = nullptr;
};

}  // namespace troop
