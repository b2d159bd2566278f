#include <algorithm>
#include <cfloat>
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "core/check.h"
#include "replay/selector_kinds.h"
#include "replay/slot_heap.h"
#include "replay/slot_set.h"
#include "replay/sum_tree.h"

namespace troop::internal {
namespace {

class PrioritizedSelector final : public Selector {
 public:
  PrioritizedSelector(double alpha, SumTree tree, SlotSet used, std::optional<SlotHeap> least,
                      std::size_t bytes)
      : alpha_(float(alpha)),
        tree_(std::move(tree)),
        used_(std::move(used)),
        least_(std::move(least)),
        bytes_(bytes) {}

  void Add(std::span<const Slot> slot, std::span<const float> priority) override {
    for (const Slot s : slot) used_.Add(s);
    SetWeights(slot, priority);
  }
  void Update(std::span<const Slot> slot, std::span<const float> priority) override {
    for (const Slot s : slot) TROOP_CHECK(used_.Has(s), "slot {} is empty", s);
    SetWeights(slot, priority);
  }
  void Remove(std::span<const Slot> slot) override {
    for (const Slot s : slot) used_.Remove(s);
    weight_.assign(slot.size(), 0.0f);
    StoreWeights(slot);
  }
  void Draw(Rng* rng, std::span<Slot> slot, std::span<double> probability) override;
  Slot Pick(Rng* rng) override;

  bool can_draw() const override { return tree_.total() > 0; }
  std::int64_t size() const override { return used_.size(); }
  double total() const override { return tree_.total(); }
  double probability_min() const override {
    return least_ && least_->size() > 0 ? double(least_->first().rank) / tree_.total() : 0;
  }
  std::size_t bytes() const override { return bytes_; }

 private:
  float WeightOf(float priority) const;
  void SetWeights(std::span<const Slot> slot, std::span<const float> priority);
  void StoreWeights(std::span<const Slot> slot);

  const float alpha_;
  SumTree tree_;
  SlotSet used_;
  std::optional<SlotHeap> least_;  // of the weights above 0
  const std::size_t bytes_;
  std::vector<float> weight_;  // scratch
  std::vector<double> mass_;
};

// Tiny ones stay drawable, and sums stay finite.
float PrioritizedSelector::WeightOf(float priority) const {
  TROOP_CHECK(priority >= 0 && std::isfinite(priority), "priority {}", priority);
  if (alpha_ == 0) return 1;
  if (priority == 0 && alpha_ > 0) return 0;
  const float base = std::max(priority, FLT_MIN);
  return std::clamp(std::pow(base, alpha_), FLT_MIN, SumTree::kPriorityMax);
}

void PrioritizedSelector::SetWeights(std::span<const Slot> slot, std::span<const float> priority) {
  TROOP_CHECK(slot.size() == priority.size(), "{} slots, {} priorities", slot.size(),
              priority.size());
  weight_.resize(slot.size());
  for (std::size_t i = 0; i < slot.size(); ++i) weight_[i] = WeightOf(priority[i]);
  StoreWeights(slot);
}

void PrioritizedSelector::StoreWeights(std::span<const Slot> slot) {
  tree_.Set(slot, weight_);
  if (!least_) return;
  for (std::size_t i = 0; i < slot.size(); ++i) {
    const bool there = least_->Has(slot[i]), stays = weight_[i] > 0;
    if (there && stays) least_->SetRank(slot[i], weight_[i]);
    if (there && !stays) least_->Remove(slot[i]);
    if (!there && stays) least_->Add({.rank = weight_[i], .slot = slot[i]});
  }
}

void PrioritizedSelector::Draw(Rng* rng, std::span<Slot> slot, std::span<double> probability) {
  TROOP_CHECK(can_draw() && slot.size() == probability.size(), "a draw of {} of total {}",
              slot.size(), total());
  mass_.resize(slot.size());
  weight_.resize(slot.size());
  const double stratum = total() / double(slot.size());
  for (std::size_t i = 0; i < slot.size(); ++i) mass_[i] = (double(i) + rng->Uniform()) * stratum;
  tree_.Find(mass_, slot, weight_);
  for (std::size_t i = 0; i < slot.size(); ++i) probability[i] = double(weight_[i]) / total();
}

Selector::Slot PrioritizedSelector::Pick(Rng* rng) {
  TROOP_CHECK(size() > 0, "nothing to pick");
  if (!can_draw()) return used_.Any();  // all priorities are 0
  const double mass = rng->Uniform() * total();
  Slot slot = 0;
  float weight = 0;
  tree_.Find({&mass, 1}, {&slot, 1}, {&weight, 1});
  return slot;
}

}  // namespace

SelectorResult MakePrioritizedSelector(const Selector::Options& options, std::int64_t slots) {
  TROOP_ASSIGN_OR_RETURN(SumTree tree, SumTree::Make(slots));
  TROOP_ASSIGN_OR_RETURN(SlotSet used, SlotSet::Make(slots));
  std::optional<SlotHeap> least;
  if (options.track_min) {
    TROOP_ASSIGN_OR_RETURN(least, SlotHeap::Make(slots));
  }
  return std::unique_ptr<Selector>(std::make_unique<PrioritizedSelector>(
      options.alpha, std::move(tree), std::move(used), std::move(least),
      PrioritizedSelectorBytes(options, slots)));
}

std::size_t PrioritizedSelectorBytes(const Selector::Options& options, std::int64_t slots) {
  return SumTree::Bytes(slots) + SlotSet::Bytes(slots) +
         (options.track_min ? SlotHeap::Bytes(slots) : 0);
}

}  // namespace troop::internal
