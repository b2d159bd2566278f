#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/base/buffer.h"
#include "core/base/status.h"
#include "core/tensor/trajectory.h"
#include "replay/codec/encoded_batch.h"
#include "replay/codec/frame_codec.h"
#include "replay/storage/item_view.h"

namespace troop {

// A table delta: an incremental update for a replica of a table that is sampled in its place (GPU
// replay, replay/replica/cuda/device_table.h). Uses the table's own frame indices and slots.
// Items are in insertion order. Each frame is sent once, also if items of later deltas refer to it.
// A frame index or slot may have been in use before; its earlier items were evicted. Vectors are
// reused; frame pointers are valid as long as those of EncodedBatch.
struct TableDelta {
  std::vector<std::uint32_t> place;              // [F] frame index, below ReplicaSizes::frames
  std::vector<float> reward, discount;           // [F]
  std::vector<std::byte> action;                 // [F, ...action]
  std::vector<EncodedBatch::Frame> observation;  // [F] encoded
  std::vector<std::uint64_t> number;          // [I] ascending: number of items inserted before it
  std::vector<std::uint64_t> key;             // [I] generation << 32 | slot
  std::vector<std::uint64_t> policy_version;  // [I]
  std::vector<float> priority;                // [I] |TD error| + ε
  std::vector<std::int32_t> length, lead;     // [I]
  std::vector<std::uint32_t> window;  // [Σ lead + length + 1] frame indices, items in order
  std::int64_t items() const { return std::int64_t(key.size()); }
  std::int64_t frames() const { return std::int64_t(place.size()); }
  void Clear();
};

// Upper bounds of slots and frame indices.
struct ReplicaSizes {
  std::uint64_t slots = 0, frames = 0;
};

// Position of a replica: it received all items in [start, next) that the table held at that time.
struct DeltaCursor {
  std::uint64_t start = 0, next = 0;
};

// Serialized form (docs/design/protocol.md, "feed_reply"): a header of 64 bytes, then the columns
// in the order of TableDelta, each aligned to 64, with a codec the frame sizes as u32, and the
// frames at the end.
Buffer PackTableDelta(const TableDelta& feed, const TrajectorySpec& spec, Codec codec);
// Parses one delta. Checks every size, number and index before use. Frames point into `bytes`,
// which must outlive them; their content is unchecked until a FrameCoder decodes it. After an
// error `feed` is unspecified. Errors: kDataLoss.
Status ParseTableDelta(std::span<const std::byte> bytes, const TrajectorySpec& spec,
                       const ViewSpec& view, Codec codec, const ReplicaSizes& sizes,
                       TableDelta* feed);

}  // namespace troop
