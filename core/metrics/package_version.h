#pragma once

#include <string>
#include <vector>

namespace troop {

// Name and version of a package that the program uses, for reports. The version is that of the
// loaded library where the package states it at run time, else that of the headers.
struct PackageVersion {
  std::string name;     // "libzmq"
  std::string version;  // "4.3.4"
};

// Versions of the packages that core/ uses: fmt, libsodium, zlib.
std::vector<PackageVersion> CorePackages();

}  // namespace troop
