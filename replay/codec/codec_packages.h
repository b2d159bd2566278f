#pragma once

#include <vector>

#include "core/metrics/package_version.h"

namespace troop {

// Versions of the loaded compression libraries of the replay: LZ4 and zstd.
std::vector<PackageVersion> CodecPackages();

}  // namespace troop
