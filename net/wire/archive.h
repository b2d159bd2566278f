#pragma once

// The archives that implement net/wire/codec.h: the front end of cereal (traits, member serialize)
// with our own format and checks. The archives of cereal trust every size they read (a ten-byte
// message makes them allocate 4 GiB). Here a size is compared with the remaining bytes before it is
// used, nesting is limited, and an archive stays failed after an error and reads nothing more.
// Nothing throws.
//
// Format: little endian, no padding, no names. Integers and floats as in memory; bool one byte, 0
// or 1; an enum as its underlying integer; optional as bool and value; string, vector and map as
// u32 count and elements; map keys strictly increasing. Every body has exactly one encoding.
#include <bit>
#include <cereal/cereal.hpp>
#include <cstdint>
#include <cstring>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/base/status.h"

namespace troop {

static_assert(std::endian::native == std::endian::little, "numbers are encoded as in memory");

// Size limit of a control body; tensors travel as parts instead.
inline constexpr std::size_t kBodyBytesMax = std::size_t{16} << 20;
// Memory limit for the decoded elements of all containers. An element can be much larger in memory
// than encoded: a 3-byte name with a nearly empty histogram takes 60 bytes here and 2 KiB decoded.
inline constexpr std::size_t kBodyMemoryMax = std::size_t{64} << 20;
// Nesting limit; only a recursive type can come near it.
inline constexpr int kBodyDepthMax = 32;

template <class T>
concept BodyNumber =
    std::is_arithmetic_v<T> && !std::is_same_v<T, bool> && !std::is_same_v<T, long double>;

// Encodes a body; can't fail.
class BodyWriter : public cereal::OutputArchive<BodyWriter> {
 public:
  BodyWriter() : OutputArchive(this) {}
  void Raw(const void* data, std::size_t size) {
    if (size > 0) bytes_.append(static_cast<const char*>(data), size);
  }
  void Count(std::size_t count) {
    TROOP_CHECK(count <= kBodyBytesMax, "a container of {} elements in a control body", count);
    const auto n = static_cast<std::uint32_t>(count);
    Raw(&n, sizeof n);
  }
  std::string Take() && { return std::move(bytes_); }

 private:
  std::string bytes_;
};

// Decodes a body of untrusted bytes; keeps the first error.
class BodyReader : public cereal::InputArchive<BodyReader> {
 public:
  explicit BodyReader(std::string_view bytes) : InputArchive(this), rest_(bytes) {
    if (bytes.size() > kBodyBytesMax) Fail("larger than the limit of control bodies");
  }
  bool ok() const { return error_ == nullptr; }
  const char* error() const { return error_; }
  std::size_t remaining() const { return rest_.size(); }
  void Fail(const char* error) {
    if (ok()) error_ = error;
    rest_ = {};
  }
  // Copies `size` bytes. Fails and leaves `data` unchanged if fewer remain.
  bool Raw(void* data, std::size_t size) {
    if (size > rest_.size()) {
      Fail("truncated");
      return false;
    }
    if (size > 0) std::memcpy(data, rest_.data(), size);
    rest_.remove_prefix(size);
    return true;
  }
  // Reads a count of elements of at least `element` encoded bytes each. Fails and returns 0 if the
  // remaining bytes can't hold them.
  std::size_t Count(std::size_t element) {
    std::uint32_t count = 0;
    if (!Raw(&count, sizeof count)) return 0;
    if (count > rest_.size() / element) {
      Fail("a count exceeds the remaining bytes");
      return 0;
    }
    return count;
  }
  // Charges the decoded size of one element before it is created. Fails if the memory limit is
  // exceeded.
  bool Charge(std::size_t memory) {
    if (memory > memory_left_) {
      Fail("decoded size exceeds the limit");
      return false;
    }
    memory_left_ -= memory;
    return ok();
  }
  // Encloses each container, with Leave. The caller must not read after a failed Enter.
  bool Enter() {
    if (++depth_ > kBodyDepthMax) Fail("nested too deeply");
    return ok();
  }
  void Leave() { --depth_; }

