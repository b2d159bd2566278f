#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/status.h"

namespace troop {

class JsonArray;
class JsonObject;

// The text of one JSON value: the argument of JsonObject::Add and JsonArray::Add. Numbers, bool,
// nullptr (null), strings, objects and arrays convert implicitly.
class JsonText {
 public:
  JsonText(std::nullptr_t) : text_("null") {}
  JsonText(std::same_as<bool> auto value) : text_(value ? "true" : "false") {}
  template <std::integral T>
  requires(!std::same_as<T, bool>) JsonText(T value) : text_(std::to_string(value)) {}
  // The shortest text that converts back. Non-finite values become null.
  JsonText(double value);
  // Bytes that are not UTF-8 become ?.
  JsonText(std::string_view text);
  JsonText(const std::string& text) : JsonText(std::string_view(text)) {}
  JsonText(const char* text) : JsonText(std::string_view(text)) {}
  JsonText(const JsonObject& object);
  JsonText(const JsonArray& array);
  // A number with at most `digits` significant digits, or with `decimals` digits after the point.
  // Non-finite values become null.
  static JsonText Rounded(double value, int digits);
  static JsonText Fixed(double value, int decimals);
  // A value that is text already, such as a line of a file. REQUIRES: ParseJson accepts it.
  static JsonText Raw(std::string json);

  const std::string& str() const { return text_; }

 private:
  JsonText() = default;
  std::string text_;
};
std::string JsonQuote(std::string_view text);  // adds quotes; bytes that are not UTF-8 become ?

// Spaces after commas and colons. Files that other programs write are compact.
enum class JsonStyle : std::uint8_t { kSpaced, kCompact };

// Writes one JSON object, with keys in the order of the calls.
//   JsonObject().Add("steps", 12).Add("peers", JsonArray().Add("a")).str()
class JsonObject {
 public:
  explicit JsonObject(JsonStyle style = JsonStyle::kSpaced) : style_(style) {}
  JsonObject& Add(std::string_view key, const JsonText& value);
  std::string str() const { return text_ + "}"; }

 private:
  JsonStyle style_;
  std::string text_ = "{";
};

// Writes one JSON array.
class JsonArray {
 public:
  explicit JsonArray(JsonStyle style = JsonStyle::kSpaced) : style_(style) {}
  // An array of all elements of a range.
  static JsonArray Of(const auto& range) {
    JsonArray array;
    for (const auto& value : range) array.Add(value);
    return array;
  }
  // Numbers with at most `digits` significant digits.
  static JsonArray Rounded(std::span<const double> values, int digits,
                           JsonStyle style = JsonStyle::kSpaced);
  JsonArray& Add(const JsonText& value);
  std::size_t size() const { return size_; }
  std::string str() const { return text_ + "]"; }

 private:
  JsonStyle style_;
  std::size_t size_ = 0;
  std::string text_ = "[";
};

// A parsed JSON value. Duplicate keys of an object are rejected.
struct JsonValue {
  enum class Kind : std::uint8_t { kNull, kBool, kNumber, kString, kArray, kObject };
  Kind kind = Kind::kNull;
  bool boolean = false;
  double number = 0;
  std::optional<std::int64_t> integer;  // set if the number was written as an integer and fits
  std::string string;
  std::vector<JsonValue> array;
  std::map<std::string, JsonValue> object;

  const JsonValue* Find(std::string_view key) const;  // nullptr if not an object, or no such key
  // Return a required field. Errors: kDataLoss, with the name of the key.
  Result<std::int64_t> Integer(std::string_view key) const;
  Result<std::string> String(std::string_view key) const;
  // Return an optional field, or `missing` without such a key. Errors: kDataLoss, with the name of
  // the key: another type, null included.
  Result<double> NumberOr(std::string_view key, double missing) const;
  Result<bool> BooleanOr(std::string_view key, bool missing) const;
  Result<std::string> StringOr(std::string_view key, std::string_view missing) const;
};
// Parses a document. Errors: kDataLoss with the position. Nesting is limited to 64 levels.
Result<JsonValue> ParseJson(std::string_view text);

// A step of ReadJson through a document.
struct JsonEvent {
  enum class Kind : std::uint8_t {
    kNull,
    kBool,
    kNumber,
    kString,
    kKey,
    kBeginObject,
    kEndObject,
    kBeginArray,
    kEndArray
  };
  Kind kind = Kind::kNull;
  bool boolean = false;
  double number = 0;
  std::string_view text{};  // of a string or a key; valid during the call
};
using JsonHandler = std::function<Status(const JsonEvent&)>;
// Reads a document without building it: for large arrays of numbers, of which a tree takes a
// hundred times the memory. Duplicate keys are reported to the handler. Errors: kDataLoss with the
// position, as ParseJson; that of `handle`, which ends the reading.
Status ReadJson(std::string_view text, const JsonHandler& handle);

}  // namespace troop
