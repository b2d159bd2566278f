#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/status.h"
#include "core/metrics/event_writer.h"
#include "core/metrics/histogram.h"
#include "core/storage/storage.h"

namespace troop {

// The TensorBoard events of a run. Scalars and histograms are collected by Add and written as one
// event per Write. Counters are shown as rates, clocks as shares of time ("learner/busy_s" is
// "learner/busy_fraction"), histograms as the part since the event before. Owner: one thread; Write
// blocks on the disk.
class TensorboardLog {
 public:
  // Creates a new event file in `run`. resumed_at: steps of the checkpoint that the run resumes
  // from, after which TensorBoard drops the points of earlier files. Errors: those of the storage.
  static Result<std::unique_ptr<TensorboardLog>> Make(Storage* run,
                                                      std::optional<std::int64_t> resumed_at);

  void AddScalar(std::string_view name, double value) { scalars_.emplace_back(name, value); }
  // Adds the counter's growth per second over the last `seconds`. Its first value has no rate, and
  // sums ("..._sum") have none that means anything.
  void AddCounter(const std::string& name, double value, double seconds);
  // Returns the part of `all` since the last call with this name.
  const Histogram& AddHistogram(const std::string& name, const Histogram& all);
  // Writes a GIF at once, under this name. Errors: kInvalidArgument: no GIF.
  Status WriteGif(std::string_view name, std::string_view gif, std::int64_t steps);
  // Writes what was added since the last call.
  Status Write(std::int64_t steps);

 private:
  explicit TensorboardLog(std::unique_ptr<EventWriter> events) : events_(std::move(events)) {}

  const std::unique_ptr<EventWriter> events_;
  std::vector<std::pair<std::string, double>> scalars_;
  std::vector<std::pair<std::string, Histogram>> new_parts_;
  std::map<std::string, Histogram> histograms_;  // values at the last call
  std::map<std::string, double> counters_;       // values at the last call
};

}  // namespace troop
