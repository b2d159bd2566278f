#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/status.h"

namespace troop {

// Writes one JSON object, with keys in the order of the calls. Non-finite values become null.
//   JsonObject().Add("steps", 12).AddRaw("peers", "[]").str()
class JsonObject {
 public:
  JsonObject& Add(std::string_view key, double value);
  JsonObject& Add(std::string_view key, std::int64_t value);
  JsonObject& Add(std::string_view key, std::uint64_t value);
  JsonObject& Add(std::string_view key, int value) { return Add(key, std::int64_t{value}); }
  JsonObject& Add(std::string_view key, bool value);
  JsonObject& Add(std::string_view key, std::string_view value);
  JsonObject& Add(std::string_view key, const char* value) {
    return Add(key, std::string_view(value));
  }
  JsonObject& AddNull(std::string_view key) { return AddRaw(key, "null"); }
  JsonObject& AddRaw(std::string_view key, std::string_view json);  // REQUIRES: `json` is JSON
  std::string str() const { return text_ + "}"; }

 private:
  std::string text_ = "{";
};
std::string JsonArray(const std::vector<std::string>& elements);  // elements are JSON texts
std::string JsonQuote(std::string_view text);  // adds quotes; bytes that are not UTF-8 become ?

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
};
// Parses a document. Errors: kDataLoss with the position. Nesting is limited to 64 levels.
Result<JsonValue> ParseJson(std::string_view text);

}  // namespace troop
