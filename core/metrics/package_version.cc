// Implements the versions of the packages of core/.
#include "core/metrics/package_version.h"

#include <fmt/format.h>
#include <sodium.h>
#include <zlib.h>

namespace troop {

// FMT_VERSION is 10000 * major + 100 * minor + patch; fmt has no function that returns it.
std::vector<PackageVersion> CorePackages() {
  constexpr int kFmt = FMT_VERSION;
  return {{"fmt", fmt::format("{}.{}.{}", kFmt / 10000, kFmt / 100 % 100, kFmt % 100)},
          {"libsodium", sodium_version_string()},
          {"zlib", zlibVersion()}};
}

}  // namespace troop
