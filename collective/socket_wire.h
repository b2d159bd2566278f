#pragma once

#include <memory>
#include <string>
#include <vector>

#include "collective/mesh.h"
#include "collective/wire.h"

namespace troop {

// Links of sockets. A rank that dies is noticed when the kernel closes its control connection,
// which an orderly one does only after a good-bye. Errors: kUnavailable: no epoll descriptor.
Result<std::unique_ptr<Wire>> MakeSocketWire(std::string name, int rank, std::vector<Link> links);

}  // namespace troop
