#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace troop {

// A document to be written as YAML: a scalar, a list, or keys in the order in which they were
// given. All strings are quoted, so that none of them can become a number, a boolean, or another
// line of the document; Text() is for those of many lines, which people read.
class Yaml {
 public:
  Yaml() : kind_(kMap) {}
  Yaml(std::string_view text);  // NOLINT: values stand in initializer lists
  Yaml(const std::string& text) : Yaml(std::string_view(text)) {}
  Yaml(const char* text) : Yaml(std::string_view(text)) {}
  Yaml(bool value);
  Yaml(int value) : Yaml(std::int64_t{value}) {}
  Yaml(std::int64_t value);
  // A block of lines. REQUIRES: it ends with a newline, and its first line begins with no space.
  static Yaml Text(std::string lines);
  static Yaml List(std::vector<Yaml> items);
  static Yaml Strings(const std::vector<std::string>& texts);
  static Yaml Map(std::initializer_list<std::pair<std::string, Yaml>> entries);

  Yaml& Add(std::string key, Yaml value);  // REQUIRES: this is no scalar and no list
  Yaml& Append(Yaml item);                 // REQUIRES: this is a list
  // Block style, two spaces a level, a newline at the end.
  std::string str() const;

 private:
  enum Kind { kScalar, kText, kList, kMap };
  void Write(int indent, bool in_list, std::string* out) const;
  bool empty() const { return kind_ == kList ? items_.empty() : entries_.empty(); }

  Kind kind_;
  std::string scalar_;  // as it stands in the document
  std::vector<Yaml> items_;
  std::vector<std::pair<std::string, Yaml>> entries_;
};

}  // namespace troop
