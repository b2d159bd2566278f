// Implements JsonObject and a strict recursive-descent JSON parser.
#include "core/storage/json.h"

#include <charconv>
#include <cmath>

#include "core/base/utf8.h"

namespace troop {
namespace {

// Bounds the recursion on untrusted input.
constexpr int kDepthMax = 64;

// Appends a code point as UTF-8, 1 to 4 bytes.
void AppendUtf8(std::uint32_t code, std::string* out) {
  if (code < 0x80) {
    *out += char(code);
  } else if (code < 0x800) {
    *out += {char(0xC0 | code >> 6), char(0x80 | (code & 63))};
  } else if (code < 0x10000) {
    *out += {char(0xE0 | code >> 12), char(0x80 | (code >> 6 & 63)), char(0x80 | (code & 63))};
  } else {
    *out += {char(0xF0 | code >> 18), char(0x80 | (code >> 12 & 63)), char(0x80 | (code >> 6 & 63)),
             char(0x80 | (code & 63))};
  }
}

// Validates a number by RFC 8259, section 6, because from_chars also accepts "01", ".5" and "1.".
bool IsNumber(std::string_view text) {
  // Removes leading digits and returns their number.
  const auto digits = [&text] {
    const std::size_t n = std::min(text.find_first_not_of("0123456789"), text.size());
    text.remove_prefix(n);
    return n;
  };
  if (text.starts_with('-')) text.remove_prefix(1);
  const bool zero = text.starts_with('0');
  const std::size_t whole = digits();
  if (whole == 0 || (zero && whole > 1)) return false;
  if (text.starts_with('.')) {
    text.remove_prefix(1);
    if (digits() == 0) return false;
  }
  if (text.starts_with('e') || text.starts_with('E')) {
    text.remove_prefix(1);
    if (text.starts_with('+') || text.starts_with('-')) text.remove_prefix(1);
    if (digits() == 0) return false;
  }
  return text.empty();
}

// Recursive-descent parser of RFC 8259. Stops at the first error.
class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  // Parses one value that fills the whole text.
  Result<JsonValue> Document() {
    JsonValue value;
    bool ok = Value(&value, 0);
    Space();
    ok = ok && (at_ == text_.size() || Fail("trailing characters after the value"));
    if (!ok) return DataLoss("JSON at byte {}: {}", at_, error_);
    return value;
  }

 private:
  // Records the error; always false, so that callers can return it.
  bool Fail(const char* error) {
    error_ = error;
    return false;
  }
  // Skips the four characters of white space in JSON.
  void Space() {
    while (at_ < text_.size() && std::string_view(" \t\r\n").find(text_[at_]) != text_.npos) ++at_;
  }
  // Consumes `word` if it comes next.
  bool Take(std::string_view word) {
    if (!text_.substr(at_).starts_with(word)) return false;
    at_ += word.size();
    return true;
  }
  // Consumes the character `c` after whitespace if it comes next.
  bool Next(char c) {
    Space();
    return Take({&c, 1});
  }

  // Parses any value; the first character decides its kind.
  bool Value(JsonValue* out, int depth) {
    if (depth > kDepthMax) return Fail("nested too deeply");
    Space();
    if (Take("{")) return Object(out, depth);
    if (Take("[")) return Array(out, depth);
    if (Take("\"")) {
      out->kind = JsonValue::Kind::kString;
      return String(&out->string);
    }
    // kNull is the default kind.
    if (Take("null")) return true;
    if (text_.substr(at_).starts_with("true") || text_.substr(at_).starts_with("false")) {
      out->kind = JsonValue::Kind::kBool;
      out->boolean = Take("true") || !Take("false");
      return true;
    }
    return Number(out);
  }

  // Parses the rest of an object after its opening brace; rejects duplicate keys.
  bool Object(JsonValue* out, int depth) {
    out->kind = JsonValue::Kind::kObject;
    if (Next('}')) return true;
    do {
      std::string key;
      if (!Next('"')) return Fail("expected a key in quotes");
      if (!String(&key)) return false;
      if (!Next(':')) return Fail("expected a colon");
      const auto [entry, fresh] = out->object.try_emplace(std::move(key));
      if (!fresh) return Fail("duplicate key");
      if (!Value(&entry->second, depth + 1)) return false;
    } while (Next(','));
    return Next('}') || Fail("expected a comma or a closing brace");
  }

  // Parses the rest of an array after its opening bracket.
  bool Array(JsonValue* out, int depth) {
    out->kind = JsonValue::Kind::kArray;
    if (Next(']')) return true;
    do {
      if (!Value(&out->array.emplace_back(), depth + 1)) return false;
    } while (Next(','));
    return Next(']') || Fail("expected a comma or a closing bracket");
  }

