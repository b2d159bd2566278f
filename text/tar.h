#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "core/status.h"

namespace troop {

using TarVisitor = std::function<Status(const std::string& name, std::string_view bytes)>;

// Calls `visit` with each plain file of a tar archive in memory, in order; folders and links are
// passed over. Reads ustar, and pax and GNU archives whose files need no attribute beyond it: a
// name longer than 255 bytes is refused. Names are as written: nothing is made of them here.
// Errors: kDataLoss with the offset of the entry; what `visit` returns.
Status VisitTar(std::string_view archive, const TarVisitor& visit);

}  // namespace troop
