// SelectorPair: changes that concern both selectors of a table.
#include "replay/items/selector_pair.h"

#include <utility>

namespace troop {

Result<SelectorPair> SelectorPair::Make(const Options& options) {
  TROOP_ASSIGN_OR_RETURN(auto sampler, Selector::Make(options.sampler, options.slots));
  TROOP_ASSIGN_OR_RETURN(auto remover, Selector::Make(options.remover, options.slots));
  return SelectorPair(std::move(sampler), std::move(remover), options);
}

std::size_t SelectorPair::Bytes(const Options& options) {
  return Selector::Bytes(options.sampler, options.slots) +
         Selector::Bytes(options.remover, options.slots);
}

SelectorPair::SelectorPair(std::unique_ptr<Selector> sampler, std::unique_ptr<Selector> remover,
                           const Options& options)
    : sampler_(std::move(sampler)),
      remover_(std::move(remover)),
      remover_rng_(options.remover_numbers) {
  const Selector::Kind kind = options.remover.kind;
  // Updates of other removers would be no-ops.
  remover_reads_priority_ = kind == Selector::Kind::kPrioritized ||
                            kind == Selector::Kind::kLowest || kind == Selector::Kind::kHighest;
}

// Both selectors contain the same slots at all times.
void SelectorPair::Add(std::span<const Slot> slot, std::span<const float> priority) {
  sampler_->Add(slot, priority);
  remover_->Add(slot, priority);
}

void SelectorPair::Update(std::span<const Slot> slot, std::span<const float> priority) {
  sampler_->Update(slot, priority);
  if (remover_reads_priority_) remover_->Update(slot, priority);
}

void SelectorPair::Remove(std::span<const Slot> slot) {
  sampler_->Remove(slot);
  remover_->Remove(slot);
}

void SelectorPair::PickLeavers(std::int64_t count, std::vector<Slot>* leavers) {
  leavers->clear();
  // The remover must lose each item before the next pick; the sampler is updated once, in a batch.
  for (std::int64_t i = 0; i < count && remover_->size() > 0; ++i) {
    const Slot leaver = remover_->Pick(&remover_rng_);
    remover_->Remove({&leaver, 1});
    leavers->push_back(leaver);
  }
  sampler_->Remove(*leavers);
}

}  // namespace troop
