#pragma once

#include <cstddef>
#include <span>

#include "core/base/buffer.h"
#include "core/base/check.h"
#include "core/tensor/tensor.h"
#include "nn/module.h"

namespace troop {

// Alignment of tensors in a flat parameter buffer, in elements: one cache line.
inline constexpr std::int64_t kParamAlignment = 16;
inline std::int64_t AlignParams(std::int64_t n) {
  return (n + kParamAlignment - 1) / kParamAlignment * kParamAlignment;
}
inline std::size_t AlignBytes(std::size_t n) {
  return (n + kAlignment - 1) / kAlignment * kAlignment;
}

// Cuts aligned pieces off memory that the caller owns.
class Arena {
 public:
  explicit Arena(std::span<std::byte> bytes) : bytes_(bytes) {}
  std::span<std::byte> Take(std::size_t size) {
    TROOP_CHECK(AlignBytes(size) <= bytes_.size() || size <= bytes_.size(),
                "{} bytes wanted, {} are left", size, bytes_.size());
    const auto piece = bytes_.first(size);
    bytes_ = bytes_.subspan(std::min(AlignBytes(size), bytes_.size()));
    return piece;
  }
  std::span<std::byte> rest() const { return bytes_; }

 private:
  std::span<std::byte> bytes_;
};

inline float* TakeFloats(Arena& arena, std::int64_t n) {
  return reinterpret_cast<float*>(arena.Take(std::size_t(n) * sizeof(float)).data());
}
inline std::span<std::int32_t> TakeInts(Arena& arena, std::int64_t n) {
  const auto bytes = arena.Take(std::size_t(n) * sizeof(std::int32_t));
  return {reinterpret_cast<std::int32_t*>(bytes.data()), std::size_t(n)};
}

// Bytes that f takes from an arena.
template <class F>
std::size_t BytesTaken(F f) {
  constexpr std::size_t kPlenty = std::size_t{1} << 62;
  // Addresses alone: nothing is read or written.
  Arena arena({reinterpret_cast<std::byte*>(kAlignment), kPlenty});
  f(arena);
  return kPlenty - arena.rest().size();
}

// Type of activations in a network of this precision.
inline DType ActivationDType(Precision precision) {
  return precision == Precision::kBF16 ? DType::kBF16 : DType::kF32;
}

// Returns `precision`, or f32 with a log line if this machine has no bf16.
Precision AvailablePrecision(Precision precision);

// Shared checks of MakePlan: one input of at least rank 1 with `row` elements per row (0: any).
Status CheckInput(std::span<const TensorSpec> in, std::int64_t row, const char* module);

}  // namespace troop
