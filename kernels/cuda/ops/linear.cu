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

void LinearForward(Stream& stream, MatMulPlans& plans, Precision precision,
                   const LinearShape& shape, Activation activation, std::int64_t batch,
                   const void* x, const void* weight, const void* bias, void* y, DType y_dtype) {
  MatMulArgs args;
  // y = x wᵀ.
  args.shape = {.m = batch, .n = shape.out, .k = shape.in, .transpose_b = true};
  args.precision = precision;
  args.a = x;
  args.b = weight;
  args.c = y;
  args.c_dtype = y_dtype;
  args.epilogue = activation == Activation::kRelu ? Epilogue::kBiasRelu : Epilogue::kBias;
  args.bias = bias;
  MatMul(stream, plans, args);
  if (activation == Activation::kTanh) Tanh(stream, batch * shape.out, y, y_dtype);
}

void LinearBackwardData(Stream& stream, MatMulPlans& plans, Precision precision,
                        const LinearShape& shape, std::int64_t batch, const void* weight,
                        const void* dz, const void* relu_of, void* dx) {
  MatMulArgs args;
  // dx = dz w.
  args.shape = {.m = batch, .n = shape.in, .k = shape.out};
  args.precision = precision;
  args.a = dz;
  args.b = weight;
  args.c = dx;
  args.c_dtype = ElementType(precision);
  MatMul(stream, plans, args);
  if (relu_of == nullptr) return;
  ActivationBackward(stream, Activation::kRelu, ElementType(precision), batch * shape.in, relu_of,
                     dx, dx);
}

void LinearBackwardWeight(Stream& stream, MatMulPlans& plans, Precision precision,
                          const LinearShape& shape, std::int64_t batch, const void* x,
                          const void* dz, float* dweight, float* dbias) {
  MatMulArgs args;
  // dw = dzᵀ x; it stays f32.
  args.shape = {.m = shape.out, .n = shape.in, .k = batch, .transpose_a = true};
  args.precision = precision;
  args.a = dz;
  args.b = x;
  args.c = dweight;
  MatMul(stream, plans, args);
  SumRows(stream,
          {.rows = batch, .n = shape.out, .x = dz, .dtype = ElementType(precision), .sum = dbias});
}

}  // namespace troop::cuda
