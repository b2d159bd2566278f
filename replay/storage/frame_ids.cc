// FrameIds: its memory.
#include "replay/storage/frame_ids.h"

namespace troop {

Result<FrameIds> FrameIds::Make(std::int64_t ids) {
  TROOP_ASSIGN_OR_RETURN(auto unused, HugeArray<std::uint64_t>::Make(std::size_t(ids) / 64 + 1));
  return FrameIds(ids, std::move(unused));
}

}  // namespace troop
