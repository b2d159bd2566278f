#pragma once

#include <cstdint>

#include "core/base/status.h"
#include "replay/items/compactor.h"
#include "replay/items/item_evictor.h"
#include "replay/items/item_slots.h"
#include "replay/storage/frame_log.h"
#include "replay/storage/insert_window.h"
#include "replay/storage/stream_list.h"
#include "replay/table/table_options.h"

namespace troop {

// Makes room for an insert call: evicts items and silent streams, and frees memory. Owner: one
// thread (a table). `parts` outlive it.
class RoomMaker {
 public:
  struct Parts {
    FrameLog* log = nullptr;
    StreamList* streams = nullptr;
    const InsertWindow* window = nullptr;
    const ItemSlots* slots = nullptr;
    ItemEvictor* evictor = nullptr;
    Compactor* compactor = nullptr;
  };
  RoomMaker(const TableOptions& options, const Parts& parts);

  // Makes room for the call that the window has planned, with `newcomers` items; returns the bytes
  // of its record, which are prepared in the log. A call that can never fit is refused before the
  // first eviction. Errors (kResourceExhausted) leave the table unchanged, with one exception: at
  // bytes_max the allocation must follow the evictions that pay for it, and may fail if the machine
  // lacks memory.
  Result<std::size_t> MakeRoom(std::int64_t newcomers);

 private:
  Result<std::size_t> CheckSize(std::int64_t newcomers) const;
  void MakeRoomInLog();
  Status ReduceToBytes(std::size_t record_bytes);

  std::size_t bytes_max_;
  std::int64_t min_items_;
  bool reservoir_;
  bool item_records_;
  Parts parts_;
};

}  // namespace troop
