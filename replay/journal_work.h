#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/storage.h"
#include "replay/journal.h"

namespace troop {

// The file that a lane appends to. It goes from job to job; only the job that runs touches it.
struct Journal::OpenFile {
  std::string path;
  std::unique_ptr<AppendFile> file;  // nullptr after a failure
};

// A job of a journal: first dictionaries and what is noted of segments, then files to empty in
// their order, then appends in theirs, each file synced before the next is begun, then removals,
// then a file to map. It ends at the first failure.
struct Journal::Work {
  struct Piece {
    std::string path;
    std::size_t from = 0;  // what the file has before; more is cut off when it is opened
    std::span<const std::byte> bytes;
    std::shared_ptr<const void> owner;  // of the bytes, if they are not the work's
  };
  Storage* storage = nullptr;
  std::shared_ptr<StorageLock> lock;  // nobody else opens the folder before the job is done
  std::shared_ptr<OpenFile> file;
  std::vector<std::pair<std::string, Buffer>> writes;
  struct Note {
    std::string path;  // empty: none
    std::string text;
  };
  Note note;                      // of segments that have no file from now on
  std::vector<std::string> cuts;  // to nothing; missing is ok
  std::vector<Piece> pieces;
  std::vector<std::byte> block;  // of a snapshot: what its piece points to
  bool sync = true;
  std::vector<std::string> removals;
  std::string discard;  // if it fails: a file that is of no use then
  std::string map;

  LogPosition end;             // of the log, once it is done
  std::uint64_t appended = 0;  // Journaled::appended() there
  std::uint64_t segment = 0;   // that is mapped
  bool ends_round = false;
  Status status;
  Buffer mapped;

  void Run();

 private:
  Status RunAll();
  Status WriteNote();
  Status Append(const Piece& piece);
  Status Open(const Piece& piece);
};

}  // namespace troop
