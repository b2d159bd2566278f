#pragma once

// Utilities of all fuzz targets. A target is one file tests/fuzz/<name>_fuzz.cc with
// LLVMFuzzerTestOneInput and, where its corpus can be regenerated, VisitSeeds. CONTRIBUTING.md
// describes how to run them.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "core/base/log.h"

namespace troop {

// An input, taken from its front. What it hands out are copies on the heap of exactly the asked
// size, so that a sanitizer sees their ends.
class FuzzInput {
 public:
  FuzzInput(const std::uint8_t* data, std::size_t size)
      : rest_(reinterpret_cast<const std::byte*>(data), size) {}

  bool empty() const { return rest_.empty(); }
  std::size_t size() const { return rest_.size(); }
  // A number; 0 where the input has ended.
  template <class T>
  T Take() {
    T value{};
    if (rest_.size() < sizeof value) {
      rest_ = {};
      return value;
    }
    std::memcpy(&value, rest_.data(), sizeof value);
    rest_ = rest_.subspan(sizeof value);
    return value;
  }
  // The next `size` bytes, or as many as are left.
  std::span<std::byte> TakeBytes(std::size_t size) {
    constexpr std::size_t kInputMax = 1 << 30;  // GCC warns of sizes that no input has
    size = std::min({size, rest_.size(), kInputMax});
    held_ = std::make_unique<std::byte[]>(size);
    if (size > 0) std::memcpy(held_.get(), rest_.data(), size);
    rest_ = rest_.subspan(size);
    return {held_.get(), size};
  }
  std::span<std::byte> TakeRest() { return TakeBytes(rest_.size()); }

 private:
  std::span<const std::byte> rest_;
  std::unique_ptr<std::byte[]> held_;  // until the next TakeBytes
};

inline std::string_view TextOf(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}
inline std::string StringOf(std::span<const std::byte> bytes) { return std::string(TextOf(bytes)); }

// Writes a number over the bytes at `offset`, where there is room.
template <class T>
void Overwrite(std::span<std::byte> bytes, std::size_t offset, T value) {
  if (offset + sizeof value <= bytes.size()) {
    std::memcpy(bytes.data() + offset, &value, sizeof value);
  }
}
template <class T>
T ReadAt(std::span<const std::byte> bytes, std::size_t offset) {
  T value{};
  if (offset + sizeof value <= bytes.size()) {
    std::memcpy(&value, bytes.data() + offset, sizeof value);
  }
  return value;
}

// Warnings about damaged data are not logged; they would take most of a fuzzer's time.
inline void QuietLog() {
  static const bool once = [] {
    InitLog({.level = LogLevel::kError});
    return true;
  }();
  static_cast<void>(once);
}

// Real bytes to begin with, each a file of tests/fuzz/corpus/<name>/: `<name>_fuzz --seeds FOLDER`
// writes them. Defined by the target; without one the corpus is kept by hand.
using SeedWriter = std::function<void(std::string_view name, const std::string& bytes)>;
__attribute__((weak)) void VisitSeeds(const SeedWriter& write);

}  // namespace troop
