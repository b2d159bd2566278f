#include "core/storage/storage.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <mutex>
#include <set>

#include "core/storage/memory_storage.h"
#include "tests/contracts/storage_contract.h"
#include "tests/core/temp_folder.h"

namespace troop {
namespace {

// Names of the files that fsync or fdatasync synced, recorded while `paths` is set.
struct SyncLog {
  std::mutex mutex;
  std::set<std::string>* paths = nullptr;

  void Note(int fd) {
    const std::lock_guard lock(mutex);
    char path[4096];
    const ssize_t n = readlink(fmt::format("/proc/self/fd/{}", fd).c_str(), path, sizeof path);
    if (paths != nullptr && n > 0) paths->insert(std::string(path, std::size_t(n)));
  }
};
SyncLog sync_log;

}  // namespace
}  // namespace troop

// They take the place of the library's: nothing else shows that something was synced.
extern "C" int fsync(int fd) {
  troop::sync_log.Note(fd);
  return int(syscall(SYS_fsync, fd));
}
extern "C" int fdatasync(int fd) {
  troop::sync_log.Note(fd);
  return int(syscall(SYS_fdatasync, fd));
}

namespace troop {
namespace {

class Synced {
 public:
  Synced() { Listen(&paths_); }
  ~Synced() { Listen(nullptr); }
  const std::set<std::string>& paths() const { return paths_; }

 private:
  static void Listen(std::set<std::string>* paths) {
    const std::lock_guard lock(sync_log.mutex);
    sync_log.paths = paths;
  }
  std::set<std::string> paths_;
};

class MemoryWorld final : public StorageWorld {
 public:
  Storage& storage() override { return *storage_; }

 private:
  const std::unique_ptr<Storage> storage_ = MakeMemoryStorage();
};

class DiskWorld final : public StorageWorld {
 public:
  DiskWorld() {
    auto storage = MakeDiskStorage(folder_.path() + "/root");
    EXPECT_TRUE(storage.ok()) << storage.status().ToString();
    storage_ = std::move(*storage);
  }
  Storage& storage() override { return *storage_; }

 private:
  const TempFolder folder_;
  std::unique_ptr<Storage> storage_;
};

template <class World>
std::unique_ptr<StorageWorld> MakeWorld() {
  return std::make_unique<World>();
}
INSTANTIATE_TEST_SUITE_P(Memory, StorageContract, testing::Values(&MakeWorld<MemoryWorld>));
INSTANTIATE_TEST_SUITE_P(Disk, StorageContract, testing::Values(&MakeWorld<DiskWorld>));

// A storage that only has what it must have.
class SmallWorld final : public StorageWorld {
 public:
  Storage& storage() override { return storage_; }

 private:
  class Small final : public Storage {
   public:
    Status WriteAtomic(std::string_view path, std::span<const std::byte> bytes) override {
      return all_.WriteAtomic(path, bytes);
    }
    Result<std::unique_ptr<AppendFile>> OpenAppend(std::string_view path) override {
      return all_.OpenAppend(path);
    }
    Result<Buffer> Read(std::string_view path, std::size_t bytes_max) override {
      return all_.Read(path, bytes_max);
    }
    Result<std::vector<std::string>> List(std::string_view folder) override {
      return all_.List(folder);
    }
    bool Exists(std::string_view path) override { return all_.Exists(path); }
    Status Rename(std::string_view from, std::string_view to) override {
      return all_.Rename(from, to);
    }
    Status Remove(std::string_view path) override { return all_.Remove(path); }
    Result<std::unique_ptr<StorageLock>> Lock(std::string_view path,
                                              std::string_view holder) override {
      return all_.Lock(path, holder);
    }

   private:
    MemoryStorage all_;
  };
  Small storage_;
};
INSTANTIATE_TEST_SUITE_P(Small, StorageContract, testing::Values(&MakeWorld<SmallWorld>));

Rng TestRng(std::uint64_t index) { return Rng({.purpose = Purpose::kTest, .index = index}); }

TEST(MemoryStorageTest, KeepsSyncedBytesAndPrefixOfRestAfterPowerLoss) {
  std::set<std::size_t> lengths;
  bool zeros = false;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    MemoryStorage storage;
    auto file = storage.OpenAppend("log");
    ASSERT_TRUE(file.ok() && (*file)->Append("synced").ok() && (*file)->Sync().ok());
    ASSERT_TRUE((*file)->Append("loose").ok());
    ASSERT_TRUE(storage.WriteAtomic("whole", "all").ok());
    Rng rng = TestRng(seed);
    const auto after = storage.AfterPowerLoss(&rng);
    EXPECT_EQ(after->Read("whole", 10)->text(), "all");
    const std::string left(after->Read("log", 20)->text());
    lengths.insert(left.size());
    zeros |= left.back() == '\0';
    ASSERT_TRUE(left.starts_with("synced"));
    for (std::size_t i = 6; i < left.size(); ++i) {
      EXPECT_TRUE(left[i] == '\0' || left[i] == "loose"[i - 6]) << i;
    }
  }
  EXPECT_THAT(lengths, testing::ElementsAre(6, 7, 8, 9, 10, 11));
  EXPECT_TRUE(zeros);
}

TEST(MemoryStorageTest, PowerLossMayUndoUnsyncedCreationsAndRemovals) {
  int missing = 0, back = 0, old = 0;
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    MemoryStorage storage;
    auto file = storage.OpenAppend("new");
    ASSERT_TRUE(file.ok() && (*file)->Append("x").ok());
    ASSERT_TRUE(storage.WriteAtomic("older", "o").ok() && storage.Remove("older").ok());
    ASSERT_TRUE(storage.WriteAtomic("removed", "r").ok() && storage.Remove("removed").ok());
    Rng rng = TestRng(seed);
    const auto after = storage.AfterPowerLoss(&rng);
    missing += !after->Exists("new");
    back += after->Exists("removed");
    old += after->Exists("older");
  }
  EXPECT_GT(missing, 20);
  EXPECT_GT(back, 20);
  EXPECT_LT(missing, 80);
  EXPECT_LT(back, 80);
  EXPECT_EQ(old, 0);  // a folder was synced since
}

