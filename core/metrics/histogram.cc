// Implements Histogram: bucketing by the bits of a double, quantiles, merging and serialization.
#include "core/metrics/histogram.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "core/storage/json.h"

namespace troop {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kLargest = std::numeric_limits<double>::max();
// Limit of the decoded count: beyond any real count, and sums of several stay exact as doubles.
constexpr std::uint64_t kCountMax = std::uint64_t{1} << 50;

// The upper bits of a double are its exponent and the step within the octave, so consecutive
// buckets have consecutive values of these bits.
constexpr int kShift = 52 - std::countr_zero(unsigned(Histogram::kStepsPerOctave));
constexpr std::uint64_t kFirstStep = std::uint64_t(1023 + Histogram::kExponentMin) << (52 - kShift);

// Returns the bucket of a value in O(1), without a logarithm.
int BucketOf(double value) {
  if (!(value >= Histogram::Limit(0))) return 0;
  const std::uint64_t step = (std::bit_cast<std::uint64_t>(value) >> kShift) - kFirstStep;
  return int(std::min<std::uint64_t>(step + 1, Histogram::kBuckets - 1));
}

}  // namespace

// Upper limit of a bucket; the first one contains all small and negative values.
double Histogram::Limit(int bucket) {
  if (bucket < 0) return -kInfinity;
  if (bucket >= kBuckets - 1) return kInfinity;
  return std::bit_cast<double>((std::uint64_t(bucket) + kFirstStep) << kShift);
}

// Ignores NaN; infinities count as the largest finite values.
void Histogram::Add(double value, std::uint64_t times) {
  if (std::isnan(value) || times == 0) return;
  value = std::clamp(value, -kLargest, kLargest);
  if (buckets_.empty()) buckets_.resize(kBuckets);
  min_ = count_ == 0 ? value : std::min(min_, value);
  max_ = count_ == 0 ? value : std::max(max_, value);
  buckets_[std::size_t(BucketOf(value))] += times;
  count_ += times;
  sum_ = std::clamp(sum_ + value * double(times), -kLargest, kLargest);
  sum_squares_ = std::min(sum_squares_ + value * value * double(times), kLargest);
}

// Sums saturate at the largest finite value instead of becoming infinite.
void Histogram::Merge(const Histogram& other) {
  if (other.count_ == 0) return;
  if (count_ == 0) {
    *this = other;
    return;
  }
  for (std::size_t b = 0; b < buckets_.size(); ++b) buckets_[b] += other.buckets_[b];
  count_ += other.count_;
  sum_ = std::clamp(sum_ + other.sum_, -kLargest, kLargest);
  sum_squares_ = std::min(sum_squares_ + other.sum_squares_, kLargest);
  min_ = std::min(min_, other.min_);
  max_ = std::max(max_, other.max_);
}

// If a bucket shrank, `earlier` belongs to another histogram (for example, of a restarted role).
Histogram Histogram::Since(const Histogram& earlier) const {
  if (earlier.count_ == 0) return *this;
  Histogram since = *this;
  for (int b = 0; b < kBuckets; ++b) {
    if (earlier.bucket(b) > bucket(b)) return *this;
    since.buckets_[std::size_t(b)] -= earlier.bucket(b);
  }
  since.count_ -= earlier.count_;
  if (since.count_ == 0) return {};
  since.sum_ -= earlier.sum_;
  since.sum_squares_ = std::max(0.0, sum_squares_ - earlier.sum_squares_);
  // The extremes of the interval are bounded by its outermost non-empty buckets.
  int first = 0, last = kBuckets - 1;
  while (since.bucket(first) == 0) ++first;
  while (since.bucket(last) == 0) --last;
  since.min_ = std::max(min_, Limit(first - 1));
  since.max_ = std::min(max_, std::nextafter(Limit(last), 0.0));
  return since;
}

