#pragma once

#include <cstddef>
#include <cstdint>

#include "core/metrics/histogram.h"
#include "replay/codec/encoded_batch.h"
#include "replay/serving/prefixed_metrics.h"
#include "replay/table/rate_limiter.h"
#include "replay/table/table.h"

namespace troop {

// Counts and distributions of one table's requests, and their report. Owner: the table's server, on
// one thread.
class TableMetrics {
 public:
  // State that is reported as it is now.
  struct Levels {
    std::size_t parked_inserts = 0, parked_samples = 0;
    std::int64_t capacity_items = 0;
  };

  // Excludes the counts of earlier processes, which reported them themselves.
  void Continue(const RateLimiter& limiter, const Table& table) {
    before_ = {limiter.inserts(), limiter.samples(), table.usage().evicted};
  }
  void NoteRefused() { ++refused_; }
  void NoteInsert(const Table::InsertCounts& counts) {
    repeated_ += counts.repeated;
    rejected_ += counts.rejected;
  }
  // Counts items whose frames were evicted before they arrived, and logs each time their number
  // reaches a power of two. `item`: the first of the call.
  void NoteExpired(const Item& item, std::int64_t count, const Table& table);
  void NoteUpdates(const Table::UpdateCounts& counts);
  // Statistics of a sample: policy ages in updates, item ages in inserted items. REQUIRES: it is
  // the table's last draw, which may be empty.
  void NoteDrawn(const EncodedBatch& drawn, const Table& table);

  std::int64_t refused() const { return refused_; }
  void Report(const PrefixedMetrics& metrics, const Table& table, const RateLimiter& limiter,
              const Levels& levels) const;

 private:
  struct Before {
    std::int64_t inserts = 0, samples = 0, evicted = 0;
  };

  std::int64_t refused_ = 0, expired_ = 0, repeated_ = 0, rejected_ = 0;
  Before before_;
  Table::UpdateCounts updates_;
  Histogram policy_age_, age_;  // ages of sampled items: in updates, and in items inserted since
  // Statistics of the last sample.
  double policy_version_mean_ = 0, policy_version_min_ = 0;
  std::int64_t drawn_ = 0;  // items in it; 0: none
};

}  // namespace troop
