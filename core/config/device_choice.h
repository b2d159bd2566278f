#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "core/config/enum_names.h"

namespace troop {

// Device of a role.
enum class DeviceChoice : std::uint8_t {
  kAuto,  // a GPU if one exists and the build and the settings support it
  kCpu,
  kCuda,
};
constexpr auto EnumNames(DeviceChoice) {
  return std::to_array<std::string_view>({"auto", "cpu", "cuda"});
}

}  // namespace troop
