#include "nn/safetensors_json.h"

#include <set>

namespace troop {
namespace {

void AppendUtf8(std::uint32_t point, std::string* out) {
  if (point < 0x80) {
    *out += char(point);
  } else if (point < 0x800) {
    *out += char(0xc0 | (point >> 6));
    *out += char(0x80 | (point & 0x3f));
  } else if (point < 0x10000) {
    *out += char(0xe0 | (point >> 12));
    *out += char(0x80 | ((point >> 6) & 0x3f));
    *out += char(0x80 | (point & 0x3f));
  } else {
    *out += char(0xf0 | (point >> 18));
    *out += char(0x80 | ((point >> 12) & 0x3f));
    *out += char(0x80 | ((point >> 6) & 0x3f));
    *out += char(0x80 | (point & 0x3f));
  }
}

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  Status Header(SafetensorsHeader* header) {
    std::set<std::string> names;
    TROOP_RETURN_IF_ERROR(Object([&](std::string name) {
      if (!names.insert(name).second) return Wrong("\"" + name + "\" only once");
      if (name == "__metadata__") return Metadata(&header->metadata);
      SafetensorsEntry entry;
      entry.name = std::move(name);
      TROOP_RETURN_IF_ERROR(Tensor(&entry));
      header->tensors.push_back(std::move(entry));
      return Status::Ok();
    }));
    Space();
    return at_ == text_.size() ? Status::Ok() : Wrong("the end");
  }

 private:
  Status Metadata(std::map<std::string, std::string>* out) {
    return Object([&](std::string key) {
      std::string value;
      TROOP_RETURN_IF_ERROR(String(&value));
      (*out)[std::move(key)] = std::move(value);
      return Status::Ok();
    });
  }

  Status Tensor(SafetensorsEntry* entry) {
    std::set<std::string> seen;
    std::vector<std::uint64_t> offsets;
    TROOP_RETURN_IF_ERROR(Object([&](std::string key) {
      if (!seen.insert(key).second) return Wrong("each key once");
      if (key == "dtype") return String(&entry->dtype);
      if (key == "shape") return Numbers(&entry->shape);
      if (key == "data_offsets") return Numbers(&offsets);
      return Wrong("dtype, shape or data_offsets");
    }));
    if (seen.size() != 3 || offsets.size() != 2) return Wrong("dtype, shape and two data_offsets");
    entry->begin = offsets[0];
    entry->end = offsets[1];
    return Status::Ok();
  }

  template <class F>
  Status Object(F&& member) {
    if (!Take('{')) return Wrong("{");
    if (Take('}')) return Status::Ok();
    do {
      std::string key;
      TROOP_RETURN_IF_ERROR(String(&key));
      if (!Take(':')) return Wrong(":");
      TROOP_RETURN_IF_ERROR(member(std::move(key)));
    } while (Take(','));
    return Take('}') ? Status::Ok() : Wrong("}");
  }

  Status Numbers(std::vector<std::uint64_t>* out) {
    if (!Take('[')) return Wrong("[");
    if (Take(']')) return Status::Ok();
    do {
      Space();
      const std::size_t first = at_;
      std::uint64_t number = 0;
      for (; at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9'; ++at_) {
        if (__builtin_mul_overflow(number, std::uint64_t{10}, &number) ||
            __builtin_add_overflow(number, std::uint64_t(text_[at_] - '0'), &number))
          return Wrong("a number below 2^64");
      }
      if (at_ == first) return Wrong("a number");
      out->push_back(number);
    } while (Take(','));
    return Take(']') ? Status::Ok() : Wrong("]");
  }

  Status String(std::string* out) {
    if (!Take('"')) return Wrong("a string");
    while (at_ < text_.size()) {
      const char c = text_[at_++];
      if (c == '"') return Status::Ok();
      if (static_cast<unsigned char>(c) < 0x20) return Wrong("no control character");
      if (c == '\\') {
        TROOP_RETURN_IF_ERROR(Escape(out));
      } else {
        *out += c;
      }
    }
    return Wrong("the end of a string");
  }

  Status Escape(std::string* out) {
    constexpr std::string_view kFrom = "\"\\/bfnrt", kTo = "\"\\/\b\f\n\r\t";
    if (at_ >= text_.size()) return Wrong("an escape");
    const char c = text_[at_++];
    if (c != 'u') {
      const auto found = kFrom.find(c);
      if (found == std::string_view::npos) return Wrong("an escape");
      *out += kTo[found];
      return Status::Ok();
    }
    std::uint32_t point = 0;
    TROOP_RETURN_IF_ERROR(Hex(&point));
    if (point >= 0xd800 && point < 0xdc00) {  // the first half of a surrogate pair
      std::uint32_t low = 0;
      if (at_ + 1 >= text_.size() || text_[at_] != '\\' || text_[at_ + 1] != 'u')
        return Wrong("the second surrogate");
      at_ += 2;
      TROOP_RETURN_IF_ERROR(Hex(&low));
      if (low < 0xdc00 || low >= 0xe000) return Wrong("the second surrogate");
      point = 0x10000 + ((point - 0xd800) << 10) + (low - 0xdc00);
    }
    AppendUtf8(point, out);
    return Status::Ok();
  }

  Status Hex(std::uint32_t* out) {
    for (int i = 0; i < 4; ++i, ++at_) {
      const char c = at_ < text_.size() ? text_[at_] : ' ';
      std::uint32_t digit = 0;
      if (c >= '0' && c <= '9')
        digit = std::uint32_t(c - '0');
      else if (c >= 'a' && c <= 'f')
        digit = std::uint32_t(c - 'a' + 10);
      else if (c >= 'A' && c <= 'F')
        digit = std::uint32_t(c - 'A' + 10);
      else
        return Wrong("four hexadecimal digits");
      *out = *out * 16 + digit;
    }
    return Status::Ok();
  }

  void Space() {
    while (at_ < text_.size() && std::string_view(" \t\r\n").find(text_[at_]) != text_.npos) ++at_;
  }
  bool Take(char c) {
    Space();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  Status Wrong(const std::string& expected) const {
    return DataLoss("header byte {}: expected {}", at_, expected);
  }

  const std::string_view text_;
  std::size_t at_ = 0;
};

}  // namespace

Result<SafetensorsHeader> ParseSafetensorsHeader(std::string_view text) {
  SafetensorsHeader header;
  TROOP_RETURN_IF_ERROR(Parser(text).Header(&header));
  return header;
}

std::string QuoteJson(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      out += fmt::format("\\u{:04x}", int(c));
    } else {
      out += c;
    }
  }
  return out + "\"";
}

}  // namespace troop
