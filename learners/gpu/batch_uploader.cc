// Implements the double-buffered copy of batches to device memory.

#include "learners/gpu/batch_uploader.h"

#ifdef TROOP_HAS_CUDA

#include <utility>
#include <vector>

#include "kernels/cuda/conv/nchw_to_nhwc.h"

namespace troop {

BatchUploader::BatchUploader(cuda::Device* device, std::optional<PictureStack> pictures)
    : device_(device),
      pictures_(pictures),
      copies_(*device),
      slots_{Slot(*device), Slot(*device)} {}

// Layout of a slot: observations, next observations, rewards, discounts, actions, lengths, weights.
void BatchUploader::Stage(const SampleBatch& batch) {
  turn_ = 1 - turn_;
  Slot& slot = slots_[turn_];
  slot.rows = batch.size();
  slot.input = batch.observation.dtype();
  // Actions, lengths and weights have 4 bytes per item.
  slot.parts = {batch.observation.bytes().size(), batch.reward.bytes().size(),
                std::size_t(slot.rows) * sizeof(float)};
  const auto bytes = std::int64_t(slot.parts.all());
  if (slot.used) {
    slot.copied.Synchronize();  // the host buffer is no longer read
    copies_.Wait(slot.placed);  // and the device buffer neither, at that point of the stream
  }
  // Reallocated only when the batch's sizes change.
  if (slot.host.size() != bytes) {
    slot.host = cuda::PinnedArray<std::byte>(*device_, bytes, "a batch");
    slot.device = cuda::DeviceArray<std::byte>(*device_, bytes, "a batch");
  }
  if (!device_->ok()) return;
  std::byte* at = slot.host.data();
  std::vector<ParallelCopy::Piece> pieces;
  const auto put = [&](const void* from, std::size_t size) {
    pieces.push_back({at, from, size});
    at += size;
  };
  put(batch.observation.bytes().data(), slot.parts.observation);
  put(batch.next_observation.bytes().data(), slot.parts.observation);
  put(batch.reward.bytes().data(), slot.parts.steps);
  put(batch.discount.bytes().data(), slot.parts.steps);
  put(batch.action.bytes().data(), slot.parts.items);
  put(batch.length.data(), slot.parts.items);
  put(batch.weight.data(), slot.parts.items);
  copy_.Copy(pieces);
  copies_.CopyToDevice(slot.device.data(), slot.host.data(), slot.parts.all());
  slot.copied.Record(copies_);
  slot.used = true;
  staged_ = &batch;
}

// Copies on the device, so that the update's buffers keep their addresses for CUDA graphs.
void BatchUploader::Place(cuda::Stream& stream, const cuda::DqnBatch& to) {
  Slot& slot = slots_[turn_];
  staged_ = nullptr;
  if (!device_->ok()) return;
  stream.Wait(slot.copied);
  const std::byte* at = slot.device.data();
  // Frames are stored one after the other; the first layer reads interleaved stacks.
  if (pictures_) {
    cuda::FrameStackToNhwc(stream, {.rows = 2 * slot.rows,
                                    .stack = pictures_->stack,
                                    .pixels = pictures_->height * pictures_->width,
                                    .channels = pictures_->channels,
                                    .dtype = slot.input,
                                    .from = at,
                                    .to = to.observation});
  } else {
    stream.CopyOnDevice(to.observation, at, 2 * slot.parts.observation);
  }
  at += 2 * slot.parts.observation;
  const auto place = [&](void* where, std::size_t size) {
    stream.CopyOnDevice(where, at, size);
    at += size;
  };
  place(to.reward, slot.parts.steps);
  place(to.discount, slot.parts.steps);
  place(to.action, slot.parts.items);
  place(to.length, slot.parts.items);
  place(to.weight, slot.parts.items);
  slot.placed.Record(stream);
}

}  // namespace troop

#endif
