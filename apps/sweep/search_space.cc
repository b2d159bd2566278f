// Parses the ranges of a random search and samples their values.
#include "apps/sweep/search_space.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <set>

#include "core/base/philox.h"
#include "core/config/option_value.h"
#include "fleet/config/config_keys.h"
#include "fleet/config/config_migration.h"
#include "fleet/config/key_hint.h"

namespace troop {
namespace {

constexpr char kOptions[] = "env.options.";  // followed by names that the environment defines
// A range must be wider than this share of its bounds, as values have 9 significant digits.
constexpr double kWidthMin = 1e-6;

// The declared type of a key, and its permitted numbers.
struct KeyType {
  std::string_view name;  // "a string"; empty: not found
  bool is_number = false, is_integer = false;
  ConfigRange range;
};

// Finds the declaration of one key.
class KeyFinder final : public ConfigVisitor {
 public:
  explicit KeyFinder(std::string_view key) : key_(key) {}
  void Visit(const ConfigKeyInfo& key, std::int64_t&) override { Take(key, "an integer", 2); }
  void Visit(const ConfigKeyInfo& key, double&) override {
    key.whole ? Take(key, "an integer", 2) : Take(key, "a number", 1);
  }
  void Visit(const ConfigKeyInfo& key, bool&) override { Take(key, "true or false", 0); }
  void Visit(const ConfigKeyInfo& key, std::string&) override { Take(key, "a string", 0); }
  void Visit(const ConfigKeyInfo& key, std::vector<EnvOption>&) override {
    Take(key, "a table", 0);
  }
  void Visit(const ConfigKeyInfo& key, std::vector<std::string>&) override {
    Take(key, "a list", 0);
  }
  void Visit(const ConfigKeyInfo& key, std::vector<double>&) override { Take(key, "a list", 0); }
  void Visit(const ConfigKeyInfo& key, ConfigList&) override { Take(key, "a list", 0); }

  KeyType found;
  std::vector<std::string> names;  // all keys, for a hint

