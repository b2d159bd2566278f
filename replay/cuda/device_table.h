#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/dtype.h"
#include "kernels/cuda/device.h"
#include "replay/cuda/sum_tree.h"

// Experience in GPU memory: draw, gather, stack and priority update never leave the device, and are
// all calls that a graph may hold. What replay/table.h does on a host, with items of n steps: a log
// of single frames for each stream, items that are views of it, keys that tell whether a slot has
// been given to another item.
namespace troop::cuda {

struct DeviceTableOptions {
  std::int64_t streams = 1;
  std::int64_t frames = 0;                // kept of each stream: a ring
  DType dtype = DType::kU8;               // of observations: kU8 or kF32
  std::int64_t pixels = 0, channels = 1;  // of one frame
  std::int64_t stack = 1;  // frames of an observation; those before an episode's start are zeros
  std::int64_t steps = 1;  // of the longest item; frames > steps + stack
  std::int64_t append_max = 4096;  // frames, and items, of one Append
  double alpha = 0.6, beta = 0.4, priority_epsilon = 1e-6;
  std::uint64_t seed = 0;
};

// One frame after the other of each stream; `final` ones end an episode and were never acted on.
struct DeviceFrame {
  std::int32_t stream = 0;
  std::int32_t age = 0;  // frames since its episode's first one
  std::int32_t action = 0;
  float reward = 0, discount = 1;
};
// Begins at frame number `first` of its stream (counted from 0 since the table began) and has
// `length` steps.
struct DeviceItem {
  std::int32_t stream = 0;
  std::int32_t length = 1;
  std::int64_t first = 0;
  float priority = 1;  // |TD error|, finite
};

// What a draw fills, on the device: as DqnBatch of learners/cuda/dqn_step.h.
struct DeviceSample {
  void* observation =
      nullptr;  // [2 B, pixels, stack · channels]: of each item's first frame, then of its last
  std::int32_t* action = nullptr;  // [B]
  float* reward = nullptr;         // [B, steps]; 0 past the item's length
  float* discount = nullptr;       // [B, steps]; 1 there
  std::int32_t* length = nullptr;  // [B]
  float* weight = nullptr;         // [B] (P_min / P)^beta
};

// One owner thread. Append on one stream and Draw on another must be ordered by events.
class DeviceTable {
 public:
  DeviceTable(Device& device, const DeviceTableOptions& options, std::int64_t batch);

  std::int64_t items() const { return items_; }  // that can be drawn, as far as the host knows
  std::int64_t bytes() const;

  // observation: [frames, pixels, channels]. Waits for the last Append's copies. Items whose frames
  // are gone are left out, and so are those that these frames push out. false: more than
  // append_max, or no such stream or frame.
  bool Append(Stream& stream, std::span<const std::byte> observation,
              std::span<const DeviceFrame> frames, std::span<const DeviceItem> items);
  // B items, drawn by stratified masses in proportion to priority^alpha; the n-th Draw of a seed
  // always draws the same masses. REQUIRES: items() > 0 by then.
  void Draw(Stream& stream, const DeviceSample& sample);
  // Of the last Draw: td_error [B] on the device. Items that were pushed out since then are left
  // alone; of an item drawn twice the last one counts.
  void UpdatePriorities(Stream& stream, const float* td_error);

  const std::int32_t* drawn_slots() const { return slot_.data(); }  // [B], of the last Draw
  const float* drawn_priorities() const { return priority_.data(); }
  const DeviceSumTree& tree() const { return tree_; }

 private:
  struct Fields {  // by slot: stream · frames + number mod frames
    std::byte* frame = nullptr;
    std::int64_t* number = nullptr;  // of the frame that is there
    std::int32_t *age = nullptr, *action = nullptr, *length = nullptr;
    float *reward = nullptr, *discount = nullptr;
  };
  friend struct DeviceTableKernels;
  std::int64_t Slot(std::int64_t stream, std::int64_t number) const {
    return stream * options_.frames + number % options_.frames;
  }

  Device& device_;
  const DeviceTableOptions options_;
  const std::int64_t batch_;
  DeviceSumTree tree_;
  DeviceArray<std::byte> frame_;
  DeviceArray<std::int64_t> number_;
  DeviceArray<std::int32_t> age_, action_, length_;
  DeviceArray<float> reward_, discount_;
  Fields fields_;
  std::vector<std::int64_t> ends_;  // of each stream: frames so far
  std::vector<std::uint8_t> live_;  // by slot: an item begins there
  std::int64_t items_ = 0;
  // Staging of Append.
  PinnedArray<std::byte> host_frames_;
  DeviceArray<std::byte> new_frames_;
  PinnedArray<DeviceFrame> host_about_;
  DeviceArray<DeviceFrame> new_about_;
  PinnedArray<std::int64_t> host_numbers_;
  DeviceArray<std::int64_t> new_numbers_;
  PinnedArray<std::int32_t> host_slots_, host_lengths_;
  DeviceArray<std::int32_t> new_slots_, new_lengths_;
  PinnedArray<float> host_priorities_;
  DeviceArray<float> new_priorities_;
  Event copied_;
  bool appended_ = false;
  // Of the last Draw.
  DeviceArray<double> mass_;
  DeviceArray<std::int32_t> slot_, changed_slot_;
  DeviceArray<float> priority_, changed_priority_;
  DeviceArray<std::int64_t> drawn_number_, draws_;
};

}  // namespace troop::cuda
