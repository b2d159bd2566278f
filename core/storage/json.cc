// Implements the JSON writer, and the parser with the library nlohmann/json.
#include "core/storage/json.h"

#include <cmath>
#include <cstddef>
#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/base/utf8.h"

namespace troop {
namespace {

using Library = nlohmann::json;

// Bounds the depth of the values, which are destroyed recursively.
constexpr int kDepthMax = 64;

// Iterator over the text that counts the characters read: errors of TreeBuilder need a position.
struct CountingIterator {
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  reference operator*() const { return *at; }
  CountingIterator& operator++() {
    ++at;
    ++*count;
    return *this;
  }
  bool operator==(const CountingIterator& other) const { return at == other.at; }

  const char* at = nullptr;
  std::size_t* count = nullptr;
};

// Returns the library's error without its number, line and last token. The token comes from the
// text, which may be long and contain any bytes.
std::string PlainError(std::string_view error) {
  if (const std::size_t at = error.find(": "); at != error.npos) error.remove_prefix(at + 2);
  return std::string(error.substr(0, error.find("; last read: '")));
}

// Builds a JsonValue from the events of the library's parser (its SAX interface, which neither
// recurses nor throws). A handler that returns false ends the parse; error() is set then.
class TreeBuilder {
 public:
  // `count`: number of characters read so far; borrowed.
  explicit TreeBuilder(const std::size_t* count) : count_(count) {}

  // Handlers of scalar values, by the names of the library.
  bool null() { return Place(Kind::kNull) != nullptr; }
  bool boolean(bool value) {
    JsonValue* const out = Place(Kind::kBool);
    if (out != nullptr) out->boolean = value;
    return out != nullptr;
  }
  // Called for numbers with a minus sign. -0 is not representable as an integer.
  bool number_integer(std::int64_t value) {
    return value == 0 ? Number(-0.0, std::nullopt) : Number(double(value), value);
  }
  bool number_unsigned(std::uint64_t value) {
    const bool fits = std::in_range<std::int64_t>(value);
    return Number(double(value), fits ? std::optional(std::int64_t(value)) : std::nullopt);
  }
  // The library reports numbers that are too large, but rounds those that are too small to zero.
  bool number_float(double value, const std::string& text) {
    const std::string_view digits = std::string_view(text).substr(0, text.find_first_of("eE"));
    const bool zero = digits.find_first_of("123456789") == digits.npos;
    if (value == 0 && !zero) return Fail(kOutOfRange);
    return Number(value, std::nullopt);
  }
  bool string(std::string& value) {
    JsonValue* const out = Place(Kind::kString);
    if (out != nullptr) out->string = std::move(value);
    return out != nullptr;
  }
  bool binary(Library::binary_t&) { return Fail("a binary value"); }  // only in other formats

  // Handlers of containers. The size is unknown in JSON.
  bool start_object(std::size_t) { return Open(Kind::kObject); }
  bool start_array(std::size_t) { return Open(Kind::kArray); }
  bool end_object() { return Close(); }
  bool end_array() { return Close(); }
  bool key(std::string& name) {
    const auto [entry, fresh] = open_.back()->object.try_emplace(std::move(name));
    entry_ = &entry->second;
    return fresh || Fail("duplicate key");
  }

  // Handler of the parser's own errors. `position`: number of characters read.
  bool parse_error(std::size_t position, const std::string&, const Library::exception& error) {
    constexpr int kNumberOverflow = 406;
    (void)Fail(error.id == kNumberOverflow ? kOutOfRange : PlainError(error.what()));
    at_ = position;
    return false;
  }

  // Zero-based offset of the last character read before the error.
  std::size_t at() const { return at_ == 0 ? 0 : at_ - 1; }
  const std::string& error() const { return error_; }
  JsonValue Take() { return std::move(root_); }

 private:
  using Kind = JsonValue::Kind;
  static constexpr char kOutOfRange[] = "a number is too large or too small";