 private:
  // level: 0: not a number, 1: a number, 2: an integer.
  void Take(const ConfigKeyInfo& key, std::string_view type, int level) {
    names.emplace_back(key.name);
    if (key.name != key_) return;
    found = {.name = type, .is_number = level > 0, .is_integer = level > 1, .range = key.range};
  }
  const std::string_view key_;
};

// Errors: kInvalidArgument: no such key.
Result<KeyType> TypeOf(const std::string& override, const std::string& key) {
  // Options of an environment have no declared type.
  if (key.starts_with(kOptions) && key.size() > sizeof(kOptions) - 1) {
    return KeyType{.name = "an option", .is_number = true};
  }
  Config config;
  KeyFinder finder(key);
  VisitConfig(config, finder);
  if (!finder.found.name.empty()) return finder.found;
  const std::string renamed = RenamedKeyHint(key);
  return InvalidArgument("{}: {}: {}", override, key,
                         renamed.empty() ? UnknownKeyHint(key, finder.names) : renamed);
}

// True for kinds that sample integers.
bool IsWholeKind(RangeKind kind) { return kind == RangeKind::kInt || kind == RangeKind::kLogInt; }
// True for kinds whose bounds need a logarithm.
bool IsLogKind(RangeKind kind) {
  return kind == RangeKind::kLogUniform || kind == RangeKind::kLogInt;
}

// A bound as TOML writes a number; "inf" and "nan" are parsed here and rejected as not finite.
std::optional<double> ParseBound(std::string_view text) {
  const auto blank = [](char c) { return c == ' '; };
  while (!text.empty() && blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && blank(text.back())) text.remove_suffix(1);
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  // An exponent too large for a double is not finite either.
  if (error == std::errc::result_out_of_range) return HUGE_VAL;
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// Checks that do not depend on the key. Each comparison is false for NaN, so finiteness comes
// first.
Status CheckBounds(const SearchRange& r) {
  if (!std::isfinite(r.low) || !std::isfinite(r.high)) {
    return InvalidArgument("{}: a bound is not finite; give two finite numbers", r.text);
  }
  if (IsWholeKind(r.kind) && (r.low != std::floor(r.low) || r.high != std::floor(r.high) ||
                              std::max(std::abs(r.low), std::abs(r.high)) > kConfigMany)) {
    return InvalidArgument(
        "{}: a bound is not an integer of at most {:.0e}; give integers, or use "
        "uniform or loguniform",
        r.text, kConfigMany);
  }
  if (r.low >= r.high) {
    return InvalidArgument(
        "{}: the range is empty, as {} is not below {}; give the lower bound "
        "first",
        r.text, TomlNumber(r.low), TomlNumber(r.high));
  }
  if (IsLogKind(r.kind) && r.low <= 0) {
    return InvalidArgument(
        "{}: the lower bound is {}, must be above 0 for a logarithm; raise it, "
        "or use {}",
        r.text, TomlNumber(r.low), IsWholeKind(r.kind) ? "int" : "uniform");
  }
  // All values of a narrower range could be equal after they are shortened to 9 digits.
  const double width = r.high - r.low;
  const double largest = std::max(std::abs(r.low), std::abs(r.high));
  if (!IsWholeKind(r.kind) && (!std::isfinite(width) || width < kWidthMin * largest)) {
    return InvalidArgument(
        "{}: the range is {} wide, must be a finite width of at least {:.0e} "
        "of its bounds; change a bound",
        r.text, TomlNumber(width), kWidthMin);
  }
  return Status::Ok();
}

// Checks the kind and the bounds against the declaration of the key.
Status CheckKey(const SearchRange& r, const KeyType& type) {
  if (!type.is_number) {
    return InvalidArgument("{}: {} is {}, not a number; list its values: {}=choice:a,b", r.text,
                           r.key, type.name, r.key);
  }
  if (type.is_integer && !IsWholeKind(r.kind)) {
    return InvalidArgument("{}: {} is an integer, but {} samples fractions; use {}", r.text, r.key,
                           EnumName(r.kind), IsLogKind(r.kind) ? "logint" : "int");
  }
  for (const double bound : {r.low, r.high}) {
    if (type.range.Contains(bound)) continue;
    return InvalidArgument("{}: {} is outside of the values of {} ({}); change the bound", r.text,
                           TomlNumber(bound), r.key, type.range.ToString());
  }
  return Status::Ok();
}

// The listed values of kChoice. Their types are checked with the config of each trial, as for other
// values.
Status TakeChoices(std::string_view values, SearchRange* range) {
  range->choices = SplitValues(values);
  const std::set<std::string> distinct(range->choices.begin(), range->choices.end());
  if (range->choices.size() < 2 || distinct.size() < range->choices.size()) {
    return InvalidArgument(
        "{}: choice needs at least 2 different values; {}", range->text,
        range->choices.size() < 2 ? "give more, separated by commas" : "remove the duplicate");
  }
  return Status::Ok();
}

// 64-bit FNV-1a, the part of the random key that stands for the config key.
std::uint64_t HashOf(std::string_view key) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const char c : key) hash = (hash ^ std::uint8_t(c)) * 0x100000001b3;
  return hash;
}

// The nearest number with 9 significant digits, within the bounds.
double Shorten(const SearchRange& range, double value) {
  const std::string text = fmt::format("{:.8e}", value);
  double shortened = 0;
  std::from_chars(text.data(), text.data() + text.size(), shortened);
  return std::clamp(shortened, range.low, range.high);
}

// The inverse of the distribution function at u in [0, 1).
double Quantile(const SearchRange& r, double u) {
  switch (r.kind) {
    case RangeKind::kUniform:
      return Shorten(r, r.low + u * (r.high - r.low));
    case RangeKind::kLogUniform:
      return Shorten(r, std::exp(std::log(r.low) + u * (std::log(r.high) - std::log(r.low))));
    case RangeKind::kInt:
      return std::min(r.low + std::floor(u * (r.high - r.low + 1)), r.high);
    case RangeKind::kLogInt:
      // Integer k stands for the numbers of [k, k + 1).
      return std::clamp(std::floor(r.low * std::exp(u * std::log((r.high + 1) / r.low))), r.low,
                        r.high);
    case RangeKind::kChoice:
      break;
  }
  TROOP_CHECK(false, "{} has no numbers", r.text);
}

}  // namespace

