#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/base/philox.h"
#include "core/base/status.h"
#include "replay/selectors/selector.h"

namespace troop {

// The two selectors of a table: the sampler chooses the items to sample, the remover those to
// evict. Owner: one thread (a table). Costs are those of the selectors; nothing is allocated per
// call.
//
// Invariant: both have the same items, except those that RemoveFromSampler took out until the
// caller frees their slots.
class SelectorPair {
 public:
  using Slot = Selector::Slot;
  struct Options {
    Selector::Options sampler, remover;
    std::int64_t slots = 0;
    RngKey remover_numbers;  // random numbers of the remover
  };
  static Result<SelectorPair> Make(const Options& options);  // errors: those of Selector::Make
  static std::size_t Bytes(const Options& options);          // memory of both

  // Changes of the items, in both selectors. Slots are distinct, except in Update.
  void Add(std::span<const Slot> slot, std::span<const float> priority);
  void Update(std::span<const Slot> slot, std::span<const float> priority);
  void Remove(std::span<const Slot> slot);
  // Picks up to `count` items to evict, in the remover's order, and removes them from both.
  void PickLeavers(std::int64_t count, std::vector<Slot>* leavers);
  // An item that was sampled often enough leaves the sampler at once, and the remover when its
  // slot is freed.
  void RemoveFromSampler(std::span<const Slot> slot) { sampler_->Remove(slot); }
  void RemoveFromRemover(std::span<const Slot> slot) { remover_->Remove(slot); }

  // Samples slots (Selector::Draw). REQUIRES: can_draw().
  void Draw(Rng* rng, std::span<Slot> slot, std::span<double> probability) {
    sampler_->Draw(rng, slot, probability);
  }
  bool can_draw() const { return sampler_->can_draw(); }
  double total() const { return sampler_->total(); }  // sum of the sampler's weights
  double probability_min() const { return sampler_->probability_min(); }
  // Random numbers of evictions: the remover's, and those of a reservoir. Part of snapshots.
  Rng& remover_rng() { return remover_rng_; }
  const Rng& remover_rng() const { return remover_rng_; }
  std::size_t bytes() const { return sampler_->bytes() + remover_->bytes(); }

 private:
  SelectorPair(std::unique_ptr<Selector> sampler, std::unique_ptr<Selector> remover,
               const Options& options);

  std::unique_ptr<Selector> sampler_, remover_;
  bool remover_reads_priority_ = false;
  Rng remover_rng_;
};

}  // namespace troop