TEST(MemoryStorageTest, FailsChangesFromGivenOneTearingFirstAppend) {
  MemoryStorage storage;
  auto file = storage.OpenAppend("log");
  ASSERT_TRUE(file.ok() && (*file)->Append("abc").ok() && (*file)->Sync().ok());
  ASSERT_EQ(storage.changes(), 2);
  storage.FailFrom(3, ResourceExhausted("full"));
  EXPECT_TRUE(storage.WriteAtomic("a", "1").ok());
  EXPECT_EQ((*file)->Append("defg").code(), Code::kResourceExhausted);
  EXPECT_EQ((*file)->Append("hijk").code(), Code::kResourceExhausted);
  EXPECT_EQ((*file)->Sync().code(), Code::kResourceExhausted);
  EXPECT_EQ(storage.WriteAtomic("a", "2").code(), Code::kResourceExhausted);
  EXPECT_EQ(storage.Rename("a", "b").code(), Code::kResourceExhausted);
  EXPECT_EQ(storage.Remove("a").code(), Code::kResourceExhausted);
  EXPECT_EQ(storage.Truncate("log", 0).code(), Code::kResourceExhausted);
  EXPECT_EQ(storage.Read("a", 9)->text(), "1");
  EXPECT_EQ(storage.Read("log", 9)->text(), "abcde");
  storage.Repair();
  EXPECT_TRUE(storage.Truncate("log", 3).ok());
  EXPECT_TRUE((*file)->Append("d").ok());
  EXPECT_EQ(storage.Read("log", 9)->text(), "abcd");
}

TEST(DiskStorageTest, SharesFilesAndLocksWithStorageOfSameFolder) {
  const TempFolder folder;
  auto one = MakeDiskStorage(folder.path()), two = MakeDiskStorage(folder.path() + "/.");
  ASSERT_TRUE(one.ok() && two.ok());
  ASSERT_TRUE((*one)->WriteAtomic("a/b", "text").ok());
  ASSERT_TRUE((*two)->Read("a/b", 10).ok());
  const auto lock = (*one)->Lock("lock", "one");
  EXPECT_EQ((*two)->Lock("lock", "two").status().code(), Code::kAlreadyExists);
}

TEST(DiskStorageTest, ReleasesLockWhenHolderDies) {
  const TempFolder folder;
  auto storage = MakeDiskStorage(folder.path());
  ASSERT_TRUE(storage.ok());
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = fork();
  if (child == 0) {
    const auto lock = (*storage)->Lock("lock", "the child");
    const char byte = lock.ok() ? 'y' : 'n';
    if (write(ready[1], &byte, 1) != 1) _exit(1);
    pause();
  }
  char byte = 0;
  ASSERT_EQ(read(ready[0], &byte, 1), 1);
  EXPECT_EQ(byte, 'y');
  EXPECT_THAT((*storage)->Lock("lock", "me").status().message(),
              testing::HasSubstr("is held by the child"));
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  EXPECT_TRUE((*storage)->Lock("lock", "me").ok());
  for (const int fd : ready) close(fd);
}

TEST(DiskStorageTest, RejectsFileAsRoot) {
  const TempFolder folder;
  auto storage = MakeDiskStorage(folder.path());
  ASSERT_TRUE(storage.ok() && (*storage)->WriteAtomic("file", "x").ok());
  const auto inside = MakeDiskStorage(folder.path() + "/file");
  EXPECT_FALSE(inside.ok());
  EXPECT_THAT(inside.status().message(), testing::HasSubstr(folder.path() + "/file"));
}

