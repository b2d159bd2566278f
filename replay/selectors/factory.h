#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "core/base/status.h"
#include "replay/selectors/selector.h"

// Constructors for Selector::Make, which has checked the options. Errors: kResourceExhausted.
namespace troop::internal {

// Tables have at most half as many slots; the highest bits of a slot stay free for marks.
inline constexpr std::int64_t kSelectorSlotsMax = std::int64_t{1} << 30;

using SelectorResult = Result<std::unique_ptr<Selector>>;

// A sum tree of p^α, batched: O(log n) per change and per sample.
SelectorResult MakePrioritizedSelector(const Selector::Options& options, std::int64_t slots);
std::size_t PrioritizedSelectorBytes(const Selector::Options& options, std::int64_t slots);

// A dense array of the slots in use and the index of each slot in it: O(1).
SelectorResult MakeUniformSelector(std::int64_t slots);
std::size_t UniformSelectorBytes(std::int64_t slots);

// A doubly linked ring in insertion order: O(1). REQUIRES: kFifo or kLifo.
SelectorResult MakeListSelector(Selector::Kind kind, std::int64_t slots);
std::size_t ListSelectorBytes(std::int64_t slots);

// A heap: O(log n) per change, O(B log B) per sample of B. REQUIRES: kLowest or kHighest.
SelectorResult MakeHeapSelector(Selector::Kind kind, std::int64_t slots);
std::size_t HeapSelectorBytes(std::int64_t slots);

}  // namespace troop::internal
