#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <type_traits>

#include "core/base/status.h"

namespace troop {

// Maps zeroed pages, as huge pages if the system grants them, which reduces TLB misses of random
// access to large arrays. A page takes memory when it is first written. Errors: kResourceExhausted
// with the size.
Result<std::shared_ptr<std::byte>> MapZeroPages(std::size_t bytes);
std::size_t RoundToPages(std::size_t bytes);  // at least one page

// Fixed-size zeroed array of T on MapZeroPages. Owner: one object; movable, not copyable.
template <class T>
class HugeArray {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  HugeArray() = default;
  static Result<HugeArray> Make(std::size_t count) {
    auto pages = MapZeroPages(Bytes(count));
    if (!pages.ok()) return pages.status();
    HugeArray array;
    array.pages_ = std::move(*pages);
    array.count_ = count;
    return array;
  }
  // Memory of Make(count) when every page is written.
  static std::size_t Bytes(std::size_t count) { return RoundToPages(count * sizeof(T)); }

  HugeArray(HugeArray&&) noexcept = default;
  HugeArray& operator=(HugeArray&&) noexcept = default;

  T* data() { return reinterpret_cast<T*>(pages_.get()); }
  const T* data() const { return reinterpret_cast<const T*>(pages_.get()); }
  std::size_t size() const { return count_; }
  T& operator[](std::size_t i) { return data()[i]; }
  const T& operator[](std::size_t i) const { return data()[i]; }
  std::size_t bytes() const { return Bytes(count_); }

 private:
  std::shared_ptr<std::byte> pages_;
  std::size_t count_ = 0;
};

}  // namespace troop