// NaN for an empty histogram. The error is at most the width of one bucket. O(buckets).
double Histogram::Quantile(double q) const {
  if (count_ == 0) return std::numeric_limits<double>::quiet_NaN();
  // Finds the bucket that contains the quantile, then interpolates in it.
  const double wanted = std::clamp(q, 0.0, 1.0) * double(count_);
  double below = 0;
  for (int b = 0; b < kBuckets; ++b) {
    const auto here = double(bucket(b));
    if (here == 0 || below + here < wanted) {
      below += here;
      continue;
    }
    const double low = std::max(min_, Limit(b - 1)), high = std::min(max_, Limit(b));
    // lerp instead of low + (high - low) * …, which overflows for huge values.
    return std::clamp(std::lerp(low, high, std::max(0.0, wanted - below) / here), low, high);
  }
  return max_;
}

// Four buckets are combined into one octave.
JsonObject Histogram::Json() const {
  const double none = std::numeric_limits<double>::quiet_NaN();
  JsonArray octaves;
  for (int b = 0; b < kBuckets && count_ > 0; b += b == 0 ? 1 : kStepsPerOctave) {
    const int end = b == 0 ? 1 : std::min(b + kStepsPerOctave, kBuckets);
    std::uint64_t values = 0;
    for (int i = b; i < end; ++i) values += bucket(i);
    if (values > 0) octaves.Add(JsonArray().Add(b == 0 ? 0 : Limit(b - 1)).Add(values));
  }
  return JsonObject()
      .Add("count", count_)
      .Add("p50", Quantile(0.5))
      .Add("p90", Quantile(0.9))
      .Add("p99", Quantile(0.99))
      .Add("max", count_ == 0 ? none : max_)
      .Add("octaves", octaves);
}

// Empty buckets at both ends are omitted, since most distributions fill few.
Histogram::Packed Histogram::Pack() const {
  Packed packed{.sum = sum_, .sum_squares = sum_squares_, .min = min_, .max = max_};
  if (count_ == 0) return packed;
  const auto filled = [](std::uint64_t n) { return n > 0; };
  const auto first = std::ranges::find_if(buckets_, filled);
  auto end = buckets_.end();
  while (!filled(*(end - 1))) --end;
  packed.first = std::uint16_t(first - buckets_.begin());
  packed.counts.assign(first, end);
  return packed;
}

// Inverse of Pack; false for input that Pack never produces, and then this histogram is empty.
bool Histogram::Unpack(const Packed& packed) {
  *this = {};
  for (const double x : {packed.sum, packed.sum_squares, packed.min, packed.max}) {
    if (!std::isfinite(x)) return false;
  }
  if (packed.sum_squares < 0 || packed.min > packed.max) return false;
  if (packed.counts.empty()) {
    // An empty histogram has exactly one encoding, so -0 is rejected.
    const auto zero = [](double x) { return std::bit_cast<std::uint64_t>(x) == 0; };
    return packed.first == 0 && zero(packed.sum) && zero(packed.sum_squares) && zero(packed.min) &&
           zero(packed.max);
  }
  // Checks of untrusted input: sizes, trimmed ends, total, and the buckets of min and max.
  if (packed.first + packed.counts.size() > kBuckets) return false;
  if (packed.counts.front() == 0 || packed.counts.back() == 0) return false;
  std::uint64_t count = 0;
  for (const std::uint64_t n : packed.counts) {
    if (n > kCountMax - count) return false;
    count += n;
  }
  if (BucketOf(packed.min) != packed.first) return false;
  if (BucketOf(packed.max) + 1 != int(packed.first + packed.counts.size())) return false;
  buckets_.resize(kBuckets);
  std::ranges::copy(packed.counts, buckets_.begin() + packed.first);
  count_ = count;
  sum_ = packed.sum;
  sum_squares_ = packed.sum_squares;
  min_ = packed.min;
  max_ = packed.max;
  return true;
}

}  // namespace troop
