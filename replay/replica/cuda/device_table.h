#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/tensor/dtype.h"
#include "kernels/cuda/runtime/device.h"
#include "kernels/cuda/runtime/precision.h"
#include "replay/replica/cuda/sum_tree.h"

// GPU replay: a replica of a replay table in GPU memory. Sampling, gathering, stacking and
// priority updates never leave the device and can all be captured in a CUDA graph. Frames and
// items use the indices and slots of the original table (replay/codec/table_delta.h): each frame is
// stored once, items are windows of frame indices, and slots are reused after their items were
// evicted.
namespace troop::cuda {

// Sizes and hyperparameters; constant for the table's lifetime.
struct DeviceTableOptions {
  std::int64_t slots = 0;                 // item capacity
  std::int64_t places = 0;                // frame capacity
  DType dtype = DType::kU8;               // observation type: kU8 or kF32
  std::int64_t pixels = 0, channels = 1;  // size of one frame
  std::int64_t stack = 1;                 // frames per observation; zeros before an episode's start
  std::int64_t steps = 1;                 // steps of the longest item
  std::int64_t append_max = 4096;  // limit per Append, each for frames, items and evicted items
  double alpha = 0.6, priority_epsilon = 1e-6;
  double beta = 0.4;  // until SetBeta
  std::uint64_t seed = 0;
  std::int64_t first_draw = 0;
};

// A new frame; its observation is in DeviceTableDelta::observation.
struct DeviceFrame {
  std::int32_t place = 0;
  std::int32_t action = 0;
  float reward = 0, discount = 1;
};
// A new item with `length` steps from frame `lead` of its window, which has lead + length + 1
// frames. A lead below stack - 1 means that the episode begins with the window.
struct DeviceItem {
  std::int32_t slot = 0;
  std::int32_t lead = 0, length = 1;
  float priority = 1;  // |TD error| + epsilon, finite
};
// A table delta, as Append takes it.
struct DeviceTableDelta {
  std::span<const std::byte> observation;  // [frames, pixels, channels]
  std::span<const DeviceFrame> frames;     // distinct places
  std::span<const std::int32_t> left;      // slots of evicted items; applied before `items`
  std::span<const DeviceItem> items;       // distinct slots
  std::span<const std::int32_t> window;    // [Σ lead + length + 1] frame indices, items in order
};

// Output of Draw in device memory, laid out as DqnBatch of learners/gpu/cuda/dqn_step.h.
struct DeviceSample {
  void* observation =
      nullptr;  // [2 B, pixels, stack · channels]: all items' first frames, then their last
  std::int32_t* action = nullptr;  // [B]
  float* reward = nullptr;         // [B, steps]; 0 past the item's length
  float* discount = nullptr;       // [B, steps]; 1 past the item's length
  std::int32_t* length = nullptr;  // [B]
  float* weight = nullptr;         // [B] (P_min / P)^beta
};

// The replica. Owner: one thread; device work is ordered by the streams.
class DeviceTable {
 public:
  DeviceTable(Device& device, const DeviceTableOptions& options, std::int64_t batch);

  const DeviceTableOptions& options() const { return options_; }
  std::int64_t items() const { return items_; }  // sampleable items, from the host's view
  std::int64_t bytes() const;

  // Applies a table delta: uploads it on `copies`, concurrently with `stream`, and stores it on
  // `stream`. Waits for the uploads of the previous Append. Returns false without any change if
  // the delta exceeds append_max, refers to an invalid slot or place or to a place without a
  // frame, or has invalid lengths or priorities.
  bool Append(Stream& copies, Stream& stream, const DeviceTableDelta& news);
  // Sets the exponent of importance weights for later Draws on `stream`. Waits for the last
  // upload.
  void SetBeta(Stream& stream, double beta);
  // Samples B items by stratified masses in proportion to priority^alpha. The n-th Draw of a seed,
  // counted from first_draw, always uses the same masses. REQUIRES: items() > 0 at that time.
  void Draw(Stream& stream, const DeviceSample& sample);
  // Updates priorities of the last Draw's items from td_error ([B] on the device). Items evicted
  // since then are skipped; the last value of an item sampled twice counts.
  void UpdatePriorities(Stream& stream, const float* td_error);

  const std::int32_t* drawn_slots() const { return slot_.data(); }  // [B], of the last Draw
  const float* drawn_priorities() const { return priority_.data(); }
  const DeviceSumTree& tree() const { return tree_; }

 private:
  // Device pointers, passed to kernels by value.
  struct Fields {
    std::byte* frame = nullptr;  // by place
    std::int32_t* action = nullptr;
    float *reward = nullptr, *discount = nullptr;
    std::int32_t *window = nullptr, *lead = nullptr, *length = nullptr;  // by slot
    std::int64_t* number = nullptr;  // insertion number of the slot's item; -1: evicted
  };
  // One changed slot of an Append.
  struct Change {
    std::int32_t slot = 0, lead = 0, length = 0;  // length 0: evicted
    std::int32_t reserved = 0;
    std::int64_t number = 0;
  };
  friend struct DeviceTableKernels;
  bool Fits(const DeviceTableDelta& news);
  std::int64_t Stage(const DeviceTableDelta& news);
  std::int64_t frame_bytes() const {
    return options_.pixels * options_.channels * ElementBytes(options_.dtype);
  }
  std::int64_t window_max() const { return options_.stack + options_.steps; }

  Device& device_;
  const DeviceTableOptions options_;
  const std::int64_t batch_;
  DeviceSumTree tree_;
  DeviceArray<std::byte> frame_;
  DeviceArray<std::int32_t> action_, window_, lead_, length_;
  DeviceArray<float> reward_, discount_;
  DeviceArray<std::int64_t> number_;
  Fields fields_;
  std::vector<std::uint8_t> live_;     // by slot: 1 if it has an item
  std::vector<std::uint8_t> known_;    // by place: 1 if it has a frame
  std::vector<std::int32_t> changes_;  // by slot: index among the changes of an Append, or -1
  std::int64_t items_ = 0, came_ = 0;
  // Staging buffers of Append. `copied_` guards the host's, `placed_` the device's.
  PinnedArray<std::byte> host_frames_;
  DeviceArray<std::byte> new_frames_;
  PinnedArray<DeviceFrame> host_frame_info_;
  DeviceArray<DeviceFrame> new_frame_info_;
  PinnedArray<Change> host_changes_;
  DeviceArray<Change> new_changes_;
  PinnedArray<std::int32_t> host_windows_, host_slots_;
  DeviceArray<std::int32_t> new_windows_, new_slots_;
  PinnedArray<float> host_priorities_;
  DeviceArray<float> new_priorities_;
  Event copied_, placed_;
  bool appended_ = false;
  PinnedArray<double> host_beta_;
  DeviceArray<double> beta_;
  Event beta_copied_;
  // State of the last Draw.
  DeviceArray<double> mass_;
  DeviceArray<std::int32_t> slot_, changed_slot_;
  DeviceArray<float> priority_, changed_priority_;
  DeviceArray<std::int64_t> drawn_number_, draws_;
};

}  // namespace troop::cuda
