// Implements endpoint parsing, the search for the holder of a port, and IpcSocket.
#include "net/transport/endpoint.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <sstream>
#include <utility>

namespace troop {
namespace {

constexpr std::size_t kPathBytesMax = sizeof(sockaddr_un::sun_path) - 1;  // 107 on Linux
// Pending connections of a large fleet that starts at once.
constexpr int kBacklog = 1024;

// Parses host:port after tcp://; port * becomes 0.
Result<Endpoint> ParseTcp(std::string_view text, std::string_view address) {
  const std::size_t colon = address.rfind(':');
  if (colon == std::string_view::npos || colon == 0) {
    return InvalidArgument("endpoint '{}': tcp requires host:port", text);
  }
  const std::string_view host = address.substr(0, colon);
  if (host.find(':') != std::string_view::npos && !(host.starts_with('[') && host.ends_with(']'))) {
    return InvalidArgument("endpoint '{}': an IPv6 address requires brackets: [{}]:{}", text, host,
                           address.substr(colon + 1));
  }
  Endpoint endpoint{.transport = Endpoint::kTcp, .address = std::string(address)};
  const std::string_view port = address.substr(colon + 1);
  if (port == "*") {
    endpoint.address = std::string(address.substr(0, colon)) + ":0";
    return endpoint;
  }
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), endpoint.port);
  if (error != std::errc() || end != port.data() + port.size()) {
    return InvalidArgument("endpoint '{}': '{}' is not a port (0 to 65535)", text, port);
  }
  return endpoint;
}

// Returns the inode of the socket that listens on `port`, from a table in /proc/net; 0 if none.
std::uint64_t ListeningInode(const char* table, std::uint16_t port) {
  constexpr int kListen = 10;  // TCP_LISTEN
  std::ifstream file(table);
  std::string line;
  // The first line is a header.
  std::getline(file, line);
  while (std::getline(file, line)) {
    unsigned local_port = 0;
    unsigned state = 0;
    unsigned long long inode = 0;
    // Fields: number, local address:port, remote address, state, …, inode. Ports and states are
    // hexadecimal.
    if (std::sscanf(line.c_str(), "%*d: %*[0-9A-Fa-f]:%x %*s %x %*s %*s %*s %*u %*d %llu",
                    &local_port, &state, &inode) == 3 &&
        local_port == port && state == kListen) {
      return inode;
    }
  }
  return 0;
}

// True if a descriptor in /proc/<pid>/fd refers to the socket.
bool HoldsSocket(const std::string& fd_folder, const std::string& socket) {
  DIR* const folder = opendir(fd_folder.c_str());
  // The folders of other users' processes can't be read; they are skipped.
  if (folder == nullptr) return false;
  bool found = false;
  while (const dirent* entry = readdir(folder)) {
    char target[64];
    const ssize_t n = readlink((fd_folder + "/" + entry->d_name).c_str(), target, sizeof target);
    if (n > 0 && std::string_view(target, static_cast<std::size_t>(n)) == socket) {
      found = true;
      break;
    }
  }
  closedir(folder);
  return found;
}

// Describes the holder of a lock, from the process id in its file.
std::string ReadPid(const std::string& lock_path) {
  std::ifstream file(lock_path);
  long pid = 0;
  if (!(file >> pid)) return "another process";
  return pid == getpid() ? "this process" : "process " + std::to_string(pid);
}

// Opens and locks "<path>.lock", writes the process id into it and returns the descriptor.
Result<int> Lock(const std::string& path) {
  const std::string lock_path = path + ".lock";
  for (;;) {
    const int fd = open(lock_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0) {
      return InvalidArgument("ipc socket {}: can't create {}: {}", path, lock_path,
                             std::strerror(errno));
    }
    if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
      close(fd);
      return AlreadyExists("ipc socket {} is in use by {}; stop it or choose another path", path,
                           ReadPid(lock_path));
    }
    // Between open and flock another process may have removed the file and locked a new one; then
    // try again.
    struct stat ours {};
    struct stat there {};
    if (fstat(fd, &ours) == 0 && stat(lock_path.c_str(), &there) == 0 &&
        ours.st_ino == there.st_ino && ours.st_dev == there.st_dev) {
      const std::string pid = std::to_string(getpid()) + "\n";
      if (ftruncate(fd, 0) == 0 && pwrite(fd, pid.data(), pid.size(), 0) > 0) return fd;
      const Status full = ResourceExhausted("ipc socket {}: can't write {}: {}", path, lock_path,
                                            std::strerror(errno));
      close(fd);
      return full;
    }
    close(fd);
  }
}

}  // namespace

