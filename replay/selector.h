#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "core/rng.h"
#include "core/status.h"

namespace troop {

// Chooses slots of a table: which items are drawn (its sampler), and which leave when it is full
// (its remover). Owner: one thread (a Table), which tells of every item that comes, changes or
// goes. Priorities are |TD error| + ε as they are: a kind that uses them applies its own exponent.
class Selector {
 public:
  using Slot = std::uint32_t;
  enum class Kind : std::uint8_t {
    kPrioritized,  // chance ∝ p^α (Schaul et al. 2016); as a remover with α < 0: Ape-X DPG's
                   // (Horgan et al. 2018, appendix D: α_evict = -0.4)
    kUniform,      // as a remover of a table that takes a newcomer with chance capacity / seen:
                   // reservoir sampling (Vitter 1985, algorithm R)
    kFifo,         // the oldest first
    kLifo,         // the newest first
    kLowest,       // the lowest priority first; of equals the oldest
    kHighest,      // the highest priority first; of equals the oldest
  };
  struct Options {
    Kind kind = Kind::kPrioritized;
    double alpha = 0.6;      // kPrioritized
    bool track_min = false;  // kPrioritized: probability_min is kept
  };
  static Result<std::unique_ptr<Selector>> Make(const Options& options, std::int64_t slots);
  static std::size_t Bytes(const Options& options, std::int64_t slots);

  virtual ~Selector() = default;
  // Slots that were empty. Priority 0: there, and never drawn by kPrioritized (α > 0).
  // REQUIRES: each slot once; priorities finite and >= 0.
  virtual void Add(std::span<const Slot> slot, std::span<const float> priority) = 0;
  virtual void Update(std::span<const Slot> slot,
                      std::span<const float> priority) = 0;  // last wins
  virtual void Remove(std::span<const Slot> slot) = 0;       // each once

  // slot.size() draws with replacement; kinds that use chance are stratified: draw i from the i-th
  // of equal parts of the total. Kinds that don't give their first slot.size() in order, from the
  // beginning again where there are fewer. probability[i]: of slot[i] in one such draw (1 / items
  // drawn from, for kinds without chance). REQUIRES: can_draw().
  virtual void Draw(Rng* rng, std::span<Slot> slot, std::span<double> probability) = 0;
  // The next to leave. REQUIRES: size() > 0. (α < 0 with priority 0: as the smallest positive f32.)
  virtual Slot Pick(Rng* rng) = 0;

  virtual bool can_draw() const = 0;
  virtual std::int64_t size() const = 0;
  virtual double total() const = 0;            // of weights: Σ p^α, or size()
  virtual double probability_min() const = 0;  // of those that can be drawn; 0: not tracked
  virtual std::size_t bytes() const = 0;
};

std::string_view SelectorName(Selector::Kind kind);
Result<Selector::Kind> ParseSelector(std::string_view name);  // "prioritized", "uniform", …

}  // namespace troop
