#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace troop {

// How values of 0 and above spread, in fixed buckets: four steps for each power of two from 2^-20
// to 2^44, one bucket below and one above. Fixed, so that those of different roles add up and
// those of different times subtract. Owner: whoever holds it. Add costs a few ns; 2 KiB.
class Histogram {
 public:
  static constexpr int kStepsPerOctave = 4, kExponentMin = -20, kExponentMax = 44;
  static constexpr int kBuckets = (kExponentMax - kExponentMin) * kStepsPerOctave + 2;

  // NaN is not counted; what is below 0 falls into the first bucket, infinity into the last one
  // as the largest finite value.
  void Add(double value, std::uint64_t times = 1);
  void Merge(const Histogram& other);
  // What came since `earlier` was copied from this one; all of it if that can't be. Its min and max
  // are known to a bucket only.
  Histogram Since(const Histogram& earlier) const;

  std::uint64_t count() const { return count_; }
  double sum() const { return sum_; }
  double sum_squares() const { return sum_squares_; }
  double min() const { return min_; }  // 0 when empty
  double max() const { return max_; }
  double mean() const { return count_ == 0 ? 0 : sum_ / double(count_); }
  // The value below which the share q in [0, 1] of them lies: in the right bucket, so off by a
  // quarter at most; never outside min and max. NaN when empty.
  double Quantile(double q) const;
  // {count, p50, p90, p99, max, octaves}; octaves: [[low, values in [low, 2 low)], ...] that hold
  // something, low a power of two; 0: what is below 2^kExponentMin.
  std::string Json() const;

  // Bucket b holds [Limit(b - 1), Limit(b)); the first reaches down, the last up without end.
  static double Limit(int bucket);
  std::uint64_t bucket(int b) const { return buckets_.empty() ? 0 : buckets_[std::size_t(b)]; }
  bool operator==(const Histogram&) const = default;

  // The buckets from the first to the last that holds something. Reading fails on anything else
  // and on numbers that no values give.
  template <class A>
  void serialize(A& a) {
    Packed p;
    if constexpr (!A::is_loading::value) p = Pack();
    a(p.first, p.counts, p.sum, p.sum_squares, p.min, p.max);
    if constexpr (A::is_loading::value) {
      if (!p.counts.empty() && !a.Charge(kBuckets * sizeof(std::uint64_t))) return;
      if (!Unpack(p)) a.Fail("a histogram contradicts itself");
    }
  }

 private:
  struct Packed {
    std::uint16_t first = 0;
    std::vector<std::uint64_t> counts;
    double sum = 0, sum_squares = 0, min = 0, max = 0;
  };
  Packed Pack() const;
  bool Unpack(const Packed& packed);

  std::vector<std::uint64_t> buckets_;  // none, or kBuckets
  std::uint64_t count_ = 0;
  double sum_ = 0, sum_squares_ = 0, min_ = 0, max_ = 0;
};

}  // namespace troop