  // Parses a number as a double, and also as an integer if it is one and fits.
  bool Number(JsonValue* out) {
    const std::size_t end = std::min(text_.find_first_not_of("+-.eE0123456789", at_), text_.size());
    const char* first = text_.data() + at_;
    const char* last = text_.data() + end;
    if (!IsNumber({first, last})) return Fail("invalid or missing value");
    if (std::from_chars(first, last, out->number).ec != std::errc()) {
      return Fail("a number is too large or too small");
    }
    std::int64_t integer = 0;
    const auto whole = std::from_chars(first, last, integer);
    const bool negative_zero = integer == 0 && *first == '-';  // not representable as an integer
    if (whole.ec == std::errc() && whole.ptr == last && !negative_zero) out->integer = integer;
    out->kind = JsonValue::Kind::kNumber;
    at_ = end;
    return true;
  }

  // Parses the four digits after \u.
  bool Hex(std::uint32_t* code) {
    const std::string_view digits = text_.substr(at_, 4);
    const auto r = std::from_chars(digits.data(), digits.data() + digits.size(), *code, 16);
    if (digits.size() < 4 || r.ec != std::errc() || r.ptr != digits.data() + 4) {
      return Fail("\\u needs four hexadecimal digits");
    }
    at_ += 4;
    return true;
  }

  // Parses an escape sequence; characters beyond U+FFFF are two \u escapes, a surrogate pair.
  bool Escape(std::string* out) {
    // Escape letters and their bytes, at equal positions.
    static constexpr std::string_view kNames = "\"\\/bfnrt", kBytes = "\"\\/\b\f\n\r\t";
    if (Take("u")) {
      std::uint32_t code = 0, low = 0;
      if (!Hex(&code)) return false;
      if (code >= 0xD800 && code < 0xDC00) {
        if (!Take("\\u") || !Hex(&low) || low < 0xDC00 || low > 0xDFFF) {
          return Fail("incomplete surrogate pair");
        }
        // Each half of the pair has 10 bits.
        code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
      } else if (code >= 0xDC00 && code < 0xE000) {
        return Fail("incomplete surrogate pair");
      }
      AppendUtf8(code, out);
      return true;
    }
    const std::size_t i = at_ < text_.size() ? kNames.find(text_[at_]) : kNames.npos;
    if (i == kNames.npos) return Fail("unknown escape sequence");
    *out += kBytes[i];
    ++at_;
    return true;
  }

  // Parses the rest of a string after its opening quote. Rejects control characters and invalid
  // UTF-8.
  bool String(std::string* out) {
    while (at_ < text_.size()) {
      if (Take("\"")) return true;
      if (Take("\\")) {
        if (!Escape(out)) return false;
        continue;
      }
      if (static_cast<unsigned char>(text_[at_]) < 0x20)
        return Fail("control character in a string");
      const std::size_t n = Utf8Length(text_.substr(at_));
      if (n == 0) return Fail("a string is not UTF-8");
      out->append(text_.substr(at_, n));
      at_ += n;
    }
    return Fail("unterminated string");
  }

  const std::string_view text_;
  std::size_t at_ = 0;
  const char* error_ = "";
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

// text_ lacks its closing brace, which str() adds.
JsonObject& JsonObject::AddRaw(std::string_view key, std::string_view json) {
  if (text_.size() > 1) text_ += ", ";
  text_ += JsonQuote(key);
  text_ += ": ";
  text_ += json;
  return *this;
}

// JSON has no NaN or infinity; both become null. The shortest text that converts back is written.
JsonObject& JsonObject::Add(std::string_view key, double value) {
  return AddRaw(key, std::isfinite(value) ? fmt::format("{}", value) : "null");
}
JsonObject& JsonObject::Add(std::string_view key, std::int64_t value) {
  return AddRaw(key, std::to_string(value));
}
JsonObject& JsonObject::Add(std::string_view key, std::uint64_t value) {
  return AddRaw(key, std::to_string(value));
}
JsonObject& JsonObject::Add(std::string_view key, bool value) {
  return AddRaw(key, value ? "true" : "false");
}
JsonObject& JsonObject::Add(std::string_view key, std::string_view value) {
  return AddRaw(key, JsonQuote(value));
}

// Elements are JSON already.
std::string JsonArray(const std::vector<std::string>& elements) {
  std::string out = "[";
  for (const std::string& element : elements) {
    if (out.size() > 1) out += ", ";
    out += element;
  }
  return out + "]";
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

Result<JsonValue> ParseJson(std::string_view text) { return Parser(text).Document(); }

}  // namespace troop
