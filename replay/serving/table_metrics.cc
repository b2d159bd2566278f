// TableMetrics: what a table's server counts, and its report.
#include "replay/serving/table_metrics.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "core/base/log.h"

namespace troop {

void TableMetrics::NoteExpired(const Item& item, std::int64_t count, const Table& table) {
  // Logged at each power of two, so that a persistent loss does not flood the log.
  const auto before = std::uint64_t(expired_);
  expired_ += count;
  if (std::bit_width(before) == std::bit_width(std::uint64_t(expired_))) return;  // 1, 2, 4, …
  LogWarning(
      "replay: dropped {} items so far, the last of actor incarnation {}: their first frames were "
      "evicted before they arrived; the log holds {} frames; raise replay.capacity_items or use "
      "fewer actors",
      expired_, item.stream >> 32, table.usage().frame_capacity);
}

void TableMetrics::NoteUpdates(const Table::UpdateCounts& counts) {
  updates_.applied += counts.applied;
  updates_.stale += counts.stale;
  updates_.refused += counts.refused;
}

void TableMetrics::NoteDrawn(const EncodedBatch& drawn, const Table& table) {
  drawn_ = drawn.size();
  if (drawn_ == 0) return;
  double sum = 0;
  // A version also holds an incarnation in its upper half, which UpdatesOf removes.
  for (const std::uint64_t version : drawn.policy_version) sum += double(UpdatesOf(version));
  const double newest = double(UpdatesOf(table.newest_policy_version()));
  // Policy age, in updates: from the weights that acted to the newest ones in the table.
  for (const std::uint64_t version : drawn.policy_version) {
    policy_age_.Add(std::max(0.0, newest - double(UpdatesOf(version))));
  }
  for (const std::uint64_t age : table.drawn_age()) age_.Add(double(age));
  policy_version_mean_ = sum / double(drawn.size());
  policy_version_min_ = double(UpdatesOf(*std::ranges::min_element(drawn.policy_version)));
}

// Counters exclude earlier processes, which reported their own; levels include them.
void TableMetrics::Report(const PrefixedMetrics& metrics, const Table& table,
                          const RateLimiter& limiter, const Levels& levels) const {
  // An empty histogram has no quantiles to report.
  for (const auto& [key, histogram] :
       {std::pair("policy_age", &policy_age_), std::pair("age", &age_)}) {
    if (histogram->count() > 0) metrics.metrics->Distribution(metrics.Named(key), *histogram);
  }
  const double inserts = double(limiter.inserts()), samples = double(limiter.samples());
  const TableUsage usage = table.usage();
  metrics.Level("items", double(table.size()));
  metrics.Level("bytes", double(usage.bytes));
  metrics.Level("log_bytes", double(usage.used_bytes));
  metrics.Level("log_live_bytes", double(usage.live_bytes));
  metrics.Level("waiting_inserts", double(levels.parked_inserts));
  metrics.Level("waiting_samples", double(levels.parked_samples));
  metrics.Level("limiter_inserts", inserts);  // including earlier processes of the table
  metrics.Level("limiter_samples", samples);
  // The limiter resumes with the totals of the table; before_ holds those of the beginning.
  metrics.Count("inserts", inserts - double(before_.inserts));
  metrics.Count("samples", samples - double(before_.samples));
  metrics.Level("samples_in_flight", double(limiter.reserved()));
  metrics.Count("evicted", double(usage.evicted - before_.evicted));
  metrics.Count("expired", double(expired_));
  metrics.Count("duplicate_items", double(repeated_));
  metrics.Count("rejected_items", double(rejected_));
  metrics.Count("updates", double(updates_.applied));
  metrics.Count("stale_updates", double(updates_.stale));
  metrics.Count("rejected_priorities", double(updates_.refused));
  const double capacity = double(levels.capacity_items);
  // A ratio is reported with its denominator, by which the fleet weights several tables.
  metrics.Ratio("fill", double(table.size()) / capacity, capacity);
  metrics.Ratio("samples_per_insert", samples / inserts, inserts);
  metrics.Ratio("policy_version_mean", policy_version_mean_, double(drawn_));
  // The smallest of all shards counts; a mean of minima has no meaning.
  if (drawn_ > 0) metrics.Put("policy_version_min", policy_version_min_, MetricKind::kGaugeMin);
  limiter.ReportBlocked(metrics.prefix, metrics.metrics);
}

}  // namespace troop
