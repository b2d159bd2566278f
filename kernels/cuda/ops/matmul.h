#pragma once

#include <cstdint>
#include <memory>

#include "kernels/cuda/runtime/device.h"
#include "kernels/cuda/runtime/precision.h"
#include "kernels/linear/matmul.h"
#include "kernels/transformer/layer_norm_gelu.h"

// The twin of kernels/linear/matmul.h, over cuBLASLt: c [m, n] = epilogue(op(a) · op(b) + beta ·
// c), row-major.
namespace troop::cuda {

// What is done with each sum on its way out. bias: [n] of the result's type, added to each row.
enum class Epilogue : std::uint8_t { kNone = 0, kBias = 1, kBiasRelu = 2, kBiasGeluTanh = 3 };

struct MatMulArgs {
  MatMulShape shape;  // leading dimensions: 0 is dense
  Precision precision = Precision::kF32;
  const void* a = nullptr;  // ElementType(precision), like b
  const void* b = nullptr;
  void* c = nullptr;
  DType c_dtype = DType::kF32;  // kF32, or kBF16 with Precision::kBF16
  float beta = 0;               // 0: c is not read; 1
  Epilogue epilogue = Epilogue::kNone;
  const void* bias = nullptr;  // [n] of c_dtype: what cuBLASLt takes; of epilogues that have one
};

struct MatMulPlansState;

// The algorithms that cuBLASLt chose, by shape: each is asked for once. Has the workspace, so calls
// on one object must be on one stream, or ordered by events. Nothing is allocated for a shape that
// was seen.
class MatMulPlans {
 public:
  explicit MatMulPlans(Device& device);
  ~MatMulPlans();
  MatMulPlans(const MatMulPlans&) = delete;
  MatMulPlans& operator=(const MatMulPlans&) = delete;
  MatMulPlansState* state() const { return state_.get(); }

 private:
  std::unique_ptr<MatMulPlansState> state_;
};

// O(m n k). The same bytes each time for a shape.
void MatMul(Stream& stream, MatMulPlans& plans, const MatMulArgs& args);

}  // namespace troop::cuda
