#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

namespace troop {

// How many times longer than on an idle core of 2020 work takes here and now: at least 1, at most
// 10. Measured by a fixed amount of work, which takes 0.1 s there: longer than a turn of the
// scheduler.
inline double Slowness() {
  const auto begin = std::chrono::steady_clock::now();
  volatile std::uint64_t x = 1;
  for (int i = 0; i < 70'000'000; ++i) x = x * 6364136223846793005u + 1442695040888963407u;
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  return std::clamp(took.count() / 0.1, 1.0, 10.0);
}

// A deadline of a test that waits for something real. It is `seconds` on an idle machine. Once they
// are over it is extended by as much as the machine is slower, which is measured then: a test that
// would have passed beside nothing passes beside other work, and one that hangs ends all the same.
class Patience {
 public:
  explicit Patience(double seconds) : seconds_(seconds), limit_(seconds) {}
  bool Ended() {
    const std::chrono::duration<double> waited = std::chrono::steady_clock::now() - begin_;
    if (waited.count() <= limit_) return false;
    limit_ = std::max(limit_, seconds_ * Slowness());
    return waited.count() > limit_;
  }

 private:
  const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  const double seconds_;
  double limit_;
};

}  // namespace troop
