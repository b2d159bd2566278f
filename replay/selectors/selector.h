#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "core/base/philox.h"
#include "core/base/status.h"
#include "replay/replay_modes.h"

namespace troop {

// Chooses slots of a table: as its sampler the items to sample, as its remover those to evict when
// it is full. Owner: one thread (a Table), which reports every item that is added, changed or
// removed. Priorities are |TD error| + ε; kinds that use them apply their own exponent.
class Selector {
 public:
  using Slot = std::uint32_t;
  using Kind = SelectorKind;
  struct Options {
    Kind kind = Kind::kPrioritized;
    double alpha = 0.6;      // kPrioritized
    bool track_min = false;  // kPrioritized: maintain probability_min
  };
  // Errors: kInvalidArgument, kResourceExhausted.
  static Result<std::unique_ptr<Selector>> Make(const Options& options, std::int64_t slots);
  // Memory of a selector with this number of slots.
  static std::size_t Bytes(const Options& options, std::int64_t slots);

  virtual ~Selector() = default;
  // Adds items in empty slots. Priority 0: present, but never sampled by kPrioritized (α > 0).
  // REQUIRES: distinct slots; priorities finite and >= 0.
  virtual void Add(std::span<const Slot> slot, std::span<const float> priority) = 0;
  virtual void Update(std::span<const Slot> slot,
                      std::span<const float> priority) = 0;  // the last value counts
  virtual void Remove(std::span<const Slot> slot) = 0;       // distinct slots

  // Samples slot.size() slots with replacement. Random kinds are stratified: sample i comes from
  // the i-th of equal parts of the total. Other kinds return their first slot.size() slots in
  // order, and start over if there are fewer. probability[i]: probability of slot[i] in one such
  // draw (1 / number of items for kinds without chance). REQUIRES: can_draw().
  virtual void Draw(Rng* rng, std::span<Slot> slot, std::span<double> probability) = 0;
  // Next slot to evict. REQUIRES: size() > 0. (With α < 0, priority 0 counts as the smallest
  // positive f32.)
  virtual Slot Pick(Rng* rng) = 0;

  virtual bool can_draw() const = 0;
  virtual std::int64_t size() const = 0;
  virtual double total() const = 0;            // sum of weights: Σ p^α, or size()
  virtual double probability_min() const = 0;  // over sampleable slots; 0: not tracked
  virtual std::size_t bytes() const = 0;
};

Result<Selector::Kind> ParseSelector(std::string_view name);  // "prioritized", "uniform", …

}  // namespace troop
