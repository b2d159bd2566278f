#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace troop {

// Finds TCP peers that send a message without end. ZeroMQ limits a frame, and counts only complete
// messages against its high-water mark, so a peer whose frames always announce one more grows our
// memory without any event. The kernel knows how many bytes a connection brought: one that brings
// more than `stranger_bytes` before its first valid message, or `message_bytes` without completing
// any, is cut off. Not for ipc: the kernel doesn't count there, and only our own user can connect.
// Owner: the node's thread. The descriptors belong to ZeroMQ's.
class TcpGuard {
 public:
  TcpGuard(std::uint64_t stranger_bytes, std::uint64_t message_bytes)
      : stranger_bytes_(stranger_bytes), message_bytes_(message_bytes) {}

  void Accepted(int fd);
  void Closed(int fd) { peers_.erase(fd); }
  void Delivered(int fd);  // a valid message
  bool watches_strangers() const;
  // Cuts peers off and names them. A system call per connection.
  std::vector<std::string> Check();

 private:
  struct Peer {
    std::string name;  // its address and port
    bool known = false;
    bool delivered = false;  // since the last Check
    std::uint64_t bytes_at_delivery = 0;
  };
  std::uint64_t stranger_bytes_;
  std::uint64_t message_bytes_;
  std::map<int, Peer> peers_;
};

}  // namespace troop
