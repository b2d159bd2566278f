#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/status.h"
#include "core/metrics/histogram.h"
#include "core/storage/storage.h"

namespace troop {

// Writes one TensorBoard event file: protocol-buffer records (tensorflow.Event), framed with length
// and masked CRC-32C. Every call appends one complete record. One owner thread; calls block on the
// disk.
class EventWriter {
 public:
  // Creates events.out.tfevents.<unix time>.<host>.<pid>.<n> in `folder`, with the first free n.
  static Result<std::unique_ptr<EventWriter>> Make(Storage* storage, std::string_view folder);
  // Writes the header to the given empty file, with the time `wall_s`.
  static Result<std::unique_ptr<EventWriter>> Make(std::unique_ptr<AppendFile> file, double wall_s);

  // Writes one event with a point of each named curve, stored as f32. `wall_s`: seconds since 1970.
  Status Scalars(double wall_s, std::int64_t step,
                 const std::vector<std::pair<std::string, double>>& values);
  // Marks a resumed run: readers drop the points of earlier files from `step` on.
  Status Restart(double wall_s, std::int64_t step);
  // Writes one event with a histogram of each name; empty ones are omitted.
  Status Histograms(double wall_s, std::int64_t step,
                    const std::vector<std::pair<std::string, Histogram>>& values);

  // Writes one event with an encoded picture: PNG, JPEG or GIF, also an animated one.
  struct EncodedImage {
    int width = 0, height = 0;
    std::string_view bytes;
  };
  Status Image(double wall_s, std::int64_t step, std::string_view tag, const EncodedImage& image);

 private:
  explicit EventWriter(std::unique_ptr<AppendFile> file) : file_(std::move(file)) {}
  Status Append(double wall_s, std::int64_t step, std::string_view summary);

  const std::unique_ptr<AppendFile> file_;
};

}  // namespace troop
