#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace troop {

class JsonObject;

// Distribution of non-negative values in fixed buckets: four per power of two from 2^-20 to 2^44,
// one below and one above. Because the buckets are fixed, histograms of different roles can be
// added, and those of different times subtracted. One owner thread. Add takes a few ns; 2 KiB.
class Histogram {
 public:
  static constexpr int kStepsPerOctave = 4, kExponentMin = -20, kExponentMax = 44;
  static constexpr int kBuckets = (kExponentMax - kExponentMin) * kStepsPerOctave + 2;

  // Adds a value. NaN is ignored; negative values go to the first bucket, infinity to the last one
  // as the largest finite value.
  void Add(double value, std::uint64_t times = 1);
  void Merge(const Histogram& other);
  // Returns the values added since `earlier` was copied from this histogram; all values if it was
  // not. Its min and max are accurate to one bucket only.
  Histogram Since(const Histogram& earlier) const;

  std::uint64_t count() const { return count_; }
  double sum() const { return sum_; }
  double sum_squares() const { return sum_squares_; }
  double min() const { return min_; }  // 0 if empty
  double max() const { return max_; }
  double mean() const { return count_ == 0 ? 0 : sum_ / double(count_); }
  // Returns the q-quantile, q in [0, 1], accurate to one bucket, so off by a quarter at most, and
  // within [min, max]. NaN if empty.
  double Quantile(double q) const;
  // Returns {count, p50, p90, p99, max, octaves}. octaves: [[low, number of values in [low, 2
  // low)], ...] of non-empty octaves, with low a power of two, or 0 for values below
  // 2^kExponentMin.
  JsonObject Json() const;

  // Bucket b holds [Limit(b - 1), Limit(b)); the first and the last are unbounded.
  static double Limit(int bucket);
  std::uint64_t bucket(int b) const { return buckets_.empty() ? 0 : buckets_[std::size_t(b)]; }
  bool operator==(const Histogram&) const = default;

  // Serializes the buckets from the first to the last non-empty one. Decoding rejects any other
  // encoding, and contents that no values produce.
  template <class A>
  void serialize(A& a) {
    Packed p;
    if constexpr (!A::is_loading::value) p = Pack();
    a(p.first, p.counts, p.sum, p.sum_squares, p.min, p.max);
    if constexpr (A::is_loading::value) {
      if (!p.counts.empty() && !a.Charge(kBuckets * sizeof(std::uint64_t))) return;
      if (!Unpack(p)) a.Fail("a histogram is inconsistent");
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

  std::vector<std::uint64_t> buckets_;  // empty, or kBuckets
  std::uint64_t count_ = 0;
  double sum_ = 0, sum_squares_ = 0, min_ = 0, max_ = 0;
};

}  // namespace troop
