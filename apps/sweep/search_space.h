#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/status.h"
#include "core/config/enum_names.h"

namespace troop {

// Distribution of a sampled value. All bounds are inclusive.
enum class RangeKind {
  kUniform,     // every number of the range is equally likely
  kLogUniform,  // the logarithm is uniform
  kInt,         // every integer of the range is equally likely
  kLogInt,      // P(k) is proportional to log((k + 1) / k)
  kChoice,      // every listed value is equally likely
};
// The words of the command line: key=loguniform:1e-5,1e-2.
constexpr auto EnumNames(RangeKind) {
  return std::to_array<std::string_view>({"uniform", "loguniform", "int", "logint", "choice"});
}

// A config key whose value is sampled for each trial.
struct SearchRange {
  std::string key;
  RangeKind kind = RangeKind::kUniform;
  double low = 0, high = 0;          // all kinds but kChoice
  std::vector<std::string> choices;  // kChoice: values as TOML
  std::string text;                  // the given text, for messages
  bool operator==(const SearchRange&) const = default;
};

// Splits at top-level commas: "a,b" → {"a", "b"}; "[1,2],[3]" → {"[1,2]", "[3]"}.
std::vector<std::string> SplitValues(std::string_view text);

// Parses one override. nullopt if its value does not begin with a kind and a colon; it is then an
// ordinary value. Errors: kInvalidArgument, one line: bounds that are missing, not finite, empty
// (low is not below high), not positive for a logarithm, not whole for an integer, outside of the
// range of the key; a key that is unknown or not a number (all kinds but kChoice); a choice that is
// listed twice.
Result<std::optional<SearchRange>> ParseRange(std::string_view override);

// The value of `range` in one trial, as TOML. A pure function of (search_seed, trial, range): more
// trials, further ranges and another order of the ranges do not change it. Numbers have at most 9
// significant digits, so that the last bits of the mathematical library have no influence and the
// text parses to exactly the value of the run. REQUIRES: a range of ParseRange.
std::string SampleValue(const SearchRange& range, std::int64_t search_seed, std::int64_t trial);

// "key=value" of every range. O(ranges).
std::vector<std::string> SampleTrial(std::span<const SearchRange> ranges, std::int64_t search_seed,
                                     std::int64_t trial);

}  // namespace troop
