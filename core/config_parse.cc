// The only file that includes toml++: header-only and without exceptions. Its parser asserts (or, with
// NDEBUG, tells the optimiser to assume) that a table header begins with a letter, and only then
// reports `[?]` as the error that it is. So its assertions are turned off.
#undef NDEBUG
#define TOML_ASSERT(expression) static_assert(true)
#define TOML_HEADER_ONLY 1
#define TOML_EXCEPTIONS 0
#include <toml++/toml.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <deque>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "core/config_schema.h"
#include "core/edit_distance.h"

namespace troop {
namespace {

constexpr std::size_t kFileBytesMax = 1 << 20;
constexpr std::int64_t kCommandLine = std::int64_t{1} << 40;  // sorts after every line of a file

// Where a value was given.
struct Place {
  std::int64_t line = 0;
  std::string text;           // "run.toml:3", or "command line: replay.alpha=2"
  std::string named;          // the key that `text` names already
  std::string Of(std::string_view key) const {
    return key == named ? text : fmt::format("{}: {}", text, key);
  }
};

struct Entry {
  const toml::node* node = nullptr;
  Place place;
};

class Problems {
 public:
  void Add(const Place& place, std::string_view key, std::string_view message) {
    lines_.emplace_back(place.line, fmt::format("{}: {}", place.Of(key), message));
  }
  bool empty() const { return lines_.empty(); }
  Status ToStatus() {
    std::ranges::stable_sort(lines_, {}, &std::pair<std::int64_t, std::string>::first);
    std::string text;
    for (const auto& [line, message] : lines_) text += (text.empty() ? "" : "\n") + message;
    return Status(Code::kInvalidArgument, std::move(text));
  }

 private:
  std::vector<std::pair<std::int64_t, std::string>> lines_;
};

std::string_view TypeName(const std::int64_t&) { return "an integer"; }
std::string_view TypeName(const double&) { return "a number"; }
std::string_view TypeName(const bool&) { return "true or false"; }
std::string_view TypeName(const std::string&) { return "a string"; }

std::string Describe(const toml::node& node) {
  if (const auto* v = node.as_string()) return TomlString(v->get());
  if (const auto* v = node.as_integer()) return fmt::format("{}", v->get());
  if (const auto* v = node.as_floating_point()) {
    return std::isfinite(v->get()) ? TomlNumber(v->get()) : "a number that is not finite";
  }
  if (const auto* v = node.as_boolean()) return v->get() ? "true" : "false";
  if (node.is_array()) return "a list";
  return node.is_table() ? "a table" : "a date or time";
}

bool Convert(const toml::node& node, bool* out) {
  const auto* v = node.as_boolean();
  if (v != nullptr) *out = v->get();
  return v != nullptr;
}
bool Convert(const toml::node& node, std::string* out) {
  const auto* v = node.as_string();
  if (v != nullptr) *out = v->get();
  return v != nullptr;
}
bool Convert(const toml::node& node, double* out) {
  const auto v = node.is_number() ? node.value<double>() : std::nullopt;
  if (v) *out = *v;
  return v.has_value();
}
// 1e6 is an integer too.
bool Convert(const toml::node& node, std::int64_t* out) {
  if (const auto* v = node.as_integer()) {
    *out = v->get();
    return true;
  }
  const auto* v = node.as_floating_point();
  if (v == nullptr || v->get() != std::floor(v->get()) || std::abs(v->get()) > 1e15) return false;
  *out = std::int64_t(v->get());
  return true;
}

std::string DefaultHint(const ConfigKeyInfo& key, std::string_view type) {
  const std::string range = key.RangeText();
  return range.empty() ? fmt::format("give {}", type) : fmt::format("give {} {}{}", type,
      range[0] == '[' || range[0] == '(' ? "in " : "", range);
}

std::string_view Type(const ConfigKeyInfo& key, double value) {
  return key.whole ? TypeName(std::int64_t{}) : TypeName(value);
}
template <class T>
std::string_view Type(const ConfigKeyInfo&, const T& value) { return TypeName(value); }

// Empty when the value is allowed; else what is wrong.
std::string CheckValue(const ConfigKeyInfo& key, double value) {
  if (!key.range.Contains(value)) {
    return fmt::format("{} is out of range; {}",
                       std::isfinite(value) ? TomlNumber(value) : "a number that is not finite",
                       DefaultHint(key, Type(key, value)));
  }
  if (key.whole && value != std::floor(value)) {
    return fmt::format("{} is no whole number; {}", TomlNumber(value), DefaultHint(key, "an integer"));
  }
  return {};
}
std::string CheckValue(const ConfigKeyInfo& key, std::int64_t value) {
  if (key.range.Contains(double(value))) return {};
  return fmt::format("{} is out of range; {}", value, DefaultHint(key, "an integer"));
}
std::string CheckValue(const ConfigKeyInfo&, bool) { return {}; }
std::string CheckValue(const ConfigKeyInfo& key, const std::string& value) {
  if (key.choices.empty() || std::ranges::count(key.choices, std::string_view(value)) > 0) return {};
  return fmt::format("{} is unknown; use {}", TomlString(value), key.RangeText());
}

// Takes what the entries say into a Config (or a layer), and reports what is wrong.
class Reader final : public ConfigVisitor {
 public:
  Reader(const std::map<std::string, Entry>& entries, std::string prefix, Problems* problems)
      : entries_(entries), prefix_(std::move(prefix)), problems_(problems) {}

