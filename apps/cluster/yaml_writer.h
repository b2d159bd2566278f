#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace troop {

// A YAML value to be written: a scalar, a list, or a map that keeps insertion order. All strings
// are quoted, so that none is read as a number or a boolean, or spans several lines; only those of
// Text() are unquoted, as a readable multi-line block.
class Yaml {
 public:
  Yaml() : kind_(kMap) {}
  Yaml(std::string_view text);  // NOLINT: implicit, so that initializer lists can contain values
  Yaml(const std::string& text) : Yaml(std::string_view(text)) {}
  Yaml(const char* text) : Yaml(std::string_view(text)) {}
  Yaml(bool value);
  Yaml(int value) : Yaml(std::int64_t{value}) {}
  Yaml(std::int64_t value);
  // A literal block. REQUIRES: `lines` ends with a newline; its first line is not empty and does
  // not begin with a space.
  static Yaml Text(std::string lines);
  static Yaml List(std::vector<Yaml> items);
  static Yaml Strings(const std::vector<std::string>& texts);
  static Yaml Map(std::initializer_list<std::pair<std::string, Yaml>> entries);

  Yaml& Add(std::string key, Yaml value);  // REQUIRES: this is a map
  Yaml& Append(Yaml item);                 // REQUIRES: this is a list
  // The document in block style, indented by two spaces per level, with a final newline.
  std::string str() const;

 private:
  enum Kind { kScalar, kText, kList, kMap };
  void Write(int indent, bool in_list, std::string* out) const;
  bool empty() const { return kind_ == kList ? items_.empty() : entries_.empty(); }

  Kind kind_;
  std::string scalar_;  // already quoted
  std::vector<Yaml> items_;
  std::vector<std::pair<std::string, Yaml>> entries_;
};

}  // namespace troop
