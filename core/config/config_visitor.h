#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "core/config/enum_names.h"
#include "core/config/env_option.h"

namespace troop {

// The permitted range of a number. An open bound is excluded.
struct ConfigRange {
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
  bool low_open = false, high_open = false;
  bool Contains(double value) const;  // false for NaN and infinities
  std::string ToString() const;       // "[0, 1)", "> 0", ">= 1"; empty: any
};

inline ConfigRange AtLeast(double low) { return {.low = low}; }
inline ConfigRange Above(double low) { return {.low = low, .low_open = true}; }
inline ConfigRange Between(double low, double high) { return {.low = low, .high = high}; }
inline ConfigRange LeftOpen(double low, double high) {
  return {.low = low, .high = high, .low_open = true};
}
inline ConfigRange RightOpen(double low, double high) {
  return {.low = low, .high = high, .high_open = true};
}
// Upper bound of counts: exact in a double, with room for sums.
inline constexpr double kConfigMany = 1e15;

// Metadata of a key.
struct ConfigKeyInfo {
  std::string_view name;                  // full name, "replay.alpha"; in a list entry: "units"
  std::string_view doc;                   // description
  ConfigRange range;                      // numbers
  bool whole = false;                     // a double that must be an integer
  std::vector<std::string_view> choices;  // permitted strings; empty: any
  bool own_names = false;                 // also permits the names of users' extensions (IsOwnName)
  std::string RangeText() const;          // range or choices, human-readable
};

// True for a name that an extension may register: lower-case letters, digits and underscores, with
// a letter first; at most 64.
bool IsOwnName(std::string_view name);

class ConfigVisitor;

// Nouns of a list of tables, such as network.layers, for messages and documentation.
struct ConfigListKind {
  std::string_view entry;             // "layer"; the plural has an "s"
  std::string_view example;           // an entry as inline table
  std::string_view required;          // key that each entry must have
  std::string_view required_example;  // values of that key
  bool zero_means_unused = false;     // an integer 0 in a default entry: the key does not apply
};

// A list of tables, without the type of its entries.
class ConfigList {
 public:
  virtual ~ConfigList() = default;
  virtual const ConfigListKind& kind() const = 0;
  virtual std::size_t size() const = 0;
  virtual void Clear() = 0;
  virtual void Append() = 0;  // an entry with default values
  virtual void VisitEntry(std::size_t index, ConfigVisitor& visitor) = 0;
  virtual void VisitDefault(ConfigVisitor& visitor) const = 0;  // an entry outside the list
};

// Visits each key once, in the order of the documentation. Parsing, dumping and documenting are
// visitors, so a key is declared in one place only: a function VisitKeys(SectionConfig&,
// ConfigVisitor&) of each section, in the folder that owns it.
class ConfigVisitor {
 public:
  virtual ~ConfigVisitor() = default;
  virtual void Visit(const ConfigKeyInfo& key, std::int64_t& value) = 0;
  virtual void Visit(const ConfigKeyInfo& key, double& value) = 0;
  virtual void Visit(const ConfigKeyInfo& key, bool& value) = 0;
  virtual void Visit(const ConfigKeyInfo& key, std::string& value) = 0;
  virtual void Visit(const ConfigKeyInfo& key, std::vector<EnvOption>& value) = 0;
  virtual void Visit(const ConfigKeyInfo& key, std::vector<std::string>& value) = 0;
  virtual void Visit(const ConfigKeyInfo& key, std::vector<double>& value) = 0;
  virtual void Visit(const ConfigKeyInfo& key, ConfigList& list) = 0;

  // A mode: visited as a string whose choices are the names of the enum.
  template <NamedEnum E>
  void Visit(ConfigKeyInfo key, E& value) {
    for (const std::string_view name : EnumNames(E{})) key.choices.push_back(name);
    std::string name(EnumName(value));
    Visit(key, name);
    if (const auto parsed = ParseEnum<E>(name)) value = *parsed;
  }
  // A mode that users can extend: E::kOwn stands for all names that extensions register, and `own`
  // has the name then.
  template <NamedEnum E>
  void Visit(ConfigKeyInfo key, E& value, std::string& own) {
    for (const std::string_view name : EnumNames(E{})) {
      if (name != EnumName(E::kOwn)) key.choices.push_back(name);
    }
    key.own_names = true;
    std::string name = value == E::kOwn ? own : std::string(EnumName(value));
    Visit(key, name);
    const auto parsed = ParseEnum<E>(name);
    value = parsed.value_or(E::kOwn);
    own = value == E::kOwn ? name : "";
  }
  // A list of tables. visit: visits the keys of an entry.
  template <class T>
  void Visit(const ConfigKeyInfo& key, const ConfigListKind& kind, std::vector<T>& values,
             void (*visit)(T& entry, ConfigVisitor& visitor));
};

template <class T>
void ConfigVisitor::Visit(const ConfigKeyInfo& key, const ConfigListKind& kind,
                          std::vector<T>& values, void (*visit)(T& entry, ConfigVisitor& visitor)) {
  class List final : public ConfigList {
   public:
    List(const ConfigListKind& kind, std::vector<T>* values, void (*visit)(T&, ConfigVisitor&))
        : kind_(kind), values_(values), visit_(visit) {}
    const ConfigListKind& kind() const override { return kind_; }
    std::size_t size() const override { return values_->size(); }
    void Clear() override { values_->clear(); }
    void Append() override { values_->emplace_back(); }
    void VisitEntry(std::size_t index, ConfigVisitor& visitor) override {
      visit_((*values_)[index], visitor);
    }
    void VisitDefault(ConfigVisitor& visitor) const override {
      T entry;
      visit_(entry, visitor);
    }

   private:
    const ConfigListKind& kind_;
    std::vector<T>* const values_;
    void (*const visit_)(T&, ConfigVisitor&);
  };
  List list(kind, &values, visit);
  Visit(key, list);
}

}  // namespace troop
