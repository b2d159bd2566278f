// Implements MemoryStorage: files in memory with simulated disk failures and power loss.
#include "core/storage/memory_storage.h"

#include <algorithm>
#include <limits>
#include <map>
#include <mutex>
#include <set>

#include "core/storage/path.h"

namespace troop {
namespace {

// A file; the difference between `bytes` and `synced` is what a power loss may remove.
struct Contents {
  std::string bytes;
  std::size_t synced = 0;  // number of bytes that are durable
  bool named = false;      // true if the folder entry is durable
};

std::string_view TextOf(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// True if `path` is in `folder` or below it; folders exist only as prefixes of paths.
bool IsInside(std::string_view path, std::string_view folder) {
  return folder.empty() ||
         (path.size() > folder.size() && path.starts_with(folder) && path[folder.size()] == '/');
}

// Returns what remains of a file after a power loss.
Contents Torn(const Contents& file, Rng* rng) {
  // Any prefix of the unsynced bytes may have reached the disk.
  const std::size_t loose = file.bytes.size() - file.synced;
  Contents left;
  left.bytes = file.bytes.substr(0, file.synced + rng->Below(std::uint32_t(loose) + 1));
  // The length of a file may become durable before its bytes, which then read as zeros.
  const std::size_t kept = left.bytes.size() - file.synced;
  if (kept > 0 && rng->Below(4) == 0) {
    const std::size_t zeros = 1 + rng->Below(std::uint32_t(kept));
    std::fill(left.bytes.end() - std::ptrdiff_t(zeros), left.bytes.end(), '\0');
  }
  left.synced = left.bytes.size();
  left.named = true;
  return left;
}

}  // namespace

struct MemoryStorage::Disk {
  using Files = std::map<std::string, std::shared_ptr<Contents>, std::less<>>;
  mutable std::mutex mutex;
  // Shared pointers, because an open file keeps its bytes after it was removed.
  Files files;
  Files removed;                                          // may reappear after a power loss
  std::map<std::string, std::string, std::less<>> locks;  // path → holder
  std::int64_t changes = 0;
  std::int64_t fail_from = std::numeric_limits<std::int64_t>::max();
  Status failure;

  // Counts a modifying call, and returns its injected failure or ok.
  Status Change() {
    const std::int64_t number = changes++;
    return number >= fail_from ? failure : Status::Ok();
  }
  // True during the first failing change, which is half done if it is an append.
  bool first_failure() const { return changes == fail_from + 1; }
};

class MemoryStorage::File final : public AppendFile {
 public:
  File(std::shared_ptr<Disk> disk, std::shared_ptr<Contents> file)
      : disk_(std::move(disk)), file_(std::move(file)) {}
  using AppendFile::Append;
  // The first injected failure still writes half of the bytes, like a full disk.
  Status Append(std::span<const std::byte> bytes) override {
    std::lock_guard lock(disk_->mutex);
    const Status refused = disk_->Change();
    if (refused.ok()) {
      file_->bytes.append(TextOf(bytes));
    } else if (disk_->first_failure()) {
      file_->bytes.append(TextOf(bytes.first(bytes.size() / 2)));
    }
    return refused;
  }
  // Makes the bytes and, at the first call, the folder entry durable.
  Status Sync() override {
    std::lock_guard lock(disk_->mutex);
    TROOP_RETURN_IF_ERROR(disk_->Change());
    file_->synced = file_->bytes.size();
    if (!std::exchange(file_->named, true)) disk_->removed.clear();
    return Status::Ok();
  }

 private:
  const std::shared_ptr<Disk> disk_;
  const std::shared_ptr<Contents> file_;
};

// A lock, released by the destructor. It keeps the disk alive, not the storage.
class MemoryStorage::Held final : public StorageLock {
 public:
  Held(std::shared_ptr<Disk> disk, std::string path)
      : disk_(std::move(disk)), path_(std::move(path)) {}
  ~Held() override {
    std::lock_guard lock(disk_->mutex);
    disk_->locks.erase(path_);
  }

