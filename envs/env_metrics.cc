// Implements the summaries of the numbers that environments report.
#include "envs/env_metrics.h"

#include <fmt/format.h>

#include <cctype>
#include <cmath>
#include <utility>

#include "core/base/utf8.h"

namespace troop {
namespace {

// Names become parts of metric names, of curves in TensorBoard and of JSON keys.
bool IsName(std::string_view name) {
  return !name.empty() && name.size() <= EnvMetrics::kNameBytesMax &&
         std::ranges::all_of(name, [](char c) {
           return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '-' ||
                  c == '/';
         });
}

}  // namespace

// The mean is weighted by the counts.
void MetricSummary::Merge(const MetricSummary& other) {
  if (!(other.count > 0)) return;
  min = count > 0 ? std::min(min, other.min) : other.min;
  max = count > 0 ? std::max(max, other.max) : other.max;
  count += other.count;
  mean += (other.mean - mean) * (other.count / count);
}

// One value is a summary, so that there is one check of values and names.
void EnvMetrics::Add(std::string_view name, double value) {
  Merge(name, {.count = 1, .mean = value, .min = value, .max = value});
}

// Checks in order: name, values, number of names.
void EnvMetrics::Merge(std::string_view name, const MetricSummary& summary) {
  if (!(summary.count > 0)) return;
  if (!IsName(name)) {
    return Complain(
        fmt::format("the metric name \"{}\" has {} bytes; must have 1 to {} letters, digits, _, - "
                    "and /; rename it",
                    PrintableLine(name, kNameBytesMax), name.size(), kNameBytesMax));
  }
  if (!std::isfinite(summary.count) || !std::isfinite(summary.mean) ||
      !std::isfinite(summary.min) || !std::isfinite(summary.max)) {
    return Complain(
        fmt::format("metric {} is {}, must be finite; leave it out where it has no "
                    "value",
                    name, summary.mean));
  }
  auto found = summaries_.find(name);
  if (found == summaries_.end()) {
    if (summaries_.size() >= kNamesMax) {
      return Complain(fmt::format("metric {} is the {}th name, at most {} are kept; report fewer",
                                  name, summaries_.size() + 1, kNamesMax));
    }
    found = summaries_.emplace(std::string(name), MetricSummary{}).first;
  }
  found->second.Merge(summary);
}

// The other's names count towards the limit here.
void EnvMetrics::Merge(const EnvMetrics& other) {
  for (const auto& [name, summary] : other.summaries_) Merge(name, summary);
  if (!other.problem_.empty()) Complain(other.problem_);
}

void EnvMetrics::MoveTo(EnvMetrics* into) {
  into->Merge(*this);
  Clear();
}

// Names stay: a process could otherwise report new ones in each interval.
void EnvMetrics::Clear() {
  for (auto& [name, summary] : summaries_) summary = {};
}

// The first problem is the one to fix; later ones often follow from it.
void EnvMetrics::Complain(std::string problem) {
  if (problem_.empty()) problem_ = std::move(problem);
}

}  // namespace troop
