#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/buffer.h"
#include "core/status.h"
#include "core/trajectory.h"
#include "replay/drawn.h"
#include "replay/frame_codec.h"
#include "replay/view.h"

namespace troop {

// Some of what came to a table, in the table's own places: for who keeps a copy of it and draws
// there (replay/cuda/device_table.h). Items in the order of insertion; each frame once, before the
// items of later feeds that look at it too. A place may have had another frame, a slot another
// item before: their items have left. Vectors are reused; frame pointers as those of Drawn.
struct Feed {
  std::vector<std::uint32_t> place;           // [F] of each frame, below FeedSizes::frames
  std::vector<float> reward, discount;        // [F]
  std::vector<std::byte> action;              // [F, ...action]
  std::vector<Drawn::Frame> observation;      // [F] encoded
  std::vector<std::uint64_t> number;          // [I] ascending: how many came before it
  std::vector<std::uint64_t> key;             // [I] generation << 32 | slot
  std::vector<std::uint64_t> policy_version;  // [I]
  std::vector<float> priority;                // [I] |TD error| + ε
  std::vector<std::int32_t> length, lead;     // [I]
  std::vector<std::uint32_t> window;  // [Σ lead + length + 1] places of its frames, items in order
  std::int64_t items() const { return std::int64_t(key.size()); }
  std::int64_t frames() const { return std::int64_t(place.size()); }
  void Clear();
};

// What slots and places lie below.
struct FeedSizes {
  std::uint64_t slots = 0, frames = 0;
};

// How far somebody was fed: all items from number `start` up to `next` that were there by then.
struct FeedPlace {
  std::uint64_t start = 0, next = 0;
};

// As one run of bytes (docs/protocol.md, "feed_reply"): a header of 64 bytes, then the columns in
// the order of Feed, each aligned to 64, with the frames' sizes u32 where there is a codec, and the
// frames at the end.
Buffer PackFeed(const Feed& feed, const TrajectorySpec& spec, Codec codec);
// Checks every size, number and place before use; frames point into `bytes`, which must outlive
// them, and may be anything: a FrameCoder checks them. After an error `feed` holds anything.
// Errors: kDataLoss.
Status ParseFeed(std::span<const std::byte> bytes, const TrajectorySpec& spec, const ViewSpec& view,
                 Codec codec, const FeedSizes& sizes, Feed* feed);

}  // namespace troop
