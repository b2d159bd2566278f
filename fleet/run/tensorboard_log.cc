// Implements the mapping of a run's metrics to TensorBoard's names and values.

#include "fleet/run/tensorboard_log.h"

#include <fmt/format.h>

#include "core/base/time.h"

namespace troop {
namespace {

// The name of a counter's rate; nullopt for sums, which have no meaningful rate.
std::optional<std::string> RateName(std::string_view counter) {
  if (counter.ends_with("_sum")) return std::nullopt;
  // Seconds per second are a share of the time, without a unit.
  const bool clock = counter.ends_with("_s");
  if (clock) counter.remove_suffix(2);
  return fmt::format("{}{}", counter, clock ? "_fraction" : "_per_s");
}

}  // namespace

Result<std::unique_ptr<TensorboardLog>> TensorboardLog::Make(
    Storage* run, std::optional<std::int64_t> resumed_at) {
  TROOP_ASSIGN_OR_RETURN(auto events, EventWriter::Make(run, ""));
  // Later points belong to updates that the resume undoes.
  if (resumed_at) TROOP_RETURN_IF_ERROR(events->Restart(WallSeconds(), *resumed_at + 1));
  return std::unique_ptr<TensorboardLog>(new TensorboardLog(std::move(events)));
}

// Adds the rate since the previous value; a first value has none.
void TensorboardLog::AddCounter(const std::string& name, double value, double seconds) {
  const auto [before, fresh] = counters_.try_emplace(name, value);
  const double grown = value - std::exchange(before->second, value);
  if (fresh || seconds <= 0) return;
  if (const auto rate = RateName(name)) AddScalar(*rate, grown / seconds);
}

// Adds the values since the previous call, because `all` covers the whole run.
const Histogram& TensorboardLog::AddHistogram(const std::string& name, const Histogram& all) {
  Histogram& before = histograms_[name];
  new_parts_.emplace_back(name, all.Since(before));
  before = all;
  return new_parts_.back().second;
}

// Bytes 6 to 9 of a GIF are its width and height, little endian.
Status TensorboardLog::WriteGif(std::string_view name, std::string_view gif, std::int64_t steps) {
  if (gif.size() < 10 || !gif.starts_with("GIF8")) return InvalidArgument("{} is no GIF", name);
  const auto number = [&](std::size_t at) {
    return int(std::uint8_t(gif[at])) | int(std::uint8_t(gif[at + 1])) << 8;
  };
  return events_->Image(WallSeconds(), steps, name,
                        {.width = number(6), .height = number(8), .bytes = gif});
}

Status TensorboardLog::Write(std::int64_t steps) {
  // Cleared even if the write fails: the next line has its own values.
  const auto scalars = std::exchange(scalars_, {});
  const auto histograms = std::exchange(new_parts_, {});
  const double now = WallSeconds();
  TROOP_RETURN_IF_ERROR(events_->Scalars(now, steps, scalars));
  if (histograms.empty()) return Status::Ok();
  return events_->Histograms(now, steps, histograms);
}

}  // namespace troop
