#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "collective/socket/handshake.h"
#include "core/base/time.h"

namespace troop {

// Contact data of a rank, which the coordinator (or a test) collects into the list of all members.
struct Member {
  int rank = 0;
  std::string host;     // equal names mean the same machine, where ranks may share memory
  std::string address;  // "host:port" where this rank accepts connections
  bool operator==(const Member&) const = default;
};

// Options of one rank of a group over sockets.
struct GroupOptions {
  std::string group;        // at most 63 bytes; group, epoch and token are equal on all ranks
  std::uint64_t epoch = 0;  // of the membership: ranks of another epoch are refused
  std::uint64_t token = 0;  // shared value against mix-ups; sent unencrypted
  std::optional<GroupSecret> secret;  // authenticates the ranks; none: any client may join
  int rank = 0;
  int size = 1;
  // kAuto: shared memory within each host, sockets between one rank of each. Equal on all ranks.
  enum class Path { kAuto, kTcp, kShm } path = Path::kAuto;
  std::string listen = "127.0.0.1:0";      // an address that the other ranks can reach
  std::string host;                        // empty: HostId()
  Duration connect_timeout = Seconds(10);  // of Join
  Duration timeout = Seconds(60);          // default for an operation
};

}  // namespace troop
