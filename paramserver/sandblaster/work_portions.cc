// Implements the portions of a batch.

#include "paramserver/sandblaster/work_portions.h"

#include <algorithm>

#include "core/base/check.h"

namespace troop {

// Starts are spread evenly.
WorkPortions::WorkPortions(const Options& options)
    : options_(options), portions_(std::size_t(options.portions)) {
  TROOP_CHECK(options.portions > 0 && options.workers > 0 && options.copies_max > 0,
              "{} portions, {} workers", options.portions, options.workers);
  for (int i = 0; i < options.workers; ++i)
    next_.push_back(int(std::int64_t(options.portions) * i / options.workers));
}

// First a portion without holder, from the worker's place on; then a copy of the one that has the
// fewest.
std::optional<int> WorkPortions::Take(int worker) {
  const int count = options_.portions;
  int& next = next_[std::size_t(worker)];
  std::optional<int> best;
  for (int i = 0; i < count; ++i) {
    const int portion = (next + i) % count;
    const Portion& at = portions_[std::size_t(portion)];
    if (at.finished || std::ranges::count(at.holders, worker) > 0) continue;
    const std::size_t holders = at.holders.size();
    if (holders > 0 && (!options_.backups || int(holders) >= options_.copies_max)) continue;
    if (best && portions_[std::size_t(*best)].holders.size() <= holders) continue;
    best = portion;
    if (holders == 0) break;
  }
  if (!best) return std::nullopt;
  Portion& taken = portions_[std::size_t(*best)];
  if (!taken.holders.empty()) ++backups_;
  taken.holders.push_back(worker);
  next = (*best + 1) % count;
  return best;
}

bool WorkPortions::Finish(int worker, int portion) {
  Portion& at = portions_[std::size_t(portion)];
  // A copy of a dropped worker is not counted: its results may be incomplete.
  if (std::erase(at.holders, worker) == 0 || at.finished) return false;
  at.finished = true;
  ++finished_;
  return true;
}

void WorkPortions::Drop(int worker) {
  for (Portion& portion : portions_) std::erase(portion.holders, worker);
}

void WorkPortions::MarkFinished(int portion) {
  Portion& at = portions_[std::size_t(portion)];
  if (!at.finished) ++finished_;
  at.finished = true;
}

}  // namespace troop
