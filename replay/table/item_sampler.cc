// ItemSampler: chooses the items of a batch, and evicts those that may not be sampled again.
#include "replay/table/item_sampler.h"

#include <algorithm>

#include "core/base/check.h"

namespace troop {

ItemSampler::ItemSampler(const TableOptions& options, const Parts& parts)
    : seed_(options.seed),
      incarnation_(options.incarnation),
      max_times_sampled_(options.max_times_sampled),
      parts_(parts),
      gatherer_(options.view, parts.log, parts.slots) {}

void ItemSampler::Draw(std::int64_t batch, EncodedBatch* out) {
  const SelectorPair& selectors = *parts_.selectors;
  TROOP_CHECK(batch > 0 && selectors.can_draw(), "sample of {} items with total {}", batch,
              selectors.total());
  parts_.evictor->Unpin();
  if (parts_.ages->limited()) EvictStaleItems();
  // Totals of the state before this draw evicts anything.
  out->total = selectors.total();
  out->items = parts_.slots->size();
  out->probability_min = selectors.probability_min();
  Choose(batch, out);
  gatherer_.Gather(chosen_, out);
  EvictAfterSample();
}

void ItemSampler::EvictStaleItems() {
  parts_.ages->TakeStale(&stale_);
  parts_.evictor->EvictThese(stale_);
}

// Chooses the items of the batch and sets their probabilities.
void ItemSampler::Choose(std::int64_t batch, EncodedBatch* out) {
  chosen_.resize(std::size_t(batch));
  out->probability.resize(std::size_t(batch));
  spent_.clear();
  Rng rng({.run_seed = seed_,
           .purpose = Purpose::kReplaySampling,
           .index = incarnation_,
           .episode = draws_++});
  // EvictStaleItems may have evicted all items that could be sampled.
  if (parts_.selectors->can_draw()) {
    parts_.selectors->Draw(&rng, chosen_, out->probability);
    if (parts_.ages->limited() || max_times_sampled_ > 0) {
      ChooseAmongDrawable(&rng, out->total, &out->probability);
    }
  } else {
    chosen_.clear();
    out->probability.clear();
  }
}

// Counts a sample of an item; false if it was sampled often enough before.
bool ItemSampler::CountSample(Slot drawn) {
  if (std::int64_t(parts_.slots->cold(drawn).times_sampled) >= max_times_sampled_) return false;
  const auto times = std::int64_t(parts_.slots->CountSample(drawn));
  if (times == max_times_sampled_) spent_.push_back(drawn);
  return true;
}

// Resamples in place of items that are too old (evicted at once) or were sampled often enough
// (removed from the sampler at once, evicted after the draw). Probabilities remain shares of
// `total`, that of the first draw, since shards are weighted by it.
void ItemSampler::ChooseAmongDrawable(Rng* rng, double total, std::vector<double>* probability) {
  // Invariant: chosen_[0, good) are final; each round resamples the rest.
  std::size_t good = 0;
  SelectorPair& selectors = *parts_.selectors;
  while (true) {
    const std::size_t spent_before = spent_.size();
    stale_.clear();
    for (std::size_t i = good; i < chosen_.size(); ++i) {
      const Slot drawn = chosen_[i];
      if (parts_.ages->limited() && parts_.ages->IsStale(drawn)) {
        stale_.push_back(drawn);
        continue;
      }
      if (max_times_sampled_ > 0 && !CountSample(drawn)) continue;
      chosen_[good] = drawn;
      (*probability)[good++] = (*probability)[i];
    }
    // An item may have been sampled twice; EvictThese requires distinct slots.
    std::ranges::sort(stale_);
    stale_.erase(std::unique(stale_.begin(), stale_.end()), stale_.end());
    parts_.evictor->EvictThese(stale_);
    selectors.RemoveFromSampler(std::span(spent_).subspan(spent_before));
    if (good == chosen_.size() || !selectors.can_draw()) break;
    const std::span<Slot> rest(chosen_.begin() + std::ptrdiff_t(good), chosen_.end());
    // Removals lowered the sampler's total: scale to shares of the first one.
    const double share = selectors.total() / total;
    selectors.Draw(rng, rest, std::span(*probability).subspan(good));
    for (double& p : std::span(*probability).subspan(good)) p *= share;
  }
  chosen_.resize(good);
  probability->resize(good);
}

// Evicts items whose last sample this was, and trims a soft capacity. The frames of the sampled
// items are pinned until the next call.
void ItemSampler::EvictAfterSample() {
  const bool trim = parts_.evictor->CountSamples(chosen_.size());
  if (spent_.empty() && !trim) return;
  parts_.evictor->Pin(chosen_);
  parts_.evictor->EvictSpent(spent_);
  if (trim) parts_.evictor->TrimToCapacity();
}

}  // namespace troop
