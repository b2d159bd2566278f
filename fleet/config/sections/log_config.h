#pragma once

#include <string>

namespace troop {

class ConfigVisitor;

// Run folder, metrics and log ([log]).
struct LogConfig {
  std::string dir = "runs";
  double metrics_every_s = 1;
  std::string level = "info";
  bool operator==(const LogConfig&) const = default;
};
// Declares the keys.
void VisitKeys(LogConfig& config, ConfigVisitor& visitor);

}  // namespace troop
