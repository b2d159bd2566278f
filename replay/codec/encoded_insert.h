#pragma once

#include <cstdint>
#include <vector>

#include "core/base/buffer.h"
#include "core/tensor/trajectory.h"

namespace troop {

// Consecutive frames of one stream with encoded observations. The columns are slices of a message.
struct EncodedChunk {
  StreamId stream = 0;
  std::uint64_t first_frame = 0;
  std::uint32_t frames = 0;
  Buffer action;       // [frames, ...action]
  Buffer reward;       // [frames] f32
  Buffer discount;     // [frames] f32
  Buffer final;        // [frames] u8
  Buffer frame_bytes;  // [frames] u32; empty with Codec::kNone
  Buffer observation;  // encoded frames, concatenated
};

// One insert call: the frames, then items that refer to them or to earlier frames of their
// streams. Item::burn_in is the number of frames before first_frame that the writer requests for
// the recurrent state. The table takes stack - 1 + burn_in lead frames, or as many as the episode
// has. Item::state is the recurrent state before step first_frame - burn_in, or before the
// episode's first step if that is later. It has the spec's size if the spec has a state, else it
// is empty.
struct EncodedInsert {
  std::vector<EncodedChunk> chunks;
  std::vector<Item> items;
};

}  // namespace troop
