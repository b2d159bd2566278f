#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/buffer.h"
#include "core/status.h"

namespace troop {

// A file that grows. Append buffers in the operating system; Sync makes it durable, name and all.
// After a failed Append or Sync nobody knows what is on the disk beyond the last good Sync: open it
// anew, Truncate it to there, and append again.
class AppendFile {
 public:
  virtual ~AppendFile() = default;
  virtual Status Append(std::span<const std::byte> bytes) = 0;
  virtual Status Sync() = 0;
  Status Append(std::string_view text) { return Append(std::as_bytes(std::span(text))); }
};

// Holds an exclusive lock while it lives.
class StorageLock {
 public:
  virtual ~StorageLock() = default;
};

// The only place that opens files for writing. Paths are relative to a root, with '/'; ".." and
// absolute paths are refused. Calls block on the disk: nodes call it from jobs, or for small files.
// Two implementations: DiskStorage, MemoryStorage (core/memory_storage.h: tests, simulator).
class Storage {
 public:
  virtual ~Storage() = default;
  // Writes the whole file so that after a crash it is either the old or the new one: temporary
  // file, fsync, rename, fsync of the folder. Creates missing folders.
  virtual Status WriteAtomic(std::string_view path, std::span<const std::byte> bytes) = 0;
  // Opens for appending; creates the file and its folders when missing.
  virtual Result<std::unique_ptr<AppendFile>> OpenAppend(std::string_view path) = 0;
  // Errors: kNotFound; kResourceExhausted when it is larger than `bytes_max`.
  virtual Result<Buffer> Read(std::string_view path, std::size_t bytes_max) = 0;
  // The same without reading it: pages come from the disk when they are touched, and may be dropped
  // by the operating system when memory is short. The file must not become shorter below what is
  // looked at while the Buffer, or a copy of it, lives; it may be removed. Errors: kNotFound. Here:
  // for storages that can't map, Read.
  virtual Result<Buffer> Map(std::string_view path);
  // Cuts a file to its first `bytes` bytes, durably, name and all. Errors: kNotFound;
  // kInvalidArgument when it is shorter. Here: for storages that can't cut, by writing it anew.
  virtual Status Truncate(std::string_view path, std::size_t bytes);
  // Names (not paths) in a folder, sorted; folders end in '/'. A missing folder is empty.
  virtual Result<std::vector<std::string>> List(std::string_view folder) = 0;
  virtual bool Exists(std::string_view path) = 0;
  // Atomic; replaces a file; an existing target folder is an error.
  virtual Status Rename(std::string_view from, std::string_view to) = 0;
  // A second name for a file's bytes; replaces a file. For files that are replaced or removed,
  // under either name, but never appended to or cut: the bytes may be shared. Durable, name and
  // all, when the file was. Errors: kNotFound. Here: a copy.
  virtual Status Link(std::string_view from, std::string_view to);
  // A file, or a folder with all in it. Missing is ok.
  virtual Status Remove(std::string_view path) = 0;
  // Errors: kAlreadyExists with the holder's text when somebody holds it.
  virtual Result<std::unique_ptr<StorageLock>> Lock(std::string_view path,
                                                    std::string_view holder) = 0;
  Status WriteAtomic(std::string_view path, std::string_view text) {
    return WriteAtomic(path, std::as_bytes(std::span(text)));
  }
};

Result<std::unique_ptr<Storage>> MakeDiskStorage(std::string root);  // creates the root
std::unique_ptr<Storage> MakeMemoryStorage();

}  // namespace troop
