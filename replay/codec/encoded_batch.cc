// Packing and parsing of sampled items as blocks of bytes.
#include "replay/codec/encoded_batch.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/base/check.h"
#include "net/wire/shared_memory.h"

namespace troop {
namespace {

// Header of a block, as in docs/design/protocol.md.
struct BlockHeader {
  std::uint64_t bytes = 0;  // size of the block, header included
  std::uint32_t items = 0, frames = 0;
  std::uint64_t payload_bytes = 0;  // total size of the encoded frames
  double total = 0;
  std::int64_t table_items = 0;
  double probability_min = 0;
  std::uint64_t reserved[2] = {};
};
static_assert(sizeof(BlockHeader) == kAlignment);

// Offsets of the columns in a block. REQUIRES: the counts were checked against the block's size.
struct BlockLayout {
  BlockLayout(const TrajectorySpec& spec, const ViewSpec& view, Codec codec, std::size_t items,
              std::size_t frames, std::size_t payload_bytes);
  // Minimum bytes of one item.
  static std::size_t ItemBytes(const TrajectorySpec& spec, const ViewSpec& view);

  std::size_t key, probability, policy_version, length, lead, reward, discount, action, state,
      frame_bytes, payload, bytes;
};

// A sequence has an action per step; a transition only that of its first step.
std::size_t ActionBytes(const TrajectorySpec& spec, const ViewSpec& view) {
  return spec.action.bytes() *
         (view.kind == ViewSpec::Kind::kSequence ? std::size_t(view.steps()) : 1);
}

// Only recurrent tables have a state.
std::size_t StateBytes(const TrajectorySpec& spec) { return spec.state ? spec.state->bytes() : 0; }

BlockLayout::BlockLayout(const TrajectorySpec& spec, const ViewSpec& view, Codec codec,
                         std::size_t items, std::size_t frames, std::size_t payload_bytes) {
  std::size_t end = sizeof(BlockHeader);
  // Appends a column and returns its offset.
  const auto column = [&end](std::size_t size) {
    const std::size_t offset = end;
    end = AlignedBytes(end + size);
    return offset;
  };
  const auto steps = std::size_t(view.steps());
  // One array per field, so that a reader decodes only those that it needs.
  key = column(items * sizeof(std::uint64_t));
  probability = column(items * sizeof(double));
  policy_version = column(items * sizeof(std::uint64_t));
  length = column(items * sizeof(std::int32_t));
  lead = column(items * sizeof(std::int32_t));
  reward = column(items * steps * sizeof(float));
  discount = column(items * steps * sizeof(float));
  action = column(items * ActionBytes(spec, view));
  state = column(items * StateBytes(spec));
  frame_bytes = column(codec == Codec::kNone ? 0 : frames * sizeof(std::uint32_t));
  payload = column(payload_bytes);
  bytes = end;
}

std::size_t BlockLayout::ItemBytes(const TrajectorySpec& spec, const ViewSpec& view) {
  // The fields of BlockLayout whose size is fixed; the frames of an item vary.
  return 3 * sizeof(std::uint64_t) + 2 * sizeof(std::int32_t) +
         2 * std::size_t(view.steps()) * sizeof(float) + ActionBytes(spec, view) + StateBytes(spec);
}

// Bytes of all encoded frames.
std::size_t PayloadBytes(const EncodedBatch& drawn) {
  std::size_t bytes = 0;
  for (const EncodedBatch::Frame& frame : drawn.frame) bytes += frame.bytes;
  return bytes;
}

BlockLayout LayoutOf(const EncodedBatch& drawn, const TrajectorySpec& spec, const ViewSpec& view,
                     Codec codec) {
  return {spec, view, codec, drawn.key.size(), drawn.frame.size(), PayloadBytes(drawn)};
}

// Writes a column and zeros up to the next one: no uninitialized memory leaves the process.
template <class T>
void PutColumn(std::span<const T> from, std::size_t expected, std::byte* block, std::size_t at) {
  const std::size_t bytes = from.size_bytes();
  TROOP_CHECK(bytes == expected, "a column of {} bytes, {} expected", bytes, expected);
  if (bytes > 0) std::memcpy(block + at, from.data(), bytes);
  std::memset(block + at + bytes, 0, AlignedBytes(at + bytes) - (at + bytes));
}

template <class T>
void TakeColumn(const std::byte* block, std::size_t at, std::size_t bytes, std::vector<T>* to) {
  to->resize(bytes / sizeof(T));
  if (bytes > 0) std::memcpy(to->data(), block + at, bytes);
}

// Joins frames that are adjacent in the table, as those of an item mostly are.
std::vector<std::span<const std::byte>> RunsOf(std::span<const EncodedBatch::Frame> frames) {
  std::vector<std::span<const std::byte>> runs;
  runs.reserve(frames.size());
  for (const EncodedBatch::Frame& frame : frames) {
    // An empty frame would break the adjacency of its neighbors.
    if (frame.bytes == 0) continue;
    if (!runs.empty() && runs.back().data() + runs.back().size() == frame.data) {
      runs.back() = {runs.back().data(), runs.back().size() + frame.bytes};
    } else {
      runs.push_back({frame.data, frame.bytes});
    }
  }
  return runs;
}

// Copies the frames. Runs are scattered over the table and too short for the hardware prefetcher,
// so that the line kAhead lines further, of whatever run, is prefetched now.
void PutFrames(std::span<const EncodedBatch::Frame> frames, std::byte* out) {
  constexpr std::size_t kAhead = 48;  // lines
  const std::vector<std::span<const std::byte>> runs = RunsOf(frames);
  std::size_t ahead_run = 0, ahead_at = 0;
  const auto ask = [&] {
    // The last kAhead lines have nothing left to prefetch.
    if (ahead_run == runs.size()) return;
    __builtin_prefetch(runs[ahead_run].data() + ahead_at);
    ahead_at += kAlignment;
    if (ahead_at < runs[ahead_run].size()) return;
    ++ahead_run;
    ahead_at = 0;
  };
  // Start with kAhead prefetches in flight; each copied line then requests one more.
  for (std::size_t i = 0; i < kAhead; ++i) ask();
  for (const std::span<const std::byte> run : runs) {
    std::size_t at = 0;
    for (; at + kAlignment <= run.size(); at += kAlignment) {
      ask();
      std::memcpy(out + at, run.data() + at, kAlignment);
    }
    if (at < run.size()) {
      ask();
      std::memcpy(out + at, run.data() + at, run.size() - at);
    }
    out += run.size();
  }
}

// Checks the header's counts against the block's size, so that later code neither overflows nor
// allocates more than a few times the block.
Status CheckHeader(const BlockHeader& header, std::size_t size, const TrajectorySpec& spec,
                   const ViewSpec& view, Codec codec) {
  const std::size_t frame_bytes = spec.observation.bytes();
  // Minimum bytes of a frame in the block: the raw frame, or its entry in the size column.
  const std::size_t frame_bytes_min = codec == Codec::kNone ? frame_bytes : sizeof(std::uint32_t);
  // Divisions instead of products, which could overflow.
  if (header.items > size / BlockLayout::ItemBytes(spec, view) ||
      header.frames > size / std::max<std::size_t>(frame_bytes_min, 1) ||
      header.payload_bytes > size) {
    return DataLoss("block of {} bytes cannot hold {} items and {} frames of {} bytes in total",
                    size, header.items, header.frames, header.payload_bytes);
  }
  if (codec == Codec::kNone && header.payload_bytes != header.frames * frame_bytes) {
    return DataLoss("{} frames have {} bytes in total; each of {} has {}", header.frames,
                    header.payload_bytes, spec.observation.ToString(), frame_bytes);
  }
  if (!std::isfinite(header.total) || header.total < 0 || header.table_items < 0 ||
      !std::isfinite(header.probability_min) || header.probability_min < 0) {
    return DataLoss("invalid table state: {} items, total weight {}, minimum probability {}",
                    header.table_items, header.total, header.probability_min);
  }
  return Status::Ok();
}

// Checks lengths and probabilities, and that the items need exactly the block's frames.
Status CheckItems(const EncodedBatch& drawn, const ViewSpec& view, std::size_t frames) {
  std::uint64_t expected = 0;
  for (std::size_t i = 0; i < drawn.key.size(); ++i) {
    const int length = drawn.length[i], lead = drawn.lead[i];
    if (length < 1 || length > view.length_max || lead < 0 || lead > view.lead_max()) {
      return DataLoss("item {} has {} steps and {} lead frames, must have at most {} and {}", i,
                      length, lead, view.length_max, view.lead_max());
    }
    // Importance weights divide by the probability.
    if (!(drawn.probability[i] > 0) || !std::isnormal(drawn.probability[i])) {
      return DataLoss("item {} has invalid probability {}", i, drawn.probability[i]);
    }
    expected += std::uint64_t(FramesOf(view, lead, length).count());
  }
  if (expected == frames) return Status::Ok();
  return DataLoss("block has {} frames, its items need {}", frames, expected);
}

// Sets the frame pointers; the sizes must add up to the payload.
Status TakeFrames(const std::byte* block, const BlockLayout& layout, const BlockHeader& header,
                  std::size_t raw_bytes, Codec codec, std::vector<EncodedBatch::Frame>* frames) {
  frames->resize(header.frames);
  std::uint64_t at = 0;
  for (std::size_t f = 0; f < frames->size(); ++f) {
    auto bytes = std::uint32_t(raw_bytes);
    if (codec != Codec::kNone) {
      std::memcpy(&bytes, block + layout.frame_bytes + f * sizeof bytes, sizeof bytes);
    }
    // Comparing with the remaining bytes keeps the sum in range.
    if (bytes > header.payload_bytes - at) {
      return DataLoss("frame {} of {} bytes at offset {} exceeds the payload of {}", f, bytes, at,
                      header.payload_bytes);
    }
    (*frames)[f] = {block + layout.payload + at, bytes};
    at += bytes;
  }
  if (at == header.payload_bytes) return Status::Ok();
  return DataLoss("{} frames have {} bytes in total, the header announces {}", header.frames, at,
                  header.payload_bytes);
}

}  // namespace

std::size_t PackedBytes(const EncodedBatch& drawn, const TrajectorySpec& spec, const ViewSpec& view,
                        Codec codec) {
  return LayoutOf(drawn, spec, view, codec).bytes;
}

void PackEncodedBatch(const EncodedBatch& drawn, const TrajectorySpec& spec, const ViewSpec& view,
                      Codec codec, std::span<std::byte> out) {
  const std::size_t items = drawn.key.size();
  const std::size_t payload_bytes = PayloadBytes(drawn);
  const BlockLayout at(spec, view, codec, items, drawn.frame.size(), payload_bytes);
  TROOP_CHECK(out.size() == at.bytes, "{} bytes for a block of {}", out.size(), at.bytes);
  const BlockHeader header{.bytes = at.bytes,
                           .items = std::uint32_t(items),
                           .frames = std::uint32_t(drawn.frame.size()),
                           .payload_bytes = payload_bytes,
                           .total = drawn.total,
                           .table_items = drawn.items,
                           .probability_min = drawn.probability_min};
  std::byte* const block = out.data();
  std::memcpy(block, &header, sizeof header);
  const std::size_t steps = items * std::size_t(view.steps());
  PutColumn<std::uint64_t>(drawn.key, items * 8, block, at.key);
  PutColumn<double>(drawn.probability, items * 8, block, at.probability);
  PutColumn<std::uint64_t>(drawn.policy_version, items * 8, block, at.policy_version);
  PutColumn<std::int32_t>(drawn.length, items * 4, block, at.length);
  PutColumn<std::int32_t>(drawn.lead, items * 4, block, at.lead);
  PutColumn<float>(drawn.reward, steps * 4, block, at.reward);
  PutColumn<float>(drawn.discount, steps * 4, block, at.discount);
  PutColumn<std::byte>(drawn.action, items * ActionBytes(spec, view), block, at.action);
  PutColumn<std::byte>(drawn.state, items * StateBytes(spec), block, at.state);
  if (codec != Codec::kNone) {
    std::byte* sizes = block + at.frame_bytes;
    for (const EncodedBatch::Frame& frame : drawn.frame) {
      std::memcpy(sizes, &frame.bytes, sizeof frame.bytes);
      sizes += sizeof frame.bytes;
    }
    std::memset(sizes, 0, std::size_t(block + at.payload - sizes));
  }
  PutFrames(drawn.frame, block + at.payload);
  std::memset(block + at.payload + payload_bytes, 0, at.bytes - at.payload - payload_bytes);
}

// Allocates a part, in shared memory if the network provides it, and packs into it.
Buffer PackEncodedBatch(const EncodedBatch& drawn, const TrajectorySpec& spec, const ViewSpec& view,
                        Codec codec) {
  MutableBuffer block = MakeSharedBuffer(PackedBytes(drawn, spec, view, codec));
  PackEncodedBatch(drawn, spec, view, codec, block.bytes());
  return std::move(block).Freeze();
}

// Trusts nothing but the number of available bytes.
Result<std::size_t> EncodedBatchBytes(std::span<const std::byte> bytes) {
  BlockHeader header;
  if (bytes.size() < sizeof header) return DataLoss("block has only {} bytes", bytes.size());
  std::memcpy(&header, bytes.data(), sizeof header);
  if (header.bytes < sizeof header || header.bytes > bytes.size() ||
      header.bytes % kAlignment != 0) {
    return DataLoss("block has {} bytes in a part of {}", header.bytes, bytes.size());
  }
  return std::size_t(header.bytes);
}

Status ParseEncodedBatch(std::span<const std::byte> bytes, const TrajectorySpec& spec,
                         const ViewSpec& view, Codec codec, EncodedBatch* drawn) {
  TROOP_ASSIGN_OR_RETURN(const std::size_t size, EncodedBatchBytes(bytes));
  BlockHeader header;
  std::memcpy(&header, bytes.data(), sizeof header);
  TROOP_RETURN_IF_ERROR(CheckHeader(header, size, spec, view, codec));
  const std::size_t items = header.items;
  const BlockLayout at(spec, view, codec, items, header.frames, header.payload_bytes);
  // The layout of these counts must fill the block exactly: from here on, all columns are in
  // range.
  if (at.bytes != size || size != bytes.size()) {
    return DataLoss("block has {} bytes in a part of {}; {} items and {} frames take {}", size,
                    bytes.size(), items, header.frames, at.bytes);
  }
  const std::byte* const block = bytes.data();
  const std::size_t steps = items * std::size_t(view.steps());
  drawn->total = header.total;
  drawn->items = header.table_items;
  drawn->probability_min = header.probability_min;
  TakeColumn(block, at.key, items * 8, &drawn->key);
  TakeColumn(block, at.probability, items * 8, &drawn->probability);
  TakeColumn(block, at.policy_version, items * 8, &drawn->policy_version);
  TakeColumn(block, at.length, items * 4, &drawn->length);
  TakeColumn(block, at.lead, items * 4, &drawn->lead);
  TakeColumn(block, at.reward, steps * 4, &drawn->reward);
  TakeColumn(block, at.discount, steps * 4, &drawn->discount);
  TakeColumn(block, at.action, items * ActionBytes(spec, view), &drawn->action);
  TakeColumn(block, at.state, items * StateBytes(spec), &drawn->state);
  TROOP_RETURN_IF_ERROR(CheckItems(*drawn, view, header.frames));
  return TakeFrames(block, at, header, spec.observation.bytes(), codec, &drawn->frame);
}

}  // namespace troop
