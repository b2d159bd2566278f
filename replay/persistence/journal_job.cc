// JournalJob: the disk operations of one job, run on an executor thread.
#include "replay/persistence/journal_job.h"

namespace troop {

void JournalJob::Run() {
  status = RunAll();
  if (!status.ok() && file) file->file.reset();
  // Makes room on a full disk at once; what cannot be removed now is removed at the next start.
  if (!status.ok() && !discard.empty()) (void)storage->Remove(discard);
  lock.reset();
}

Status JournalJob::RunAll() {
  for (const auto& [path, bytes] : writes) {
    TROOP_RETURN_IF_ERROR(storage->WriteAtomic(path, bytes.bytes()));
  }
  // Notes come before removals: a missing file must be listed first.
  Status noted = WriteNote();
  // On a full disk, the removals make room for the note, which then follows them.
  const bool full = noted.code() == Code::kResourceExhausted && !removals.empty();
  if (!noted.ok() && !full) return noted;
  for (const std::string& path : cuts) {
    // Truncation is durable, whereas a removed file may reappear after a power loss.
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

Status JournalJob::WriteNote() {
  return note.path.empty() ? Status::Ok() : storage->WriteAtomic(note.path, note.text);
}

// Appends to the lane's open file, or opens another one.
Status JournalJob::Append(const Piece& piece) {
  if (!file->file || file->path != piece.path) TROOP_RETURN_IF_ERROR(Open(piece));
  TROOP_RETURN_IF_ERROR(file->file->Append(piece.bytes));
  return sync ? file->file->Sync() : Status::Ok();
}

// Opens a file at the synced size. After a failure or a kill the file may have more bytes, of
// unknown content; they are cut off.
Status JournalJob::Open(const Piece& piece) {
  file->file.reset();
  file->path = piece.path;
  if (storage->Exists(piece.path)) {
    TROOP_RETURN_IF_ERROR(storage->Truncate(piece.path, piece.from));
  } else if (piece.from > 0) {
    return DataLoss("{} is missing: another process removed it", piece.path);
  }
  TROOP_ASSIGN_OR_RETURN(file->file, storage->OpenAppend(piece.path));
  return Status::Ok();
}

}  // namespace troop
