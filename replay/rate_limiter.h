#pragma once

#include <cstdint>

#include "core/status.h"

namespace troop {

// Says which side of a replay table must wait so that samples / inserts stays near a target. Pure
// arithmetic: no clock, no queue, no lock. Counts are items, on both sides.
//
// With I items inserted and S sampled, the lead is L = samples_per_insert * I - S, the samples that
// the inserts have paid for and that were not drawn yet. The first min_items are free of charge:
// the middle of the band is samples_per_insert * min_items, so filling up causes no burst of
// samples (as Reverb's SampleToInsertRatio). Band: middle ± ratio_error * middle.
//   inserts may go on:  size < min_items, or L <= the upper end
//   samples may go on:  size >= min_items, and L >= the lower end
// Each allows one whole request, however large. So L stays within the band by one request, and:
//   Invariant: once size >= min_items one side may always go on, as lower <= upper, whatever the
//   sizes of requests. Below min_items inserts may. Both sides are never blocked at once.
class RateLimiter {
 public:
  struct Options {
    double samples_per_insert = 8;  // 0: no ratio, only min_items
    double ratio_error = 0.1;       // half of the band's width, as a share of its middle
    std::int64_t min_items = 1;
  };
  // Errors: kInvalidArgument.
  static Result<RateLimiter> Make(const Options& options);

  bool CanInsert(std::int64_t size) const {
    return options_.samples_per_insert == 0 || size < options_.min_items || lead() <= upper_;
  }
  bool CanSample(std::int64_t size) const {
    return size >= options_.min_items && (options_.samples_per_insert == 0 || lead() >= lower_);
  }
  void Inserted(std::int64_t items) { inserts_ += items; }
  void Sampled(std::int64_t items) { samples_ += items; }

  std::int64_t inserts() const { return inserts_; }
  std::int64_t samples() const { return samples_; }
  double lead() const { return options_.samples_per_insert * double(inserts_) - double(samples_); }
  double lower() const { return lower_; }
  double upper() const { return upper_; }

 private:
  explicit RateLimiter(const Options& options);
  Options options_;
  double lower_ = 0, upper_ = 0;
  std::int64_t inserts_ = 0, samples_ = 0;
};

}  // namespace troop
