// Implements the connection to an external program: messages with attached files, shared memory.
#include "learners/external/program_channel.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>
#include <vector>

namespace troop {
namespace {

// Messages are small: tensors are in the shared memory. Files hold a program's own state.
constexpr std::size_t kMessageMax = 128 << 10;
constexpr std::uint64_t kFileMax = std::uint64_t{1} << 32;

// An anonymous file of this size that the other side cannot shrink; -1: errno.
int MakeSharedFile(std::size_t bytes) {
  const int file = memfd_create("troop-learner", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (file >= 0 && (ftruncate(file, off_t(bytes)) != 0 ||
                    fcntl(file, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)) {
    close(file);
    return -1;
  }
  return file;
}

// A file with these bytes; -1: errno.
int MakeFileOf(std::span<const std::byte> bytes) {
  const int file = memfd_create("troop-state", MFD_CLOEXEC);
  for (std::size_t done = 0; file >= 0 && done < bytes.size();) {
    const ssize_t n = write(file, bytes.data() + done, bytes.size() - done);
    if (n <= 0) {
      close(file);
      return -1;
    }
    done += std::size_t(n);
  }
  return file;
}

// Reads an attached file with pread: the program may shorten it at any time.
Result<Buffer> ReadAttached(int file) {
  struct stat info {};
  if (fstat(file, &info) != 0 || !S_ISREG(info.st_mode) || std::uint64_t(info.st_size) > kFileMax)
    return DataLoss("it attached something else than a file of at most {} bytes", kFileMax);
  MutableBuffer bytes = MutableBuffer::Zeros(std::size_t(info.st_size));
  for (std::size_t done = 0; done < bytes.size();) {
    const ssize_t n = pread(file, bytes.data() + done, bytes.size() - done, off_t(done));
    if (n <= 0) return DataLoss("its attached file cannot be read");
    done += std::size_t(n);
  }
  return std::move(bytes).Freeze();
}

// Limits every later send, receive and connect.
void SetTimeouts(int fd, Duration timeout) {
  const std::int64_t us = std::max<std::int64_t>(timeout.count() / 1000, 1);
  const timeval limit{.tv_sec = us / 1'000'000, .tv_usec = us % 1'000'000};
  setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
}

}  // namespace

ProgramChannel::~ProgramChannel() { Close(); }

// The memory is unmapped here; the program keeps its own mapping.
void ProgramChannel::Close() {
  if (fd_ >= 0) close(std::exchange(fd_, -1));
  if (!memory_.empty()) munmap(memory_.data(), memory_.size());
  memory_ = {};
}

// A connection that failed once is not used again: request and answer may no longer match.
Status ProgramChannel::Fail(const std::string& what) {
  Close();
  return Unavailable("the program at {} {}", socket_, what);
}

// The file of the shared memory is closed once both sides have mapped it.
Status ProgramChannel::Connect(const std::string& hello, std::size_t bytes) {
  Close();
  sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
  if (socket_.size() >= sizeof address.sun_path) {
    return Fail(fmt::format("has a path of {} bytes, at most {}; use a shorter one", socket_.size(),
                            sizeof address.sun_path - 1));
  }
  std::copy(socket_.begin(), socket_.end(), address.sun_path);
  fd_ = ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  if (fd_ < 0) return Fail(fmt::format("cannot be reached: {}", strerror(errno)));
  SetTimeouts(fd_, timeout_);
  if (connect(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
    return Fail(fmt::format("cannot be reached: {}", strerror(errno)));
  const int file = MakeSharedFile(bytes);
  if (file < 0) return Fail(fmt::format("has no shared memory: {}", strerror(errno)));
  void* const mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (mapped != MAP_FAILED) memory_ = {static_cast<std::byte*>(mapped), bytes};
  Status sent = memory_.empty() ? Unavailable("no memory") : Send(hello, file);
  close(file);
  if (!sent.ok()) return Fail(sent.message());
  Result<Answer> answer = Receive();
  if (!answer.ok()) return Fail(answer.status().message());
  const Result<std::string> type = answer->message.String("type");
  const Result<std::int64_t> protocol = answer->message.Integer("protocol");
  if (!type.ok() || *type != "hello" || !protocol.ok() || *protocol != 1)
    return Fail("has another version of the protocol; use the package troop of this version");
  return Status::Ok();
}

// The message, with one attached file unless it is negative.
Status ProgramChannel::Send(const std::string& message, int file) const {
  if (message.size() > kMessageMax)
    return Unavailable("would get a message of {} bytes, at most {}", message.size(), kMessageMax);
  // The kernel only reads the text.
  iovec part{.iov_base = const_cast<char*>(message.data()), .iov_len = message.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof file)] = {};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  if (file >= 0) {
    header.msg_control = control;
    header.msg_controllen = sizeof control;
    cmsghdr* const attached = CMSG_FIRSTHDR(&header);
    attached->cmsg_level = SOL_SOCKET;
    attached->cmsg_type = SCM_RIGHTS;
    attached->cmsg_len = CMSG_LEN(sizeof file);
    memcpy(CMSG_DATA(attached), &file, sizeof file);
  }
  ssize_t sent;
  do {
    sent = sendmsg(fd_, &header, MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  return sent >= 0 ? Status::Ok() : Unavailable("has closed the connection: {}", strerror(errno));
}

// One message; files beyond the first are refused by the size of the control buffer.
Result<ProgramChannel::Answer> ProgramChannel::Receive() const {
  std::string text(kMessageMax, 0);
  int file = -1;
  iovec part{.iov_base = text.data(), .iov_len = text.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof file)] = {};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  header.msg_control = control;
  header.msg_controllen = sizeof control;
  ssize_t size;
  do {
    size = recvmsg(fd_, &header, MSG_CMSG_CLOEXEC);
  } while (size < 0 && errno == EINTR);
  if (size < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
    return Unavailable("did not answer within {} s; raise learner.program_timeout_s",
                       ToSeconds(timeout_));
  }
  if (size <= 0) return Unavailable("has closed the connection");
  // A file is owned from here on, and closed below in every case.
  const cmsghdr* const attached = CMSG_FIRSTHDR(&header);
  if (attached != nullptr && attached->cmsg_type == SCM_RIGHTS)
    memcpy(&file, CMSG_DATA(attached), sizeof file);
  Answer answer;
  Status status = (header.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) == 0
                      ? Status::Ok()
                      : Unavailable("sent a message that is too long");
  if (status.ok() && file >= 0) {
    Result<Buffer> bytes = ReadAttached(file);
    if (bytes.ok()) answer.file = std::move(*bytes);
    status = bytes.status();
  }
  if (file >= 0) close(file);
  if (!status.ok()) return status;
  text.resize(std::size_t(size));
  Result<JsonValue> message = ParseJson(text);
  if (!message.ok()) return Unavailable("sent no JSON: {}", message.status().message());
  answer.message = std::move(*message);
  return answer;
}

// The file is sent before the wait, so that the program can read it while it answers.
Result<ProgramChannel::Answer> ProgramChannel::Call(const std::string& message,
                                                    std::span<const std::byte> file) {
  if (!connected()) return Unavailable("the program at {} is not connected", socket_);
  const int attached = file.empty() ? -1 : MakeFileOf(file);
  if (!file.empty() && attached < 0) return Fail("cannot get its state: no memory");
  const Status sent = Send(message, attached);
  if (attached >= 0) close(attached);
  if (!sent.ok()) return Fail(sent.message());
  Result<Answer> answer = Receive();
  if (!answer.ok()) return Fail(answer.status().message());
  return answer;
}

}  // namespace troop
