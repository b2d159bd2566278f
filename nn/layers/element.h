#pragma once

#include <cstddef>
#include <span>
#include <type_traits>

#include "core/tensor/tensor.h"
#include "kernels/elementwise/cast.h"

// Elements of activations, which have the precision of the network: f32 or bf16.
namespace troop {

inline float LoadElement(float x) { return x; }
inline float LoadElement(BF16 x) { return ToF32(x); }
template <class T>
T StoreElement(float x) {
  if constexpr (std::is_same_v<T, float>) {
    return x;
  } else {
    return ToBF16(x);
  }
}

// Calls f with a null pointer to the element type of an activation. REQUIRES: f32 or bf16.
template <class F>
void WithElement(DType dtype, F f) {
  if (dtype == DType::kF32) return f(static_cast<float*>(nullptr));
  TROOP_CHECK(dtype == DType::kBF16, "an activation of {}", DTypeName(dtype));
  f(static_cast<BF16*>(nullptr));
}

// The elements of an activation. REQUIRES: T is its type.
template <class T>
std::span<T> ElementsOf(const Tensor& tensor) {
  return {reinterpret_cast<T*>(tensor.bytes().data()), std::size_t(tensor.elements())};
}
template <class T>
std::span<const T> ElementsOf(const ConstTensor& tensor) {
  return {reinterpret_cast<const T*>(tensor.bytes().data()), std::size_t(tensor.elements())};
}

// to += from. REQUIRES: equal types and sizes.
inline void AddElements(const ConstTensor& from, const Tensor& to) {
  TROOP_CHECK(from.dtype() == to.dtype(), "{} + {}", DTypeName(from.dtype()),
              DTypeName(to.dtype()));
  WithElement(to.dtype(), [&]<class T>(T*) {
    const std::span<const T> x = ElementsOf<T>(from);
    const std::span<T> y = ElementsOf<T>(to);
    for (std::size_t i = 0; i < y.size(); ++i)
      y[i] = StoreElement<T>(LoadElement(y[i]) + LoadElement(x[i]));
  });
}

}  // namespace troop
