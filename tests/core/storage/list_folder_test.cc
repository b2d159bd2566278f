// Folders that can be listed, and folders that cannot. tests/system/offline_run_test.cc has one
// that fails after its first entry.
#include "core/storage/list_folder.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <fstream>

#include "tests/core/temp_folder.h"

namespace troop {
namespace {

TEST(ListFolderTest, ListsSortedPaths) {
  const TempFolder folder;
  EXPECT_TRUE(ListFolder(folder.path())->empty());
  std::vector<std::filesystem::path> expected;
  for (const char* name : {"a", "b", "c"}) expected.push_back(folder.path() + "/" + name);
  for (const int i : {2, 0, 1}) std::ofstream(expected[std::size_t(i)]) << "";
  const auto listed = ListFolder(folder.path());
  ASSERT_TRUE(listed.ok()) << listed.status().ToString();
  EXPECT_EQ(*listed, expected);
}

TEST(ListFolderTest, MissingFolderIsNotFound) {
  const TempFolder folder;
  EXPECT_EQ(ListFolder(folder.path() + "/none").status().code(), Code::kNotFound);
}

// Without a free file descriptor no folder can be opened.
TEST(ListFolderTest, UnreadableFolderIsNotEmpty) {
  const TempFolder folder;
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none{.rlim_cur = 0, .rlim_max = before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  const auto listed = ListFolder(folder.path());
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_EQ(listed.status().code(), Code::kUnavailable);
  EXPECT_NE(listed.status().message().find(folder.path() + ": can't list the folder"),
            std::string::npos)
      << listed.status().message();
}

}  // namespace
}  // namespace troop
