// Emulated cuBLASLt products for tests: plain loops, inputs rounded as tensor cores do, f32 sums.
#include <cmath>

#include "kernels/cuda/emulator/emulator.h"
#include "kernels/cuda/ops/matmul.h"

namespace troop::cuda {

// The emulation chooses no algorithms, so plans hold nothing.
struct MatMulPlansState {};

MatMulPlans::MatMulPlans(Device&) : state_(std::make_unique<MatMulPlansState>()) {}
MatMulPlans::~MatMulPlans() = default;

namespace {

// Element of an operand, rounded to the precision.
float Element(const MatMulArgs& args, const void* x, std::int64_t i) {
  if (args.precision == Precision::kBF16) return ToFloat(static_cast<const BF16*>(x)[i]);
  const float f = static_cast<const float*>(x)[i];
  return args.precision == Precision::kTF32 ? __uint_as_float(ToTF32(f)) : f;
}

// Applies the epilogue.
float Finished(const MatMulArgs& args, float sum, std::int64_t column) {
  if (args.epilogue == Epilogue::kNone) return sum;
  const float z =
      sum + (args.c_dtype == DType::kBF16 ? ToFloat(static_cast<const BF16*>(args.bias)[column])
                                          : static_cast<const float*>(args.bias)[column]);
  if (args.epilogue == Epilogue::kBiasRelu) return z > 0 ? z : 0;
  if (args.epilogue == Epilogue::kBiasGeluTanh)
    return 0.5f * z * (1 + std::tanh(0.7978845608f * (z + 0.044715f * z * z * z)));
  return z;
}

// c = epilogue(beta c + a b). A leading dimension of 0 stands for that of a dense matrix.
void Multiply(const MatMulArgs& args) {
  const MatMulShape& s = args.shape;
  const std::int64_t lda = s.lda > 0 ? s.lda : s.transpose_a ? s.m : s.k;
  const std::int64_t ldb = s.ldb > 0 ? s.ldb : s.transpose_b ? s.k : s.n;
  const std::int64_t ldc = s.ldc > 0 ? s.ldc : s.n;
  for (std::int64_t i = 0; i < s.m; ++i) {
    for (std::int64_t j = 0; j < s.n; ++j) {
      float sum = 0;
      for (std::int64_t k = 0; k < s.k; ++k) {
        sum += Element(args, args.a, s.transpose_a ? k * lda + i : i * lda + k) *
               Element(args, args.b, s.transpose_b ? j * ldb + k : k * ldb + j);
      }
      const std::int64_t at = i * ldc + j;
      if (args.c_dtype == DType::kBF16) {
        auto* c = static_cast<BF16*>(args.c);
        if (args.beta != 0) sum += args.beta * ToFloat(c[at]);
        c[at] = ToBF16(Finished(args, sum, j));
      } else {
        auto* c = static_cast<float*>(args.c);
        if (args.beta != 0) sum += args.beta * c[at];
        c[at] = Finished(args, sum, j);
      }
    }
  }
}

}  // namespace

// Runs in the order of the stream, as on a GPU.
void MatMul(Stream& stream, MatMulPlans&, const MatMulArgs& args) {
  emulator::Enqueue(stream, [args] { Multiply(args); });
}

}  // namespace troop::cuda
