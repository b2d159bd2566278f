// Implements PhaseProgress.
#include "core/base/phase_progress.h"

#include <fmt/format.h>

#include <atomic>

namespace troop {
namespace {

// Interval of progress lines; shorter phases show none.
constexpr Duration kPhaseLineEvery = Seconds(2);

// Atomic, because phases run on several threads.
std::atomic<PhaseSink> g_phase_sink = nullptr;

const Clock* RealClock() {
  static const SystemClock clock{};
  return &clock;
}

}  // namespace

void SetPhaseSink(PhaseSink sink) { g_phase_sink = sink; }

PhaseProgress::PhaseProgress(std::string what, std::string units, std::int64_t total,
                             const Clock* clock)
    : what_(std::move(what)),
      units_(std::move(units)),
      total_(total),
      clock_(clock),
      begun_(clock->Now()) {}

PhaseProgress::PhaseProgress(std::string what, std::string units, std::int64_t total)
    : PhaseProgress(std::move(what), std::move(units), total, RealClock()) {}

void PhaseProgress::Show(std::int64_t done) {
  const Time now = clock_->Now();
  if (now - shown_.value_or(begun_) < kPhaseLineEvery) return;
  shown_ = now;
  const PhaseSink sink = g_phase_sink;
  // Without a sink, as in most tests, nothing is shown.
  if (sink == nullptr) return;
  const double seconds = ToSeconds(now - begun_);
  std::string line =
      fmt::format("{}: {} of {} {}, {:.0f} s so far", what_, done, total_, units_, seconds);
  // Extrapolates from the average speed so far.
  if (done > 0 && done <= total_) {
    line += fmt::format(", about {:.0f} s left", seconds * double(total_ - done) / double(done));
  }
  sink(line);
}

}  // namespace troop
