// Implements the versions of the compression libraries.
#include "replay/codec/codec_packages.h"

#include <lz4.h>
#include <zstd.h>

namespace troop {

// Both libraries are linked dynamically and state their own versions.
std::vector<PackageVersion> CodecPackages() {
  return {{"lz4", LZ4_versionString()}, {"zstd", ZSTD_versionString()}};
}

}  // namespace troop