// A one-pass scanner: `depth` counts open brackets, `quote` is the open quotation mark.
std::vector<std::string> SplitValues(std::string_view text) {
  std::vector<std::string> values{""};
  int depth = 0;
  char quote = 0;
  for (const char c : text) {
    if (quote != 0) {
      if (c == quote) quote = 0;
    } else if (c == '"' || c == '\'') {
      quote = c;
    } else if (c == '[' || c == '{') {
      ++depth;
    } else if (c == ']' || c == '}') {
      --depth;
    } else if (c == ',' && depth == 0) {
      values.emplace_back();
      continue;
    }
    values.back() += c;
  }
  return values;
}

// A quoted value never begins with a kind, so every string can still be written as a plain value.
Result<std::optional<SearchRange>> ParseRange(std::string_view override) {
  const std::size_t equals = override.find('=');
  if (equals == override.npos) return std::optional<SearchRange>();
  const std::string_view value = override.substr(equals + 1);
  const std::size_t colon = value.find(':');
  const auto kind = ParseEnum<RangeKind>(value.substr(0, colon));
  if (colon == value.npos || !kind) return std::optional<SearchRange>();
  SearchRange range{
      .key = std::string(override.substr(0, equals)), .kind = *kind, .text = std::string(override)};
  TROOP_ASSIGN_OR_RETURN(const KeyType type, TypeOf(range.text, range.key));
  const std::string_view values = value.substr(colon + 1);
  if (*kind == RangeKind::kChoice) {
    TROOP_RETURN_IF_ERROR(TakeChoices(values, &range));
    return std::optional(std::move(range));
  }
  const std::vector<std::string> bounds = SplitValues(values);
  const auto low = ParseBound(bounds[0]), high = ParseBound(bounds.back());
  if (bounds.size() != 2 || !low || !high) {
    return InvalidArgument("{}: {} needs two numbers, such as {}={}:1,10", override,
                           EnumName(*kind), range.key, EnumName(*kind));
  }
  range.low = *low;
  range.high = *high;
  TROOP_RETURN_IF_ERROR(CheckBounds(range));
  TROOP_RETURN_IF_ERROR(CheckKey(range, type));
  return std::optional(std::move(range));
}

std::string SampleValue(const SearchRange& range, std::int64_t search_seed, std::int64_t trial) {
  Rng rng({.run_seed = std::uint64_t(search_seed),
           .purpose = Purpose::kSearch,
           .index = std::uint64_t(trial),
           .episode = HashOf(range.key)});
  const double u = rng.Uniform();
  if (range.kind == RangeKind::kChoice) {
    return range.choices[std::size_t(u * double(range.choices.size()))];
  }
  // One number per key is enough: every kind inverts its distribution function at it.
  // Options of an environment keep the type of a fraction: 1.0, not 1.
  const double value = Quantile(range, u);
  const bool option = range.key.starts_with(kOptions) && !IsWholeKind(range.kind);
  return option ? OptionNumber(value) : TomlNumber(value);
}

// The order of the values is that of the ranges; each has its own random stream.
std::vector<std::string> SampleTrial(std::span<const SearchRange> ranges, std::int64_t search_seed,
                                     std::int64_t trial) {
  std::vector<std::string> values;
  for (const SearchRange& range : ranges) {
    values.push_back(range.key + "=" + SampleValue(range, search_seed, trial));
  }
  return values;
}

}  // namespace troop
