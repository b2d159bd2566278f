#pragma once

// A peer that speaks, or mis-speaks, ZeroMQ's protocol (ZMTP 3.1, rfc.zeromq.org/spec/37) byte by
// byte over a plain socket that never blocks. For tests of what a server must survive.
#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <string_view>

#include "core/base/check.h"
#include "net/wire/frame.h"

namespace troop {

class RawPeer {
 public:
  // "tcp://127.0.0.1:port" or "ipc://path". Connecting to a listening local socket is immediate.
  explicit RawPeer(const std::string& endpoint) {
    if (endpoint.starts_with("tcp://")) {
      const std::size_t colon = endpoint.rfind(':');
      sockaddr_in address{};
      address.sin_family = AF_INET;
      address.sin_port = htons(static_cast<std::uint16_t>(std::stoi(endpoint.substr(colon + 1))));
      address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
      Connect(AF_INET, &address, sizeof address);
    } else {
      sockaddr_un address{};
      address.sun_family = AF_UNIX;
      endpoint.copy(address.sun_path, sizeof address.sun_path - 1, std::strlen("ipc://"));
      Connect(AF_UNIX, &address, sizeof address);
    }
  }
  RawPeer(const RawPeer&) = delete;
  ~RawPeer() { close(fd_); }

  // Returns the peer's name as in the server's log.
  std::string name() const {
    sockaddr_in address{};
    socklen_t size = sizeof address;
    if (getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &size) != 0 ||
        address.sin_family != AF_INET) {
      return "a local peer";
    }
    return "127.0.0.1:" + std::to_string(ntohs(address.sin_port));
  }
  // How much the kernel took now.
  std::size_t TrySend(std::string_view bytes) {
    const ssize_t n = send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0 && errno != EAGAIN) cut_ = true;
    return n > 0 ? static_cast<std::size_t>(n) : 0;
  }
  // All of it. For what surely fits the kernel's buffers.
  void Send(std::string_view bytes) {
    TROOP_CHECK(TrySend(bytes) == bytes.size() || cut_, "the socket takes no {} bytes",
                bytes.size());
  }
  // Reads what there is.
  const std::string& Received() {
    char chunk[65536];
    for (;;) {
      const ssize_t n = recv(fd_, chunk, sizeof chunk, MSG_DONTWAIT);
      if (n > 0) {
        received_.append(chunk, static_cast<std::size_t>(n));
        continue;
      }
      if (n == 0 || (errno != EAGAIN && errno != EINTR)) cut_ = true;
      return received_;
    }
  }
  // The other side ended the connection.
  bool Cut() {
    Received();
    return cut_;
  }

  // The greeting and a READY of a DEALER with this routing id; the NULL mechanism.
  static std::string Handshake(std::string_view routing_id) {
    std::string greeting(64, '\0');
    greeting[0] = '\xff';
    greeting[9] = '\x7f';
    greeting[10] = 3;
    greeting[11] = 1;  // 3.1 has heartbeats
    greeting.replace(12, 4, "NULL");
    const std::string ready = std::string("\x05READY") + Property("Socket-Type", "DEALER") +
                              Property("Identity", routing_id);
    constexpr char kCommand = 4;
    return greeting + kCommand + static_cast<char>(ready.size()) + ready;
  }
  static std::string FrameOf(std::string_view bytes, bool more = false) {
    constexpr char kMore = 1;
    constexpr char kLong = 2;
    return std::string(1, static_cast<char>(kLong | (more ? kMore : 0))) +
           BigEndian(bytes.size(), 8) + std::string(bytes);
  }
  static std::string RoutingId(std::uint64_t channel) {
    std::string id = "T";
    id.append(reinterpret_cast<const char*>(&channel), sizeof channel);
    return id;
  }
  static std::string FirstFrame(const Envelope& envelope, const Message& message) {
    std::string frame(FirstFrameBytes(message), '\0');
    EncodeFirstFrame(envelope, message, std::as_writable_bytes(std::span(frame)));
    return frame;
  }
  static std::string BigEndian(std::uint64_t value, int bytes) {
    std::string out;
    for (int i = bytes - 1; i >= 0; --i) out += static_cast<char>(value >> (8 * i));
    return out;
  }

 private:
  void Connect(int family, const void* address, socklen_t size) {
    fd_ = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connect(fd_, static_cast<const sockaddr*>(address), size) != 0) cut_ = true;
  }
  static std::string Property(std::string_view name, std::string_view value) {
    return static_cast<char>(name.size()) + std::string(name) + BigEndian(value.size(), 4) +
           std::string(value);
  }

  int fd_ = -1;
  bool cut_ = false;
  std::string received_;
};

}  // namespace troop
