#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/buffer.h"
#include "core/base/status.h"

namespace troop {

// An append-only file. Append writes to the buffers of the operating system; Sync makes the file
// and its folder entry durable. After a failed Append or Sync, the content after the last
// successful Sync is undefined: open the file again, Truncate it to that size, and append again.
class AppendFile {
 public:
  virtual ~AppendFile() = default;
  virtual Status Append(std::span<const std::byte> bytes) = 0;
  virtual Status Sync() = 0;
  Status Append(std::string_view text) { return Append(std::as_bytes(std::span(text))); }
};

// An exclusive lock, released by the destructor.
class StorageLock {
 public:
  virtual ~StorageLock() = default;
};

// File access, and the only component that opens files for writing. Paths are relative to a root,
// with '/'; ".." and absolute paths are rejected. Calls block on the disk, so nodes use it in jobs
// or for small files. Implementations: DiskStorage, and MemoryStorage
// (core/storage/memory_storage.h; tests and simulator).
class Storage {
 public:
  virtual ~Storage() = default;
  // Replaces a file atomically: after a crash it is either the old or the new one. Steps: temporary
  // file, fsync, rename, fsync of the folder. Creates missing folders.
  virtual Status WriteAtomic(std::string_view path, std::span<const std::byte> bytes) = 0;
  // Opens a file for appending; creates it and its folders if missing.
  virtual Result<std::unique_ptr<AppendFile>> OpenAppend(std::string_view path) = 0;
  // Reads a file. Errors: kNotFound; kResourceExhausted if it is larger than `bytes_max`.
  virtual Result<Buffer> Read(std::string_view path, std::size_t bytes_max) = 0;
  // Maps a file: pages are read from disk on access, and the operating system may drop them when
  // memory is short. While the Buffer or a copy exists, the file may be removed, but must not be
  // truncated below the accessed bytes. Errors: kNotFound. The default implementation calls Read.
  virtual Result<Buffer> Map(std::string_view path);
  // Truncates a file to its first `bytes` bytes, durably, including its folder entry. Errors:
  // kNotFound; kInvalidArgument if it is shorter. The default implementation rewrites it.
  virtual Status Truncate(std::string_view path, std::size_t bytes);
  // Returns the sorted names (not paths) in a folder; those of folders end in '/'. A missing folder
  // counts as empty.
  virtual Result<std::vector<std::string>> List(std::string_view folder) = 0;
  virtual bool Exists(std::string_view path) = 0;
  // Renames atomically. Replaces a file; an existing target folder is an error.
  virtual Status Rename(std::string_view from, std::string_view to) = 0;
  // Creates a second name for a file; replaces an existing file. Both names may share the bytes, so
  // the file may be replaced or removed, but never appended to or truncated. Durable if the file
  // was. Errors: kNotFound. The default implementation copies.
  virtual Status Link(std::string_view from, std::string_view to);
  // Removes a file, or a folder with its contents. A missing one is ok.
  virtual Status Remove(std::string_view path) = 0;
  // Acquires a lock. Errors: kAlreadyExists with the text of the current holder.
  virtual Result<std::unique_ptr<StorageLock>> Lock(std::string_view path,
                                                    std::string_view holder) = 0;
  Status WriteAtomic(std::string_view path, std::string_view text) {
    return WriteAtomic(path, std::as_bytes(std::span(text)));
  }
};

Result<std::unique_ptr<Storage>> MakeDiskStorage(std::string root);  // creates the root
std::unique_ptr<Storage> MakeMemoryStorage();

}  // namespace troop
