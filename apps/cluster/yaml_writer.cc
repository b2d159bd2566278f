// YAML emitter.
#include "apps/cluster/yaml_writer.h"

#include <algorithm>
#include <cctype>
#include <iterator>
#include <utility>

#include "core/base/check.h"
#include "core/storage/json.h"

namespace troop {
namespace {

// Quotes a key unless it is a plain word that no YAML version reads as something else (YAML 1.1
// has more booleans than 1.2).
std::string Key(const std::string& key) {
  constexpr std::string_view kOthers[] = {"yes", "no", "on", "off", "true", "false", "null"};
  const bool word = key.size() > 1 && std::isalpha(static_cast<unsigned char>(key[0])) &&
                    std::ranges::find(kOthers, key) == std::end(kOthers) &&
                    std::ranges::all_of(key, [](unsigned char c) {
                      return std::isalnum(c) || c == '.' || c == '/' || c == '-' || c == '_';
                    });
  return word ? key : JsonQuote(key);
}

}  // namespace

// A JSON string is a valid double-quoted YAML string (YAML 1.2, section 1.3).
Yaml::Yaml(std::string_view text) : kind_(kScalar), scalar_(JsonQuote(text)) {}
Yaml::Yaml(bool value) : kind_(kScalar), scalar_(value ? "true" : "false") {}
Yaml::Yaml(std::int64_t value) : kind_(kScalar), scalar_(std::to_string(value)) {}

// Leading spaces or newlines would need an indentation indicator, which Write does not emit.
Yaml Yaml::Text(std::string lines) {
  TROOP_CHECK(lines.ends_with('\n') && lines[0] != ' ' && lines[0] != '\n', "not a text block");
  Yaml text;
  text.kind_ = kText;
  text.scalar_ = std::move(lines);
  return text;
}

// Items may be of any kind, also mixed.
Yaml Yaml::List(std::vector<Yaml> items) {
  Yaml list;
  list.kind_ = kList;
  list.items_ = std::move(items);
  return list;
}

Yaml Yaml::Strings(const std::vector<std::string>& texts) {
  return List(std::vector<Yaml>(texts.begin(), texts.end()));
}

// Keys keep the order in which they are given, so that equal inputs give equal files.
Yaml Yaml::Map(std::initializer_list<std::pair<std::string, Yaml>> entries) {
  Yaml map;
  map.entries_ = entries;
  return map;
}

// Keys are not checked for duplicates.
Yaml& Yaml::Add(std::string key, Yaml value) {
  TROOP_CHECK(kind_ == kMap, "key {} added to a value that is not a map", key);
  entries_.emplace_back(std::move(key), std::move(value));
  return *this;
}

Yaml& Yaml::Append(Yaml item) {
  TROOP_CHECK(kind_ == kList, "an item appended to a value that is not a list");
  items_.push_back(std::move(item));
  return *this;
}

// Writes the value after "key:" or "-": scalars and empty {} or [] on the same line, other values
// as a block below. In a list, the first key of a map stays on the line of the dash.
void Yaml::Write(int indent, bool in_list, std::string* out) const {
  if (kind_ == kScalar) {
    *out += " " + scalar_ + "\n";
    return;
  }
  const std::string margin(std::size_t(indent), ' ');
  if (kind_ == kText) {
    *out += " |\n";
    for (std::size_t at = 0; at < scalar_.size();) {
      const std::size_t end = scalar_.find('\n', at) + 1;
      // Empty lines get no margin, which would be trailing space.
      *out += (end - at > 1 ? margin : "") + scalar_.substr(at, end - at);
      at = end;
    }
    return;
  }
  if (empty()) {
    *out += kind_ == kList ? " []\n" : " {}\n";
    return;
  }
  bool same_line = in_list && kind_ == kMap;
  *out += same_line ? " " : "\n";
  for (const Yaml& item : items_) {
    *out += margin + "-";
    item.Write(indent + 2, true, out);
  }
  for (const auto& [key, value] : entries_) {
    *out += (std::exchange(same_line, false) ? "" : margin) + Key(key) + ":";
    value.Write(indent + 2, false, out);
  }
}

// A map at the top level begins with a newline, which is cut off.
std::string Yaml::str() const {
  std::string text;
  Write(0, false, &text);
  return text.substr(text.starts_with("\n") ? 1 : 0);
}

}  // namespace troop
