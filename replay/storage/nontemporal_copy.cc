// Copies with non-temporal SSE2 stores, and a fallback.
#include "replay/storage/nontemporal_copy.h"

#include <cstdint>
#include <cstring>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace troop {

#if defined(__SSE2__)
namespace {

// Streaming stores require 16-byte alignment.
bool Aligned(const std::byte* bytes) { return reinterpret_cast<std::uintptr_t>(bytes) % 16 == 0; }

// Prefetch distance in bytes. It may pass the end of a frame: the batch mostly needs the next one
// too.
constexpr std::size_t kAhead = 2560;

// Copies whole cache lines, so that each write-combining buffer is flushed full, then 16-byte
// pieces. Returns the bytes copied.
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

// The unaligned case and the last bytes use plain copies.
void NontemporalCopy(const std::byte* from, std::size_t size, std::byte* first, std::byte* second) {
  std::size_t done = 0;
  if (Aligned(first) && Aligned(second)) {
    done = second == nullptr ? CopyLines<false>(from, size, first, second)
                             : CopyLines<true>(from, size, first, second);
  }
  if (done == size) return;
  std::memcpy(first + done, from + done, size - done);
  if (second != nullptr) std::memcpy(second + done, from + done, size - done);
}

void NontemporalFence() { _mm_sfence(); }
#else
void NontemporalCopy(const std::byte* from, std::size_t size, std::byte* first, std::byte* second) {
  if (size == 0) return;
  std::memcpy(first, from, size);
  if (second != nullptr) std::memcpy(second, from, size);
}

void NontemporalFence() {}
#endif

}  // namespace troop
