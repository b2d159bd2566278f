// Implements Buffer and MutableBuffer: aligned allocation, copies and slices.
#include "core/base/buffer.h"

#include <sys/mman.h>

#include <cstdlib>
#include <cstring>

#include "core/base/check.h"

namespace troop {

// Aborts if bytes cannot be viewed as elements: wrong size or alignment.
void CheckBufferView(const void* data, std::size_t size, std::size_t element, std::size_t align) {
  TROOP_CHECK(size % element == 0, "{} bytes are not a multiple of {}-byte elements", size,
              element);
  TROOP_CHECK(reinterpret_cast<std::uintptr_t>(data) % align == 0, "bytes are not {}-aligned",
              align);
}

Buffer Buffer::Copy(std::span<const std::byte> bytes) {
  MutableBuffer copy(bytes.size());
  if (!bytes.empty()) std::memcpy(copy.data(), bytes.data(), bytes.size());
  return std::move(copy).Freeze();
}

Buffer Buffer::Copy(std::string_view text) { return Copy(std::as_bytes(std::span(text))); }

// The two comparisons can't overflow, unlike offset + size.
Buffer Buffer::Slice(std::size_t offset, std::size_t size) const {
  TROOP_CHECK(offset <= this->size() && size <= this->size() - offset,
              "slice [{}, {} + {}) of {} bytes", offset, offset, size, this->size());
  return Buffer(owner_, bytes_.subspan(offset, size));
}

MutableBuffer::MutableBuffer(std::size_t size) : size_(size) {
  if (size == 0) return;
  // Huge pages for large buffers: a batch of images is tens of MB, and TLB misses of small pages
  // cost up to a tenth of the time.
  constexpr std::size_t kHuge = std::size_t{2} << 20;
  const std::size_t alignment = size >= 2 * kHuge ? kHuge : kAlignment;
  const std::size_t rounded = (size + alignment - 1) / alignment * alignment;
  auto* bytes = static_cast<std::byte*>(std::aligned_alloc(alignment, rounded));
  TROOP_CHECK(bytes != nullptr, "out of memory: {} bytes", size);
  if (alignment == kHuge) ::madvise(bytes, rounded, MADV_HUGEPAGE);  // a hint; failure is harmless
  bytes_ = std::shared_ptr<std::byte>(bytes, [](std::byte* b) { std::free(b); });
}

MutableBuffer MutableBuffer::Zeros(std::size_t size) {
  MutableBuffer buffer(size);
  if (size > 0) std::memset(buffer.data(), 0, size);
  return buffer;
}

// Moves the memory: after this no caller can write to it.
Buffer MutableBuffer::Freeze() && {
  const std::span<const std::byte> bytes(bytes_.get(), size_);
  size_ = 0;
  return Buffer(std::move(bytes_), bytes);
}

}  // namespace troop
