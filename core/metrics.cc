#include "core/metrics.h"

#include <algorithm>

namespace troop {

void Metrics::Count(std::string_view name, double add) {
  auto& value = values_[std::string(name)];
  value.kind = MetricKind::kCounter;
  value.value += add;
}

void Metrics::Gauge(std::string_view name, double value, MetricKind kind) {
  values_[std::string(name)] = {kind, value, {}};
}

void Metrics::Distribution(std::string_view name, const Histogram& histogram) {
  values_[std::string(name)] = {MetricKind::kHistogram, histogram.mean(), histogram};
}

double Metrics::Get(std::string_view name) const {
  const auto it = values_.find(std::string(name));
  return it == values_.end() ? 0 : it->second.value;
}

MetricSnapshot MergeMetrics(const std::vector<MetricSnapshot>& snapshots) {
  MetricSnapshot merged;
  std::map<std::string, int> reporters;
  for (const MetricSnapshot& snapshot : snapshots) {
    for (const auto& [name, value] : snapshot) {
      auto [it, fresh] = merged.try_emplace(name, value);
      if (it->second.kind != value.kind) continue;
      ++reporters[name];
      if (fresh) continue;
      if (value.kind == MetricKind::kGaugeMax) {
        it->second.value = std::max(it->second.value, value.value);
      } else if (value.kind == MetricKind::kHistogram) {
        it->second.histogram.Merge(value.histogram);
        it->second.value = it->second.histogram.mean();
      } else {
        it->second.value += value.value;
      }
    }
  }
  for (auto& [name, value] : merged) {
    if (value.kind == MetricKind::kGaugeMean) value.value /= reporters[name];
  }
  return merged;
}

}  // namespace troop
