#pragma once

#include <cmath>

namespace troop {

// Mean and squared deviations of a series of discounted returns, from which rewards are normalized
// (env.normalize_rewards). The discounted return of an environment is g = gamma · g + reward, from
// 0 at the start of an episode: one value per step (Gymnasium's NormalizeReward,
// Stable-Baselines3's VecNormalize). Values in f64; each call O(1).
struct RewardStatistics {
  double count = 0;    // values
  double mean = 0;     // of the values
  double squares = 0;  // Σ (value - mean)²

  // Adds one value (Welford 1962). False: the result would not be Valid, because it exceeds f64 or
  // the value is not finite; nothing changes then. Infinite squares would make every reward 0.
  [[nodiscard]] bool Add(double value) {
    const double all = count + 1, apart = value - mean, next = mean + apart / all;
    return Take({.count = all, .mean = next, .squares = squares + apart * (value - next)});
  }
  // Adds the values of another series (Chan et al. 1979). False: as Add.
  [[nodiscard]] bool Merge(const RewardStatistics& other) {
    if (other.count <= 0) return true;
    const double all = count + other.count, apart = other.mean - mean;
    return Take({.count = all,
                 .mean = mean + apart * other.count / all,
                 .squares = squares + other.squares + apart * apart * count * other.count / all});
  }
  // Factor of rewards: 1 / sqrt(variance + 1e-8), with the variance of the population and the
  // epsilon of both wrappers. 1 while the variance is 0: nothing is known about the scale then.
  double Scale() const {
    constexpr double kEpsilon = 1e-8;
    return count > 0 && squares > 0 ? 1 / std::sqrt(squares / count + kEpsilon) : 1;
  }
  // False for statistics that no series has.
  bool Valid() const {
    return std::isfinite(count) && std::isfinite(mean) && std::isfinite(squares) && count >= 0 &&
           squares >= 0;
  }
  // Becomes `next` if that is valid.
  bool Take(const RewardStatistics& next) {
    const bool valid = next.Valid();
    if (valid) *this = next;
    return valid;
  }
  bool operator==(const RewardStatistics&) const = default;

  template <class A>
  void serialize(A& a) {
    a(count, mean, squares);
  }
};

// Serializes the last member of a body, which is absent unless it counts any value: bodies of runs
// without env.normalize_rewards have the bytes that they always had. REQUIRES: nothing follows.
template <class A>
void SerializeTail(A& a, RewardStatistics& rewards) {
  if constexpr (A::is_loading::value) {
    if (a.remaining() == 0) return;
    a(rewards);
    if (!rewards.Valid() || rewards.count <= 0) a.Fail("reward statistics of no series");
  } else if (rewards.count > 0) {
    a(rewards);
  }
}

}  // namespace troop
