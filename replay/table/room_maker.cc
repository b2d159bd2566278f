// RoomMaker: evicts items and frees memory until an insert call fits.
#include "replay/table/room_maker.h"

#include <algorithm>

#include "core/base/check.h"

namespace troop {
namespace {

// Items evicted at a time when frames or bytes run short: one node of the sum tree.
constexpr std::int64_t kAtOnce = 16;

}  // namespace

RoomMaker::RoomMaker(const TableOptions& options, const Parts& parts)
    : bytes_max_(options.bytes_max),
      min_items_(options.min_items),
      reservoir_(options.reservoir),
      item_records_(options.has_item_records()),
      parts_(parts) {}

// Refuses a call that an empty table would not hold; returns the bytes of its record.
Result<std::size_t> RoomMaker::CheckSize(std::int64_t newcomers) const {
  const std::int64_t slots = parts_.slots->capacity();
  if (newcomers > slots) {
    return ResourceExhausted(
        "replay: insert of {} items exceeds {} slots; send fewer or raise capacity_items",
        newcomers, slots);
  }
  if (!parts_.window->fits_alone()) {
    return ResourceExhausted(
        "replay: the streams of one insert hold more than all {} frames of the log; send items of "
        "fewer streams at once or raise capacity_items",
        parts_.log->capacity());
  }
  const std::size_t bytes =
      parts_.window->RecordBytes(item_records_ ? std::uint32_t(newcomers) : 0);
  const std::size_t bytes_max =
      bytes_max_ > 0 ? std::min(bytes_max_ / 2, kRecordBytesMax) : kRecordBytesMax;
  if (bytes > bytes_max) {
    return ResourceExhausted(
        "replay: insert of {} bytes exceeds the limit of {}; send less or raise bytes_max", bytes,
        bytes_max);
  }
  return bytes;
}

Result<std::size_t> RoomMaker::MakeRoom(std::int64_t newcomers) {
  TROOP_ASSIGN_OR_RETURN(const std::size_t bytes, CheckSize(newcomers));
  // Allocate before any change, since it can fail, unless that would exceed bytes_max: then
  // ReduceToBytes must free memory first.
  SegmentStore& store = parts_.log->store();
  const std::size_t memory = store.memory() + store.Needs(bytes);
  if (bytes_max_ == 0 || memory <= bytes_max_) TROOP_RETURN_IF_ERROR(store.Prepare(bytes));
  const std::int64_t excess = parts_.slots->size() + newcomers - parts_.slots->capacity();
  if (!reservoir_ && excess > 0) parts_.evictor->Evict(excess);
  MakeRoomInLog();
  if (bytes_max_ > 0) TROOP_RETURN_IF_ERROR(ReduceToBytes(bytes));
  return bytes;
}

// Frees frames of the log. Silent streams go first if they hold most of the log, or if few items
// are left; else items go.
void RoomMaker::MakeRoomInLog() {
  StreamList& streams = *parts_.streams;
  while (!parts_.window->has_room()) {
    const std::int64_t size = parts_.slots->size();
    const bool keep_items = streams.tails_hold_much() || size <= min_items_;
    if (keep_items && streams.EvictSilent()) continue;
    if (size > 0) {
      parts_.evictor->Evict(std::min(kAtOnce, size));
    } else {
      TROOP_CHECK(streams.EvictSilent(), "an empty table pins {} frames", parts_.log->frames());
    }
  }
}

// Frees memory until the record fits into bytes_max: by compaction, then by eviction. A reserve
// keeps compaction possible: what it moves at once may be as large as a record.
Status RoomMaker::ReduceToBytes(std::size_t record_bytes) {
  SegmentStore& store = parts_.log->store();
  const std::size_t largest = std::max(store.segment_bytes(), store.largest_record());
  const std::size_t reserve = std::min(RoundToPages(largest), bytes_max_ / 8);
  while (store.memory() + store.Needs(record_bytes) + reserve > bytes_max_) {
    const std::uint64_t before = parts_.compactor->moved_bytes();
    parts_.compactor->Compact(store.segment_bytes(), true);
    if (parts_.compactor->moved_bytes() != before) continue;
    const std::int64_t size = parts_.slots->size();
    if (size > 0) {
      parts_.evictor->Evict(std::min(kAtOnce, size));
    } else if (!parts_.streams->EvictSilent()) {
      break;  // only the call's own streams are left
    }
  }
  return store.Prepare(record_bytes);
}

}  // namespace troop