 private:
  std::string_view rest_;
  std::size_t memory_left_ = kBodyMemoryMax;
  const char* error_ = nullptr;
  int depth_ = 0;
};

}  // namespace troop

CEREAL_SETUP_ARCHIVE_TRAITS(troop::BodyReader, troop::BodyWriter)

namespace troop {

// Overloads that cereal finds by argument-dependent lookup. cereal itself handles enums, as their
// underlying integers.

template <BodyNumber T>
void save(BodyWriter& archive, const T& value) {
  archive.Raw(&value, sizeof value);
}
template <BodyNumber T>
void load(BodyReader& archive, T& value) {
  value = T{};
  archive.Raw(&value, sizeof value);
}

inline void save(BodyWriter& archive, const bool& value) {
  const std::uint8_t byte = value ? 1 : 0;
  archive.Raw(&byte, 1);
}
inline void load(BodyReader& archive, bool& value) {
  std::uint8_t byte = 0;
  if (!archive.Raw(&byte, 1)) return;
  if (byte > 1) return archive.Fail("a bool is neither 0 nor 1");
  value = byte == 1;
}

inline void save(BodyWriter& archive, const std::string& text) {
  archive.Count(text.size());
  archive.Raw(text.data(), text.size());
}
inline void load(BodyReader& archive, std::string& text) {
  text.resize(archive.Count(1));
  archive.Raw(text.data(), text.size());
}

template <class T>
void save(BodyWriter& archive, const std::vector<T>& values) {
  archive.Count(values.size());
  if constexpr (BodyNumber<T>) {
    archive.Raw(values.data(), values.size() * sizeof(T));
  } else {
    for (const T& value : values) archive(value);
  }
}
template <class T>
void load(BodyReader& archive, std::vector<T>& values) {
  values.clear();
  if constexpr (BodyNumber<T>) {
    values.resize(archive.Count(sizeof(T)));
    archive.Raw(values.data(), values.size() * sizeof(T));
  } else {
    // Grown element by element: an element may be much larger in memory than its one byte here.
    const std::size_t count = archive.Count(1);
    if (!archive.Enter()) return;
    for (std::size_t i = 0; i < count && archive.Charge(sizeof(T)); ++i) {
      T value{};
      archive(value);
      values.push_back(std::move(value));
    }
    archive.Leave();
  }
}

template <class T>
void save(BodyWriter& archive, const std::optional<T>& value) {
  archive(value.has_value());
  if (value) archive(*value);
}
template <class T>
void load(BodyReader& archive, std::optional<T>& value) {
  bool has_value = false;
  archive(has_value);
  value.reset();
  if (!has_value || !archive.Enter()) return;
  archive(value.emplace());
  archive.Leave();
}

template <class T>
void save(BodyWriter& archive, const std::map<std::string, T>& values) {
  archive.Count(values.size());
  for (const auto& [key, value] : values) archive(key, value);
}
template <class T>
void load(BodyReader& archive, std::map<std::string, T>& values) {
  values.clear();
  const std::size_t count = archive.Count(sizeof(std::uint32_t));  // encoded size of an empty key
  if (!archive.Enter()) return;
  constexpr std::size_t kNode = 64;  // tree node and allocation overhead
  for (std::size_t i = 0; i < count && archive.Charge(sizeof(std::pair<std::string, T>) + kNode);
       ++i) {
    std::string key;
    T value{};
    archive(key, value);
    if (!values.empty() && key <= values.rbegin()->first) {
      archive.Fail("map keys are not in increasing order");
    } else {
      values.emplace_hint(values.end(), std::move(key), std::move(value));
    }
  }
  archive.Leave();
}

template <class T>
std::string EncodeBody(const T& body) {
  BodyWriter archive;
  archive(body);
  return std::move(archive).Take();
}

template <class T>
Result<T> DecodeBody(std::string_view bytes) {
  T body{};
  BodyReader archive(bytes);
  archive(body);
  if (archive.ok() && archive.remaining() > 0) archive.Fail("trailing bytes");
  if (!archive.ok()) {
    return DataLoss("a control body of {} bytes is damaged: {}", bytes.size(), archive.error());
  }
  return body;
}

}  // namespace troop
