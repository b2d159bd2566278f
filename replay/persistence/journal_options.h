#pragma once

#include <cstddef>
#include <string>

#include "core/base/time.h"

namespace troop {

// Options of a journal: the sizes and periods of its commits and snapshots.
struct JournalOptions {
  std::string folder = "replay";
  std::size_t commit_bytes = 1 << 20;      // a commit costs one sync, so larger ones are cheaper
  Duration commit_wait = Milliseconds(5);  // time that a kill may lose when no caller waits
  std::size_t job_bytes = 8 << 20;         // per commit; a longer one would delay its first caller
  Duration snapshot_every = Seconds(30);   // between rounds; 0: only on SnapshotNow
  std::size_t snapshot_block_bytes = 256 << 10;  // per append; amortizes waking a thread for a job
  std::size_t snapshot_sync_bytes = 1 << 20;     // a single sync at the end would take too long
  int lines_per_poll = 32;                       // 16 slots each; 0.5 us each with cold memory
  Duration retry_after = Seconds(2);
  std::size_t lag_bytes = 64 << 20;  // unwritten bytes above which behind() is true
  bool spill = false;  // spill: sealed segments move from memory to their mapped files
};

}  // namespace troop
