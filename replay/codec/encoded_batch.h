#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/base/buffer.h"
#include "core/base/status.h"
#include "core/tensor/trajectory.h"
#include "replay/codec/frame_codec.h"
#include "replay/storage/item_view.h"

namespace troop {

// Offset of the next column of a block: `bytes` rounded up to kAlignment.
constexpr std::size_t AlignedBytes(std::size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

// B sampled items with encoded frames: what a table returns, a reply carries, and a BatchDecoder
// turns into a SampleBatch. S = view.steps(); A = S for sequences, 1 for transitions. Vectors are
// reused between samples. Frame pointers point into the table (valid until its next call) or the
// message.
struct EncodedBatch {
  struct Frame {
    const std::byte* data = nullptr;  // encoded
    std::uint32_t bytes = 0;
  };
  double total = 0;            // Σ weights of the table at that time; shards are weighted by it
  std::int64_t items = 0;      // in the table
  double probability_min = 0;  // of all items in the table; 0: not tracked
  std::vector<std::uint64_t> key;             // [B]
  std::vector<double> probability;            // [B] within this table
  std::vector<std::uint64_t> policy_version;  // [B]
  std::vector<std::int32_t> length, lead;     // [B] steps; frames before the first step's
  std::vector<float> reward, discount;  // [B, S]; past an item's end 0 and 1. A sequence's burn-in
                                        // comes first and is aligned to its end: step j of the item
                                        // is column burn_in + j
  std::vector<std::byte> action;        // [B, A, ...action]
  std::vector<std::byte> state;         // [B, ...state] recurrent state before the burn-in
  std::vector<Frame> frame;             // [Σ FramesOf(view, lead, length).count()], items in order
  std::int64_t size() const { return std::int64_t(key.size()); }
};

// Serialized form of EncodedBatch, a block (docs/design/protocol.md, "sample_reply"): a header of
// 64 bytes; the columns above, each aligned to 64; if there is a codec, the sizes of the encoded
// frames ([F] u32); then the frames. Blocks are multiples of 64 bytes, so several may follow one
// another.
//
// Size of the block in bytes.
std::size_t PackedBytes(const EncodedBatch& drawn, const TrajectorySpec& spec, const ViewSpec& view,
                        Codec codec);
// Writes the block. REQUIRES: out.size() == PackedBytes; columns and frames match `spec` and
// `view`.
void PackEncodedBatch(const EncodedBatch& drawn, const TrajectorySpec& spec, const ViewSpec& view,
                      Codec codec, std::span<std::byte> out);
Buffer PackEncodedBatch(const EncodedBatch& drawn, const TrajectorySpec& spec, const ViewSpec& view,
                        Codec codec);

// Size of the block at the beginning of `bytes`. Errors: kDataLoss: no block, or a truncated one.
Result<std::size_t> EncodedBatchBytes(std::span<const std::byte> bytes);
// Parses one block. Checks every size before use. Frames point into `bytes`, which must outlive
// them; their content is unchecked until a FrameCoder decodes it. After an error `drawn` is
// unspecified. Errors: kDataLoss.
Status ParseEncodedBatch(std::span<const std::byte> bytes, const TrajectorySpec& spec,
                         const ViewSpec& view, Codec codec, EncodedBatch* drawn);
inline Status ParseEncodedBatch(const Buffer& bytes, const TrajectorySpec& spec,
                                const ViewSpec& view, Codec codec, EncodedBatch* drawn) {
  return ParseEncodedBatch(bytes.bytes(), spec, view, codec, drawn);
}

}  // namespace troop