  void Visit(const ConfigKeyInfo& key, std::int64_t& value) override { Read(key, &value); }
  void Visit(const ConfigKeyInfo& key, double& value) override { Read(key, &value); }
  void Visit(const ConfigKeyInfo& key, bool& value) override { Read(key, &value); }
  void Visit(const ConfigKeyInfo& key, std::string& value) override { Read(key, &value); }
  void Visit(const ConfigKeyInfo& key, std::vector<LayerConfig>& layers) override;
  const std::set<std::string>& failed() const { return failed_; }

 private:
  template <class T>
  void Read(const ConfigKeyInfo& key, T* value) {
    const auto it = entries_.find(std::string(key.name));
    if (it == entries_.end()) return;
    T given{};
    std::string wrong;
    if (!Convert(*it->second.node, &given)) {
      wrong = fmt::format("{} is not {}; {}", Describe(*it->second.node), Type(key, given),
                          DefaultHint(key, Type(key, given)));
    } else {
      wrong = CheckValue(key, given);
    }
    if (wrong.empty()) *value = std::move(given);
    else Fail(it->second.place, std::string(key.name), wrong);
  }
  void Fail(const Place& place, const std::string& key, std::string_view message) {
    problems_->Add(place, prefix_ + key, message);
    failed_.insert(key);
  }
  bool ReadLayer(const toml::node& node, const Place& list, std::size_t index, LayerConfig* layer);

  const std::map<std::string, Entry>& entries_;
  const std::string prefix_;
  Problems* const problems_;
  std::set<std::string> failed_;
};

Place PlaceOf(const toml::node& node, std::string_view file) {
  const auto line = std::int64_t(node.source().begin.line);
  return {line, line > 0 ? fmt::format("{}:{}", file, line) : std::string(file), {}};
}

// The names of all keys, and which of them are strings.
class Names final : public ConfigVisitor {
 public:
  void Visit(const ConfigKeyInfo& key, std::int64_t&) override { Add(key); }
  void Visit(const ConfigKeyInfo& key, double&) override { Add(key); }
  void Visit(const ConfigKeyInfo& key, bool&) override { Add(key); }
  void Visit(const ConfigKeyInfo& key, std::vector<LayerConfig>&) override { Add(key); }
  void Visit(const ConfigKeyInfo& key, std::string&) override {
    Add(key);
    strings.insert(std::string(key.name));
  }
  std::vector<std::string> keys;
  std::set<std::string> sections, strings;

