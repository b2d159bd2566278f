#pragma once

#include <string>

#include "core/base/log.h"

namespace troop {

class ConfigVisitor;

// Run folder, metrics and log ([log]).
struct LogConfig {
  std::string dir = "runs";
  double metrics_every_s = 1;
  LogLevel level = LogLevel::kInfo;
  bool operator==(const LogConfig&) const = default;
};
// Declares the keys.
void VisitKeys(LogConfig& config, ConfigVisitor& visitor);

}  // namespace troop
