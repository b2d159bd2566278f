#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/json.h"
#include "core/status.h"

namespace troop {

// The course of a run as its file of JSON lines tells it (metrics.jsonl, evaluations.jsonl), in
// bounded time and memory however long it is: lines at even distances of bytes, the last whole
// line, and those of the last seconds. Lines that are torn, too long or no JSON are left out. A
// file that became shorter, or was replaced, is read anew. Owner: one thread at a time.
class MetricCurve {
 public:
  static constexpr std::size_t kPointsMax = 1024;  // of a curve; at least half when there are
  static constexpr std::size_t kLineBytesMax = 64 << 10;
  static constexpr std::size_t kNamesMax = 512;
  explicit MetricCurve(std::string path) : path_(std::move(path)) {}

  // Reads what is new: O(kPointsMax) lines at the first time, a few later. Errors: kNotFound.
  Status Update();
  // Numbers of the lines; a histogram's as "name.p50", "name.p90", "name.p99". Sorted.
  std::vector<std::string> names() const;
  bool Has(std::string_view name) const { return names_.contains(std::string(name)); }
  // Of `name`, in order: one number a point; NaN: the line has none, or nobody knows the name.
  // `points_max`: those at even distances, and the last one.
  std::vector<double> Values(std::string_view name, std::size_t points_max = kPointsMax) const;
  std::size_t points() const { return points_.size(); }
  // The newest whole line, and one of about five seconds before it (the same one: none is).
  const JsonValue& last() const { return last_; }
  const JsonValue& before() const { return before_; }
  // Of each histogram the newest that is not empty.
  const std::map<std::string, JsonValue>& histograms() const { return histograms_; }
  // (last - before) / seconds between them of a counter; 0 when there is no telling.
  double Rate(std::string_view name) const;

 private:
  void Clear();
  void Keep(std::uint64_t at, const JsonValue& line);
  void ReadTail(int file, std::uint64_t size);

  const std::string path_;
  std::uint64_t inode_ = 0, size_ = 0;
  std::uint64_t stride_ = 0;
  std::uint64_t next_ = 0;  // multiple of stride_ that is looked for next
  std::map<std::string, std::size_t> names_;
  std::map<std::uint64_t, std::vector<double>> points_;  // by multiple of stride_
  JsonValue last_, before_;
  std::map<std::string, JsonValue> histograms_;
};

// A member that is a number; else `otherwise`.
double NumberOf(const JsonValue& value, std::string_view key, double otherwise = 0);

}  // namespace troop
