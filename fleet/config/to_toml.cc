// Implements ToToml, ConfigKeys and ConfigMarkdown as visitors of the schema.
#include <fmt/format.h>

#include <set>

#include "core/config/option_value.h"
#include "fleet/config/config_keys.h"

namespace troop {
namespace {

// A value as TOML; parsing the text gives the same value.
std::string ValueText(std::int64_t value) { return fmt::format("{}", value); }
std::string ValueText(double value) { return TomlNumber(value); }
std::string ValueText(bool value) { return value ? "true" : "false"; }
std::string ValueText(const std::string& value) { return TomlString(value); }
std::string ValueText(const std::vector<std::string>& values) {
  std::vector<std::string> texts;
  for (const std::string& value : values) texts.push_back(TomlString(value));
  return fmt::format("[{}]", fmt::join(texts, ", "));
}
std::string ValueText(const std::vector<double>& values) {
  std::vector<std::string> texts;
  for (const double value : values) texts.push_back(TomlNumber(value));
  return fmt::format("[{}]", fmt::join(texts, ", "));
}
std::string ValueText(const std::vector<EnvOption>& options) {
  std::vector<std::string> texts;
  for (const EnvOption& option : options) {
    texts.push_back(fmt::format("{} = {}", TomlString(option.name), OptionToml(option)));
  }
  return fmt::format("{{{}}}", fmt::join(texts, ", "));
}

// One layer or table as an inline TOML table: its keys with non-default values. A first visit, of a
// default-constructed entry, collects the defaults.
class EntryDumper final : public ConfigVisitor {
 public:
  EntryDumper(ConfigList& list, std::size_t index) : required_(list.kind().required) {
    list.VisitDefault(*this);
    collecting_ = false;
    list.VisitEntry(index, *this);
  }
  void Visit(const ConfigKeyInfo& key, std::int64_t& value) override { Add(key, ValueText(value)); }
  void Visit(const ConfigKeyInfo& key, double& value) override { Add(key, ValueText(value)); }
  void Visit(const ConfigKeyInfo& key, bool& value) override { Add(key, ValueText(value)); }
  void Visit(const ConfigKeyInfo& key, std::string& value) override { Add(key, ValueText(value)); }
  // Entries of lists contain no lists.
  void Visit(const ConfigKeyInfo&, ConfigList&) override {}
  void Visit(const ConfigKeyInfo& key, std::vector<EnvOption>& value) override {
    Add(key, ValueText(value));
  }
  void Visit(const ConfigKeyInfo&, std::vector<std::string>&) override {}
  void Visit(const ConfigKeyInfo&, std::vector<double>&) override {}
  std::string text() const { return fmt::format("{{{}}}", fmt::join(fields_, ", ")); }

 private:
  // Collects a default, or compares with it.
  void Add(const ConfigKeyInfo& key, std::string value) {
    if (collecting_) {
      defaults_.push_back(std::move(value));
      return;
    }
    // Both visits see the keys in the same order.
    const std::string& plain = defaults_[next_++];
    if (value != plain || key.name == required_)
      fields_.push_back(fmt::format("{} = {}", key.name, value));
  }

  const std::string_view required_;  // key that is written in any case
  bool collecting_ = true;
  std::size_t next_ = 0;
  std::vector<std::string> defaults_, fields_;
};

// One entry per line, as an inline table with its non-default keys.
std::string ValueText(ConfigList& list) {
  if (list.size() == 0) return "[]";
  std::string text = "[\n";
  for (std::size_t i = 0; i < list.size(); ++i) text += "  " + EntryDumper(list, i).text() + ",\n";
  return text + "]";
}

// Calls Add(key, type, value as TOML) for every key.
class TextVisitor : public ConfigVisitor {
 public:
  void Visit(const ConfigKeyInfo& key, std::int64_t& value) final {
    Add(key, "integer", ValueText(value));
  }
  void Visit(const ConfigKeyInfo& key, double& value) final {
    Add(key, key.whole ? "integer" : "number", ValueText(value));
  }
  void Visit(const ConfigKeyInfo& key, bool& value) final { Add(key, "boolean", ValueText(value)); }
  void Visit(const ConfigKeyInfo& key, std::string& value) final {
    Add(key, "string", ValueText(value));
  }
  void Visit(const ConfigKeyInfo& key, ConfigList& list) override {
    Add(key, fmt::format("list of {}s", list.kind().entry), ValueText(list));
  }
  void Visit(const ConfigKeyInfo& key, std::vector<EnvOption>& value) final {
    Add(key, "table", ValueText(value));
  }
  void Visit(const ConfigKeyInfo& key, std::vector<std::string>& value) final {
    Add(key, "list of strings", ValueText(value));
  }
  void Visit(const ConfigKeyInfo& key, std::vector<double>& value) final {
    Add(key, "list of numbers", ValueText(value));
  }