 private:
  void Add(const ConfigKeyInfo& key) {
    keys.emplace_back(key.name);
    const std::size_t dot = key.name.find('.');
    if (dot != std::string_view::npos) sections.emplace(key.name.substr(0, dot));
  }
};
Names ConfigNames() {
  Names names;
  Config config;
  VisitConfig(config, names);
  return names;
}
Names LayerNames() {
  Names names;
  LayerConfig layer;
  VisitLayer(layer, names);
  return names;
}

bool Reader::ReadLayer(const toml::node& node, const Place& list, std::size_t index,
                       LayerConfig* layer) {
  const std::string name = fmt::format("network.layers[{}]", index);
  const toml::table* table = node.as_table();
  if (table == nullptr) {
    problems_->Add(list, name, fmt::format("{} is no layer; write {{type = \"linear\", units = 64}}",
                                           Describe(node)));
    return false;
  }
  const Names names = LayerNames();
  std::map<std::string, Entry> entries;
  bool ok = true;
  for (const auto& [key, value] : *table) {
    const std::string text(key.str());
    if (std::ranges::count(names.keys, text) > 0) {
      entries[text] = {&value, list};
    } else {
      problems_->Add(list, fmt::format("{}.{}", name, text),
                     fmt::format("unknown key; the nearest is {}", Nearest(text, names.keys)));
      ok = false;
    }
  }
  Reader reader(entries, name + ".", problems_);
  VisitLayer(*layer, reader);
  if (!table->contains("type")) {
    problems_->Add(list, name, "has no type; add type = \"linear\" or type = \"conv2d\"");
    return false;
  }
  return ok && reader.failed().empty();
}

void Reader::Visit(const ConfigKeyInfo& key, std::vector<LayerConfig>& layers) {
  const auto it = entries_.find(std::string(key.name));
  if (it == entries_.end()) return;
  const toml::array* array = it->second.node->as_array();
  if (array == nullptr) {
    Fail(it->second.place, std::string(key.name),
         fmt::format("{} is no list; write [{{type = \"linear\", units = 64}}]",
                     Describe(*it->second.node)));
    return;
  }
  layers.clear();
  for (std::size_t i = 0; i < array->size(); ++i) {
    const toml::node& node = *array->get(i);
    Place place = it->second.place;
    if (place.named.empty() && it->second.node->source().path) {
      place = PlaceOf(node, *it->second.node->source().path);
    }
    LayerConfig layer;
    if (!ReadLayer(node, place, i, &layer)) failed_.insert(std::string(key.name));
    layers.push_back(std::move(layer));
  }
}

// One source of values: the file, or one override.
class Source {
 public:
  Source(const Names& names, std::string_view file, Problems* problems)
      : names_(names), file_(file), problems_(problems) {}

  // Sorts the tree below `node` into known entries and problems.
  void Add(const std::string& path, const toml::node& node, const Place& place) {
    const toml::table* table = node.as_table();
    if (std::ranges::count(names_.keys, path) > 0) {
      entries_[path] = {&node, place};
    } else if (table != nullptr && (path.empty() || names_.sections.contains(path))) {
      for (const auto& [key, value] : *table) {
        const Place inner = place.named.empty() ? PlaceOf(value, file_) : place;
        Add(path.empty() ? std::string(key.str()) : fmt::format("{}.{}", path, key.str()), value,
            inner);
      }
    } else {
      AddUnknown(path, table != nullptr, place);
    }
  }
  const std::map<std::string, Entry>& entries() const { return entries_; }

 private:
  void AddUnknown(const std::string& path, bool is_table, const Place& place) {
    if (names_.sections.contains(path)) {
      problems_->Add(place, path, fmt::format("is a section; write [{}] and its keys below", path));
    } else if (is_table && path.find('.') == std::string::npos) {
      const std::vector<std::string> sections(names_.sections.begin(), names_.sections.end());
      problems_->Add(place, path,
                     fmt::format("unknown section; the nearest is {}", Nearest(path, sections)));
    } else {
      problems_->Add(place, path,
                     fmt::format("unknown key; the nearest is {}", Nearest(path, names_.keys)));
    }
  }

  const Names& names_;
  const std::string_view file_;
  Problems* const problems_;
  std::map<std::string, Entry> entries_;
};

std::string Trim(std::string_view text) {
  const std::size_t first = text.find_first_not_of(" \t");
  if (first == std::string_view::npos) return {};
  return std::string(text.substr(first, text.find_last_not_of(" \t") - first + 1));
}

// Reads a Config out of a file and overrides, step by step; the trees live as long as it does.
class Parser {
 public:
  explicit Parser(std::string_view file) : file_(file.empty() ? "config" : file) {}

  Status ReadFile(std::string_view text) {
    toml::parse_result result = toml::parse(text, file_);
    if (!result) {
      const auto& at = result.error().source().begin;
      return InvalidArgument("{}:{}:{}: not TOML: {}", file_, at.line, at.column,
                             result.error().description());
    }
    const toml::table& table = trees_.emplace_back(std::move(result).table());
    const auto* version = table["version"].as_integer();
    if (version != nullptr && version->get() > kConfigVersion) {
      return InvalidArgument(
          "{}: version: the file is of version {}, this program reads version {}; use a newer troop",
          PlaceOf(*version, file_).text, version->get(), kConfigVersion);
    }
    Source source(names_, file_, &problems_);
    source.Add("", table, {0, file_, {}});
    Take(source);
    return Status::Ok();
  }

