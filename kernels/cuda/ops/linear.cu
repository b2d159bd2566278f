// Fully connected layers: cuBLASLt products with fused bias and ReLU; tanh is a separate kernel.
#include "kernels/cuda/ops/linear.h"

#include "kernels/cuda/ops/activation.h"
#include "kernels/cuda/ops/bias.h"
#include "kernels/cuda/runtime/launch.h"

namespace troop::cuda {
namespace {

// In place.
TROOP_KERNEL void TanhKernel(std::int64_t n, float* y) {
  const std::int64_t i = std::int64_t(blockIdx.x) * 256 + threadIdx.x;
  if (i < n) y[i] = tanhf(y[i]);
}
TROOP_KERNEL void TanhKernelBF16(std::int64_t n, BF16* y) {
  const std::int64_t i = std::int64_t(blockIdx.x) * 256 + threadIdx.x;
  if (i < n) y[i] = ToBF16(tanhf(ToFloat(y[i])));
}

void Tanh(Stream& stream, std::int64_t n, void* y, DType dtype) {
  const LaunchShape shape{dim3(unsigned(CeilDivide(n, 256))), dim3(256)};
  if (dtype == DType::kBF16) {
    Launch(stream, "Tanh", shape, TanhKernelBF16, n, static_cast<BF16*>(y));
  } else {
    Launch(stream, "Tanh", shape, TanhKernel, n, static_cast<float*>(y));
  }
}

}  // namespace

void LinearForward(Stream& stream, MatMulPlans& plans, const LinearForwardArgs& args) {
  const LinearShape& shape = args.shape;
  // y = x wᵀ.
  MatMul(stream, plans,
         {.shape = {.m = args.batch, .n = shape.out, .k = shape.in, .transpose_b = true},
          .precision = args.precision,
          .a = args.x,
          .b = args.weight,
          .c = args.y,
          .c_dtype = args.y_dtype,
          .epilogue = args.activation == Activation::kRelu ? Epilogue::kBiasRelu : Epilogue::kBias,
          .bias = args.bias});
  // cuBLASLt has no epilogue with tanh.
  if (args.activation == Activation::kTanh)
    Tanh(stream, args.batch * shape.out, args.y, args.y_dtype);
}

void LinearBackwardData(Stream& stream, MatMulPlans& plans, const LinearBackwardDataArgs& args) {
  const DType element = ElementType(args.precision);
  // dx = dz w.
  MatMul(stream, plans,
         {.shape = {.m = args.batch, .n = args.shape.in, .k = args.shape.out},
          .precision = args.precision,
          .a = args.dz,
          .b = args.weight,
          .c = args.dx,
          .c_dtype = element});
  // The layer below has a ReLU: its derivative is applied here, in place.
  if (args.relu_of == nullptr) return;
  ActivationBackward(stream, {.activation = Activation::kRelu,
                              .dtype = element,
                              .n = args.batch * args.shape.in,
                              .y = args.relu_of,
                              .dy = args.dx,
                              .dz = args.dx});
}

void LinearBackwardWeight(Stream& stream, MatMulPlans& plans,
                          const LinearBackwardWeightArgs& args) {
  const LinearShape& shape = args.shape;
  // dw = dzᵀ x; it stays f32.
  MatMul(stream, plans,
         {.shape = {.m = shape.out, .n = shape.in, .k = args.batch, .transpose_a = true},
          .precision = args.precision,
          .a = args.dz,
          .b = args.x,
          .c = args.dweight});
  // A separate kernel, in which the order of the additions is fixed.
  SumRows(stream, {.rows = args.batch,
                   .n = shape.out,
                   .x = args.dz,
                   .dtype = ElementType(args.precision),
                   .sum = args.dbias});
}

}  // namespace troop::cuda
