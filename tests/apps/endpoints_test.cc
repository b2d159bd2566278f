#include "apps/endpoints.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <chrono>
#include <filesystem>
#include <fstream>

#include "tests/core/temp_folder.h"

namespace troop {
namespace {

namespace fs = std::filesystem;

class EndpointsTest : public testing::Test {
 protected:
  EndpointsTest() { setenv("TMPDIR", temp_.path().c_str(), 1); }
  ~EndpointsTest() override { unsetenv("TMPDIR"); }
  std::string Folder(const std::string& name, bool old) {
    const std::string path = temp_.path() + "/" + name;
    fs::create_directory(path);
    if (old) MakeOld(path);
    return path;
  }
  static void MakeOld(const std::string& path) {
    fs::last_write_time(path, fs::file_time_type::clock::now() - std::chrono::hours(1));
  }

  TempFolder temp_;
};

TEST_F(EndpointsTest, ItsFolderLivesAsLongAsItself) {
  auto endpoints = *Endpoints::Make({});
  const std::string folder = endpoints->folder();
  EXPECT_TRUE(fs::exists(folder + "/owner"));
  EXPECT_TRUE(endpoints->For(Role::kReplay, 0).starts_with("ipc://" + folder));
  endpoints.reset();
  EXPECT_FALSE(fs::exists(folder));
}

// A launcher killed before it had locked its new folder, or while it removed another's, left one
// without an owner: it stayed for ever.
TEST_F(EndpointsTest, FoldersOfKilledLaunchersGoAlsoThoseWithoutAnOwner) {
  const std::string bare = Folder("troop-run-aaaaaa", true);
  const std::string owned = Folder("troop-run-bbbbbb", false);
  std::ofstream(owned + "/owner") << "process 1";
  MakeOld(owned);
  const auto endpoints = *Endpoints::Make({});
  EXPECT_FALSE(fs::exists(bare));
  EXPECT_FALSE(fs::exists(owned));
}

TEST_F(EndpointsTest, WhatIsYoungOrHeldOrNotItsOwnStays) {
  const std::string young = Folder("troop-run-cccccc", false);
  const std::string other = Folder("troop-results", true);
  const auto first = *Endpoints::Make({});
  MakeOld(first->folder());
  const auto second = *Endpoints::Make({});
  EXPECT_TRUE(fs::exists(young));
  EXPECT_TRUE(fs::exists(other));
  EXPECT_TRUE(fs::exists(first->folder()));
}

}  // namespace
}  // namespace troop
