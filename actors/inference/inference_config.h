#pragma once

#include <cstdint>

#include "core/config/device_choice.h"

namespace troop {

class ConfigVisitor;

// The inference servers ([inference]).
struct InferenceConfig {
  std::int64_t servers = 1;
  std::int64_t max_batch_size = 256;  // observations per batch
  double batch_timeout_s = 0.002;     // wait for an incomplete batch
  double weight_sync_s = 0.1;         // between weight updates
  DeviceChoice device = DeviceChoice::kAuto;
  bool operator==(const InferenceConfig&) const = default;
};
// Declares the keys.
void VisitKeys(InferenceConfig& config, ConfigVisitor& visitor);

}  // namespace troop
