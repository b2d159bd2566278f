// Implements the shared checks of modules.
#include "nn/arena.h"

#include "core/base/log.h"
#include "kernels/onednn/layer_kernel.h"

namespace troop {

// A log line, not an error: results differ only in rounding.
Precision AvailablePrecision(Precision precision) {
  if (precision == Precision::kF32 || BF16Available()) return precision;
  LogWarning("bf16 needs AVX-512, which this machine lacks; computing in fp32");
  return Precision::kF32;
}

// `module` names the module in messages. The product of all axes after the batch must be `row`.
Status CheckInput(std::span<const TensorSpec> in, std::int64_t row, const char* module) {
  if (in.size() != 1) return InvalidArgument("{} takes one input, not {}", module, in.size());
  const Shape& shape = in[0].shape;
  if (shape.rank() < 1 || shape[0] <= 0)
    return InvalidArgument("{} takes [batch, ...], not {}", module, in[0].ToString());
  if (row > 0 && shape.DropFirst().elements() != row)
    return InvalidArgument("{} takes {} elements per row, not {}", module, row, in[0].ToString());
  return Status::Ok();
}

}  // namespace troop
