#include "replay/journal_work.h"

namespace troop {

void Journal::Work::Run() {
  status = RunAll();
  if (!status.ok() && file) file->file.reset();
  // A disk that is full gets room at once; what can't be removed now goes at the next start.
  if (!status.ok() && !discard.empty()) (void)storage->Remove(discard);
  lock.reset();
}

Status Journal::Work::RunAll() {
  for (const auto& [path, bytes] : writes) {
    TROOP_RETURN_IF_ERROR(storage->WriteAtomic(path, bytes.bytes()));
  }
  Status noted = WriteNote();
  // What is removed makes room for it.
  const bool full = noted.code() == Code::kResourceExhausted && !removals.empty();
  if (!noted.ok() && !full) return noted;
  for (const std::string& path : cuts) {
    // Emptied, since that is durable: a file that was removed may be back after a loss of power.
    const Status cut = storage->Truncate(path, 0);
    if (!cut.ok() && cut.code() != Code::kNotFound) return cut;
  }
  for (const Piece& piece : pieces) TROOP_RETURN_IF_ERROR(Append(piece));
  for (const std::string& path : removals) TROOP_RETURN_IF_ERROR(storage->Remove(path));
  if (full) TROOP_RETURN_IF_ERROR(WriteNote());
  if (!map.empty()) {
    TROOP_ASSIGN_OR_RETURN(mapped, storage->Map(map));
  }
  return Status::Ok();
}

Status Journal::Work::WriteNote() {
  return note.path.empty() ? Status::Ok() : storage->WriteAtomic(note.path, note.text);
}

Status Journal::Work::Append(const Piece& piece) {
  if (!file->file || file->path != piece.path) TROOP_RETURN_IF_ERROR(Open(piece));
  TROOP_RETURN_IF_ERROR(file->file->Append(piece.bytes));
  return sync ? file->file->Sync() : Status::Ok();
}

// After a failure, or a kill, more may be in the file than was synced: nobody knows which of it.
Status Journal::Work::Open(const Piece& piece) {
  file->file.reset();
  file->path = piece.path;
  if (storage->Exists(piece.path)) {
    TROOP_RETURN_IF_ERROR(storage->Truncate(piece.path, piece.from));
  } else if (piece.from > 0) {
    return DataLoss("{} is gone: somebody removed it", piece.path);
  }
  TROOP_ASSIGN_OR_RETURN(file->file, storage->OpenAppend(piece.path));
  return Status::Ok();
}

}  // namespace troop
