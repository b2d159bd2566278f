// RateLimiter: keeps samples per insert within a band, as Reverb's SampleToInsertRatio does.
#include "replay/table/rate_limiter.h"

#include <algorithm>
#include <cmath>

#include "core/base/check.h"

namespace troop {
namespace {

using Reason = RateLimiter::Reason;

constexpr double kLeadMax =
    9007199254740992.0;  // 2^53: above it a double cannot count single items

// Middle of the band: the samples that the first min_items would allow, which are free of charge.
double Middle(const RateLimiter::Options& options) {
  return options.samples_per_insert * double(options.min_items);
}

// The negated comparisons also refuse NaN.
Status Check(const RateLimiter::Options& options) {
  if (!(std::isfinite(options.samples_per_insert) && options.samples_per_insert >= 0)) {
    return InvalidArgument(
        "replay: samples_per_insert is {}, must be finite and >= 0 (0: no limit)",
        options.samples_per_insert);
  }
  if (!(std::isfinite(options.samples_per_insert_tolerance_rate) &&
        options.samples_per_insert_tolerance_rate >= 0)) {
    return InvalidArgument(
        "replay: samples_per_insert_tolerance_rate is {}, must be finite and >= 0",
        options.samples_per_insert_tolerance_rate);
  }
  if (options.min_items < 1) {
    return InvalidArgument("replay: min_items is {}, must be at least 1", options.min_items);
  }
  if (!(Middle(options) * (1 + options.samples_per_insert_tolerance_rate) <= kLeadMax)) {
    return InvalidArgument(
        "replay: samples_per_insert ({}) x min_items ({}) x (1 + samples_per_insert_tolerance_rate "
        "({})) exceeds 2^53 "
        "samples; lower one of them",
        options.samples_per_insert, options.min_items, options.samples_per_insert_tolerance_rate);
  }
  return Status::Ok();
}

// Parts of metric names: do not change.
std::string_view ReasonName(Reason reason) {
  switch (reason) {
    case Reason::kNone:
      return "none";
    case Reason::kBelowMinItems:
      return "min_items";
    case Reason::kRatio:
      return "ratio";
    case Reason::kTable:
      return "table";
  }
  return "unknown";
}

}  // namespace

Result<RateLimiter> RateLimiter::Make(const Options& options) {
  TROOP_RETURN_IF_ERROR(Check(options));
  return RateLimiter(options);
}

RateLimiter::RateLimiter(const Options& options) { Begin(options, 0, 0); }

// Starts a band with the given offset from its middle. Items missing to min_items are free of
// charge: their inserts will not count.
void RateLimiter::Begin(const Options& options, double beside_middle, std::int64_t size) {
  options_ = options;
  const double middle = Middle(options), half = middle * options.samples_per_insert_tolerance_rate;
  lower_ = middle - half;
  upper_ = middle + half;
  // The missing items are subtracted in advance, so that inserting them leads to the offset.
  const auto missing = std::max<std::int64_t>(0, options.min_items - size);
  lead_then_ = middle + std::clamp(beside_middle, -half, half) -
               options.samples_per_insert * double(missing);
  inserts_then_ = inserts_;
  drawn_then_ = samples_ + reserved_;
}

Status RateLimiter::Reconfigure(const Options& options, std::int64_t size) {
  TROOP_RETURN_IF_ERROR(Check(options));
  // Offset of the lead from the old middle, as if the table had at least min_items.
  double beside = 0;
  if (options_.samples_per_insert > 0) {
    const auto missing = std::max<std::int64_t>(0, options_.min_items - size);
    beside = lead() + options_.samples_per_insert * double(missing) - Middle(options_);
  }
  Begin(options, beside, size);
  return Status::Ok();
}

void RateLimiter::Restore(std::int64_t inserts, std::int64_t samples, std::int64_t size) {
  TROOP_CHECK(inserts >= 0 && samples >= 0, "restored: {} inserts, {} samples", inserts, samples);
  inserts_ = inserts;
  samples_ = samples;
  reserved_ = 0;
  // The lead that these counts would have given; the first fill may not have ended.
  const double paid = options_.samples_per_insert * double(std::max(inserts, options_.min_items));
  Begin(options_, paid - double(samples) - Middle(options_), size);
}

// Moves items from reserved to delivered; the lead does not change.
void RateLimiter::Deliver(std::int64_t items) {
  Release(items);
  samples_ += items;
}

void RateLimiter::Release(std::int64_t items) {
  TROOP_CHECK(items >= 0 && items <= reserved_, "{} items of {} in flight", items, reserved_);
  reserved_ -= items;
}

Duration RateLimiter::Blocked::total() const {
  Duration sum{};
  for (const Duration t : time) sum += t;
  return sum;
}

// Accounts the time since the previous call; the resolution of the times is that of the calls.
void RateLimiter::Note(Time now, bool insert_waits, bool sample_waits, std::int64_t size) {
  // Drops the lead above the band while the table refills: else a burst of samples would follow.
  if (size < options_.min_items) lead_then_ -= std::max(0.0, lead() - upper_);
  Reason insert = Reason::kNone, sample = Reason::kNone;
  // A side that waits though the limiter admits it waits for the table.
  if (insert_waits) insert = CanInsert(size) ? Reason::kTable : Reason::kRatio;
  if (sample_waits && size < options_.min_items) {
    sample = Reason::kBelowMinItems;
  } else if (sample_waits) {
    sample = CanSample(size) ? Reason::kTable : Reason::kRatio;
  }
  Account(&insert_blocked_, insert, now);
  Account(&sample_blocked_, sample, now);
  noted_ = now;
}

// Adds the time since the last Note to the old reason.
void RateLimiter::Account(Blocked* blocked, Reason reason, Time now) const {
  if (noted_ && blocked->reason != Reason::kNone) {
    blocked->time[std::size_t(blocked->reason)] += std::max(Duration{}, now - *noted_);
  }
  if (blocked->reason == reason) return;
  blocked->reason = reason;
  blocked->since = now;
}

// States the lead and its limit for the side that waits.
std::string RateLimiter::Explain(Time now, std::int64_t size) const {
  std::string text;
  // "inserts wait for 1.0 s: ", separated by "; ".
  const auto begin = [&text, now](const Blocked& blocked, std::string_view who) {
    text += fmt::format("{}{} for {:.1f} s: ", text.empty() ? "" : "; ", who,
                        ToSeconds(std::max(Duration{}, now - blocked.since)));
  };
  if (insert_blocked_.reason == Reason::kRatio) {
    begin(insert_blocked_, "inserts wait");
    text +=
        fmt::format("{:.0f} allowed samples are not taken, at most {:.0f} may be", lead(), upper_);
  } else if (insert_blocked_.reason == Reason::kTable) {
    begin(insert_blocked_, "inserts wait");
    text += "the table accepts none now";
  }
  if (sample_blocked_.reason == Reason::kBelowMinItems) {
    begin(sample_blocked_, "samples wait");
    text += fmt::format("{} of min_items {} items", size, options_.min_items);
  } else if (sample_blocked_.reason == Reason::kRatio) {
    begin(sample_blocked_, "samples wait");
    text += fmt::format("{:.0f} allowed samples are not taken, at least {:.0f} must be", lead(),
                        lower_);
  } else if (sample_blocked_.reason == Reason::kTable) {
    begin(sample_blocked_, "samples wait");
    text += "the table has none now";
  }
  if (!text.empty() && reserved_ > 0) text += fmt::format(" ({} in flight)", reserved_);
  return text.empty() ? "no side waits" : text;
}

void RateLimiter::ReportBlocked(std::string_view prefix, Metrics* metrics) const {
  // One counter per side and reason, and one per side.
  const auto report = [&](const Blocked& blocked, std::string_view side, Reason reason) {
    metrics->Gauge(fmt::format("{}{}_blocked_{}_s", prefix, side, ReasonName(reason)),
                   ToSeconds(blocked.time[std::size_t(reason)]), MetricKind::kCounter);
  };
  for (const Reason reason : {Reason::kRatio, Reason::kTable}) {
    report(insert_blocked_, "insert", reason);
    report(sample_blocked_, "sample", reason);
  }
  report(sample_blocked_, "sample", Reason::kBelowMinItems);
  metrics->Gauge(fmt::format("{}insert_blocked_s", prefix), ToSeconds(insert_blocked_.total()),
                 MetricKind::kCounter);
  metrics->Gauge(fmt::format("{}sample_blocked_s", prefix), ToSeconds(sample_blocked_.total()),
                 MetricKind::kCounter);
}

}  // namespace troop
