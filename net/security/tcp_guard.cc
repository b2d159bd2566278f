// Implements TcpGuard, from the byte counters of the kernel (TCP_INFO).
#include "net/security/tcp_guard.h"

#include <arpa/inet.h>
#include <linux/tcp.h>
#include <sys/socket.h>

#include <algorithm>

namespace troop {
namespace {

// Data rates of a slow peer: above the rate of ZeroMQ heartbeats alone, but below the rate of any
// usable link.
constexpr double kHeartbeatBytesPerSecond = 64;
constexpr double kLinkBytesPerSecond = 64 << 10;

// Returns address and port of the peer; empty if `fd` is not a connected TCP socket.
std::string PeerName(int fd) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  if (getpeername(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) return {};
  char text[INET6_ADDRSTRLEN] = "";
  in_port_t port = 0;
  if (address.ss_family == AF_INET) {
    const auto* v4 = reinterpret_cast<const sockaddr_in*>(&address);
    inet_ntop(AF_INET, &v4->sin_addr, text, sizeof text);
    port = v4->sin_port;
  } else if (address.ss_family == AF_INET6) {
    const auto* v6 = reinterpret_cast<const sockaddr_in6*>(&address);
    inet_ntop(AF_INET6, &v6->sin6_addr, text, sizeof text);
    port = v6->sin6_port;
  } else {
    return {};
  }
  return std::string(text) + ":" + std::to_string(ntohs(port));
}

// Bytes received on a connection so far; 0 if unknown.
std::uint64_t BytesReceived(int fd) {
  tcp_info info{};
  socklen_t size = sizeof info;
  if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return 0;
  return info.tcpi_bytes_received;
}

}  // namespace

void TcpGuard::Accepted(int fd, Time now) {
  std::string name = PeerName(fd);
  if (name.empty()) return;  // closed already
  peers_[fd] = Peer{.name = std::move(name), .since = now};
}

// A connection may close before its peer name was read.
std::optional<std::string> TcpGuard::Closed(int fd) {
  const auto peer = peers_.extract(fd);
  if (peer.empty()) return "";
  if (peer.mapped().known || peer.mapped().cut) return std::nullopt;
  return peer.mapped().name;
}

std::string TcpGuard::NameOf(int fd) const {
  const auto peer = peers_.find(fd);
  return peer == peers_.end() ? std::string() : peer->second.name;
}

void TcpGuard::NoteCut(int fd) {
  const auto peer = peers_.find(fd);
  if (peer != peers_.end()) peer->second.cut = true;
}

void TcpGuard::Delivered(int fd) {
  const auto peer = peers_.find(fd);
  if (peer == peers_.end()) return;
  peer->second.known = peer->second.delivered = true;
}

bool TcpGuard::has_unauthenticated_peers() const {
  return std::any_of(peers_.begin(), peers_.end(), [](const auto& p) { return !p.second.known; });
}

bool TcpGuard::IsSlow(const Peer& peer, std::uint64_t bytes, Time now) const {
  // Unknown peers must deliver a message in time. Known peers may be idle, but not slow within a
  // message.
  const Duration waited = now - peer.since;
  if (waited <= limits_.patience) return false;
  const double came = double(bytes - peer.bytes_at_delivery) / ToSeconds(waited);
  return !peer.known || (came > kHeartbeatBytesPerSecond && came < kLinkBytesPerSecond);
}

std::vector<TcpGuard::Cut> TcpGuard::Check(Time now) {
  std::vector<Cut> all;
  for (auto& [fd, peer] : peers_) {
    if (peer.cut) continue;
    const std::uint64_t bytes = BytesReceived(fd);
    // A delivered message restarts the limits.
    if (peer.delivered) {
      peer.bytes_at_delivery = bytes;
      peer.since = now;
      peer.delivered = false;
      continue;
    }
    const std::uint64_t limit = peer.known ? limits_.message_bytes : limits_.unauthenticated_bytes;
    const bool endless = bytes > peer.bytes_at_delivery + limit;
    const bool slow = IsSlow(peer, bytes, now);
    // The descriptor may have been reused for another connection, so the name is compared.
    if ((!endless && !slow) || PeerName(fd) != peer.name) continue;
    shutdown(fd, SHUT_RDWR);
    peer.cut = true;
    all.push_back({peer.name, endless ? "its message exceeds the limit"
                                      : "it sent no complete message in time"});
  }
  return all;
}

}  // namespace troop
