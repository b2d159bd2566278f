#pragma once

// The archives behind net/codec.h: cereal's front end (traits, member serialize) over a format and
// checks of ours. cereal's own archives believe every size they read (a ten-byte message makes them
// allocate 4 GiB); here a size is compared with the bytes that remain before it is used, nesting is
// limited, and an archive that met an error stays failed and reads nothing more. Nothing throws.
//
// Format: little endian, no padding, no names. Integers and floats as they are in memory; bool one
// byte, 0 or 1; an enum as its underlying integer; optional as bool and value; string, vector and
// map as u32 count and elements; map keys strictly increasing. A body has one encoding only.
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

#include "core/status.h"

namespace troop {

static_assert(std::endian::native == std::endian::little, "numbers go as they lie in memory");

// Control bodies are small (tensors travel as parts): this bounds what one may claim.
inline constexpr std::size_t kBodyBytesMax = std::size_t{16} << 20;
// What the elements of its containers may take once they are decoded: a name of three bytes with a
// histogram of nothing much is 60 bytes here and 2 KiB in memory.
inline constexpr std::size_t kBodyMemoryMax = std::size_t{64} << 20;
// Containers in containers. Only a recursive type can come near it.
inline constexpr int kBodyDepthMax = 32;

template <class T>
concept BodyNumber =
    std::is_arithmetic_v<T> && !std::is_same_v<T, bool> && !std::is_same_v<T, long double>;

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

class BodyReader : public cereal::InputArchive<BodyReader> {
 public:
  explicit BodyReader(std::string_view bytes) : InputArchive(this), rest_(bytes) {
    if (bytes.size() > kBodyBytesMax) Fail("it is larger than a control body may be");
  }
  bool ok() const { return error_ == nullptr; }
  const char* error() const { return error_; }
  std::size_t remaining() const { return rest_.size(); }
  void Fail(const char* error) {
    if (ok()) error_ = error;
    rest_ = {};
  }
  // False and failed when fewer bytes remain; then `data` is untouched.
  bool Raw(void* data, std::size_t size) {
    if (size > rest_.size()) {
      Fail("it ends too early");
      return false;
    }
    if (size > 0) std::memcpy(data, rest_.data(), size);
    rest_.remove_prefix(size);
    return true;
  }
  // A count of elements of at least `element` encoded bytes each; 0 when the bytes that remain
  // cannot hold them.
  std::size_t Count(std::size_t element) {
    std::uint32_t count = 0;
    if (!Raw(&count, sizeof count)) return 0;
    if (count > rest_.size() / element) {
      Fail("a count exceeds the bytes that remain");
      return 0;
    }
    return count;
  }
  // Of each element before it is made, beside the bytes that it has here. False and failed when it
  // is too much.
  bool Charge(std::size_t memory) {
    if (memory > memory_left_) {
      Fail("it would take too much memory");
      return false;
    }
    memory_left_ -= memory;
    return ok();
  }
  // Around each container. A failed Enter must not read on.
  bool Enter() {
    if (++depth_ > kBodyDepthMax) Fail("it is nested too deeply");
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

// What cereal finds by argument-dependent lookup. Enums it brings itself, as underlying integers.

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
    // Grows as elements arrive: an element may be much larger in memory than its one byte here.
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
  const std::size_t count = archive.Count(sizeof(std::uint32_t));  // of the key
  if (!archive.Enter()) return;
  constexpr std::size_t kNode = 64;  // of the tree, and of its allocation
  for (std::size_t i = 0; i < count && archive.Charge(sizeof(std::pair<std::string, T>) + kNode);
       ++i) {
    std::string key;
    T value{};
    archive(key, value);
    if (!values.empty() && key <= values.rbegin()->first) {
      archive.Fail("the keys of a map are not in order");
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
  if (archive.ok() && archive.remaining() > 0) archive.Fail("bytes follow its end");
  if (!archive.ok()) {
    return DataLoss("a control body of {} bytes is damaged: {}", bytes.size(), archive.error());
  }
  return body;
}

}  // namespace troop