  // Records the error; always false, so that handlers can return it.
  bool Fail(std::string error) {
    error_ = std::move(error);
    at_ = *count_;
    return false;
  }
  // Returns the place of the next value, or nullptr if it is nested too deeply.
  JsonValue* Place(Kind kind) {
    if (open_.size() > kDepthMax) {
      Fail("nested too deeply");
      return nullptr;
    }
    JsonValue* value = &root_;
    if (!open_.empty()) {
      JsonValue* const parent = open_.back();
      value = parent->kind == Kind::kArray ? &parent->array.emplace_back() : entry_;
    }
    value->kind = kind;
    return value;
  }
  bool Number(double value, std::optional<std::int64_t> integer) {
    JsonValue* const out = Place(Kind::kNumber);
    if (out == nullptr) return false;
    out->number = value;
    out->integer = integer;
    return true;
  }
  bool Open(Kind kind) {
    JsonValue* const value = Place(kind);
    if (value == nullptr) return false;
    open_.push_back(value);
    return true;
  }
  bool Close() {
    open_.pop_back();
    return true;
  }

  const std::size_t* const count_;
  JsonValue root_;
  std::vector<JsonValue*> open_;  // containers around the next value, outermost first
  JsonValue* entry_ = nullptr;    // value of the last key
  std::string error_;
  std::size_t at_ = 0;
};

// Passes the events of the library's parser to a handler of ReadJson. Numbers are those of
// TreeBuilder.
class EventSource {
 public:
  explicit EventSource(const JsonHandler& handle) : handle_(handle) {}

  bool null() { return Pass({.kind = Kind::kNull}); }
  bool boolean(bool value) { return Pass({.kind = Kind::kBool, .boolean = value}); }
  bool number_integer(std::int64_t value) { return Number(value == 0 ? -0.0 : double(value)); }
  bool number_unsigned(std::uint64_t value) { return Number(double(value)); }
  bool number_float(double value, const std::string&) { return Number(value); }
  bool string(std::string& value) { return Pass({.kind = Kind::kString, .text = value}); }
  bool binary(Library::binary_t&) { return false; }  // only in other formats
  bool start_object(std::size_t) { return Open(Kind::kBeginObject); }
  bool start_array(std::size_t) { return Open(Kind::kBeginArray); }
  bool end_object() { return Close(Kind::kEndObject); }
  bool end_array() { return Close(Kind::kEndArray); }
  bool key(std::string& name) { return Pass({.kind = Kind::kKey, .text = name}); }

  bool parse_error(std::size_t position, const std::string&, const Library::exception& error) {
    constexpr int kNumberOverflow = 406;  // its message has the whole number
    const std::string reason =
        error.id == kNumberOverflow ? "a number is too large" : PlainError(error.what());
    status_ = DataLoss("JSON at byte {}: {}", position == 0 ? 0 : position - 1, reason);
    return false;
  }
  const Status& status() const { return status_; }

 private:
  using Kind = JsonEvent::Kind;
  bool Pass(const JsonEvent& event) {
    status_ = handle_(event);
    return status_.ok();
  }
  bool Number(double value) { return Pass({.kind = Kind::kNumber, .number = value}); }
  bool Open(Kind kind) {
    if (++depth_ > kDepthMax) {
      status_ = DataLoss("JSON is nested too deeply; the limit is {} levels", kDepthMax);
      return false;
    }
    return Pass({.kind = kind});
  }
  bool Close(Kind kind) {
    --depth_;
    return Pass({.kind = kind});
  }

