#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/dtype.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/precision.h"
#include "replay/cuda/sum_tree.h"

// A replay table's copy in GPU memory: draw, gather, stack and priority update never leave the
// device, and are all calls that a graph may hold. Frames and items lie where the table that is
// copied has them (replay/feed.h): each frame once, items as windows of places, slots that are
// given to others when their items have left.
namespace troop::cuda {

struct DeviceTableOptions {
  std::int64_t slots = 0;                 // of items
  std::int64_t places = 0;                // of frames
  DType dtype = DType::kU8;               // of observations: kU8 or kF32
  std::int64_t pixels = 0, channels = 1;  // of one frame
  std::int64_t stack = 1;  // frames of an observation; those before an episode's start are zeros
  std::int64_t steps = 1;  // of the longest item
  std::int64_t append_max = 4096;  // frames, items, and items that leave, of one Append
  double alpha = 0.6, priority_epsilon = 1e-6;
  double beta = 0.4;  // until SetBeta
  std::uint64_t seed = 0;
  std::int64_t first_draw = 0;
};

struct DeviceFrame {
  std::int32_t place = 0;
  std::int32_t action = 0;
  float reward = 0, discount = 1;
};
// Has `length` steps from frame `lead` of its window on, which has lead + length + 1 frames: fewer
// than stack - 1 come before the item where its episode begins with the window.
struct DeviceItem {
  std::int32_t slot = 0;
  std::int32_t lead = 0, length = 1;
  float priority = 1;  // |TD error| + epsilon, finite
};
struct DeviceNews {
  std::span<const std::byte> observation;  // [frames, pixels, channels]
  std::span<const DeviceFrame> frames;     // each place once
  std::span<const std::int32_t> left;      // slots of items that left, before these items came
  std::span<const DeviceItem> items;       // each slot once
  std::span<const std::int32_t> window;    // [sum of lead + length + 1] places, items in order
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

// One owner thread.
class DeviceTable {
 public:
  DeviceTable(Device& device, const DeviceTableOptions& options, std::int64_t batch);

  const DeviceTableOptions& options() const { return options_; }
  std::int64_t items() const { return items_; }  // that can be drawn, as far as the host knows
  std::int64_t bytes() const;

  // Copies on `copies`, beside what `stream` does by then, and puts them in their places on
  // `stream`. Waits for the last Append's copies. false, and nothing is changed: more than
  // append_max, or no such slot or place, a place that never had a frame, lengths or priorities
  // that are none.
  bool Append(Stream& copies, Stream& stream, const DeviceNews& news);
  // The exponent of the weights of what is drawn on `stream` from now on. Waits for the last copy.
  void SetBeta(Stream& stream, double beta);
  // B items, drawn by stratified masses in proportion to priority^alpha; the n-th Draw of a seed,
  // counted from first_draw, always draws the same masses. REQUIRES: items() > 0 by then.
  void Draw(Stream& stream, const DeviceSample& sample);
  // Of the last Draw: td_error [B] on the device. Items that have left since then are left alone;
  // of an item drawn twice the last one counts.
  void UpdatePriorities(Stream& stream, const float* td_error);

  const std::int32_t* drawn_slots() const { return slot_.data(); }  // [B], of the last Draw
  const float* drawn_priorities() const { return priority_.data(); }
  const DeviceSumTree& tree() const { return tree_; }

 private:
  struct Fields {
    std::byte* frame = nullptr;  // by place
    std::int32_t* action = nullptr;
    float *reward = nullptr, *discount = nullptr;
    std::int32_t *window = nullptr, *lead = nullptr, *length = nullptr;  // by slot
    std::int64_t* number = nullptr;  // which of all items that ever came
  };
  struct Change {
    std::int32_t slot = 0, lead = 0, length = 0;  // length 0: it leaves
    std::int32_t reserved = 0;
    std::int64_t number = 0;
  };
  friend struct DeviceTableKernels;
  bool Fits(const DeviceNews& news);
  std::int64_t Stage(const DeviceNews& news);
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
  std::vector<std::uint8_t> live_;     // by slot: an item is there
  std::vector<std::uint8_t> known_;    // by place: a frame is there
  std::vector<std::int32_t> changes_;  // by slot: where it is among the changes of an Append; -1
  std::int64_t items_ = 0, came_ = 0;
  // Staging of Append.
  PinnedArray<std::byte> host_frames_;
  DeviceArray<std::byte> new_frames_;
  PinnedArray<DeviceFrame> host_about_;
  DeviceArray<DeviceFrame> new_about_;
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
  // Of the last Draw.
  DeviceArray<double> mass_;
  DeviceArray<std::int32_t> slot_, changed_slot_;
  DeviceArray<float> priority_, changed_priority_;
  DeviceArray<std::int64_t> drawn_number_, draws_;
};

}  // namespace troop::cuda
