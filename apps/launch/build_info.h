#pragma once

#include <string_view>

namespace troop {

// Facts about the build of this program. The build generates the definition of GetBuildInfo
// (cmake/TroopBuildInfo.cmake).
struct BuildInfo {
  std::string_view commit;    // 40 hexadecimal digits, with "-dirty" if files differ; "unknown"
  std::string_view compiler;  // "GNU 12.2.0"
  std::string_view type;      // CMAKE_BUILD_TYPE: "Release"
  std::string_view cuda;      // version of the CUDA toolkit; empty: built without CUDA
};
BuildInfo GetBuildInfo();

}  // namespace troop
