#pragma once

#include <span>
#include <vector>

#include "collective/socket/group_options.h"
#include "collective/socket/socket.h"

namespace troop {

// The two connections to one other rank.
struct Link {
  Socket data;     // operations: one byte stream in each direction
  Socket control;  // ControlWords
};

// Connects all pairs of ranks: each connects to lower ranks and accepts higher ones, with a Hello
// in each direction. The result is indexed by rank; this rank's entry stays empty. Errors: as in
// GroupEntry::Join.
Result<std::vector<Link>> MakeMesh(const GroupOptions& options, std::span<const Member> members,
                                   Socket listener, Time deadline);

}  // namespace troop
