#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "collective/collective.h"
#include "collective/socket/handshake.h"
#include "collective/socket/socket.h"
#include "core/base/time.h"

namespace troop {

// Contact data of a rank, which the coordinator (or a test) collects into the list of all members.
struct Member {
  int rank = 0;
  std::string host;     // equal names mean the same machine, where ranks may share memory
  std::string address;  // "host:port" where this rank accepts connections
  bool operator==(const Member&) const = default;
};

// Default of Member::host: identifies the machine's boot and the process namespace.
std::string HostId();

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

// Rendezvous of a group: listen, publish the address, receive the list of all, join. Movable.
//   Listen on each rank; then collect all self(); then Join on each, with the list of all.
class GroupEntry {
 public:
  // Opens the listener. Errors: kInvalidArgument: invalid options; kUnavailable: cannot listen on
  // the address.
  static Result<GroupEntry> Listen(const GroupOptions& options);
  const Member& self() const { return self_; }
  // Connects all pairs of ranks and closes the listener. Blocks for up to connect_timeout: run it
  // as a job of an executor. Unknown clients that connect meanwhile are refused. Errors:
  // kInvalidArgument: the list does not have `size` ranks, this one included; kUnavailable: a rank
  // cannot be reached; kAborted: a rank refused this one (another group, epoch, token or size);
  // kDeadlineExceeded: some rank did not join in time.
  Result<std::unique_ptr<Collective>> Join(std::span<const Member> members) &&;
  // Like Join, for a process that learns its rank, the size and the epoch only from the list; they
  // replace those given to Listen.
  Result<std::unique_ptr<Collective>> JoinAs(int rank, std::uint64_t epoch,
                                             std::span<const Member> members) &&;

 private:
  GroupEntry(GroupOptions options, Socket listener, Member self)
      : options_(std::move(options)), listener_(std::move(listener)), self_(std::move(self)) {}
  // Implements Collective::Split over a new mesh; `count` numbers the splits of this group.
  static Result<std::unique_ptr<Collective>> SplitGroup(GroupOptions options,
                                                        const std::string& host, int count,
                                                        Collective& group, int color, int key);

  GroupOptions options_;
  Socket listener_;
  Member self_;
};

}  // namespace troop
