#include "net/transport/endpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "tests/core/temp_folder.h"

namespace troop {
namespace {

using testing::HasSubstr;

bool CanConnect(const std::string& path) {
  sockaddr_un address{.sun_family = AF_UNIX};
  path.copy(address.sun_path, sizeof address.sun_path - 1);
  const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
  const int rc = connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address);
  close(fd);
  return rc == 0;
}

TEST(EndpointTest, ParsesPartsOfAddress) {
  EXPECT_EQ(ParseEndpoint("ipc:///run/a")->address, "/run/a");
  EXPECT_EQ(ParseEndpoint("tcp://[::1]:5555")->port, 5555);
  EXPECT_EQ(ParseEndpoint("tcp://*:*")->address, "*:0");
  EXPECT_EQ(ParseEndpoint("inproc://a b")->transport, Endpoint::kInproc);
}

TEST(EndpointTest, RecognizesLoopbackAddresses) {
  for (const char* here :
       {"tcp://127.0.0.1:5", "tcp://127.9.8.7:5", "tcp://localhost:5", "tcp://[::1]:5"}) {
    EXPECT_TRUE(IsLoopback(*ParseEndpoint(here))) << here;
  }
  for (const char* elsewhere :
       {"tcp://10.127.0.1:5", "tcp://127.example.org:5", "tcp://*:5", "tcp://[::2]:5",
        "tcp://localhost.example.org:5", "ipc:///127.0.0.1"}) {
    EXPECT_FALSE(IsLoopback(*ParseEndpoint(elsewhere))) << elsewhere;
  }
}

TEST(EndpointTest, RejectsTooLongPathNamingLimit) {
  EXPECT_TRUE(ParseEndpoint("ipc:///" + std::string(106, 'x')).ok());
  const Status status = ParseEndpoint("ipc:///" + std::string(107, 'x')).status();
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("108 bytes"));
  EXPECT_THAT(status.message(), HasSubstr("limit is 107"));
}

TEST(IpcSocketTest, RestrictsAccessToOwner) {
  const TempFolder folder;
  const std::string path = folder.path() + "/s";
  auto socket = IpcSocket::Bind(path);
  ASSERT_TRUE(socket.ok()) << socket.status().ToString();
  struct stat info {};
  ASSERT_EQ(stat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  ASSERT_EQ(stat((path + ".lock").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  EXPECT_TRUE(CanConnect(path));
}

TEST(IpcSocketTest, RejectsSecondBindAndKeepsFirst) {
  const TempFolder folder;
  const std::string path = folder.path() + "/s";
  auto first = IpcSocket::Bind(path);
  ASSERT_TRUE(first.ok());
  const auto second = IpcSocket::Bind(path);
  EXPECT_EQ(second.status().code(), Code::kAlreadyExists);
  EXPECT_THAT(second.status().message(), HasSubstr("in use by this process"));
  EXPECT_TRUE(CanConnect(path));
}

TEST(IpcSocketTest, NamesProcessThatHoldsSocket) {
  const TempFolder folder;
  const std::string path = folder.path() + "/s";
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = fork();
  if (child == 0) {
    auto socket = IpcSocket::Bind(path);
    const char done = socket.ok() ? 'y' : 'n';
    if (write(ready[1], &done, 1) != 1) _exit(1);
    pause();
  }
  char done = 0;
  ASSERT_EQ(read(ready[0], &done, 1), 1);
  EXPECT_EQ(done, 'y');
  const auto second = IpcSocket::Bind(path);
  EXPECT_EQ(second.status().code(), Code::kAlreadyExists);
  EXPECT_THAT(second.status().message(), HasSubstr("process " + std::to_string(child)));

  // The socket of a killed process is stale.
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  EXPECT_TRUE(std::filesystem::exists(path));
  EXPECT_FALSE(CanConnect(path));
  auto third = IpcSocket::Bind(path);
  ASSERT_TRUE(third.ok()) << third.status().ToString();
  EXPECT_TRUE(CanConnect(path));
  close(ready[0]);
  close(ready[1]);
}

TEST(IpcSocketTest, RemovesItsFiles) {
  const TempFolder folder;
  { EXPECT_TRUE(IpcSocket::Bind(folder.path() + "/s").ok()); }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(IpcSocketTest, KeepsFileThatIsNotSocket) {
  const TempFolder folder;
  const std::string path = folder.path() + "/notes.txt";
  std::ofstream(path) << "precious";
  EXPECT_EQ(IpcSocket::Bind(path).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(std::filesystem::file_size(path), 8u);
  EXPECT_FALSE(std::filesystem::exists(path + ".lock"));
}

TEST(IpcSocketTest, NamesMissingFolder) {
  const Status status = IpcSocket::Bind("/no/such/folder/s").status();
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("/no/such/folder"));
}

}  // namespace
}  // namespace troop
