#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/time.h"

namespace troop {

// Closes TCP connections of peers that send endless messages. ZeroMQ limits the size of a frame and
// counts only complete messages against its high-water mark. So a peer whose frames always announce
// another one increases memory without any event. The kernel counts the bytes of a connection. A
// peer is cut off
// - after `unauthenticated_bytes` without a first valid message, or `message_bytes` without
// completing
//   one,
// - after `patience` without a first valid message, whether silent or slow,
// - as a known peer, after `patience` of an incomplete message at a rate above that of ZeroMQ
//   heartbeats and below that of any usable link.
//
// Not for ipc, where the kernel does not count and only the same user can connect. Owner: the
// node's thread. ZeroMQ owns the descriptors.
class TcpGuard {
 public:
  struct Limits {
    std::uint64_t unauthenticated_bytes = 0;
    std::uint64_t message_bytes = 0;
    Duration patience{};
  };
  struct Cut {
    std::string name;      // address and port
    std::string_view why;  // a clause that calls the peer "it"
  };
  explicit TcpGuard(const Limits& limits) : limits_(limits) {}

  void Accepted(int fd, Time now);
  // Returns the name of a peer that disconnected, or that ZeroMQ closed, before its first valid
  // message; empty if it closed before its name was read; nullopt for all other peers.
  std::optional<std::string> Closed(int fd);
  void Delivered(int fd);  // records a valid message
  bool has_unauthenticated_peers() const;
  // Cuts peers off and returns them. One system call per connection.
  std::vector<Cut> Check(Time now);
  std::string NameOf(int fd) const;  // empty if unknown
  void NoteCut(int fd);              // records that it was cut off for another reason

 private:
  struct Peer {
    std::string name;
    Time since{};  // time of the connection or of its last valid message
    bool known = false;
    bool cut = false;
    bool delivered = false;  // a valid message arrived since the last Check
    std::uint64_t bytes_at_delivery = 0;
  };
  bool IsSlow(const Peer& peer, std::uint64_t bytes, Time now) const;
  const Limits limits_;
  std::map<int, Peer> peers_;
};

}  // namespace troop
