#pragma once

#include <cstdint>
#include <string>

#include "core/base/event_history.h"
#include "core/base/status.h"
#include "core/tensor/trajectory.h"
#include "replay/codec/frame_codec.h"
#include "replay/items/selector_pair.h"
#include "replay/selectors/selector.h"
#include "replay/storage/frame_log.h"
#include "replay/storage/item_view.h"

namespace troop {

// Limit of one record: offsets in a segment are 32 bits, and real calls are far smaller.
inline constexpr std::size_t kRecordBytesMax = std::size_t{1} << 30;

// Configuration of a replay table (Table::Options). Its functions check it, and derive from it the
// sizes of the table's parts.
struct TableOptions {
  std::string name = "experience";
  TrajectorySpec trajectory;
  ViewSpec view;
  Codec codec = Codec::kNone;
  std::int64_t capacity_items = 100000;
  std::int64_t min_items = 1;  // only sizes the log, which always holds this many
  Selector::Options sampler{};
  Selector::Options remover{.kind = Selector::Kind::kFifo};
  // A new item is accepted into a full table with probability capacity / seen and replaces an
  // item that the remover picks (with kUniform: Vitter 1985, algorithm R). Excludes a soft
  // capacity.
  bool reservoir = false;
  double priority_epsilon = 1e-6;
  std::int64_t max_times_sampled = 0;  // evicted after this many samples; 0: no limit
  // Maximum age in updates relative to the newest policy version seen. Older items are never
  // sampled and are evicted at the latest when one would be. 0: no limit.
  std::uint64_t max_policy_age = 0;
  std::int64_t trim_every_samples = 0;  // 0: no soft capacity
  std::int64_t frames = 0;              // log capacity; 0: derived
  std::size_t bytes_max = 0;            // limit for the log's segments; 0: no limit
  std::size_t segment_bytes = 0;        // 0: derived
  bool checksums = false;               // durable table: records hold items and a CRC-32C
  // Enables ReadDelta, for 16 more bytes per frame and per item. Requires items to be evicted by
  // age alone: remover kFifo and no limits.
  bool feed = false;
  EventHistory* history = nullptr;  // records inserted and restored items
  std::uint64_t seed = 1;
  std::uint64_t incarnation = 0;       // with the seed, keys the random numbers
  std::uint32_t first_generation = 1;  // differs from that of a predecessor

  // Refuses options that a table could not keep. Errors: kInvalidArgument.
  Status Check() const;
  // Number of slots: with a soft capacity, 1/8 more than the capacity.
  std::int64_t slots() const;
  // Item records are needed to restore a table, and to store recurrent states.
  bool has_item_records() const { return checksums || trajectory.state.has_value(); }
  FrameLog::Options LogOptions() const;
  SelectorPair::Options SelectorOptions() const;
  // Expected bytes of the records of a full log, at the codec's usual ratio.
  std::size_t LogBytes(std::int64_t log_frames) const;
};

}  // namespace troop
