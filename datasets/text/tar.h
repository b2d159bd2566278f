#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "core/base/status.h"

namespace troop {

// Called with the name and the bytes of a file; a status that is not ok stops VisitTar.
using TarVisitor = std::function<Status(const std::string& name, std::string_view bytes)>;

// Calls `visit` with each regular file of a tar archive in memory, in order; folders and links are
// skipped. Reads ustar, and pax and GNU archives whose files need no extended attribute: a name
// longer than 255 bytes is an error. Names are passed as written; no file is created. Errors:
// kDataLoss with the offset of the entry; those of `visit`.
Status VisitTar(std::string_view archive, const TarVisitor& visit);

}  // namespace troop
