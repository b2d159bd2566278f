#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/base/status.h"
#include "core/base/time.h"
#include "core/metrics/metrics.h"

namespace troop {

// Decides which side of a replay table must wait so that samples / inserts stays near a target.
// Pure arithmetic, without clock, queue or lock. Counts are items on both sides.
//
// With I items inserted and S sampled, the lead is L = samples_per_insert * I - S: the samples
// that inserts have allowed and that were not taken yet. The first min_items are free of charge:
// the middle of the band is samples_per_insert * min_items, so that the first fill causes no burst
// of samples (as in Reverb's SampleToInsertRatio). Band (Reverb's error buffer): middle ±
// samples_per_insert_tolerance_rate * middle.
//   inserts proceed if: size < min_items, or L <= the upper end
//   samples proceed if: size >= min_items, and L >= the lower end
// Each check admits one whole request of any size, so L leaves the band by at most one request.
//
// Invariant: both sides are never blocked at once. Below min_items inserts proceed; from min_items
// on at least one side does, as lower <= upper, whatever the sizes of requests.
//
// If a table shrinks below min_items while running (items too old), inserts refill it beyond the
// band; the lead above the upper end is dropped at the next Note.
//
// A sample counts when the owner of its receiver took it; until then it is reserved. S in the lead
// includes both, so prefetching cannot exceed the band; samples() counts only delivered ones.
class RateLimiter {
 public:
  struct Options {
    double samples_per_insert = 8;  // 0: no ratio, only min_items
    double samples_per_insert_tolerance_rate =
        0.1;  // half the band's width, relative to its middle
    std::int64_t min_items = 1;
  };
  // Errors: kInvalidArgument, also if single samples would be lost to rounding because the upper
  // end samples_per_insert * min_items * (1 + samples_per_insert_tolerance_rate) exceeds 2^53.
  static Result<RateLimiter> Make(const Options& options);

  bool CanInsert(std::int64_t size) const {
    return options_.samples_per_insert == 0 || size < options_.min_items || lead() <= upper_;
  }
  bool CanSample(std::int64_t size) const {
    return size >= options_.min_items && (options_.samples_per_insert == 0 || lead() >= lower_);
  }
  void Inserted(std::int64_t items) { inserts_ += items; }
  void Sampled(std::int64_t items) { samples_ += items; }  // reserve and deliver in one step

  // Reserve: a reply with `items` items is made. Deliver: the receiver's owner took them. Release:
  // it never will. REQUIRES: delivered or released items were reserved.
  void Reserve(std::int64_t items) { reserved_ += items; }
  void Deliver(std::int64_t items);
  void Release(std::int64_t items);

  // Changes the ratio while running, for all later requests. The offset of the lead from the old
  // middle is kept as far as the new band reaches, so the past causes neither a burst nor a
  // standstill. Refilling to a larger min_items is free of charge again. Errors: as Make; then
  // nothing changes.
  Status Reconfigure(const Options& options, std::int64_t size);
  // Continues from the counts of an earlier process of the same table, with nothing in flight.
  // `size`: items in the table now.
  void Restore(std::int64_t inserts, std::int64_t samples, std::int64_t size);

  // Reason why a side waits.
  enum class Reason : std::uint8_t {
    kNone = 0,           // not waiting
    kBelowMinItems = 1,  // samples: the table is not filled yet
    kRatio = 2,          // the other side must catch up
    kTable = 3,          // not the limiter: the table has nothing to sample, or accepts no inserts
  };
  static constexpr std::size_t kReasons = 4;
  struct Blocked {
    Reason reason = Reason::kNone;
    Time since{};                           // start of the current reason
    std::array<Duration, kReasons> time{};  // total by reason
    Duration total() const;
  };
  // Sets which sides have waiting requests from `now` to the next Note. Call it after handling
  // requests, and periodically.
  void Note(Time now, bool insert_waits, bool sample_waits, std::int64_t size);
  const Blocked& insert_blocked() const { return insert_blocked_; }
  const Blocked& sample_blocked() const { return sample_blocked_; }
  // One human-readable line: the waiting sides, for how long, and why.
  std::string Explain(Time now, std::int64_t size) const;
  // Reports counters <prefix>insert_blocked_s and <prefix>sample_blocked_s, each also by reason:
  // <prefix>insert_blocked_ratio_s, … Prefix: "replay/".
  void ReportBlocked(std::string_view prefix, Metrics* metrics) const;

  const Options& options() const { return options_; }
  std::int64_t inserts() const { return inserts_; }
  std::int64_t samples() const { return samples_; }    // delivered
  std::int64_t reserved() const { return reserved_; }  // in flight
  double lead() const {
    return lead_then_ + options_.samples_per_insert * double(inserts_ - inserts_then_) -
           double(samples_ + reserved_ - drawn_then_);
  }
  double lower() const { return lower_; }
  double upper() const { return upper_; }

 private:
  explicit RateLimiter(const Options& options);
  void Begin(const Options& options, double beside_middle, std::int64_t size);
  void Account(Blocked* blocked, Reason reason, Time now) const;

  Options options_;
  double lower_ = 0, upper_ = 0;
  std::int64_t inserts_ = 0, samples_ = 0, reserved_ = 0;
  // Values at the last Begin; lead() adds the differences since.
  double lead_then_ = 0;
  std::int64_t inserts_then_ = 0, drawn_then_ = 0;
  std::optional<Time> noted_;
  Blocked insert_blocked_, sample_blocked_;
};

}  // namespace troop
