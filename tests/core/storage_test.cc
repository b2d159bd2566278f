#include "core/storage.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>

#include "tests/contracts/storage_contract.h"
#include "tests/core/temp_folder.h"

namespace troop {
namespace {

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

TEST(DiskStorageTest, AnotherStorageOfTheSameFolderSeesFilesAndLocks) {
  const TempFolder folder;
  auto one = MakeDiskStorage(folder.path()), two = MakeDiskStorage(folder.path() + "/.");
  ASSERT_TRUE(one.ok() && two.ok());
  ASSERT_TRUE((*one)->WriteAtomic("a/b", "text").ok());
  ASSERT_TRUE((*two)->Read("a/b", 10).ok());
  const auto lock = (*one)->Lock("lock", "one");
  EXPECT_EQ((*two)->Lock("lock", "two").status().code(), Code::kAlreadyExists);
}

TEST(DiskStorageTest, ALockGoesWithTheProcessThatHeldIt) {
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

TEST(DiskStorageTest, ARootThatIsAFileIsRefused) {
  const TempFolder folder;
  auto storage = MakeDiskStorage(folder.path());
  ASSERT_TRUE(storage.ok() && (*storage)->WriteAtomic("file", "x").ok());
  const auto inside = MakeDiskStorage(folder.path() + "/file");
  EXPECT_FALSE(inside.ok());
  EXPECT_THAT(inside.status().message(), testing::HasSubstr(folder.path() + "/file"));
}

TEST(DiskStorageTest, AWriteThatFailsLeavesNothingBehind) {
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
