// Samples a growing JSON-lines file at byte positions that are multiples of a stride. When the file
// outgrows kPointsMax strides, the stride doubles and every second point is dropped.
#include "fleet/run/metrics_reader.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <optional>

#include "fleet/run/metric_names.h"

namespace troop {
namespace {

// Bytes; less than any line, so that short files are read completely.
constexpr std::uint64_t kStrideMin = 16;
constexpr std::size_t kChunk = 8 << 10;  // bytes per read: a few lines
constexpr double kRateWindow_s = 5;      // window of rates
constexpr std::size_t kTailBytes = 128 << 10;
constexpr int kTailLinesMax = 64;
constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

// Closes a file descriptor at the end of the scope.
struct Closed {
  int file = -1;
  ~Closed() {
    if (file >= 0) close(file);
  }
};

// Up to `bytes` bytes at offset `at`; fewer at the end of the file.
std::string ReadAt(int file, std::uint64_t at, std::size_t bytes) {
  std::string text(bytes, '\0');
  const ssize_t got = pread(file, text.data(), bytes, off_t(at));
  text.resize(got > 0 ? std::size_t(got) : 0);
  return text;
}

struct Line {
  std::uint64_t begin = 0;
  std::string text;  // empty: longer than kLineBytesMax
};

// The first line that begins at `at` or later; nullopt if none is complete yet.
std::optional<Line> LineFrom(int file, std::uint64_t at) {
  // Start one byte early: if that byte ends a line, the line at `at` begins exactly there.
  std::uint64_t read = at == 0 ? 0 : at - 1;
  std::optional<std::uint64_t> begin;
  if (at == 0) begin = 0;
  std::string text;
  for (;;) {
    const std::string chunk = ReadAt(file, read, kChunk);
    if (chunk.empty()) return std::nullopt;
    std::size_t from = 0;
    if (!begin) {
      const std::size_t end = chunk.find('\n');
      if (end == std::string::npos) {
        read += chunk.size();
        if (read - at > 2 * MetricsReader::kLineBytesMax) return Line{read, ""};
        continue;
      }
      begin = read + end + 1;
      from = end + 1;
    }
    const std::size_t end = chunk.find('\n', from);
    text.append(chunk, from, end == std::string::npos ? end : end - from);
    if (end != std::string::npos) return Line{*begin, std::move(text)};
    // A file without newlines must not fill the memory.
    if (text.size() > MetricsReader::kLineBytesMax) return Line{*begin, ""};
    read += chunk.size();
  }
}

}  // namespace

double NumberOf(const JsonValue& value, std::string_view key, double otherwise) {
  const JsonValue* const found = value.Find(key);
  return found == nullptr || found->kind != JsonValue::Kind::kNumber ? otherwise : found->number;
}

void MetricsReader::Clear() {
  size_ = next_ = 0;
  stride_ = kStrideMin;
  names_.clear();
  points_.clear();
  last_ = before_ = {};
  histograms_.clear();
}

// Steps: detect a replaced file, widen the stride, read the new points, read the tail.
Status MetricsReader::Update() {
  const Closed opened{open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  struct stat info {};
  if (opened.file < 0 || fstat(opened.file, &info) != 0 || !S_ISREG(info.st_mode)) {
    return NotFound("{}: no such file", path_);
  }
  const auto size = std::uint64_t(info.st_size);
  // Another inode or a smaller size is another file: start over.
  if (stride_ == 0 || info.st_ino != inode_ || size < size_) Clear();
  if (size == size_) return Status::Ok();
  inode_ = info.st_ino;
  size_ = size;
  // Doubling keeps every second point, so at least half of kPointsMax remain.
  while (size / stride_ >= kPointsMax) {
    stride_ *= 2;
    std::erase_if(points_, [this](const auto& point) { return point.first % stride_ != 0; });
    next_ = (next_ + stride_ - 1) / stride_ * stride_;
  }
  while (next_ < size) {
    const std::optional<Line> line = LineFrom(opened.file, next_);
    if (!line) break;  // not complete yet
    const Result<JsonValue> value = ParseMetricsLine(line->text);
    if (value.ok()) Keep(next_, *value);
    // Continue at the first multiple after this line's start; earlier ones would find it again.
    next_ = std::max(next_ + stride_, (line->begin + stride_) / stride_ * stride_);
  }
  ReadTail(opened.file, size);
  return Status::Ok();
}

// The number of names is bounded, as the file may come from another machine.
void MetricsReader::Keep(std::uint64_t at, const JsonValue& line) {
  std::vector<double>& point = points_[at];
  // Columns are assigned in order of appearance; points are as long as their last column.
  const auto set = [&](const std::string& name, double value) {
    auto found = names_.find(name);
    if (found == names_.end()) {
      if (names_.size() >= kNamesMax) return;
      found = names_.emplace(name, names_.size()).first;
    }
    if (point.size() <= found->second) point.resize(found->second + 1, kNone);
    point[found->second] = value;
  };
  for (const auto& [name, value] : line.object) {
    if (value.kind == JsonValue::Kind::kNumber) set(name, value.number);
    if (value.kind != JsonValue::Kind::kObject) continue;
    for (const char* quantile : {"p50", "p90", "p99"}) {
      const double number = NumberOf(value, quantile, kNone);
      if (!std::isnan(number)) set(name + "." + quantile, number);
    }
  }
}

// Only kTailBytes are read, whatever the size of the file.
void MetricsReader::ReadTail(int file, std::uint64_t size) {
  // Walk backward over complete lines, at most kTailLinesMax, until kRateWindow_s is covered.
  const std::uint64_t from = size > kTailBytes ? size - kTailBytes : 0;
  std::string text = ReadAt(file, from, kTailBytes);
  text.resize(text.rfind('\n') == std::string::npos ? 0 : text.rfind('\n'));
  std::string_view rest = text;
  bool found = false;
  std::map<std::string, JsonValue> histograms;
  for (int i = 0; i < kTailLinesMax && !rest.empty(); ++i) {
    const std::size_t end = rest.rfind('\n');
    if (end == std::string_view::npos && from > 0) break;  // its start was not read
    Result<JsonValue> line = ParseMetricsLine(rest.substr(end + 1));
    rest = end == std::string_view::npos ? "" : rest.substr(0, end);
    if (!line.ok()) continue;
    if (!found) {
      last_ = *line;
      found = true;
    }
    const double wall_s = NumberOf(*line, "wall_s");
    if (wall_s > NumberOf(last_, "wall_s")) break;  // wall_s went back: an earlier run
    for (auto& [name, value] : line->object) {
      const bool counts = value.Find("p50") != nullptr && NumberOf(value, "count") > 0;
      if (counts && histograms.size() < kNamesMax) histograms.emplace(name, std::move(value));
    }
    before_ = std::move(*line);
    if (NumberOf(last_, "wall_s") - wall_s >= kRateWindow_s) break;
  }
  // Older values stay for histograms that the tail does not have.
  histograms.merge(histograms_);
  while (histograms.size() > kNamesMax) histograms.erase(std::prev(histograms.end()));
  histograms_ = std::move(histograms);
}

std::vector<std::string> MetricsReader::names() const {
  std::vector<std::string> names;
  for (const auto& [name, column] : names_) names.push_back(name);
  return names;
}

std::vector<double> MetricsReader::Values(std::string_view name, std::size_t points_max) const {
  std::vector<double> values;
  const auto column = names_.find(std::string(name));
  // Every n-th point, rounded up so that no more than points_max are chosen besides the last.
  const std::size_t every =
      points_max == 0 ? 1
                      : (points_.size() + points_max - 1) / std::max<std::size_t>(points_max, 1);
  std::size_t i = 0;
  for (const auto& [at, point] : points_) {
    const bool last = i + 1 == points_.size();
    if (i++ % std::max<std::size_t>(every, 1) != 0 && !last) continue;
    const bool has = column != names_.end() && column->second < point.size();
    values.push_back(has ? point[column->second] : kNone);
  }
  return values;
}

// 0 for counters that went back, for example after the restart of a role.
double MetricsReader::Rate(std::string_view name) const {
  const double seconds = NumberOf(last_, "wall_s") - NumberOf(before_, "wall_s");
  if (!(seconds > 0)) return 0;
  return std::max(0.0, NumberOf(last_, name) - NumberOf(before_, name)) / seconds;
}

}  // namespace troop
