#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>

#include "core/metrics/metrics.h"

namespace troop {

// Reports metrics of one table under its prefix: "replay/" for the first table, "replay/<name>/"
// for the others. Counters and levels add up over shards, ratios are weighted. Both pointees
// outlive the object.
struct PrefixedMetrics {
  std::string_view prefix;
  Metrics* metrics;

  void Put(std::string_view key, double value, MetricKind kind) const {
    metrics->Gauge(Named(key), value, kind);
  }
  void Count(std::string_view key, double value) const { Put(key, value, MetricKind::kCounter); }
  void Level(std::string_view key, double value) const { Put(key, value, MetricKind::kGaugeSum); }
  void Ratio(std::string_view key, double mean, double of) const {
    metrics->Ratio(Named(key), mean, of);
  }
  std::string Named(std::string_view key) const { return fmt::format("{}{}", prefix, key); }
};

}  // namespace troop
