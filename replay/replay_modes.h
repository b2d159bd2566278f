#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace troop {

// Choice of the items that a table samples, or evicts when it is full (Selector).
enum class SelectorKind : std::uint8_t {
  kPrioritized,  // P ∝ p^α (Schaul et al. 2016); as a remover with α < 0: Ape-X DPG
                 // (Horgan et al. 2018, appendix D: α_evict = -0.4)
  kUniform,      // as the remover of a table that accepts items with P = capacity / seen:
                 // reservoir sampling (Vitter 1985, algorithm R)
  kFifo,         // oldest first
  kLifo,         // newest first
  kLowest,       // lowest priority first; of equals the oldest
  kHighest,      // highest priority first; of equals the oldest
};
constexpr auto EnumNames(SelectorKind) {
  return std::to_array<std::string_view>(
      {"prioritized", "uniform", "fifo", "lifo", "lowest", "highest"});
}

// Steps that an item returns (ViewSpec).
enum class ViewKind : std::uint8_t { kTransition, kSequence };
constexpr auto EnumNames(ViewKind) {
  return std::to_array<std::string_view>({"transition", "sequence"});
}

}  // namespace troop