TEST(DiskStorageTest, SyncsBytesBeforeRename) {
  const TempFolder folder;
  const std::string root = std::filesystem::canonical(folder.path()).string();
  auto storage = MakeDiskStorage(root);
  ASSERT_TRUE(storage.ok());
  const Synced synced;
  ASSERT_TRUE((*storage)->WriteAtomic("file", "x").ok());
  const auto of_file = [&](const std::string& path) { return path.starts_with(root + "/file"); };
  EXPECT_EQ(std::ranges::count_if(synced.paths(), of_file), 1);
  EXPECT_FALSE(synced.paths().contains(root + "/file"));  // by another name
}

TEST(DiskStorageTest, SyncOfAppendedFileSyncsItsBytes) {
  const TempFolder folder;
  const std::string root = std::filesystem::canonical(folder.path()).string();
  auto storage = MakeDiskStorage(root);
  ASSERT_TRUE(storage.ok());
  auto file = (*storage)->OpenAppend("log");
  ASSERT_TRUE(file.ok());
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE((*file)->Append("x").ok());
    const Synced synced;
    ASSERT_TRUE((*file)->Sync().ok());
    EXPECT_TRUE(synced.paths().contains(root + "/log")) << i;
  }
}

// A folder that was there already was taken for one whose entry is durable.
TEST(DiskStorageTest, FirstSyncOfFileSyncsAllParentFolders) {
  const TempFolder folder;
  const std::string root = std::filesystem::canonical(folder.path()).string() + "/run/shard";
  const std::string log = root + "/table/segments";
  for (int life = 0; life < 2; ++life) {
    auto storage = MakeDiskStorage(root + "/");
    ASSERT_TRUE(storage.ok());
    const auto lock = (*storage)->Lock("table/lock", "me");
    ASSERT_TRUE(lock.ok());
    auto file = (*storage)->OpenAppend("table/segments/1.log");
    ASSERT_TRUE(file.ok() && (*file)->Append("x").ok());
    const Synced synced;
    ASSERT_TRUE((*file)->Sync().ok());
    for (const std::string& path : {log, root + "/table", root, folder.path() + "/run"}) {
      EXPECT_TRUE(synced.paths().contains(std::filesystem::canonical(path))) << path;
    }
  }
}

TEST(DiskStorageTest, NextSyncOrTruncateSyncsFolderOfUnsyncedFile) {
  for (const bool cut : {false, true}) {
    const TempFolder folder;
    const std::string root = std::filesystem::canonical(folder.path()).string();
    auto storage = MakeDiskStorage(root);
    ASSERT_TRUE((*storage)->WriteAtomic("a/first", "x").ok());
    { ASSERT_TRUE((*storage)->OpenAppend("a/log").ok()); }  // its append failed
    auto file = (*storage)->OpenAppend("a/log");
    const Synced synced;
    ASSERT_TRUE((cut ? (*storage)->Truncate("a/log", 0) : (*file)->Sync()).ok());
    EXPECT_TRUE(synced.paths().contains(root + "/a"));
    EXPECT_FALSE(synced.paths().contains(root));  // known since the first file
  }
}

TEST(DiskStorageTest, SyncsRecreatedFolderAfterRemoveOrRename) {
  for (const bool rename : {false, true}) {
    const TempFolder folder;
    const std::string root = std::filesystem::canonical(folder.path()).string();
    auto storage = MakeDiskStorage(root);
    ASSERT_TRUE((*storage)->WriteAtomic("a/b/file", "x").ok());
    ASSERT_TRUE((rename ? (*storage)->Rename("a", "other") : (*storage)->Remove("a")).ok());
    const Synced synced;
    ASSERT_TRUE((*storage)->WriteAtomic("a/b/file", "x").ok());
    EXPECT_TRUE(synced.paths().contains(root + "/a"));
    EXPECT_TRUE(synced.paths().contains(root));
  }
}

TEST(DiskStorageTest, LinksWithoutCopyAndSyncsFolders) {
  const TempFolder folder;
  const std::string root = std::filesystem::canonical(folder.path()).string();
  auto storage = MakeDiskStorage(root);
  ASSERT_TRUE((*storage)->WriteAtomic("a/file", "x").ok());
  const Synced synced;
  ASSERT_TRUE((*storage)->Link("a/file", "b/file").ok());
  EXPECT_EQ(std::filesystem::hard_link_count(root + "/a/file"), 2u);
  EXPECT_TRUE(synced.paths().contains(root + "/b"));
  EXPECT_TRUE(synced.paths().contains(root));
}

TEST(DiskStorageTest, FailedWriteLeavesNoFiles) {
  const TempFolder folder;
  auto storage = MakeDiskStorage(folder.path());
  ASSERT_TRUE(storage.ok() && (*storage)->WriteAtomic("taken/file", "x").ok());
  EXPECT_FALSE((*storage)->WriteAtomic("taken", "y").ok());  // a folder has that name
  EXPECT_FALSE((*storage)->WriteAtomic("taken/file/below", "y").ok());
  EXPECT_THAT(*(*storage)->List(""), testing::ElementsAre("taken/"));
  EXPECT_THAT(*(*storage)->List("taken"), testing::ElementsAre("file"));
}

}  // namespace
}  // namespace troop
