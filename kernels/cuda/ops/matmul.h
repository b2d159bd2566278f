#pragma once

#include <cstdint>
#include <memory>

#include "kernels/cuda/runtime/device.h"
#include "kernels/cuda/runtime/precision.h"
#include "kernels/linear/matmul.h"
#include "kernels/transformer/layer_norm_gelu.h"

// GPU counterpart of kernels/linear/matmul.h, over cuBLASLt: c [m, n] = epilogue(op(a) · op(b) +
// beta · c), row-major.
namespace troop::cuda {

// Operation on each sum before it is stored. bias: [n] of the type of c, added to each row.
enum class Epilogue : std::uint8_t { kNone = 0, kBias = 1, kBiasRelu = 2, kBiasGeluTanh = 3 };

// Arguments of MatMul. All pointers are device memory.
struct MatMulArgs {
  MatMulShape shape;  // leading dimension 0: dense
  Precision precision = Precision::kF32;
  const void* a = nullptr;  // ElementType(precision), like b
  const void* b = nullptr;
  void* c = nullptr;
  DType c_dtype = DType::kF32;  // kF32, or kBF16 with Precision::kBF16
  float beta = 0;               // 0: c is not read; or 1
  Epilogue epilogue = Epilogue::kNone;
  const void* bias = nullptr;  // [n] of c_dtype, as cuBLASLt requires; for epilogues with a bias
};

struct MatMulPlansState;

// Cache of cuBLASLt algorithms by shape; each shape is looked up once. It owns the workspace, so
// the calls with one object must use one stream or be ordered by events. A shape that was used
// before allocates nothing.
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

// Enqueues the product. The same bytes each time for one shape. O(m n k). Errors: Device::error().
void MatMul(Stream& stream, MatMulPlans& plans, const MatMulArgs& args);

}  // namespace troop::cuda
