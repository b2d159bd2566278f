// Implements Storage on the file system. Writes are durable: file first, then its folder entries.
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <mutex>
#include <set>

#include "core/base/failpoint.h"
#include "core/base/phase_progress.h"
#include "core/storage/path.h"
#include "core/storage/storage.h"

namespace troop {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMiB = std::size_t{1} << 20;
// Chunk size of reads, which lets progress be shown for large files.
constexpr std::size_t kReadBytesPerCall = 16 * kMiB;

// Converts an errno to a Status; a full disk, a quota and a file-size limit are kResourceExhausted.
Status FromErrno(int error, std::string_view what, const std::string& path) {
  const Code code = error == ENOENT                      ? Code::kNotFound
                    : error == ENOSPC || error == EDQUOT ? Code::kResourceExhausted
                    : error == EFBIG                     ? Code::kResourceExhausted
                    : error == EEXIST                    ? Code::kAlreadyExists
                                                         : Code::kUnavailable;
  return MakeStatus(code, "{} {}: {}{}", what, path, strerror(error),
                    error == EFBIG ? " (ulimit -f)" : "");
}

// A file descriptor, closed by the destructor.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&&) = delete;
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  int get() const { return fd_; }

 private:
  int fd_;
};

// Writes all bytes; write may accept fewer, at most 2 GiB per call.
Status WriteAll(int fd, std::span<const std::byte> bytes, const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t n = write(fd, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return FromErrno(errno, "can't write", path);
    bytes = bytes.subspan(std::size_t(n));
  }
  return Status::Ok();
}

