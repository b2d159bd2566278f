// Packing and parsing of table deltas.
#include "replay/codec/table_delta.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/base/check.h"
#include "net/wire/shared_memory.h"

namespace troop {
namespace {

// Header of a table delta, as in docs/design/protocol.md.
struct TableDeltaHeader {
  std::uint64_t bytes = 0;  // size of the block, header included
  std::uint32_t frames = 0, items = 0;
  std::uint64_t window = 0;         // total number of frame indices
  std::uint64_t payload_bytes = 0;  // total size of the encoded frames
  std::uint64_t reserved[4] = {};
};
static_assert(sizeof(TableDeltaHeader) == kAlignment);

// Offsets of the columns. REQUIRES: the counts were checked against the size.
struct FeedLayout {
  FeedLayout(const TableDeltaHeader& header, const TrajectorySpec& spec, Codec codec) {
    const std::size_t frames = header.frames, items = header.items;
    place = Column(frames * 4);
    reward = Column(frames * 4);
    discount = Column(frames * 4);
    action = Column(frames * spec.action.bytes());
    number = Column(items * 8);
    key = Column(items * 8);
    policy_version = Column(items * 8);
    priority = Column(items * 4);
    length = Column(items * 4);
    lead = Column(items * 4);
    window = Column(std::size_t(header.window) * 4);
    frame_bytes = Column(codec == Codec::kNone ? 0 : frames * 4);
    payload = Column(std::size_t(header.payload_bytes));
  }
  // Appends a column and returns its offset.
  std::size_t Column(std::size_t size) {
    const std::size_t offset = bytes;
    // Each column begins at a cache line, so that readers may use it in place.
    bytes = AlignedBytes(bytes + size);
    return offset;
  }
  std::size_t bytes = sizeof(TableDeltaHeader);
  std::size_t place, reward, discount, action, number, key, policy_version, priority, length, lead,
      window, frame_bytes, payload;
};

template <class T>
void Put(const std::vector<T>& from, std::byte* block, std::size_t at) {
  if (!from.empty()) std::memcpy(block + at, from.data(), from.size() * sizeof(T));
}

// Copied, because the block may be in memory that other processes can write.
template <class T>
void Take(const std::byte* block, std::size_t at, std::size_t count, std::vector<T>* to) {
  to->resize(count);
  if (count > 0) std::memcpy(to->data(), block + at, count * sizeof(T));
}

// Checks the header's counts against the size, so that no later sum overflows and nothing larger
// than the block is allocated.
Status CheckHeader(const TableDeltaHeader& h, std::size_t size, const TrajectorySpec& spec,
                   Codec codec) {
  // Every frame and item takes at least 4 and 8 bytes of the block.
  if (h.bytes != size || h.frames > size / 4 || h.items > size / 8 || h.window > size / 4 ||
      h.payload_bytes > size || h.frames * spec.action.bytes() > size) {
    return DataLoss(
        "table delta of {} bytes cannot hold {} frames of {} bytes in total, {} items, {} places",
        size, h.frames, h.payload_bytes, h.items, h.window);
  }
  const std::size_t raw = spec.observation.bytes();
  if (codec == Codec::kNone && h.payload_bytes != h.frames * raw) {
    return DataLoss("{} frames have {} bytes in total; each of {} has {}", h.frames,
                    h.payload_bytes, spec.observation.ToString(), raw);
  }
  return Status::Ok();
}

// Checks frame indices against the table's size, and values as Table::Insert does.
Status CheckFrames(const TableDelta& feed, const ReplicaSizes& sizes) {
  for (std::size_t i = 0; i < feed.place.size(); ++i) {
    // Indices become addresses in the replica's memory.
    if (feed.place[i] >= sizes.frames) {
      return DataLoss("frame {} has index {}, must be below {}", i, feed.place[i], sizes.frames);
    }
    if (!std::isfinite(feed.reward[i]) || !(feed.discount[i] >= 0 && feed.discount[i] <= 1)) {
      return DataLoss("frame {} has invalid reward {} or discount {}", i, feed.reward[i],
                      feed.discount[i]);
    }
  }
  return Status::Ok();
}

// Checks slots, priorities, ascending numbers, and the frame indices of all items.
Status CheckItems(const TableDelta& feed, const ViewSpec& view, const ReplicaSizes& sizes) {
  std::uint64_t window = 0;
  for (std::size_t i = 0; i < feed.key.size(); ++i) {
    const int length = feed.length[i], lead = feed.lead[i];
    if (length < 1 || length > view.length_max || lead < 0 || lead > view.lead_max()) {
      return DataLoss("item {} has {} steps and {} lead frames, must have at most {} and {}", i,
                      length, lead, view.length_max, view.lead_max());
    }
    // The lower half of a key is its slot. Numbers ascend in the order of the table's changes.
    if ((feed.key[i] & 0xFFFFFFFFu) >= sizes.slots || !std::isfinite(feed.priority[i]) ||
        feed.priority[i] < 0 || (i > 0 && feed.number[i] <= feed.number[i - 1])) {
      return DataLoss("item {} has invalid number {}, key {:#x} ({} slots) or priority {}", i,
                      feed.number[i], feed.key[i], sizes.slots, feed.priority[i]);
    }
    // The windows of all items are concatenated.
    window += std::uint64_t(lead + length + 1);
  }
  if (window != feed.window.size()) {
    return DataLoss("{} frame indices for items of {} frames", feed.window.size(), window);
  }
  // Frame indices of windows are checked last: they are the most numerous.
  const auto bad =
      std::ranges::find_if(feed.window, [&](std::uint32_t place) { return place >= sizes.frames; });
  if (bad == feed.window.end()) return Status::Ok();
  return DataLoss("an item refers to frame {}, must be below {}", *bad, sizes.frames);
}

}  // namespace

// Keeps the vectors' memory for the next delta.
void TableDelta::Clear() {
  place.clear();
  reward.clear();
  discount.clear();
  action.clear();
  observation.clear();
  number.clear();
  key.clear();
  policy_version.clear();
  priority.clear();
  length.clear();
  lead.clear();
  window.clear();
}

Buffer PackTableDelta(const TableDelta& feed, const TrajectorySpec& spec, Codec codec) {
  TableDeltaHeader header{.frames = std::uint32_t(feed.frames()),
                          .items = std::uint32_t(feed.items()),
                          .window = feed.window.size()};
  for (const EncodedBatch::Frame& frame : feed.observation) header.payload_bytes += frame.bytes;
  const FeedLayout at(header, spec, codec);
  // The header has the total size, which a reader compares with that of the message.
  header.bytes = at.bytes;
  MutableBuffer out = MakeSharedBuffer(at.bytes);
  std::byte* const block = out.data();
  // Zeroes the gaps between columns: no uninitialized memory leaves the process.
  std::memset(block, 0, at.payload);
  std::memcpy(block, &header, sizeof header);
  // Frames and columns must agree before any of them is copied.
  TROOP_CHECK(feed.action.size() == feed.place.size() * spec.action.bytes(),
              "{} bytes of actions for {} frames", feed.action.size(), feed.place.size());
  Put(feed.place, block, at.place);
  Put(feed.reward, block, at.reward);
  Put(feed.discount, block, at.discount);
  Put(feed.action, block, at.action);
  Put(feed.number, block, at.number);
  Put(feed.key, block, at.key);
  Put(feed.policy_version, block, at.policy_version);
  Put(feed.priority, block, at.priority);
  Put(feed.length, block, at.length);
  Put(feed.lead, block, at.lead);
  Put(feed.window, block, at.window);
  // Frames are concatenated at the end; with a codec a separate column holds their sizes.
  std::byte* to = block + at.payload;
  for (std::size_t i = 0; i < feed.observation.size(); ++i) {
    const EncodedBatch::Frame& frame = feed.observation[i];
    if (codec != Codec::kNone) std::memcpy(block + at.frame_bytes + i * 4, &frame.bytes, 4);
    std::memcpy(to, frame.data, frame.bytes);
    to += frame.bytes;
  }
  // The padding after the last frame.
  std::memset(to, 0, std::size_t(block + at.bytes - to));
  return std::move(out).Freeze();
}

Status ParseTableDelta(std::span<const std::byte> bytes, const TrajectorySpec& spec,
                       const ViewSpec& view, Codec codec, const ReplicaSizes& sizes,
                       TableDelta* feed) {
  // Check counts, then columns, then the frames' sizes.
  TableDeltaHeader header;
  if (bytes.size() < sizeof header) return DataLoss("table delta has only {} bytes", bytes.size());
  std::memcpy(&header, bytes.data(), sizeof header);
  TROOP_RETURN_IF_ERROR(CheckHeader(header, bytes.size(), spec, codec));
  const FeedLayout at(header, spec, codec);
  // Equal sizes: the columns of the header fill the block exactly.
  if (at.bytes != bytes.size()) {
    return DataLoss("table delta has {} bytes, the header announces {}", bytes.size(), at.bytes);
  }
  const std::byte* const block = bytes.data();
  const std::size_t frames = header.frames, items = header.items;
  Take(block, at.place, frames, &feed->place);
  Take(block, at.reward, frames, &feed->reward);
  Take(block, at.discount, frames, &feed->discount);
  Take(block, at.action, frames * spec.action.bytes(), &feed->action);
  Take(block, at.number, items, &feed->number);
  Take(block, at.key, items, &feed->key);
  Take(block, at.policy_version, items, &feed->policy_version);
  Take(block, at.priority, items, &feed->priority);
  Take(block, at.length, items, &feed->length);
  Take(block, at.lead, items, &feed->lead);
  Take(block, at.window, std::size_t(header.window), &feed->window);
  TROOP_RETURN_IF_ERROR(CheckFrames(*feed, sizes));
  TROOP_RETURN_IF_ERROR(CheckItems(*feed, view, sizes));
  // Frame pointers; the sizes must add up to the payload.
  feed->observation.resize(frames);
  std::uint64_t offset = 0;
  for (std::size_t i = 0; i < frames; ++i) {
    auto size = std::uint32_t(spec.observation.bytes());
    if (codec != Codec::kNone) std::memcpy(&size, block + at.frame_bytes + i * 4, 4);
    // A subtraction cannot overflow: offset never exceeds payload_bytes.
    if (size > header.payload_bytes - offset) {
      return DataLoss("frame {} of {} bytes at offset {} exceeds the payload of {}", i, size,
                      offset, header.payload_bytes);
    }
    feed->observation[i] = {block + at.payload + offset, size};
    offset += size;
  }
  if (offset == header.payload_bytes) return Status::Ok();
  return DataLoss("{} frames have {} bytes in total, the header announces {}", frames, offset,
                  header.payload_bytes);
}

}  // namespace troop