  const JsonHandler& handle_;
  Status status_;
  int depth_ = 0;
};

}  // namespace

// Invalid bytes become '?', so that the result is always valid JSON.
std::string JsonQuote(std::string_view text) {
  std::string out = "\"";
  while (!text.empty()) {
    const char c = text[0];
    std::size_t n = Utf8Length(text);
    if (n == 0) {
      out += '?';
      n = 1;
    } else if (c == '"' || c == '\\') {
      out += {'\\', c};
    } else if (static_cast<unsigned char>(c) < 0x20) {
      out += fmt::format("\\u{:04x}", int(c));
    } else {
      out += text.substr(0, n);
    }
    text.remove_prefix(n);
  }
  return out + "\"";
}

// JSON has no NaN or infinity; both become null.
JsonText::JsonText(double value)
    : text_(std::isfinite(value) ? fmt::format("{}", value) : "null") {}
JsonText::JsonText(std::string_view text) : text_(JsonQuote(text)) {}
JsonText::JsonText(const JsonObject& object) : text_(object.str()) {}
JsonText::JsonText(const JsonArray& array) : text_(array.str()) {}

JsonText JsonText::Rounded(double value, int digits) {
  return Raw(std::isfinite(value) ? fmt::format("{:.{}g}", value, digits) : "null");
}

JsonText JsonText::Fixed(double value, int decimals) {
  return Raw(std::isfinite(value) ? fmt::format("{:.{}f}", value, decimals) : "null");
}

JsonText JsonText::Raw(std::string json) {
  JsonText value;
  value.text_ = std::move(json);
  return value;
}

// text_ lacks its closing brace, which str() adds.
JsonObject& JsonObject::Add(std::string_view key, const JsonText& value) {
  const bool spaced = style_ == JsonStyle::kSpaced;
  if (text_.size() > 1) text_ += spaced ? ", " : ",";
  text_ += JsonQuote(key);
  text_ += spaced ? ": " : ":";
  text_ += value.str();
  return *this;
}

JsonArray JsonArray::Rounded(std::span<const double> values, int digits, JsonStyle style) {
  JsonArray array(style);
  for (const double value : values) array.Add(JsonText::Rounded(value, digits));
  return array;
}

// text_ lacks its closing bracket, which str() adds.
JsonArray& JsonArray::Add(const JsonText& value) {
  if (size_++ > 0) text_ += style_ == JsonStyle::kSpaced ? ", " : ",";
  text_ += value.str();
  return *this;
}

// Null if the key is missing, or if this is not an object.
const JsonValue* JsonValue::Find(std::string_view key) const {
  const auto it = object.find(std::string(key));
  return it == object.end() ? nullptr : &it->second;
}

// Fails for numbers with a fraction and for those that exceed 64 bits.
Result<std::int64_t> JsonValue::Integer(std::string_view key) const {
  const JsonValue* value = Find(key);
  if (value == nullptr || !value->integer)
    return DataLoss("\"{}\" is missing or not an integer", key);
  return *value->integer;
}

// Errors: kDataLoss if the key is missing or its value is of another kind.
Result<std::string> JsonValue::String(std::string_view key) const {
  const JsonValue* value = Find(key);
  if (value == nullptr || value->kind != Kind::kString) {
    return DataLoss("\"{}\" is missing or not a string", key);
  }
  return value->string;
}

// A wrong type is never read as the value of a missing key. Numbers of the parser are finite.
Result<double> JsonValue::NumberOr(std::string_view key, double missing) const {
  const JsonValue* const value = Find(key);
  if (value == nullptr) return missing;
  if (value->kind != Kind::kNumber) return DataLoss("\"{}\" is not a number", key);
  return value->number;
}

Result<bool> JsonValue::BooleanOr(std::string_view key, bool missing) const {
  const JsonValue* const value = Find(key);
  if (value == nullptr) return missing;
  if (value->kind != Kind::kBool) return DataLoss("\"{}\" is neither true nor false", key);
  return value->boolean;
}

Result<std::string> JsonValue::StringOr(std::string_view key, std::string_view missing) const {
  const JsonValue* const value = Find(key);
  if (value == nullptr) return std::string(missing);
  if (value->kind != Kind::kString) return DataLoss("\"{}\" is not a string", key);
  return value->string;
}

// The library skips a byte order mark and ends at a NUL; RFC 8259 allows neither.
Result<JsonValue> ParseJson(std::string_view text) {
  if (text.starts_with("\xEF\xBB\xBF")) return DataLoss("JSON at byte 0: a byte order mark");
  std::size_t count = 0;
  TreeBuilder builder(&count);
  const char* const end = text.data() + text.size();
  if (!Library::sax_parse(CountingIterator{text.data(), &count}, CountingIterator{end, &count},
                          &builder)) {
    return DataLoss("JSON at byte {}: {}", builder.at(), builder.error());
  }
  if (const std::size_t nul = text.find('\0'); nul != text.npos) {
    return DataLoss("JSON at byte {}: a NUL character", nul);
  }
  return builder.Take();
}

// The restrictions are those of ParseJson.
Status ReadJson(std::string_view text, const JsonHandler& handle) {
  if (text.starts_with("\xEF\xBB\xBF")) return DataLoss("JSON at byte 0: a byte order mark");
  if (const std::size_t nul = text.find('\0'); nul != text.npos) {
    return DataLoss("JSON at byte {}: a NUL character", nul);
  }
  EventSource source(handle);
  if (Library::sax_parse(text.begin(), text.end(), &source)) return Status::Ok();
  return source.status().ok() ? DataLoss("invalid JSON") : source.status();
}

}  // namespace troop
