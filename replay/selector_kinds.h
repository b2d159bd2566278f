#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "core/status.h"
#include "replay/selector.h"

// The makers behind Selector::Make, which has checked the options. Errors: kResourceExhausted.
namespace troop::internal {

// Tables keep half as many at most; the highest bits of a slot stay free for marks.
inline constexpr std::int64_t kSelectorSlotsMax = std::int64_t{1} << 30;

using SelectorResult = Result<std::unique_ptr<Selector>>;

// O(log n) a change and a draw, in batches: a sum tree of p^α.
SelectorResult MakePrioritizedSelector(const Selector::Options& options, std::int64_t slots);
std::size_t PrioritizedSelectorBytes(const Selector::Options& options, std::int64_t slots);

// O(1): the slots in use side by side, and where each of them is.
SelectorResult MakeUniformSelector(std::int64_t slots);
std::size_t UniformSelectorBytes(std::int64_t slots);

// O(1): a ring of links in the order of arrival. REQUIRES: kFifo or kLifo.
SelectorResult MakeListSelector(Selector::Kind kind, std::int64_t slots);
std::size_t ListSelectorBytes(std::int64_t slots);

// O(log n) a change, O(B log B) a draw: a heap. REQUIRES: kLowest or kHighest.
SelectorResult MakeHeapSelector(Selector::Kind kind, std::int64_t slots);
std::size_t HeapSelectorBytes(std::int64_t slots);

}  // namespace troop::internal
