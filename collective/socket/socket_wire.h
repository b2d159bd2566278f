#pragma once

#include <memory>
#include <string>
#include <vector>

#include "collective/socket/mesh.h"
#include "collective/wire.h"

namespace troop {

// Creates a Wire over TCP links. A rank's death is detected when the kernel closes its control
// connection; an orderly exit sends a good-bye first. Errors: kUnavailable: no epoll descriptor.
Result<std::unique_ptr<Wire>> MakeSocketWire(std::string name, int rank, std::vector<Link> links);

}  // namespace troop
