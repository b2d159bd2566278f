#include "replay/stream_copy.h"

#include <cstdint>
#include <cstring>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace troop {

#if defined(__SSE2__)
namespace {

bool Aligned(const std::byte* bytes) { return reinterpret_cast<std::uintptr_t>(bytes) % 16 == 0; }

// Beyond a frame's end mostly the next one begins that the batch takes.
constexpr std::size_t kAhead = 2560;

// 64 bytes at a time: a line is sent off as soon as it is whole.
template <bool kTwo>
std::size_t CopyLines(const std::byte* from, std::size_t size, std::byte* first,
                      std::byte* second) {
  std::size_t at = 0;
  for (; at + 64 <= size; at += 64) {
    __builtin_prefetch(from + at + kAhead);
    __m128i line[4];
    for (int i = 0; i < 4; ++i) {
      line[i] = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + at) + i);
    }
    for (int i = 0; i < 4; ++i) {
      _mm_stream_si128(reinterpret_cast<__m128i*>(first + at) + i, line[i]);
    }
    if (!kTwo) continue;
    for (int i = 0; i < 4; ++i) {
      _mm_stream_si128(reinterpret_cast<__m128i*>(second + at) + i, line[i]);
    }
  }
  for (; at + 16 <= size; at += 16) {
    const __m128i piece = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + at));
    _mm_stream_si128(reinterpret_cast<__m128i*>(first + at), piece);
    if (kTwo) _mm_stream_si128(reinterpret_cast<__m128i*>(second + at), piece);
  }
  return at;
}

}  // namespace

void StreamCopy(const std::byte* from, std::size_t size, std::byte* first, std::byte* second) {
  std::size_t done = 0;
  if (Aligned(first) && Aligned(second)) {
    done = second == nullptr ? CopyLines<false>(from, size, first, second)
                             : CopyLines<true>(from, size, first, second);
  }
  if (done == size) return;
  std::memcpy(first + done, from + done, size - done);
  if (second != nullptr) std::memcpy(second + done, from + done, size - done);
}

void StreamFence() { _mm_sfence(); }
#else
void StreamCopy(const std::byte* from, std::size_t size, std::byte* first, std::byte* second) {
  if (size == 0) return;
  std::memcpy(first, from, size);
  if (second != nullptr) std::memcpy(second, from, size);
}

void StreamFence() {}
#endif

}  // namespace troop
