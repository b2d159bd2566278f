#include <map>
#include <mutex>
#include <set>

#include "core/storage.h"
#include "core/storage_path.h"

namespace troop {
namespace {

// Shared with the files and locks that were handed out. Thread safe, as the disk is.
struct MemoryFiles {
  std::mutex mutex;
  // Shared, since an open file keeps its bytes when its name goes.
  std::map<std::string, std::shared_ptr<std::string>, std::less<>> files;
  std::map<std::string, std::string, std::less<>> locks;  // path → holder
};

class MemoryAppendFile final : public AppendFile {
 public:
  MemoryAppendFile(std::shared_ptr<MemoryFiles> files, std::shared_ptr<std::string> bytes)
      : files_(std::move(files)), bytes_(std::move(bytes)) {}
  using AppendFile::Append;
  Status Append(std::span<const std::byte> bytes) override {
    std::lock_guard lock(files_->mutex);
    bytes_->append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    return Status::Ok();
  }
  Status Sync() override { return Status::Ok(); }

 private:
  const std::shared_ptr<MemoryFiles> files_;
  const std::shared_ptr<std::string> bytes_;
};

class MemoryLock final : public StorageLock {
 public:
  MemoryLock(std::shared_ptr<MemoryFiles> files, std::string path)
      : files_(std::move(files)), path_(std::move(path)) {}
  ~MemoryLock() override {
    std::lock_guard lock(files_->mutex);
    files_->locks.erase(path_);
  }

 private:
  const std::shared_ptr<MemoryFiles> files_;
  const std::string path_;
};

bool IsInside(std::string_view path, std::string_view folder) {
  return folder.empty() ||
         (path.size() > folder.size() && path.starts_with(folder) && path[folder.size()] == '/');
}

class MemoryStorage final : public Storage {
 public:
  Status WriteAtomic(std::string_view path, std::span<const std::byte> bytes) override {
    TROOP_RETURN_IF_ERROR(CheckStorageName(path));
    std::lock_guard lock(files_->mutex);
    files_->files[std::string(path)] =
        std::make_shared<std::string>(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    return Status::Ok();
  }
  Result<std::unique_ptr<AppendFile>> OpenAppend(std::string_view path) override {
    TROOP_RETURN_IF_ERROR(CheckStorageName(path));
    std::lock_guard lock(files_->mutex);
    auto& bytes = files_->files[std::string(path)];
    if (!bytes) bytes = std::make_shared<std::string>();
    return std::unique_ptr<AppendFile>(std::make_unique<MemoryAppendFile>(files_, bytes));
  }
  Result<Buffer> Read(std::string_view path, std::size_t bytes_max) override {
    TROOP_RETURN_IF_ERROR(CheckStoragePath(path));
    std::lock_guard lock(files_->mutex);
    const auto it = files_->files.find(path);
    if (it == files_->files.end()) return NotFound("{}: no such file", path);
    if (it->second->size() > bytes_max) {
      return ResourceExhausted("{} has {} bytes; the limit here is {}", path, it->second->size(),
                               bytes_max);
    }
    return Buffer::Copy(std::string_view(*it->second));
  }
  Result<std::vector<std::string>> List(std::string_view folder) override {
    TROOP_RETURN_IF_ERROR(CheckStoragePath(folder));
    folder = WithoutSlash(folder);
    std::lock_guard lock(files_->mutex);
    std::set<std::string> names;
    for (const auto& [path, bytes] : files_->files) {
      if (!IsInside(path, folder)) continue;
      const std::string rest = path.substr(folder.empty() ? 0 : folder.size() + 1);
      const std::size_t slash = rest.find('/');
      names.insert(slash == rest.npos ? rest : rest.substr(0, slash + 1));
    }
    return std::vector<std::string>(names.begin(), names.end());
  }
  bool Exists(std::string_view path) override {
    path = WithoutSlash(path);
    std::lock_guard lock(files_->mutex);
    if (files_->files.contains(path)) return true;
    for (const auto& [name, bytes] : files_->files) {
      if (IsInside(name, path)) return true;
    }
    return false;
  }
  Status Rename(std::string_view from, std::string_view to) override {
    TROOP_RETURN_IF_ERROR(CheckStorageName(from));
    TROOP_RETURN_IF_ERROR(CheckStorageName(to));
    std::lock_guard lock(files_->mutex);
    decltype(files_->files) moved;
    for (const auto& [name, bytes] : files_->files) {
      if (IsInside(name, to)) {
        return AlreadyExists("can't rename {} to {}: that folder exists", from, to);
      }
      if (name == from) moved[std::string(to)] = bytes;
      if (IsInside(name, from)) moved[std::string(to) + name.substr(from.size())] = bytes;
    }
    if (moved.empty()) return NotFound("can't rename {}: no such file", from);
    EraseLocked(from);
    for (auto& [name, bytes] : moved) files_->files[name] = std::move(bytes);
    return Status::Ok();
  }
  Status Remove(std::string_view path) override {
    path = WithoutSlash(path);
    TROOP_RETURN_IF_ERROR(CheckStorageName(path));
    std::lock_guard lock(files_->mutex);
    EraseLocked(path);
    return Status::Ok();
  }
  Result<std::unique_ptr<StorageLock>> Lock(std::string_view path,
                                            std::string_view holder) override {
    TROOP_RETURN_IF_ERROR(CheckStorageName(path));
    std::lock_guard lock(files_->mutex);
    const auto [it, fresh] = files_->locks.try_emplace(std::string(path), holder);
    if (!fresh) return AlreadyExists("{} is held by {}", path, it->second);
    return std::unique_ptr<StorageLock>(std::make_unique<MemoryLock>(files_, std::string(path)));
  }

 private:
  void EraseLocked(std::string_view path) {
    std::erase_if(files_->files, [path](const auto& entry) {
      return entry.first == path || IsInside(entry.first, path);
    });
  }
  const std::shared_ptr<MemoryFiles> files_ = std::make_shared<MemoryFiles>();
};

}  // namespace

std::unique_ptr<Storage> MakeMemoryStorage() { return std::make_unique<MemoryStorage>(); }

}  // namespace troop
