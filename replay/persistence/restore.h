#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/base/node.h"
#include "core/base/status.h"
#include "core/storage/storage.h"
#include "replay/codec/frame_codec.h"
#include "replay/persistence/journal.h"
#include "replay/table/table.h"

namespace troop {

// A restored table, or a new one if the folder is empty, and its journal.
struct RestoredTable {
  std::unique_ptr<Journal> journal;
  Table table;
  std::string owner;  // bytes of Journal::SetOwner at the last complete round
  std::vector<std::shared_ptr<const FrameDictionary>> dictionaries;  // all that the table has
  Table::RecoverCounts counts;
  std::size_t log_bytes = 0, torn_bytes = 0;
  bool restored = false;  // the folder held a log
  // Clean shutdown: counters, priorities and keys are unchanged. Prioritized and FIFO samplers
  // continue as if without interruption; others find the items in another order.
  bool clean = false;
};
// Restores a table at startup; blocks on the disk. `options`: checksums, incarnation and
// first_generation are set here; the table's name is not compared. Logs one line, and one per
// damage.
//
// Segments are mapped, not read: a bad sector, or a file truncated by another process, kills this
// process with SIGBUS on access. All segments are accessed here, at startup. Errors:
// kFailedPrecondition: the folder was written with other options; those of ReadJournal and
// Table::Make.
Result<RestoredTable> RestoreTable(Storage* storage, Executor* executor,
                                   const Journal::Options& journal, Table::Options options);

}  // namespace troop
