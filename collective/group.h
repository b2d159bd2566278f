#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "collective/collective.h"
#include "collective/socket/group_options.h"
#include "collective/socket/socket.h"

namespace troop {

// Default of Member::host. Equal for processes of one boot of a machine in one PID namespace: only
// these can share memory.
std::string HostId();

// Rendezvous of a group. Movable. Each rank calls Listen and publishes self(), its address; the
// caller collects these into a list of all members; then each rank calls Join with that list.
class GroupEntry {
 public:
  // Opens the listener. Errors: kInvalidArgument: invalid options; kAlreadyExists: the port is in
  // use; kUnavailable: cannot listen on the address.
  static Result<GroupEntry> Listen(const GroupOptions& options);
  const Member& self() const { return self_; }
  // Connects all pairs of ranks and closes the listener. Blocks for up to connect_timeout: run it
  // as a job of an executor. Unknown clients that connect meanwhile are refused. Errors:
  // kInvalidArgument: the list does not have `size` ranks, this one included; kUnavailable: a rank
  // cannot be reached; kAborted: a rank refused this one (another group, epoch, token or size);
  // kDeadlineExceeded: some rank did not join in time.
  Result<std::unique_ptr<Collective>> Join(std::span<const Member> members) &&;
  // Like Join, for a process whose rank, size and epoch are not known at Listen: `rank`, `epoch`
  // and the number of `members` replace the options given to Listen.
  Result<std::unique_ptr<Collective>> JoinAs(int rank, std::uint64_t epoch,
                                             std::span<const Member> members) &&;

 private:
  GroupEntry(GroupOptions options, Socket listener, Member self)
      : options_(std::move(options)), listener_(std::move(listener)), self_(std::move(self)) {}
  // Implements Collective::Split with a new mesh of sockets; this is split number `count` of the
  // group, counted from 1.
  static Result<std::unique_ptr<Collective>> SplitGroup(GroupOptions options,
                                                        const std::string& host, int count,
                                                        Collective& group, int color, int key);

  GroupOptions options_;
  Socket listener_;
  Member self_;
};

}  // namespace troop
