#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace troop {

// Statistics of samples in which example i occurs times[i] times (a resample of the bootstrap; all
// 1: the data). All spans have one element per example. Undefined values are nullopt, not NaN.

// The examples by increasing value, with ties; computed once and used for all samples.
class ValueOrder {
 public:
  // O(n log n). REQUIRES: finite values.
  explicit ValueOrder(std::span<const double> values);
  // Calls use(examples of equal value) for each value, in increasing order.
  template <class Use>
  void ForEachTie(const Use& use) const {
    const std::span<const std::uint32_t> all(order_);
    for (std::size_t i = 0; i + 1 < begins_.size(); ++i)
      use(all.subspan(begins_[i], begins_[i + 1] - begins_[i]));
  }

 private:
  std::vector<std::uint32_t> order_;   // [n] examples
  std::vector<std::uint32_t> begins_;  // of each value in order_, and n
};

// The area under the ROC curve of one class: the probability that a positive example has a larger
// value than a negative one; equal values count half (Mann and Whitney 1947).
class RocCurve {
 public:
  // For n examples of which m are positive O(n log m), so that many rare classes take little time:
  // only the positive values are sorted. REQUIRES: finite values.
  RocCurve(std::span<const double> values, std::span<const std::uint8_t> positive);
  // nullopt: no example of a kind occurs. O(n).
  std::optional<double> Area(std::span<const std::uint32_t> times) const;

 private:
  // Three bins per distinct positive value, in increasing order: the negative examples between the
  // value before and this one, those equal to it, and the positive ones. The last bin has the
  // negative examples above all values.
  std::vector<std::uint32_t> bin_;  // [n], of each example; empty: no positive example
  std::size_t bins_ = 0;
};

// Pearson's correlation coefficient. nullopt: fewer than 2 examples, or one side is constant. O(n).
std::optional<double> Correlation(std::span<const double> x, std::span<const double> y,
                                  std::span<const std::uint32_t> times);

// Ranks from 1; equal values have the mean of their ranks. Those of examples that do not occur are
// undefined. rank: [n]. O(n).
void AverageRanks(const ValueOrder& order, std::span<const std::uint32_t> times,
                  std::span<double> rank);

}  // namespace troop
