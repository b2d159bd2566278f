#pragma once

#include <cstdint>

namespace troop {

// Versions of all formats that outlive or leave a process. docs/reference/versions.md states their
// guarantees and when they increase. The build reads kTroopVersion from this line.
inline constexpr const char* kTroopVersion = "0.1.0";

inline constexpr std::int64_t kConfigVersion = 2;      // key `version` of a config
inline constexpr std::int64_t kCheckpointVersion = 1;  // `version` in a checkpoint's manifest.json
inline constexpr std::uint16_t kWireVersion = 5;       // every message header
inline constexpr std::uint32_t kAbiVersion = 1;        // environment plug-ins

}  // namespace troop
