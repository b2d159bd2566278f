#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/histogram.h"
#include "core/status.h"
#include "core/storage.h"

namespace troop {

// Writes one TensorBoard event file: records of protocol buffers (tensorflow.Event), each framed by
// its length and masked CRC-32C. Every call appends one whole record. One owner thread; calls block
// on the disk.
class EventWriter {
 public:
  // Begins events.out.tfevents.<unix time>.<host>.<pid>.<n> in `folder`, with the first free n.
  static Result<std::unique_ptr<EventWriter>> Make(Storage* storage, std::string_view folder);
  // Begins the given empty file at `wall_s`.
  static Result<std::unique_ptr<EventWriter>> Make(std::unique_ptr<AppendFile> file, double wall_s);

  // One event with a point of each named curve, kept as f32. `wall_s`: seconds since 1970.
  Status Scalars(double wall_s, std::int64_t step,
                 const std::vector<std::pair<std::string, double>>& values);
  // A run that was stopped or killed goes on: readers drop the points of earlier files whose step
  // is `step` or later.
  Status Restart(double wall_s, std::int64_t step);
  // One event with a histogram of each name; empty ones are left out.
  Status Histograms(double wall_s, std::int64_t step,
                    const std::vector<std::pair<std::string, Histogram>>& values);

 private:
  explicit EventWriter(std::unique_ptr<AppendFile> file) : file_(std::move(file)) {}
  Status Append(double wall_s, std::int64_t step, std::string_view summary);

  const std::unique_ptr<AppendFile> file_;
};

}  // namespace troop