// Makes the entries of one folder durable.
Status SyncFolder(const fs::path& folder) {
  const Descriptor fd(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (fd.get() < 0 || fsync(fd.get()) != 0) return FromErrno(errno, "can't sync", folder.string());
  return Status::Ok();
}

// Makes folder entries durable. The existence of a folder does not imply that its entry is durable:
// its creator may have been killed before the sync. So every folder that this process has not
// synced counts as new. Thread safe.
class FolderSync {
 public:
  explicit FolderSync(fs::path root) : root_(std::move(root)) {}

  // Syncs the entry of a file in `folder`, and the entries of all folders above it.
  Status Sync(const fs::path& folder) {
    TROOP_RETURN_IF_ERROR(SyncFolder(folder));
    for (fs::path at = folder; !Knows(at); at = at.parent_path()) {
      TROOP_RETURN_IF_ERROR(at == root_ ? SyncAbove(at) : SyncFolder(at.parent_path()));
      const std::lock_guard lock(mutex_);
      durable_.insert(at);
      if (at == root_) break;
    }
    return Status::Ok();
  }
  // Drops a renamed or removed folder, because a later one of the same name is a different one.
  void Forget(const fs::path& path) {
    const std::string below = path.string() + "/";
    const std::lock_guard lock(mutex_);
    std::erase_if(durable_, [&](const fs::path& folder) {
      return folder == path || folder.string().starts_with(below);
    });
  }

 private:
  // True if this process has made the folder entry durable.
  bool Knows(const fs::path& folder) {
    const std::lock_guard lock(mutex_);
    return durable_.contains(folder);
  }
  // Syncs the folders above the root. One that can't be opened or synced was not created by this
  // process, so it is skipped.
  static Status SyncAbove(fs::path at) {
    while (at.has_relative_path()) {
      at = at.parent_path();
      const Descriptor fd(open(at.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
      if (fd.get() < 0) break;
      if (fsync(fd.get()) == 0) continue;
      if (errno == EIO) return FromErrno(errno, "can't sync", at.string());
      break;
    }
    return Status::Ok();
  }

  const fs::path root_;
  std::mutex mutex_;
  // Folders whose entries are durable; guarded by mutex_.
  std::set<fs::path> durable_;
};

// An append file; its first Sync also makes its folder entry durable.
class DiskAppendFile final : public AppendFile {
 public:
  DiskAppendFile(Descriptor fd, fs::path path, std::shared_ptr<FolderSync> folders)
      : fd_(std::move(fd)), path_(std::move(path)), folders_(std::move(folders)) {}
  using AppendFile::Append;
  Status Append(std::span<const std::byte> bytes) override {
    return WriteAll(fd_.get(), bytes, path_.string());
  }
  Status Sync() override {
    if (fdatasync(fd_.get()) != 0) return FromErrno(errno, "can't sync", path_.string());
    if (named_) return Status::Ok();
    TROOP_RETURN_IF_ERROR(folders_->Sync(path_.parent_path()));
    named_ = true;
    return Status::Ok();
  }

 private:
  const Descriptor fd_;
  const fs::path path_;
  const std::shared_ptr<FolderSync> folders_;
  bool named_ = false;  // true if the folder entry of the file is durable
};

// A mapped file, unmapped with the last Buffer that uses it.
struct Mapping {
  explicit Mapping(std::span<std::byte> mapped) : bytes(mapped) {}
  Mapping(const Mapping&) = delete;
  ~Mapping() { munmap(bytes.data(), bytes.size()); }
  const std::span<std::byte> bytes;
};

// An flock, which the kernel releases when the process ends.
class DiskLock final : public StorageLock {
 public:
  explicit DiskLock(Descriptor fd) : fd_(std::move(fd)) {}

 private:
  const Descriptor fd_;  // closing it releases the lock
};

// Storage under one root folder. The only state that changes is folders_, which is thread safe.
class DiskStorage final : public Storage {
 public:
  explicit DiskStorage(fs::path root)
      : root_(std::move(root)), folders_(std::make_shared<FolderSync>(root_)) {}

  // After a crash the target has either its old or its new bytes, never a part of them.
  Status WriteAtomic(std::string_view path, std::span<const std::byte> bytes) override {
    TROOP_ASSIGN_OR_RETURN(const fs::path target, MakeFolderOf(path));
    // Steps: write a temporary file, sync it, rename it, sync the folder.
    const fs::path temporary = target.string() + ".tmp";
    {
      const Descriptor fd(open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
      if (fd.get() < 0) return FromErrno(errno, "can't create", temporary.string());
      HitFailpoint(Failpoint::kDiskCreated);
      // Two writes with failpoints between the steps: a test can end the process after each of
      // them.
      const std::size_t half = bytes.size() / 2;
      Status written = WriteAll(fd.get(), bytes.first(half), temporary.string());
      HitFailpoint(Failpoint::kDiskHalf);
      if (written.ok()) written = WriteAll(fd.get(), bytes.subspan(half), temporary.string());
      HitFailpoint(Failpoint::kDiskWritten);
      if (written.ok() && fsync(fd.get()) != 0) {
        written = FromErrno(errno, "can't sync", temporary.string());
      }
      if (!written.ok()) {
        unlink(temporary.c_str());
        return written;
      }
      HitFailpoint(Failpoint::kDiskSynced);
    }
    if (rename(temporary.c_str(), target.c_str()) != 0) {
      const Status failed = FromErrno(errno, "can't replace", target.string());
      unlink(temporary.c_str());
      return failed;
    }
    HitFailpoint(Failpoint::kDiskRenamed);
    return folders_->Sync(target.parent_path());
  }

  // The file may be new: its folder entry is durable after the first Sync.
  Result<std::unique_ptr<AppendFile>> OpenAppend(std::string_view path) override {
    TROOP_ASSIGN_OR_RETURN(const fs::path target, MakeFolderOf(path));
    Descriptor fd(open(target.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
    if (fd.get() < 0) return FromErrno(errno, "can't open", target.string());
    return std::unique_ptr<AppendFile>(
        std::make_unique<DiskAppendFile>(std::move(fd), target, folders_));
  }

  // The mapping stays valid after the descriptor is closed and after the file is replaced.
  Result<Buffer> Map(std::string_view path) override {
    TROOP_ASSIGN_OR_RETURN(const fs::path target, Resolve(path));
    const Descriptor fd(open(target.c_str(), O_RDONLY | O_CLOEXEC));
    struct stat info {};
    if (fd.get() < 0 || fstat(fd.get(), &info) != 0) {
      return FromErrno(errno, "can't open", target.string());
    }
    if (!S_ISREG(info.st_mode)) return NotFound("{} is not a regular file", target.string());
    const auto size = std::size_t(info.st_size);
    if (size == 0) return Buffer();
    void* const data = mmap(nullptr, size, PROT_READ, MAP_SHARED, fd.get(), 0);
    if (data == MAP_FAILED) return FromErrno(errno, "can't map", target.string());
    auto mapping = std::make_shared<const Mapping>(std::span(static_cast<std::byte*>(data), size));
    const std::span<const std::byte> bytes = mapping->bytes;
    return Buffer(std::move(mapping), bytes);
  }

  // Refuses to extend a file: the gap would read as zeros.
  Status Truncate(std::string_view path, std::size_t bytes) override {
    TROOP_RETURN_IF_ERROR(CheckStorageName(path));
    const fs::path target = root_ / path;
    const Descriptor fd(open(target.c_str(), O_WRONLY | O_CLOEXEC));
    struct stat info {};
    if (fd.get() < 0 || fstat(fd.get(), &info) != 0) {
      return FromErrno(errno, "can't open", target.string());
    }
    if (std::size_t(info.st_size) < bytes) {
      return InvalidArgument("{} has {} bytes; can't truncate it to {}", target.string(),
                             info.st_size, bytes);
    }
    if (ftruncate(fd.get(), off_t(bytes)) != 0 || fsync(fd.get()) != 0) {
      return FromErrno(errno, "can't truncate", target.string());
    }
    return folders_->Sync(target.parent_path());
  }

  // Compares the size with the limit before it allocates.
  Result<Buffer> Read(std::string_view path, std::size_t bytes_max) override {
    TROOP_ASSIGN_OR_RETURN(const fs::path target, Resolve(path));
    const Descriptor fd(open(target.c_str(), O_RDONLY | O_CLOEXEC));
    struct stat info {};
    if (fd.get() < 0 || fstat(fd.get(), &info) != 0) {
      return FromErrno(errno, "can't open", target.string());
    }
    if (!S_ISREG(info.st_mode)) return NotFound("{} is not a regular file", target.string());
    const auto size = std::size_t(info.st_size);
    if (size > bytes_max) {
      return ResourceExhausted("{} has {} bytes; the limit here is {}", target.string(), size,
                               bytes_max);
    }
    MutableBuffer buffer(size);
    PhaseProgress progress("reading " + target.string(), "MiB", std::int64_t(size / kMiB));
    for (std::size_t done = 0; done < size;) {
      const ssize_t n =
          read(fd.get(), buffer.data() + done, std::min(size - done, kReadBytesPerCall));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return FromErrno(errno, "can't read", target.string());
      // A shared file may be truncated by another process while it is read.
      if (n == 0) return DataLoss("{} was truncated while it was read", target.string());
      done += std::size_t(n);
      progress.Show(std::int64_t(done / kMiB));
    }
    return std::move(buffer).Freeze();
  }

  // A missing folder is empty. Sorted, because the order of entries depends on the file system.
  Result<std::vector<std::string>> List(std::string_view folder) override {
    TROOP_ASSIGN_OR_RETURN(const fs::path target, Resolve(folder));
    std::vector<std::string> names;
    std::error_code error;
    if (!fs::exists(target, error)) return names;
    for (fs::directory_iterator it(target, error), end; !error && it != end; it.increment(error)) {
      std::error_code ignored;
      names.push_back(it->path().filename().string() + (it->is_directory(ignored) ? "/" : ""));
    }
    if (error) return FromErrno(error.value(), "can't list", target.string());
    std::ranges::sort(names);
    return names;
  }

  // False also for invalid paths, which no file can have.
  bool Exists(std::string_view path) override {
    const Result<fs::path> target = Resolve(path);
    std::error_code error;
    return target.ok() && fs::exists(*target, error);
  }

  // Replaces a file, but not a folder: rename(2) would replace an empty one.
  Status Rename(std::string_view from, std::string_view to) override {
    TROOP_RETURN_IF_ERROR(CheckStorageName(from));
    const fs::path source = root_ / from;
    TROOP_ASSIGN_OR_RETURN(const fs::path target, MakeFolderOf(to));
    std::error_code error;
    if (fs::is_directory(target, error)) {
      return AlreadyExists("can't rename {} to {}: that folder exists", source.string(),
                           target.string());
    }
    if (rename(source.c_str(), target.c_str()) != 0) {
      return FromErrno(errno, "can't rename", source.string());
    }
    folders_->Forget(source);
    return folders_->Sync(target.parent_path());
  }

  // Creates a hard link, or a copy if the file system does not support links.
  Status Link(std::string_view from, std::string_view to) override {
    TROOP_ASSIGN_OR_RETURN(const fs::path source, Resolve(from));
    TROOP_ASSIGN_OR_RETURN(const fs::path target, MakeFolderOf(to));
    const fs::path temporary = target.string() + ".tmp";
    unlink(temporary.c_str());
    if (link(source.c_str(), temporary.c_str()) != 0) {
      return errno == ENOENT ? FromErrno(errno, "can't link", source.string())
                             : Storage::Link(from, to);
    }
    if (rename(temporary.c_str(), target.c_str()) != 0) {
      const Status failed = FromErrno(errno, "can't replace", target.string());
      unlink(temporary.c_str());
      return failed;
    }
    unlink(temporary.c_str());  // rename does nothing if both are links to the same file
    return folders_->Sync(target.parent_path());
  }

  // Not synced: a removed file may reappear after a power loss.
  Status Remove(std::string_view path) override {
    path = StripTrailingSlash(path);
    TROOP_RETURN_IF_ERROR(CheckStorageName(path));
    const fs::path target = root_ / path;
    std::error_code error;
    fs::remove_all(target, error);
    folders_->Forget(target);
    return error ? FromErrno(error.value(), "can't remove", target.string()) : Status::Ok();
  }

  // Advisory and without waiting. The file stays after the release; only the flock counts.
  Result<std::unique_ptr<StorageLock>> Lock(std::string_view path,
                                            std::string_view holder) override {
    TROOP_ASSIGN_OR_RETURN(const fs::path target, MakeFolderOf(path));
    Descriptor fd(open(target.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
    if (fd.get() < 0) return FromErrno(errno, "can't open", target.string());
    if (flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
      // The lock file contains a description of its holder.
      char text[200] = {};
      const ssize_t n = read(fd.get(), text, sizeof text - 1);
      return AlreadyExists("{} is held by {}", target.string(),
                           n > 0 ? std::string(text, std::size_t(n)) : "another process");
    }
    // The description of a previous holder may be longer.
    if (ftruncate(fd.get(), 0) != 0) return FromErrno(errno, "can't write", target.string());
    TROOP_RETURN_IF_ERROR(WriteAll(fd.get(), std::as_bytes(std::span(holder)), target.string()));
    return std::unique_ptr<StorageLock>(std::make_unique<DiskLock>(std::move(fd)));
  }

 private:
  // Path of a file or folder that is read.
  Result<fs::path> Resolve(std::string_view path) const {
    TROOP_RETURN_IF_ERROR(CheckStoragePath(path));
    return path.empty() ? root_ : root_ / path;
  }
  // Path of a file that is written; creates its folder.
  Result<fs::path> MakeFolderOf(std::string_view path) const {
    TROOP_RETURN_IF_ERROR(CheckStorageName(path));
    fs::path target = root_ / path;
    std::error_code error;
    fs::create_directories(target.parent_path(), error);
    if (error) return FromErrno(error.value(), "can't create", target.parent_path().string());
    return target;
  }

  const fs::path root_;
  const std::shared_ptr<FolderSync> folders_;
};

}  // namespace

// Creates the root folder. Errors: those of FromErrno.
Result<std::unique_ptr<Storage>> MakeDiskStorage(std::string root) {
  std::error_code error;
  fs::create_directories(root, error);
  if (error) return FromErrno(error.value(), "can't create", root);
  // Absolute, so that a later change of the working folder has no effect.
  fs::path absolute = fs::absolute(root, error).lexically_normal();
  if (!absolute.has_filename()) absolute = absolute.parent_path();  // "root/" becomes "root"
  return std::unique_ptr<Storage>(std::make_unique<DiskStorage>(absolute));
}

}  // namespace troop
