#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/status.h"
#include "core/storage/json.h"

namespace troop {

// Samples of a run's JSON-lines file (metrics.jsonl, evaluations.jsonl), in bounded time and memory
// for any file size: lines at even byte distances, the last complete line, and the lines of the
// last seconds. Incomplete, overlong and invalid lines are skipped. A file that shrank or was
// replaced is read again. Owner: one thread at a time.
class MetricsReader {
 public:
  // Points per curve. At least half of it is used if the file has as many lines.
  static constexpr std::size_t kPointsMax = 1024;
  static constexpr std::size_t kLineBytesMax = 64 << 10;
  static constexpr std::size_t kNamesMax = 512;
  explicit MetricsReader(std::string path) : path_(std::move(path)) {}

  // Reads new lines: O(kPointsMax) at the first call, a few later. Errors: kNotFound.
  Status Update();
  // Sorted names of the numeric members; a histogram has "name.p50", "name.p90" and "name.p99".
  std::vector<std::string> names() const;
  bool Has(std::string_view name) const { return names_.contains(std::string(name)); }
  // Values of `name` in file order, one per point; NaN if the line lacks it or the name is unknown.
  // Thinned evenly to about `points_max`; the last point is always included.
  std::vector<double> Values(std::string_view name, std::size_t points_max = kPointsMax) const;
  std::size_t points() const { return points_.size(); }
  // The newest complete line, and one about five seconds older (the same line if there is none).
  const JsonValue& last() const { return last_; }
  const JsonValue& before() const { return before_; }
  // The newest non-empty value of each histogram.
  const std::map<std::string, JsonValue>& histograms() const { return histograms_; }
  // Rate of a counter per second, from `before` to `last`; 0 if unknown.
  double Rate(std::string_view name) const;

 private:
  void Clear();
  // Stores the numbers of a line as the point at `at`.
  void Keep(std::uint64_t at, const JsonValue& line);
  // Updates last_, before_ and histograms_ from the end of the file.
  void ReadTail(int file, std::uint64_t size);

  const std::string path_;
  std::uint64_t inode_ = 0, size_ = 0;
  std::uint64_t stride_ = 0;                  // bytes between points; doubles as the file grows
  std::uint64_t next_ = 0;                    // next multiple of stride_ to read a line at
  std::map<std::string, std::size_t> names_;  // column of each name in a point
  std::map<std::uint64_t, std::vector<double>> points_;  // by multiple of stride_
  JsonValue last_, before_;
  std::map<std::string, JsonValue> histograms_;
};

// The value of a numeric member, or `otherwise`.
double NumberOf(const JsonValue& value, std::string_view key, double otherwise = 0);

}  // namespace troop
