#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "core/config.h"

namespace troop {

// The values a number may have. A bound that is "open" is itself not allowed.
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
inline ConfigRange AboveUpTo(double low, double high) {
  return {.low = low, .high = high, .low_open = true};
}
inline ConfigRange FromBelow(double low, double high) {
  return {.low = low, .high = high, .high_open = true};
}
// Whole numbers up to here are exact in a double, with room to add.
inline constexpr double kConfigMany = 1e15;

// What is known about one key besides its value.
struct ConfigKeyInfo {
  std::string_view name;                  // "replay.alpha"; of a layer: "units"
  std::string_view doc;                   // one sentence
  ConfigRange range;                      // numbers
  bool whole = false;                     // a double that must be a whole number
  std::vector<std::string_view> choices;  // strings; empty: any
  std::string RangeText() const;          // of range or choices, for people
};

// Sees each key once, in the order of the documentation. Parsing, dumping and documenting are
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
void VisitConfig(Config& config, ConfigVisitor& visitor);
void VisitActing(Config& config, ConfigVisitor& visitor);        // the part: actor, inference
void VisitSupervised(Config& config, ConfigVisitor& visitor);    // the part: data, model, mesh
void VisitCluster(Config& config, ConfigVisitor& visitor);       // the part: of engines
void VisitOthers(Config::FleetKeys& c, ConfigVisitor& visitor);  // who joins, and who looks on
void VisitKubernetes(Config::KubernetesKeys& c, ConfigVisitor& visitor);
void VisitLayer(LayerConfig& layer, ConfigVisitor& visitor);
void VisitReplay(Config::ReplayKeys& c, ConfigVisitor& visitor);
void VisitReplayTable(ReplayTableConfig& table, ConfigVisitor& visitor);

// A value that is legal by itself but not beside others. keys[0] is the one to blame.
struct ConfigConflict {
  std::vector<std::string> keys;
  std::string message;  // what is wrong, and what to do
};
std::vector<ConfigConflict> FindConflicts(const Config& config);

// A TOML number or string that reads back as the same value.
std::string TomlNumber(double value);
std::string TomlString(std::string_view text);

}  // namespace troop
