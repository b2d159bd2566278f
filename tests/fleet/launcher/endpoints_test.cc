#include "fleet/launcher/endpoints.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>

#include "net/transport/endpoint.h"
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

TEST_F(EndpointsTest, RemovesFolderOnDestruction) {
  auto endpoints = *Endpoints::Make({});
  const std::string folder = endpoints->folder();
  EXPECT_TRUE(fs::exists(folder + "/owner"));
  EXPECT_TRUE(endpoints->For(Role::kReplay, 0).starts_with("ipc://" + folder));
  endpoints.reset();
  EXPECT_FALSE(fs::exists(folder));
}

TEST_F(EndpointsTest, FolderAndSocketsArePrivate) {
  const auto endpoints = *Endpoints::Make({});
  struct stat info {};
  ASSERT_EQ(stat(endpoints->folder().c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777u, 0700u);
  EXPECT_EQ(info.st_uid, geteuid());
  const mode_t before = umask(0);  // the user's habits don't matter
  const auto open = *Endpoints::Make({});
  const std::string path = open->For(Role::kReplay, 0).substr(6);
  const auto socket = IpcSocket::Bind(path);
  umask(before);
  ASSERT_EQ(stat(open->folder().c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777u, 0700u);
  ASSERT_EQ(stat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 077u, 0u);
}

TEST_F(EndpointsTest, ListensAtConfiguredAddress) {
  Config config;
  config.security.insecure = true;
  config.fleet.listen = "tcp://host.example:7700";
  auto endpoints = *Endpoints::Make(config);
  EXPECT_EQ(endpoints->For(Role::kCoordinator, 0), "tcp://host.example:7700");
  EXPECT_EQ(endpoints->For(Role::kReplay, 3), "tcp://host.example:0");
  EXPECT_EQ(endpoints->For(Role::kParamServer, 1), "tcp://host.example:0");
  config.fleet.listen_replay = "tcp://10.0.0.5:7710";
  config.fleet.listen_paramserver = "tcp://10.0.0.5:0";
  endpoints = *Endpoints::Make(config);
  EXPECT_EQ(endpoints->For(Role::kReplay, 3), "tcp://10.0.0.5:7713");
  EXPECT_EQ(endpoints->For(Role::kParamServer, 1), "tcp://10.0.0.5:0");
  config.fleet.listen_replay = "tcp://10.0.0.5:65535";
  EXPECT_TRUE(Endpoints::Make(config).ok());
  config.replay.shards = 2;
  EXPECT_EQ(Endpoints::Make(config).status().code(), Code::kInvalidArgument);
}

TEST_F(EndpointsTest, RemoteListeningRequiresKeysOrInsecure) {
  for (const bool replay : {false, true}) {
    Config config;
    config.fleet.listen = replay ? "tcp://127.0.0.1:0" : "tcp://10.0.0.5:7700";
    if (replay) config.fleet.listen_replay = "tcp://10.0.0.5:7700";
    const auto refused = Endpoints::Make(config);
    ASSERT_FALSE(refused.ok());
    EXPECT_NE(refused.status().message().find("10.0.0.5:7700"), std::string::npos);
    EXPECT_NE(refused.status().message().find("troop keygen"), std::string::npos);
    config.security.insecure = true;
    EXPECT_TRUE(Endpoints::Make(config).ok());
    config.security = {.keys = "keys"};
    EXPECT_TRUE(Endpoints::Make(config).ok());
  }
}

// Regression: a launcher that was killed before it locked its new folder, or while it removed
// another one, left a folder without an owner that was never removed.
TEST_F(EndpointsTest, RemovesFoldersOfKilledLaunchers) {
  const std::string bare = Folder("troop-run-aaaaaa", true);
  const std::string owned = Folder("troop-run-bbbbbb", false);
  std::ofstream(owned + "/owner") << "process 1";
  MakeOld(owned);
  const auto endpoints = *Endpoints::Make({});
  EXPECT_FALSE(fs::exists(bare));
  EXPECT_FALSE(fs::exists(owned));
}

TEST_F(EndpointsTest, KeepsNewHeldOrForeignFolders) {
  const std::string young = Folder("troop-run-cccccc", false);
  const std::string other = Folder("troop-results", true);
  const auto first = *Endpoints::Make({});
  MakeOld(first->folder());
  const auto second = *Endpoints::Make({});
  EXPECT_TRUE(fs::exists(young));
  EXPECT_TRUE(fs::exists(other));
  EXPECT_TRUE(fs::exists(first->folder()));
}

// For an unknown name without keys, only the missing keys were named.
TEST_F(EndpointsTest, ReportsAllListenErrorsAtOnce) {
  Config config;
  config.fleet.listen = "tcp://no-such-host.invalid:7701";
  config.fleet.listen_replay = "tcp://127.0.0.1:65535";
  config.replay.shards = 3;
  const std::string message = Endpoints::Check(config).message();
  for (const char* part :
       {"fleet.listen: tcp://no-such-host.invalid:7701: this address is reachable from other "
        "machines",
        "fleet.listen: can't resolve no-such-host.invalid",
        "fleet.listen_replay is tcp://127.0.0.1:65535: 3 shards need ports up to 65537"}) {
    EXPECT_NE(message.find(part), std::string::npos) << part << "\n" << message;
  }
  EXPECT_FALSE(Endpoints::Make(config).ok());
}

}  // namespace
}  // namespace troop