 private:
  const std::shared_ptr<Disk> disk_;
  const std::string path_;
};

MemoryStorage::MemoryStorage() : disk_(std::make_shared<Disk>()) {}
MemoryStorage::~MemoryStorage() = default;

// Number of modifying calls so far, by which a test places its failure.
std::int64_t MemoryStorage::changes() const {
  std::lock_guard lock(disk_->mutex);
  return disk_->changes;
}

void MemoryStorage::FailFrom(std::int64_t change, Status status) {
  std::lock_guard lock(disk_->mutex);
  disk_->fail_from = change;
  disk_->failure = std::move(status);
}

void MemoryStorage::Repair() {
  std::lock_guard lock(disk_->mutex);
  disk_->fail_from = std::numeric_limits<std::int64_t>::max();
}

// Iterates over sorted maps, so the result depends only on the generator.
std::unique_ptr<MemoryStorage> MemoryStorage::AfterPowerLoss(Rng* rng) const {
  auto after = std::make_unique<MemoryStorage>();
  std::lock_guard lock(disk_->mutex);
  for (const auto& [path, file] : disk_->removed) {
    // A removal whose folder was not synced may be undone.
    if (rng->Below(2)) after->disk_->files[path] = std::make_shared<Contents>(Torn(*file, rng));
  }
  for (const auto& [path, file] : disk_->files) {
    // A creation whose folder was not synced may be undone.
    if (!file->named && rng->Below(2)) continue;
    after->disk_->files[path] = std::make_shared<Contents>(Torn(*file, rng));
  }
  return after;
}

Status MemoryStorage::WriteAtomic(std::string_view path, std::span<const std::byte> bytes) {
  TROOP_RETURN_IF_ERROR(CheckStorageName(path));
  std::lock_guard lock(disk_->mutex);
  TROOP_RETURN_IF_ERROR(disk_->Change());
  // Atomic: complete and durable at once, as after the fsync of the folder.
  disk_->files[std::string(path)] =
      std::make_shared<Contents>(Contents{std::string(TextOf(bytes)), bytes.size(), true});
  disk_->removed.clear();
  return Status::Ok();
}

// Not counted as a change: a new file is not durable before its first Sync.
Result<std::unique_ptr<AppendFile>> MemoryStorage::OpenAppend(std::string_view path) {
  TROOP_RETURN_IF_ERROR(CheckStorageName(path));
  std::lock_guard lock(disk_->mutex);
  auto& file = disk_->files[std::string(path)];
  if (!file) file = std::make_shared<Contents>();
  return std::unique_ptr<AppendFile>(std::make_unique<File>(disk_, file));
}

// Returns a copy, since later appends may move the bytes.
Result<Buffer> MemoryStorage::Read(std::string_view path, std::size_t bytes_max) {
  TROOP_RETURN_IF_ERROR(CheckStoragePath(path));
  std::lock_guard lock(disk_->mutex);
  const auto it = disk_->files.find(path);
  if (it == disk_->files.end()) return NotFound("{}: no such file", path);
  const std::string& bytes = it->second->bytes;
  if (bytes.size() > bytes_max) {
    return ResourceExhausted("{} has {} bytes; the limit here is {}", path, bytes.size(),
                             bytes_max);
  }
  return Buffer::Copy(std::string_view(bytes));
}

// Durable at once, like the implementation on disk.
Status MemoryStorage::Truncate(std::string_view path, std::size_t bytes) {
  TROOP_RETURN_IF_ERROR(CheckStorageName(path));
  std::lock_guard lock(disk_->mutex);
  const auto it = disk_->files.find(path);
  if (it == disk_->files.end()) return NotFound("{}: no such file", path);
  Contents& file = *it->second;
  if (file.bytes.size() < bytes) {
    return InvalidArgument("{} has {} bytes; can't truncate it to {}", path, file.bytes.size(),
                           bytes);
  }
  TROOP_RETURN_IF_ERROR(disk_->Change());
  file.bytes.resize(bytes);
  file.synced = bytes;
  if (!std::exchange(file.named, true)) disk_->removed.clear();
  return Status::Ok();
}

// Folders are derived from the paths of files; their names end in a slash.
Result<std::vector<std::string>> MemoryStorage::List(std::string_view folder) {
  TROOP_RETURN_IF_ERROR(CheckStoragePath(folder));
  folder = StripTrailingSlash(folder);
  std::lock_guard lock(disk_->mutex);
  std::set<std::string> names;
  for (const auto& [path, bytes] : disk_->files) {
    if (!IsInside(path, folder)) continue;
    const std::string rest = path.substr(folder.empty() ? 0 : folder.size() + 1);
    const std::size_t slash = rest.find('/');
    names.insert(slash == rest.npos ? rest : rest.substr(0, slash + 1));
  }
  return std::vector<std::string>(names.begin(), names.end());
}

// A folder exists if a file is in it.
bool MemoryStorage::Exists(std::string_view path) {
  path = StripTrailingSlash(path);
  std::lock_guard lock(disk_->mutex);
  if (disk_->files.contains(path)) return true;
  for (const auto& [name, bytes] : disk_->files) {
    if (IsInside(name, path)) return true;
  }
  return false;
}

// Moves a file, or all files of a folder. Errors: kAlreadyExists for an existing target folder.
Status MemoryStorage::Rename(std::string_view from, std::string_view to) {
  TROOP_RETURN_IF_ERROR(CheckStorageName(from));
  TROOP_RETURN_IF_ERROR(CheckStorageName(to));
  std::lock_guard lock(disk_->mutex);
  Disk::Files moved;
  for (const auto& [name, bytes] : disk_->files) {
    if (IsInside(name, to)) {
      return AlreadyExists("can't rename {} to {}: that folder exists", from, to);
    }
    if (name == from) moved[std::string(to)] = bytes;
    if (IsInside(name, from)) moved[std::string(to) + name.substr(from.size())] = bytes;
  }
  if (moved.empty()) return NotFound("can't rename {}: no such file", from);
  TROOP_RETURN_IF_ERROR(disk_->Change());
  EraseLocked(from);
  for (auto& [name, bytes] : moved) disk_->files[name] = std::move(bytes);
  disk_->removed.clear();
  return Status::Ok();
}

// Removes a file, or a folder with its contents; neither has to exist.
Status MemoryStorage::Remove(std::string_view path) {
  path = StripTrailingSlash(path);
  TROOP_RETURN_IF_ERROR(CheckStorageName(path));
  std::lock_guard lock(disk_->mutex);
  TROOP_RETURN_IF_ERROR(disk_->Change());
  // Removed files may reappear until the next durable change of a folder.
  for (const auto& [name, file] : disk_->files) {
    if ((name == path || IsInside(name, path)) && file->named) disk_->removed[name] = file;
  }
  EraseLocked(path);
  return Status::Ok();
}

// Lock files are not files of this storage, so List does not return them.
Result<std::unique_ptr<StorageLock>> MemoryStorage::Lock(std::string_view path,
                                                         std::string_view holder) {
  TROOP_RETURN_IF_ERROR(CheckStorageName(path));
  std::lock_guard lock(disk_->mutex);
  const auto [it, fresh] = disk_->locks.try_emplace(std::string(path), holder);
  if (!fresh) return AlreadyExists("{} is held by {}", path, it->second);
  return std::unique_ptr<StorageLock>(std::make_unique<Held>(disk_, std::string(path)));
}

// REQUIRES: the caller holds the mutex.
void MemoryStorage::EraseLocked(std::string_view path) {
  std::erase_if(disk_->files, [path](const auto& entry) {
    return entry.first == path || IsInside(entry.first, path);
  });
}

std::unique_ptr<Storage> MakeMemoryStorage() { return std::make_unique<MemoryStorage>(); }

}  // namespace troop
