#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/metrics/histogram.h"

namespace troop {

// Pairs of name and value, in the order in which they are written.
using PrometheusLabels = std::vector<std::pair<std::string_view, std::string>>;

// Writes the Prometheus text format, version 0.0.4, in the order of the calls. REQUIRES: all
// samples of a family follow its Begin. One owner thread.
class PrometheusWriter {
 public:
  // The HELP and TYPE lines of a family; type: gauge, counter or histogram.
  void Begin(std::string_view name, std::string_view type, std::string_view help);
  void Sample(const PrometheusLabels& labels, double value, std::string_view suffix = "");
  // A histogram: cumulative buckets, one per power of two and always the same ones, sum and count.
  void HistogramSamples(const PrometheusLabels& labels, const Histogram& histogram);
  // A family of one sample without labels.
  void Gauge(std::string_view name, std::string_view help, double value);
  void Counter(std::string_view name, std::string_view help, double value);
  std::string Take() { return std::move(out_); }

 private:
  std::string out_, name_;
};

}  // namespace troop
