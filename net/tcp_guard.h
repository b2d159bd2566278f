#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/time.h"

namespace troop {

// Finds TCP peers that send a message without end. ZeroMQ limits a frame, and counts only complete
// messages against its high-water mark, so a peer whose frames always announce one more grows our
// memory without any event. The kernel knows how many bytes a connection brought: one that brings
// more than `stranger_bytes` before its first valid message, or `message_bytes` without completing
// any, is cut off. So is one that has sent no valid message for `patience` after it came: it says
// nothing, or lets its bytes drip; and a known one that has let a message drip for so long, with
// more bytes than ZeroMQ's heartbeats and fewer than any link has. Not for ipc: the kernel doesn't
// count there, and only our own user can connect. Owner: the node's thread. The descriptors belong
// to ZeroMQ's.
class TcpGuard {
 public:
  struct Limits {
    std::uint64_t stranger_bytes = 0;
    std::uint64_t message_bytes = 0;
    Duration patience{};
  };
  struct Cut {
    std::string name;      // address and port
    std::string_view why;  // "it …"
  };
  explicit TcpGuard(const Limits& limits) : limits_(limits) {}

  void Accepted(int fd, Time now);
  // The name of one that ended by itself, or by ZeroMQ, before its first valid message; empty for
  // one that was too quick to be looked at, nullopt for all others.
  std::optional<std::string> Closed(int fd);
  void Delivered(int fd);  // a valid message
  bool watches_strangers() const;
  // Cuts peers off and names them. A system call per connection.
  std::vector<Cut> Check(Time now);
  std::string NameOf(int fd) const;  // empty: unknown
  void NoteCut(int fd);              // it is cut off for another reason

 private:
  struct Peer {
    std::string name;
    Time since{};  // it came, or delivered
    bool known = false;
    bool cut = false;
    bool delivered = false;  // since the last Check
    std::uint64_t bytes_at_delivery = 0;
  };
  bool IsSlow(const Peer& peer, std::uint64_t bytes, Time now) const;
  const Limits limits_;
  std::map<int, Peer> peers_;
};

}  // namespace troop
