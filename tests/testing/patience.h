#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

namespace troop {

// Slowdown relative to an idle core of 2020, in [1, 10]. Measured with a fixed amount of work that
// takes 0.1 s there, longer than a scheduler slice.
inline double Slowness() {
  const auto begin = std::chrono::steady_clock::now();
  volatile std::uint64_t x = 1;
  for (int i = 0; i < 70'000'000; ++i) x = x * 6364136223846793005u + 1442695040888963407u;
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  return std::clamp(took.count() / 0.1, 1.0, 10.0);
}

// Deadline of a test that waits for real time: `seconds` on an idle machine. When they have passed,
// it is extended by the slowdown that is measured then. So a busy machine does not fail the test,
// and a test that hangs still ends.
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
