#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "collective/collective.h"
#include "collective/handshake.h"
#include "collective/socket.h"
#include "core/time.h"

namespace troop {

// What a rank says of itself, for whoever hands out the list of all: the coordinator, or a test.
struct Member {
  int rank = 0;
  std::string host;     // equal: the same machine, which may share memory
  std::string address;  // "host:port", where this rank waits for the others
  bool operator==(const Member&) const = default;
};

// This machine's name for Member::host: its boot, and this process's view of other processes.
std::string HostId();

struct GroupOptions {
  std::string group;        // at most 63 bytes; with epoch and token the same on all ranks
  std::uint64_t epoch = 0;  // of the membership: ranks of another one are turned away
  std::uint64_t token = 0;  // what all of them must have in common, against mistakes: goes in clear
  std::optional<GroupSecret> secret;  // of those who may come in; none: whoever reaches us
  int rank = 0;
  int size = 1;
  // kAuto: memory inside each host, sockets between one rank of each. The same on all ranks.
  enum class Path { kAuto, kTcp, kShm } path = Path::kAuto;
  std::string listen = "127.0.0.1:0";      // an address that the other ranks reach
  std::string host;                        // empty: HostId()
  Duration connect_timeout = Seconds(10);  // of Join
  Duration timeout = Seconds(60);          // of an operation, unless it says its own
};

// The way into a group: listen, tell the address, learn everybody's, join. Movable.
//   Listen on each rank; then collect all self(); then Join on each, with the list of all.
class GroupEntry {
 public:
  // Errors: kInvalidArgument: options; kUnavailable: no such address to listen on.
  static Result<GroupEntry> Listen(const GroupOptions& options);
  const Member& self() const { return self_; }
  // Connects every two ranks and closes the listener. Blocks, up to connect_timeout: a job for an
  // executor. Strangers that connect meanwhile are turned away. Errors: kInvalidArgument: the list
  // is not one of `size` ranks with ours; kUnavailable: a rank is not there; kAborted: a rank
  // turned us away (another group, epoch, token or size); kDeadlineExceeded: they didn't come in
  // time.
  Result<std::unique_ptr<Collective>> Join(std::span<const Member> members) &&;
  // The same for one who learns only from the list which rank of how many it is, and under which
  // epoch: what Listen was given instead does not count.
  Result<std::unique_ptr<Collective>> JoinAs(int rank, std::uint64_t epoch,
                                             std::span<const Member> members) &&;

 private:
  GroupEntry(GroupOptions options, Socket listener, Member self)
      : options_(std::move(options)), listener_(std::move(listener)), self_(std::move(self)) {}
  // How ranks of a group become ranks of parts of it; `count`: of the splits of this group.
  static Result<std::unique_ptr<Collective>> SplitGroup(GroupOptions options,
                                                        const std::string& host, int count,
                                                        Collective& group, int color, int key);

  GroupOptions options_;
  Socket listener_;
  Member self_;
};

}  // namespace troop