Result<Endpoint> ParseEndpoint(std::string_view text) {
  const std::size_t scheme_end = text.find("://");
  const std::string_view scheme = text.substr(0, scheme_end);
  const std::string_view address =
      scheme_end == std::string_view::npos ? "" : text.substr(scheme_end + 3);
  if (address.empty() || address.find('\0') != std::string_view::npos) {
    return InvalidArgument(
        "endpoint '{}' is invalid; use ipc://path, tcp://host:port or inproc://name", text);
  }
  if (scheme == "tcp") {
    // The key follows the address after #.
    const std::size_t mark = address.find('#');
    TROOP_ASSIGN_OR_RETURN(Endpoint endpoint, ParseTcp(text, address.substr(0, mark)));
    if (mark == std::string_view::npos) return endpoint;
    endpoint.key = ParseKeyText(address.substr(mark + 1));
    if (endpoint.key) return endpoint;
    return InvalidArgument("endpoint '{}': the text after # is not a key (64 hexadecimal digits)",
                           text);
  }
  if (scheme == "inproc") {
    return Endpoint{.transport = Endpoint::kInproc, .address = std::string(address)};
  }
  if (scheme != "ipc") {
    return InvalidArgument("endpoint '{}': unknown transport; use ipc, tcp or inproc", text);
  }
  // To ZeroMQ, @ is an abstract socket and * a temporary one; neither has a file to lock.
  if (address[0] == '@' || address[0] == '*') {
    return InvalidArgument("endpoint '{}': ipc requires the path of a file", text);
  }
  if (address.size() > kPathBytesMax) {
    return InvalidArgument(
        "endpoint '{}': the path has {} bytes, the system's limit is {}; use a shorter folder",
        text, address.size(), kPathBytesMax);
  }
  return Endpoint{.transport = Endpoint::kIpc, .address = std::string(address)};
}

// All of 127.0.0.0/8, ::1, and the name localhost; other names are not resolved.
bool IsLoopback(const Endpoint& endpoint) {
  if (endpoint.transport != Endpoint::kTcp) return false;
  const std::string_view address = endpoint.address;
  const std::string_view host = address.substr(0, address.rfind(':'));
  const bool number = host.find_first_not_of("0123456789.") == std::string_view::npos;
  return host == "localhost" || host == "[::1]" || (number && host.starts_with("127."));
}

Status CheckMayListen(std::string_view endpoint, bool keys, bool insecure) {
  TROOP_ASSIGN_OR_RETURN(const Endpoint parsed, ParseEndpoint(endpoint));
  if (parsed.transport != Endpoint::kTcp || IsLoopback(parsed) || keys || insecure) {
    return Status::Ok();
  }
  return InvalidArgument(
      "{}: this address is reachable from other machines and no keys are set, so any client could "
      "read and control the run; create keys (troop keygen keys) and set security.keys=keys, "
      "listen on 127.0.0.1, or accept the risk with --insecure",
      endpoint);
}

// Finds the inode of the listening socket, then the process with a descriptor of it.
pid_t FindPortOwner(std::uint16_t port) {
  std::uint64_t inode = ListeningInode("/proc/net/tcp", port);
  if (inode == 0) inode = ListeningInode("/proc/net/tcp6", port);
  if (inode == 0) return 0;
  const std::string socket = "socket:[" + std::to_string(inode) + "]";
  DIR* const processes = opendir("/proc");
  if (processes == nullptr) return 0;
  pid_t holder = 0;
  while (const dirent* entry = readdir(processes)) {
    pid_t pid = 0;
    const std::string_view name = entry->d_name;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), pid);
    if (error != std::errc() || end != name.data() + name.size()) continue;
    if (HoldsSocket("/proc/" + std::string(name) + "/fd", socket)) {
      holder = pid;
      break;
    }
  }
  closedir(processes);
  return holder;
}

IpcSocket::IpcSocket(IpcSocket&& other) noexcept
    : path_(std::exchange(other.path_, {})),
      lock_(std::exchange(other.lock_, -1)),
      fd_(std::exchange(other.fd_, -1)) {}

IpcSocket& IpcSocket::operator=(IpcSocket&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(lock_, other.lock_);
  std::swap(fd_, other.fd_);
  return *this;
}

IpcSocket::~IpcSocket() {
  // Order: socket file, lock file, lock; another process can bind only after the last step.
  if (lock_ < 0) return;
  if (fd_ >= 0) close(fd_);
  unlink(path_.c_str());
  unlink((path_ + ".lock").c_str());
  close(lock_);
}

Result<IpcSocket> IpcSocket::Bind(const std::string& path) {
  IpcSocket made;
  TROOP_ASSIGN_OR_RETURN(made.lock_, Lock(path));
  made.path_ = path;
  struct stat there {};
  if (lstat(path.c_str(), &there) == 0 && !S_ISSOCK(there.st_mode)) {
    made.path_.clear();  // keeps the destructor from removing a foreign file
    unlink((path + ".lock").c_str());
    return InvalidArgument("ipc socket {}: the path exists and is not a socket", path);
  }
  // A socket file under our lock is stale.
  unlink(path.c_str());
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, kPathBytesMax);
  made.fd_ = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  // On Linux the file gets the mode that the socket has at bind. So no other user can connect even
  // briefly, and the process-wide umask stays unchanged.
  if (made.fd_ < 0 || fchmod(made.fd_, 0600) != 0 ||
      bind(made.fd_, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
      listen(made.fd_, kBacklog) != 0) {
    return InvalidArgument("ipc socket {}: {}", path, std::strerror(errno));
  }
  return made;
}

int IpcSocket::ReleaseFd() { return std::exchange(fd_, -1); }

}  // namespace troop
