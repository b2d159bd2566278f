#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "core/config/config.h"

namespace troop {

// The permitted range of a number. An open bound is excluded.
struct ConfigRange {
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
  bool low_open = false, high_open = false;
  bool Contains(double value) const;  // false for NaN and infinities
  std::string ToString() const;       // "[0, 1)", "> 0", ">= 1"; empty: any
};

inline ConfigRange AtLeast(double low) { return {.low = low}; }
inline ConfigRange Above(double low) { return {.low = low, .low_open = true}; }
inline ConfigRange Between(double low, double high) { return {.low = low, .high = high}; }
inline ConfigRange LeftOpen(double low, double high) {
  return {.low = low, .high = high, .low_open = true};
}
inline ConfigRange RightOpen(double low, double high) {
  return {.low = low, .high = high, .high_open = true};
}
// Upper bound of counts: exact in a double, with room for sums.
inline constexpr double kConfigMany = 1e15;

// Metadata of a key.
struct ConfigKeyInfo {
  std::string_view name;                  // full name, "replay.alpha"; in a layer or table: "units"
  std::string_view doc;                   // description
  ConfigRange range;                      // numbers
  bool whole = false;                     // a double that must be an integer
  std::vector<std::string_view> choices;  // permitted strings; empty: any
  std::string RangeText() const;          // range or choices, human-readable
};

// Visits each key once, in the order of the documentation. Parsing, dumping and documenting are
// visitors, so a key is declared in one place only.
class ConfigVisitor {
 public:
  virtual ~ConfigVisitor() = default;
  virtual void Visit(const ConfigKeyInfo& key, std::int64_t& value) = 0;
  virtual void Visit(const ConfigKeyInfo& key, double& value) = 0;
  virtual void Visit(const ConfigKeyInfo& key, bool& value) = 0;
  virtual void Visit(const ConfigKeyInfo& key, std::string& value) = 0;
  virtual void Visit(const ConfigKeyInfo& key, std::vector<LayerConfig>& value) = 0;
  virtual void Visit(const ConfigKeyInfo& key, std::vector<ReplayTableConfig>& value) = 0;
  virtual void Visit(const ConfigKeyInfo& key, std::vector<EnvOption>& value) = 0;
  virtual void Visit(const ConfigKeyInfo& key, std::vector<std::string>& value) = 0;
  virtual void Visit(const ConfigKeyInfo& key, std::vector<double>& value) = 0;
};
// Visits all keys of a config. The functions after it visit parts of it.
void VisitConfig(Config& config, ConfigVisitor& visitor);
void VisitActing(Config& config, ConfigVisitor& visitor);      // actor, inference
void VisitSupervised(Config& config, ConfigVisitor& visitor);  // data, model, mesh
void VisitCluster(Config& config, ConfigVisitor& visitor);     // slurm, kubernetes
void VisitOthers(Config::FleetKeys& c,
                 ConfigVisitor& visitor);  // external roles, metrics, dashboard
void VisitKubernetes(Config::KubernetesKeys& c, ConfigVisitor& visitor);
void VisitLayer(LayerConfig& layer, ConfigVisitor& visitor);
void VisitReplay(Config::ReplayKeys& c, ConfigVisitor& visitor);
void VisitParamServer(Config::ParamServerKeys& c, ConfigVisitor& visitor);
void VisitReplayTable(ReplayTableConfig& table, ConfigVisitor& visitor);

// An invalid combination of values that are valid individually. keys[0] is the key to change.
struct ConfigConflict {
  std::vector<std::string> keys;
  std::string message;  // problem and remedy
};
// Returns all invalid combinations.
std::vector<ConfigConflict> FindConflicts(const Config& config);

// Format a number or a string as TOML that parses to the same value.
std::string TomlNumber(double value);
std::string TomlString(std::string_view text);

}  // namespace troop
