#include "fleet/launcher/process_memory.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

namespace troop {
namespace {

constexpr std::size_t kBytes = 32 << 20;

TEST(ProcessMemoryTest, CountsProcessAndChildren) {
  const std::int64_t before = ResidentBytesOfFamily();
  EXPECT_GT(before, 1 << 20);
  int ready[2], done[2];
  ASSERT_EQ(pipe(ready), 0);
  ASSERT_EQ(pipe(done), 0);
  const pid_t child = fork();
  char byte = 0;
  if (child == 0) {
    close(done[1]);
    const auto room = std::make_unique<char[]>(kBytes);
    std::memset(room.get(), 1, kBytes);
    if (write(ready[1], &byte, 1) != 1 || read(done[0], &byte, 1) < 0) _exit(2);
    _exit(room[kBytes / 2] == 1 ? 0 : 3);
  }
  close(ready[1]);
  EXPECT_EQ(read(ready[0], &byte, 1), 1);
  EXPECT_GT(ResidentBytesOfFamily(), before + std::int64_t(kBytes) / 2);
  close(done[1]);
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  for (const int file : {ready[0], done[0]}) close(file);
}

// Once an exception came out of a file of /proc whose process had gone.
TEST(ProcessMemoryTest, ToleratesProcessesThatExitMeanwhile) {
  std::atomic<bool> stop = false;
  std::jthread mortals([&] {
    while (!stop) {
      const pid_t child = fork();
      if (child == 0) _exit(0);
      waitpid(child, nullptr, 0);
    }
  });
  for (int i = 0; i < 100; ++i) EXPECT_GT(ResidentBytesOfFamily(), 0);
  stop = true;
}

}  // namespace
}  // namespace troop
