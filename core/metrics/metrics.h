#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/metrics/histogram.h"

namespace troop {

// Metrics of a role. Owner: one node. Names are paths that begin with the role: "actor/steps",
// "replay/items", "learner/loss". The coordinator merges the snapshots of all roles (counters are
// summed; gauges by MetricKind) and derives rates: Δcounter / Δtime.
enum class MetricKind : std::uint8_t {
  kCounter = 0,    // monotonic; summed over roles
  kGaugeSum = 1,   // level; summed over roles (items, queue length)
  kGaugeMean = 2,  // level of each role; averaged over roles (share of blocked actors)
  kGaugeMax = 3,
  kHistogram =
      4,  // all values so far; added over roles. The difference of two snapshots gives an interval
  kGaugeRatio = 5,  // sum / count (loss over items); merged as Σ sums / Σ counts over roles
  kGaugeMin = 6,
};

// One metric.
struct MetricValue {
  MetricKind kind = MetricKind::kCounter;
  double value = 0;     // kHistogram: the mean
  Histogram histogram;  // kHistogram
  double count = 0;     // kGaugeRatio: value = sum / count
  template <class A>
  void serialize(A& a) {
    a(kind, value);
    if (kind == MetricKind::kHistogram) a(histogram);
    if (kind == MetricKind::kGaugeRatio) a(count);
  }
};
using MetricSnapshot = std::map<std::string, MetricValue>;

// The current values of a node.
class Metrics {
 public:
  void Count(std::string_view name, double add = 1);
  void Gauge(std::string_view name, double value, MetricKind kind = MetricKind::kGaugeMean);
  // Sets a mean of `count` samples. Without samples the previous value is kept.
  void Ratio(std::string_view name, double mean, double count);
  void Distribution(std::string_view name, const Histogram& histogram);
  // Removes a metric that has no value at present.
  void Remove(const std::string& name) { values_.erase(name); }
  double Get(std::string_view name) const;  // 0 if unknown
  const MetricSnapshot& snapshot() const { return values_; }

 private:
  MetricSnapshot values_;
};

// Merges one snapshot per role into one for the fleet. If a name has different kinds, the first one
// is used.
MetricSnapshot MergeMetrics(const std::vector<MetricSnapshot>& snapshots);

}  // namespace troop
