#pragma once

#include <cstdint>

#include "core/tensor/dtype.h"

namespace troop::cuda {

// Element types of products. Parameters, their gradients and all sums are always f32.
//   kF32: f32 in memory and in products, without tensor cores.
//   kTF32: f32 in memory, products in TF32 (10 bits of mantissa).
//   kBF16: activations, their gradients and a copy of the weights are bf16.
// kTF32 and kBF16 need compute capability 8.0.
enum class Precision : std::uint8_t { kF32 = 0, kTF32 = 1, kBF16 = 2 };

// Element type of activations, of their gradients, and of the weights in products.
constexpr DType ElementType(Precision precision) {
  return precision == Precision::kBF16 ? DType::kBF16 : DType::kF32;
}

// Bytes per element. DTypeSize of core/ is not available in builds of only the GPU code.
constexpr std::int64_t ElementBytes(DType dtype) {
  return dtype == DType::kU8 ? 1 : dtype == DType::kBF16 ? 2 : 4;
}

}  // namespace troop::cuda
