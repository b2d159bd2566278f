#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace troop {

// Numbers that a role reports. Owner: one node. Names are paths with the role's folder first:
// "actor/steps", "replay/items", "learner/loss". The coordinator merges the snapshots of all roles
// (counters add up over roles; gauges by MetricKind) and derives rates: Δcounter / Δtime.
enum class MetricKind : std::uint8_t {
  kCounter = 0,    // only grows; summed over roles
  kGaugeSum = 1,   // a level; summed over roles (items, queue length)
  kGaugeMean = 2,  // a level; averaged over roles (loss, ε, lag)
  kGaugeMax = 3,
};

struct MetricValue {
  MetricKind kind = MetricKind::kCounter;
  double value = 0;
  template <class A>
  void serialize(A& a) {
    a(kind, value);
  }
};
using MetricSnapshot = std::map<std::string, MetricValue>;

class Metrics {
 public:
  void Count(std::string_view name, double add = 1);
  void Gauge(std::string_view name, double value, MetricKind kind = MetricKind::kGaugeMean);
  double Get(std::string_view name) const;  // 0 when unknown
  const MetricSnapshot& snapshot() const { return values_; }

 private:
  MetricSnapshot values_;
};

// One snapshot per role → one for the fleet, by kind.
MetricSnapshot MergeMetrics(const std::vector<MetricSnapshot>& snapshots);

}  // namespace troop
