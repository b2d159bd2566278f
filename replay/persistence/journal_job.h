#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/base/buffer.h"
#include "core/base/status.h"
#include "core/storage/storage.h"
#include "replay/storage/snapshot.h"

namespace troop {

// The file that a lane appends to, passed from job to job. Only the running job touches it.
struct JournalFile {
  std::string path;
  std::unique_ptr<AppendFile> file;  // nullptr after a failure
};

// One job of a journal, in this order: write dictionaries and the note on segments; truncate
// `cuts`; append `pieces`, syncing each file before the next; remove files; map a file. It ends at
// the first failure.
struct JournalJob {
  // Bytes to append to one file.
  struct Piece {
    std::string path;
    std::size_t from = 0;  // file size before; excess is truncated on open
    std::span<const std::byte> bytes;
    std::shared_ptr<const void> owner;  // keeps the bytes alive, unless `block` holds them
  };
  Storage* storage = nullptr;
  std::shared_ptr<StorageLock> lock;  // keeps other processes out of the folder while the job runs
  std::shared_ptr<JournalFile> file;
  std::vector<std::pair<std::string, Buffer>> writes;
  struct Note {
    std::string path;  // empty: none
    std::string text;
  };
  Note note;                      // list of segments without files: `removed` or `skipped`
  std::vector<std::string> cuts;  // files to truncate to 0 bytes; missing ones are ok
  std::vector<Piece> pieces;
  std::vector<std::byte> block;  // a snapshot's bytes, which its piece refers to
  bool sync = true;
  std::vector<std::string> removals;
  std::string discard;  // file that is useless if the job fails
  std::string map;

  LogPosition end;                 // end of the log when the job is done
  std::uint64_t appended = 0;      // JournalSource::appended() there
  std::uint64_t last_segment = 0;  // the last one that `pieces` write to
  std::uint64_t segment = 0;       // the segment whose file is mapped
  bool ends_round = false;
  Status status;
  Buffer mapped;

  // Runs on a thread of the executor. The owner reads the results below after TakeDone.
  void Run();

 private:
  Status RunAll();
  Status WriteNote();
  Status Append(const Piece& piece);
  Status Open(const Piece& piece);
};

}  // namespace troop
