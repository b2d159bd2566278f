#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

namespace troop {

// Alignment of buffers: one cache line, and the width of AVX-512 loads.
inline constexpr std::size_t kAlignment = 64;

// Reference-counted immutable bytes: a message part, a frame or a snapshot. Copies and slices share
// the bytes. Thread safe like shared_ptr: copies may be used on any thread.
class Buffer {
 public:
  Buffer() = default;
  // Wraps bytes that `owner` keeps alive. REQUIRES: nothing modifies them.
  Buffer(std::shared_ptr<const void> owner, std::span<const std::byte> bytes)
      : owner_(std::move(owner)), bytes_(bytes) {}
  // Copies into a new 64-byte-aligned buffer. O(n).
  static Buffer Copy(std::span<const std::byte> bytes);
  static Buffer Copy(std::string_view text);

  const std::byte* data() const { return bytes_.data(); }
  std::size_t size() const { return bytes_.size(); }
  bool empty() const { return bytes_.empty(); }
  std::span<const std::byte> bytes() const { return bytes_; }
  std::string_view text() const {
    return {reinterpret_cast<const char*>(bytes_.data()), bytes_.size()};
  }
  // The bytes as T values. REQUIRES: aligned for T, size a multiple of sizeof(T).
  template <class T>
  std::span<const T> as() const;
  // Returns [offset, offset + size), sharing the bytes. REQUIRES: within the buffer.
  Buffer Slice(std::size_t offset, std::size_t size) const;
  const std::shared_ptr<const void>& owner() const { return owner_; }

 private:
  std::shared_ptr<const void> owner_;
  std::span<const std::byte> bytes_;
};

// Writable, 64-byte-aligned bytes with one owner, to be frozen into a Buffer.
class MutableBuffer {
 public:
  MutableBuffer() = default;
  explicit MutableBuffer(std::size_t size);  // uninitialized
  // Wraps 64-byte-aligned bytes of another allocator. REQUIRES: no other reference to them.
  MutableBuffer(std::shared_ptr<std::byte> bytes, std::size_t size)
      : bytes_(std::move(bytes)), size_(size) {}
  static MutableBuffer Zeros(std::size_t size);

  std::byte* data() { return bytes_.get(); }
  const std::byte* data() const { return bytes_.get(); }
  std::size_t size() const { return size_; }
  std::span<std::byte> bytes() { return {bytes_.get(), size_}; }
  template <class T>
  std::span<T> as();
  // Converts the bytes to an immutable Buffer without a copy; *this becomes empty.
  Buffer Freeze() &&;
  // Releases the storage, for Tensor.
  std::shared_ptr<std::byte> share() && { return std::move(bytes_); }

 private:
  std::shared_ptr<std::byte> bytes_;
  std::size_t size_ = 0;
};

// Aborts unless the bytes are aligned and a multiple of the element size.
void CheckBufferView(const void* data, std::size_t size, std::size_t element, std::size_t align);

template <class T>
std::span<const T> Buffer::as() const {
  CheckBufferView(data(), size(), sizeof(T), alignof(T));
  return {reinterpret_cast<const T*>(data()), size() / sizeof(T)};
}

template <class T>
std::span<T> MutableBuffer::as() {
  CheckBufferView(data(), size(), sizeof(T), alignof(T));
  return {reinterpret_cast<T*>(data()), size() / sizeof(T)};
}

}  // namespace troop
