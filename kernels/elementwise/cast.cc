// Dispatch of the passes in cast.h to the best instruction set.
#include "kernels/elementwise/cast.h"

#include <cmath>

#include "core/base/check.h"
#include "kernels/elementwise/cast_table.h"

namespace troop {
namespace {

// Chosen once per process: the CPU does not change.
const ConvertKernels& Best() {
  static const ConvertKernels& best = ConvertKernelsFor(BestCpuLevel());
  return best;
}

void CheckFloating(DType dtype) {
  TROOP_CHECK(dtype == DType::kF32 || dtype == DType::kBF16, "conversion does not support {}",
              DTypeName(dtype));
}

}  // namespace

const ConvertKernels& ConvertKernelsFor(CpuLevel level) {
  if (level >= CpuLevel::kAvx512) return avx512::kConvertKernels;
  return level == CpuLevel::kAvx2 ? avx2::kConvertKernels : plain::kConvertKernels;
}

void ConvertScaled(const ConvertScaledArgs& args) {
  // u8 occurs only as an input, as pixels of observations.
  if (args.x_dtype != DType::kU8) CheckFloating(args.x_dtype);
  CheckFloating(args.y_dtype);
  Best().convert_scaled(args);
}

void ActivationForward(Activation activation, std::int64_t n, const void* x, void* y, DType dtype) {
  CheckFloating(dtype);
  if (activation == Activation::kRelu) return Best().relu_forward(n, x, y, dtype);
  TROOP_CHECK(activation == Activation::kTanh, "activation {}", int(activation));
  // tanh of the C library is not vectorized, so there is one version.
  for (std::int64_t i = 0; i < n; ++i) {
    if (dtype == DType::kF32) {
      static_cast<float*>(y)[i] = std::tanh(static_cast<const float*>(x)[i]);
    } else {
      static_cast<BF16*>(y)[i] = ToBF16(std::tanh(ToF32(static_cast<const BF16*>(x)[i])));
    }
  }
}

void ActivationBackward(const ActivationBackwardArgs& args) {
  CheckFloating(args.dtype);
  CheckFloating(args.dz_dtype);
  // One kernel for both activations, since both derivatives are functions of y.
  Best().activation_backward(args);
}

}  // namespace troop
