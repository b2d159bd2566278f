#pragma once

#include <span>
#include <vector>

#include "collective/group.h"
#include "collective/socket.h"

namespace troop {

// The two connections to one other rank.
struct Link {
  Socket data;     // operations, one stream of bytes in each direction
  Socket control;  // ControlWords
};

// Connects every two ranks: each connects to those before it and accepts those after it, with a
// Hello in each direction. By rank; our own entry stays empty. Errors: as GroupEntry::Join.
Result<std::vector<Link>> MakeMesh(const GroupOptions& options, std::span<const Member> members,
                                   Socket listener, Time deadline);

}  // namespace troop
