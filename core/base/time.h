#pragma once

#include <chrono>
#include <cstdint>

namespace troop {

// Monotonic time in nanoseconds since an arbitrary origin (the start of the machine; zero in the
// simulator). Not comparable between machines. Nodes receive it as an argument and never read a
// clock.
struct MonotonicEpoch {
  using rep = std::int64_t;
  using period = std::nano;
  using duration = std::chrono::nanoseconds;
  using time_point = std::chrono::time_point<MonotonicEpoch>;
  static constexpr bool is_steady = true;
};
using Duration = std::chrono::nanoseconds;
using Time = MonotonicEpoch::time_point;
inline constexpr Time kForever = Time::max();

constexpr Duration Milliseconds(std::int64_t ms) { return std::chrono::milliseconds(ms); }
constexpr Duration Seconds(double s) { return Duration(std::int64_t(s * 1e9)); }
constexpr double ToSeconds(Duration d) { return double(d.count()) * 1e-9; }

// A clock, for hosts of nodes. ManualClock is for tests and the simulator.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual Time Now() const = 0;
};

class SystemClock final : public Clock {
 public:
  Time Now() const override {
    return Time(
        std::chrono::duration_cast<Duration>(std::chrono::steady_clock::now().time_since_epoch()));
  }
};

class ManualClock final : public Clock {
 public:
  Time Now() const override { return now_; }
  void Advance(Duration d) { now_ += d; }
  void Set(Time t) { now_ = t; }

 private:
  Time now_{};
};

// Returns the seconds since 1970; for display and TensorBoard only, never to measure durations.
double WallSeconds();

}  // namespace troop