 protected:
  virtual void Add(const ConfigKeyInfo& key, std::string_view type, const std::string& value) = 0;
};

// Writes all keys as TOML, grouped into sections.
class Dumper final : public TextVisitor {
 public:
  std::string text;

 private:
  void Add(const ConfigKeyInfo& key, std::string_view, const std::string& value) override {
    const std::size_t dot = key.name.find('.');
    // Top-level keys come first: TOML would assign later ones to the section before them.
    if (dot == std::string_view::npos) {
      text += fmt::format("{} = {}\n", key.name, value);
      return;
    }
    const std::string_view section = key.name.substr(0, dot);
    // The schema visits the keys of a section consecutively, so each header is written once.
    if (section != section_) text += fmt::format("\n[{}]\n", section);
    section_ = section;
    text += fmt::format("{} = {}\n", key.name.substr(dot + 1), value);
  }
  std::string section_;
};

// Collects the descriptions of all keys, with those of layers and tables after their list.
class Lister final : public TextVisitor {
 public:
  std::string prefix;
  std::vector<ConfigKey> keys;

 private:
  void Add(const ConfigKeyInfo& key, std::string_view type, const std::string& value) override {
    keys.push_back({.name = fmt::format("{}{}", prefix, key.name),
                    .type = std::string(type),
                    .default_value = value,
                    .range = key.RangeText(),
                    .doc = std::string(key.doc)});
  }
  // Keys of entries are named like network.layers[].units.
  void Visit(const ConfigKeyInfo& key, ConfigList& list) override {
    TextVisitor::Visit(key, list);
    // Lists of the same kind share one description, after the first of them.
    if (!described_.insert(&list.kind()).second) return;
    Lister inner;
    inner.prefix = fmt::format("{}[].", key.name);
    list.VisitDefault(inner);
    for (ConfigKey& sub : inner.keys) {
      const std::string& value = sub.default_value;
      // An empty default or an unused 0 means that the key does not apply.
      const bool unused = list.kind().zero_means_unused && value == "0";
      const bool required = sub.name == inner.prefix + std::string(list.kind().required);
      if (unused || required || value == "\"\"") sub.default_value = "";
      keys.push_back(std::move(sub));
    }
  }
  std::set<const ConfigListKind*> described_;
};

// The part of a key before the dot; empty for top-level keys.
std::string_view Section(std::string_view key) {
  const std::size_t dot = key.find('.');
  return dot == std::string_view::npos ? std::string_view() : key.substr(0, dot);
}

// Escapes vertical bars, which separate the cells of a Markdown table.
std::string EscapeBars(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '|') out += '\\';
    out += c;
  }
  return out;
}

// The text of docs/reference/config.md before the tables.
constexpr std::string_view kIntroduction = R"(# Configuration

<!-- Generated from the declarations of the keys. Don't edit:
     troop config --markdown > docs/reference/config.md -->

A configuration is a TOML file. Keys that are omitted have their defaults. Every key can also be
given after the file name as `key=value`; the last value of a key takes effect:

    troop train configs/apex_cartpole.toml learner.batch_size=256 env.id=Acrobot-v1

An unknown key, a wrong type, a value out of range or an invalid combination is an error that names
the file, the line and the remedy. All errors are reported at once, before any process starts.
Integers may be written as `1e6`. Steps are agent steps: one action of one environment, independent
of the number of frames it takes.

`version` is the major version of the configuration format. A new key does not change it; removing a
key or changing its meaning does. A file with a version newer than the program supports is rejected.
)";

}  // namespace

// Visitors take mutable fields, so a copy is visited.
std::string ToToml(const Config& config) {
  Config copy = config;
  Dumper dumper;
  VisitConfig(copy, dumper);
  return dumper.text;
}

// A default-constructed Config has the default of every key.
std::vector<ConfigKey> ConfigKeys() {
  Config config;
  Lister lister;
  VisitConfig(config, lister);
  return lister.keys;
}

// One table per section.
std::string ConfigMarkdown() {
  std::string text(kIntroduction);
  std::string section = "-";
  for (const ConfigKey& key : ConfigKeys()) {
    if (Section(key.name) != section) {
      section = Section(key.name);
      text += section.empty() ? "\n## The run\n" : fmt::format("\n## [{}]\n", section);
      text += "\n| key | type | default | allowed | meaning |\n|---|---|---|---|---|\n";
    }
    // A key without a default has an empty cell.
    const std::string value =
        key.default_value.empty() ? "" : fmt::format("`{}`", key.default_value);
    text += fmt::format("| `{}` | {} | {} | {} | {} |\n", key.name, key.type, value, key.range,
                        EscapeBars(key.doc));
  }
  return text;
}

}  // namespace troop
