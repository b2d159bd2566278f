#pragma once

#include "core/base/buffer.h"
#include "core/base/status.h"
#include "nn/export/policy_description.h"
#include "nn/io/safetensors.h"

namespace troop {

// Encodes a policy as an ONNX model (opset 17). tensors: the parameters by name. metadata: of the
// model, in addition to kPolicyKey.
//   input   "observation" [batch, ...]: frame_stack frames as in PolicyDescription, in the
//           environment's dtype; all preprocessing is part of the model
//   output  "action" [batch] i64, or [batch, size] f32 for continuous actions
//   output  "q" [batch, actions] f32, for discrete actions
// Errors: kInvalidArgument: a parameter is missing or has another shape.
Result<Buffer> EncodeOnnxPolicy(const PolicyDescription& policy, const TensorFile& file);

}  // namespace troop
