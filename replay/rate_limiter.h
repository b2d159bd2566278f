#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/metrics.h"
#include "core/status.h"
#include "core/time.h"

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
// Where a table shrinks below min_items while running (items too old), inserts refill it beyond the
// band; what they paid beyond its upper end is dropped at the next Note.
//   Invariant: once size >= min_items one side may always go on, as lower <= upper, whatever the
//   sizes of requests. Below min_items inserts may. Both sides are never blocked at once.
//
// A sample counts when its receiver's owner took it; until then it is reserved. S of the lead has
// both, so prefetching can't run ahead of the band, and samples() has the delivered ones alone.
class RateLimiter {
 public:
  struct Options {
    double samples_per_insert = 8;  // 0: no ratio, only min_items
    double ratio_error = 0.1;       // half of the band's width, as a share of its middle
    std::int64_t min_items = 1;
  };
  // Errors: kInvalidArgument, also where a band lies so high that single samples would be lost in
  // rounding: samples_per_insert * min_items * (1 + ratio_error) beyond 2^53.
  static Result<RateLimiter> Make(const Options& options);

  bool CanInsert(std::int64_t size) const {
    return options_.samples_per_insert == 0 || size < options_.min_items || lead() <= upper_;
  }
  bool CanSample(std::int64_t size) const {
    return size >= options_.min_items && (options_.samples_per_insert == 0 || lead() >= lower_);
  }
  void Inserted(std::int64_t items) { inserts_ += items; }
  void Sampled(std::int64_t items) { samples_ += items; }  // reserved and delivered at once

  // A reply with so many items is made; its receiver's owner took them; or never will.
  // REQUIRES: those delivered or released were reserved.
  void Reserve(std::int64_t items) { reserved_ += items; }
  void Deliver(std::int64_t items);
  void Release(std::int64_t items);

  // While running: the new ratio counts from now on. What the old one left (the lead beside its
  // middle) is taken over as far as the new band reaches: neither a burst nor a standstill makes up
  // for the past. Refilling to a larger min_items is free again. Errors: as Make; then nothing
  // changed.
  Status Reconfigure(const Options& options, std::int64_t size);
  // Goes on where an earlier process of the same table ended, in the same way. Nothing is in
  // flight. `size`: of the table as it is now.
  void Restore(std::int64_t inserts, std::int64_t samples, std::int64_t size);

  // Why a side waits.
  enum class Reason : std::uint8_t {
    kNone = 0,           // it doesn't
    kBelowMinItems = 1,  // samples: the table isn't filled yet
    kRatio = 2,          // the other side is behind
    kTable = 3,          // not the limiter: nothing can be drawn, or the table takes nothing now
  };
  static constexpr std::size_t kReasons = 4;
  struct Blocked {
    Reason reason = Reason::kNone;
    Time since{};                           // that this is the reason
    std::array<Duration, kReasons> time{};  // in all, by reason
    Duration total() const;
  };
  // What holds from `now` to the next Note: which sides have requests waiting. Call it after
  // requests were handled, and now and then.
  void Note(Time now, bool insert_waits, bool sample_waits, std::int64_t size);
  const Blocked& insert_blocked() const { return insert_blocked_; }
  const Blocked& sample_blocked() const { return sample_blocked_; }
  // One line for people: who waits, for how long, for what.
  std::string Explain(Time now, std::int64_t size) const;
  // Counters <prefix>insert_blocked_s and <prefix>sample_blocked_s, each also by reason:
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
  // As of the last Begin.
  double lead_then_ = 0;
  std::int64_t inserts_then_ = 0, drawn_then_ = 0;
  std::optional<Time> noted_;
  Blocked insert_blocked_, sample_blocked_;
};

}  // namespace troop
