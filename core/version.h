#pragma once

#include <cstdint>

namespace troop {

// The versions of everything that outlives or leaves one process. What each promises and when it
// grows is in docs/reference/versions.md. The build reads kTroopVersion from this line.
inline constexpr const char* kTroopVersion = "0.1.0";

inline constexpr std::int64_t kConfigVersion = 1;      // the key `version` of a config
inline constexpr std::int64_t kCheckpointVersion = 1;  // `version` in a checkpoint's manifest.json
inline constexpr std::uint16_t kWireVersion = 2;       // every message header
inline constexpr std::uint32_t kAbiVersion = 1;        // environment plug-ins

}  // namespace troop
