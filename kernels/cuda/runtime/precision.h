#pragma once

#include <cstdint>

#include "core/tensor/dtype.h"

namespace troop::cuda {

// What products are made of. Parameters and their gradients are f32 always, and so are all sums.
//   kF32: f32 in memory and in products, without tensor cores.
//   kTF32: f32 in memory, products of TF32 (10 bits after the point).
//   kBF16: activations, their gradients and a copy of the weights are bf16.
// kTF32 and kBF16 need compute capability 8.0.
enum class Precision : std::uint8_t { kF32 = 0, kTF32 = 1, kBF16 = 2 };

// Of activations, of their gradients, and of the weights that products take.
constexpr DType ElementType(Precision precision) {
  return precision == Precision::kBF16 ? DType::kBF16 : DType::kF32;
}

// Of what kernels take. DTypeSize of core/ is in a library that isn't built for GPUs alone.
constexpr std::int64_t ElementBytes(DType dtype) {
  return dtype == DType::kU8 ? 1 : dtype == DType::kBF16 ? 2 : 4;
}

}  // namespace troop::cuda
