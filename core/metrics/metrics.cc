// Implements Metrics and the merge of snapshots by kind.
#include "core/metrics/metrics.h"

#include <algorithm>
#include <cmath>

namespace troop {

void Metrics::Count(std::string_view name, double add) {
  auto& value = values_[std::string(name)];
  value.kind = MetricKind::kCounter;
  value.value += add;
}

// The kind decides how values of several roles are merged.
void Metrics::Gauge(std::string_view name, double value, MetricKind kind) {
  values_[std::string(name)] = {.kind = kind, .value = value};
}

// Without samples there is no mean, so the metric is omitted.
void Metrics::Ratio(std::string_view name, double mean, double count) {
  if (!(count > 0)) return;
  values_[std::string(name)] = {.kind = MetricKind::kGaugeRatio, .value = mean, .count = count};
}

// The mean is the value for displays without histograms.
void Metrics::Distribution(std::string_view name, const Histogram& histogram) {
  values_[std::string(name)] = {
      .kind = MetricKind::kHistogram, .value = histogram.mean(), .histogram = histogram};
}

double Metrics::Get(std::string_view name) const {
  const auto it = values_.find(std::string(name));
  return it == values_.end() ? 0 : it->second.value;
}

namespace {

// Merges two ratios like one role with the samples of both. Counts come from other processes, so
// invalid ones get no weight.
void AddRatio(const MetricValue& from, MetricValue* to) {
  const auto weight = [](double count) { return std::isfinite(count) && count > 0 ? count : 0; };
  const double mine = weight(to->count), others = weight(from.count);
  to->count = mine + others;
  if (others > 0) to->value += (from.value - to->value) * (others / to->count);
}

}  // namespace

// Merges the snapshots of several roles. Metrics of the same name but another kind are ignored.
MetricSnapshot MergeMetrics(const std::vector<MetricSnapshot>& snapshots) {
  MetricSnapshot merged;
  // Number of roles per metric, the divisor of kGaugeMean.
  std::map<std::string, int> reporters;
  for (const MetricSnapshot& snapshot : snapshots) {
    for (const auto& [name, value] : snapshot) {
      auto [it, fresh] = merged.try_emplace(name, value);
      if (it->second.kind != value.kind) continue;
      ++reporters[name];
      if (fresh) continue;
      if (value.kind == MetricKind::kGaugeMax) {
        it->second.value = std::max(it->second.value, value.value);
      } else if (value.kind == MetricKind::kGaugeMin) {
        it->second.value = std::min(it->second.value, value.value);
      } else if (value.kind == MetricKind::kGaugeRatio) {
        AddRatio(value, &it->second);
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
