#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/histogram.h"

namespace troop {

// Numbers that a role reports. Owner: one node. Names are paths with the role's folder first:
// "actor/steps", "replay/items", "learner/loss". The coordinator merges the snapshots of all roles
// (counters add up over roles; gauges by MetricKind) and derives rates: Δcounter / Δtime.
enum class MetricKind : std::uint8_t {
  kCounter = 0,    // only grows; summed over roles
  kGaugeSum = 1,   // a level; summed over roles (items, queue length)
  kGaugeMean = 2,  // a level of each role; averaged over roles (share of blocked actors)
  kGaugeMax = 3,
  kHistogram = 4,  // of all values so far; added up over roles. What came since an earlier snapshot
                   // is their difference
  kGaugeRatio = 5,  // a sum over a count (loss over items); Σ sums / Σ counts over roles, whatever
                    // part of the count each role has
  kGaugeMin = 6,
};

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

class Metrics {
 public:
  void Count(std::string_view name, double add = 1);
  void Gauge(std::string_view name, double value, MetricKind kind = MetricKind::kGaugeMean);
  // A mean of `count` samples. Without samples the value before stays, or there is none.
  void Ratio(std::string_view name, double mean, double count);
  void Distribution(std::string_view name, const Histogram& histogram);
  double Get(std::string_view name) const;  // 0 when unknown
  const MetricSnapshot& snapshot() const { return values_; }

 private:
  MetricSnapshot values_;
};

// One snapshot per role → one for the fleet, by kind. Of one name with different kinds the first
// kind counts.
MetricSnapshot MergeMetrics(const std::vector<MetricSnapshot>& snapshots);

}  // namespace troop