  void ReadOverride(const std::string& text) {
    const Place bare{kCommandLine, "command line", {}};
    const std::size_t equal = text.find('=');
    if (equal == std::string::npos || equal == 0) {
      problems_.Add(bare, text, "is no override; write key=value, for example seed=7");
      return;
    }
    if (text.find_first_of("\r\n") != std::string::npos) {
      problems_.Add(bare, TomlString(text), "has more than one line; give each key by itself");
      return;
    }
    const std::string key = Trim(text.substr(0, equal)), value = Trim(text.substr(equal + 1));
    const Place place{kCommandLine, fmt::format("command line: {}={}", key, value), key};
    Source source(names_, file_, &problems_);
    const toml::node* node = ParseValue(key, value, place);
    if (node == nullptr) return;
    source.Add(key, *node, place);
    Take(source);
  }

  Result<Config> Finish() {
    for (const ConfigConflict& conflict : FindConflicts(config_)) Report(conflict);
    if (!problems_.empty()) return problems_.ToStatus();
    return std::move(config_);
  }

 private:
  void Take(const Source& source) {
    Reader reader(source.entries(), "", &problems_);
    VisitConfig(config_, reader);
    failed_.insert(reader.failed().begin(), reader.failed().end());
    for (const auto& [key, entry] : source.entries()) places_[key] = entry.place;
  }

  // Null: reported.
  const toml::node* ParseValue(const std::string& key, const std::string& value, const Place& place) {
    const bool quoted = !value.empty() && std::strchr("[{\"'", value[0]) != nullptr;
    toml::parse_result result = toml::parse("v = " + value);
    const bool is_text = names_.strings.contains(key);
    if (!quoted && (!result || (is_text && !result.table()["v"].is_string()))) {
      result = toml::parse("v = " + TomlString(value));  // a bare word
    }
    if (!result) {
      problems_.Add(place, key, fmt::format("the value is not TOML: {}", result.error().description()));
      return nullptr;
    }
    return trees_.emplace_back(std::move(result).table()).get("v");
  }

  // Not about keys that are wrong in themselves.
  void Report(const ConfigConflict& conflict) {
    const auto plain = [](const std::string& key) { return key.substr(0, key.find('[')); };
    const auto wrong = [&](const std::string& key) { return failed_.contains(plain(key)); };
    if (std::ranges::any_of(conflict.keys, wrong)) return;
    Place place{0, file_, {}};
    for (const std::string& key : conflict.keys) {
      const auto it = places_.find(plain(key));
      if (it == places_.end()) continue;
      place = it->second;
      break;
    }
    problems_.Add(place, conflict.keys[0], conflict.message);
  }

  const std::string file_;
  const Names names_ = ConfigNames();
  std::deque<toml::table> trees_;
  Problems problems_;
  std::set<std::string> failed_;
  std::map<std::string, Place> places_;
  Config config_;
};

}  // namespace

Result<Config> ParseConfig(std::string_view toml_text, std::string_view file_name,
                           std::span<const std::string> overrides) {
  Parser parser(file_name);
  TROOP_RETURN_IF_ERROR(parser.ReadFile(toml_text));
  for (const std::string& text : overrides) parser.ReadOverride(text);
  return parser.Finish();
}

Result<Config> LoadConfigFile(const std::string& path, std::span<const std::string> overrides) {
  std::ifstream file(path, std::ios::binary);
  std::error_code error;
  if (!file || std::filesystem::is_directory(path, error)) {
    return NotFound("{}: can't be read ({}); name a TOML file, for example configs/apex_cartpole.toml",
                    path, file ? "it is a folder" : std::strerror(errno));
  }
  std::string text(kFileBytesMax + 1, '\0');
  file.read(text.data(), std::streamsize(text.size()));
  text.resize(std::size_t(file.gcount()));
  if (text.size() > kFileBytesMax) {
    return InvalidArgument("{}: larger than {} bytes; that is no configuration", path, kFileBytesMax);
  }
  return ParseConfig(text, path, overrides);
}

}  // namespace troop
