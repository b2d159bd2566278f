// PrioritizedSelector: P ∝ p^α with a sum tree (Schaul et al. 2016).
#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "core/base/check.h"
#include "replay/selectors/factory.h"
#include "replay/selectors/minmax_tree.h"
#include "replay/selectors/priority_kernels.h"
#include "replay/selectors/slot_bitmap.h"
#include "replay/selectors/sum_tree.h"

namespace troop::internal {
namespace {

// The tree alone cannot tell an empty slot from one of priority 0, hence `used_`.
class PrioritizedSelector final : public Selector {
 public:
  PrioritizedSelector(double alpha, SumTree tree, SlotBitmap used, std::optional<MinMaxTree> least,
                      std::size_t bytes)
      : alpha_(alpha),
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
    // Weight 0 in the tree removes a slot from sampling.
    weight_.assign(slot.size(), 0.0f);
    tree_.Set(slot, weight_);
    if (least_) least_->Clear(slot);
  }
  void Draw(Rng* rng, std::span<Slot> slot, std::span<double> probability) override;
  Slot Pick(Rng* rng) override;

  bool can_draw() const override { return tree_.total() > 0; }
  std::int64_t size() const override { return used_.size(); }
  double total() const override { return tree_.total(); }
  double probability_min() const override {
    // The tracked minimum is exact; the total is the tree's f32 sum.
    const std::optional<float> least = least_ ? least_->value() : std::nullopt;
    return least ? double(*least) / tree_.total() : 0;
  }
  std::size_t bytes() const override { return bytes_; }

 private:
  void SetWeights(std::span<const Slot> slot, std::span<const float> priority);
  void NoteWeights(std::span<const Slot> slot);

  const double alpha_;
  SumTree tree_;
  SlotBitmap used_;
  std::optional<MinMaxTree> least_;  // minimum of the weights above 0, if tracked
  const std::size_t bytes_;
  std::vector<float> weight_;  // scratch
  std::vector<double> mass_;
};

// Converts priorities to weights p^α and stores them in one batch.
void PrioritizedSelector::SetWeights(std::span<const Slot> slot, std::span<const float> priority) {
  TROOP_CHECK(slot.size() == priority.size(), "{} slots, {} priorities", slot.size(),
              priority.size());
  weight_.assign(slot.size(), 1.0f);  // α = 0: weight 1 for every priority, also 0
  if (alpha_ != 0) PowerPriorities(priority, alpha_, weight_);
  tree_.Set(slot, weight_);
  if (least_) NoteWeights(slot);
}

// Updates the minimum. Slots are set one by one if some weights are 0: a slot may be repeated, and
// its last weight counts.
void PrioritizedSelector::NoteWeights(std::span<const Slot> slot) {
  if (std::ranges::find(weight_, 0.0f) == weight_.end()) return least_->Set(slot, weight_);
  for (std::size_t i = 0; i < slot.size(); ++i) {
    if (weight_[i] > 0) {
      least_->Set(slot.subspan(i, 1), {&weight_[i], 1});
    } else {
      least_->Clear(slot.subspan(i, 1));
    }
  }
}

void PrioritizedSelector::Draw(Rng* rng, std::span<Slot> slot, std::span<double> probability) {
  TROOP_CHECK(can_draw() && slot.size() == probability.size(), "sample of {} with total {}",
              slot.size(), total());
  mass_.resize(slot.size());
  weight_.resize(slot.size());
  // One mass per stratum, then one batched descent.
  StratifiedMasses(total(), rng, mass_);
  tree_.Find(mass_, slot, weight_);
  for (std::size_t i = 0; i < slot.size(); ++i) probability[i] = double(weight_[i]) / total();
}

// A random choice as well: P ∝ p^α, where a remover has α < 0.
Selector::Slot PrioritizedSelector::Pick(Rng* rng) {
  TROOP_CHECK(size() > 0, "nothing to pick");
  if (!can_draw()) return used_.Any();  // all priorities are 0: no weights to sample by
  const double mass = rng->Uniform() * total();
  Slot slot = 0;
  float weight = 0;
  tree_.Find({&mass, 1}, {&slot, 1}, {&weight, 1});
  return slot;
}

}  // namespace

SelectorResult MakePrioritizedSelector(const Selector::Options& options, std::int64_t slots) {
  TROOP_ASSIGN_OR_RETURN(SumTree tree, SumTree::Make(slots));
  TROOP_ASSIGN_OR_RETURN(SlotBitmap used, SlotBitmap::Make(slots));
  // The minimum costs a second tree, so it is optional.
  std::optional<MinMaxTree> least;
  if (options.track_min) {
    TROOP_ASSIGN_OR_RETURN(least, MinMaxTree::Make(MinMaxTree::Kind::kLeast, slots));
  }
  return std::unique_ptr<Selector>(std::make_unique<PrioritizedSelector>(
      options.alpha, std::move(tree), std::move(used), std::move(least),
      PrioritizedSelectorBytes(options, slots)));
}

std::size_t PrioritizedSelectorBytes(const Selector::Options& options, std::int64_t slots) {
  return SumTree::Bytes(slots) + SlotBitmap::Bytes(slots) +
         (options.track_min ? MinMaxTree::Bytes(slots) : 0);
}

}  // namespace troop::internal
