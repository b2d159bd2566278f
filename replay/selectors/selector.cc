// Factory and names of the selectors.
#include "replay/selectors/selector.h"

#include <fmt/format.h>

#include <cmath>
#include <string>
#include <utility>

#include "core/config/enum_names.h"
#include "replay/selectors/factory.h"

namespace troop {
namespace {

using Kind = Selector::Kind;

// Far above the exponents in use (0.4 to 1); keeps p^α of usual priorities away from the clamping
// limits of the tree.
constexpr double kAlphaMax = 10;

}  // namespace

// Checks the options once for all kinds.
Result<std::unique_ptr<Selector>> Selector::Make(const Options& options, std::int64_t slots) {
  if (slots < 1 || slots > internal::kSelectorSlotsMax) {
    return InvalidArgument("replay: {} slots, a selector must have 1 to {}", slots,
                           internal::kSelectorSlotsMax);
  }
  switch (options.kind) {
    case Kind::kPrioritized:
      if (!(std::abs(options.alpha) <= kAlphaMax)) {
        return InvalidArgument("replay: priority exponent is {}, must be in [{}, {}]",
                               options.alpha, -kAlphaMax, kAlphaMax);
      }
      return internal::MakePrioritizedSelector(options, slots);
    case Kind::kUniform:
      return internal::MakeUniformSelector(slots);
    case Kind::kFifo:
    case Kind::kLifo:
      return internal::MakeListSelector(options.kind, slots);
    case Kind::kLowest:
    case Kind::kHighest:
      return internal::MakeHeapSelector(options.kind, slots);
  }
  return InvalidArgument("replay: unknown selector {}", int(options.kind));
}

// For the memory prediction, before anything is allocated.
std::size_t Selector::Bytes(const Options& options, std::int64_t slots) {
  switch (options.kind) {
    case Kind::kPrioritized:
      return internal::PrioritizedSelectorBytes(options, slots);
    case Kind::kUniform:
      return internal::UniformSelectorBytes(slots);
    case Kind::kFifo:
    case Kind::kLifo:
      return internal::ListSelectorBytes(slots);
    case Kind::kLowest:
    case Kind::kHighest:
      return internal::HeapSelectorBytes(slots);
  }
  return 0;
}

Result<Selector::Kind> ParseSelector(std::string_view name) {
  if (const auto kind = ParseEnum<Selector::Kind>(name)) return *kind;
  return InvalidArgument("replay: unknown selector \"{}\", must be one of {}", name,
                         fmt::join(EnumNames(Selector::Kind{}), ", "));
}

}  // namespace troop
