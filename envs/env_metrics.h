#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <map>
#include <string>
#include <string_view>

namespace troop {

// Count, mean, minimum and maximum of some values.
struct MetricSummary {
  double count = 0, mean = 0, min = 0, max = 0;
  // Adds the values of another summary.
  void Merge(const MetricSummary& other);
  bool operator==(const MetricSummary&) const = default;
};

// Numbers that environments report by name (env.metrics), summarized until they are taken. A name
// is 1 to kNameBytesMax of letters, digits, "_", "-" and "/"; the first kNamesMax names are kept. A
// value that is not finite, and any other name, is dropped, and the first such case is described by
// problem(). One owner thread; O(log names) per value.
class EnvMetrics {
 public:
  static constexpr std::size_t kNamesMax = 32, kNameBytesMax = 64;

  void Add(std::string_view name, double value);
  // Adds summarized values, as of another process. Invalid ones are dropped, as by Add.
  void Merge(std::string_view name, const MetricSummary& summary);
  // Adds all values of `other`, and its problem.
  void Merge(const EnvMetrics& other);
  // Moves all values to `into`. The names stay known, so that their number is limited over time.
  void MoveTo(EnvMetrics* into);
  // Records a problem, unless there is one already.
  void Complain(std::string problem);

  // All names so far; those with count 0 have no value since the last MoveTo or Clear.
  const std::map<std::string, MetricSummary, std::less<>>& summaries() const { return summaries_; }
  void Clear();  // the values, but not the names
  const std::string& problem() const { return problem_; }

 private:
  std::map<std::string, MetricSummary, std::less<>> summaries_;
  std::string problem_;
};

}  // namespace troop
