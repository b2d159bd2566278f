#pragma once

#include <memory>

#include "core/base/status.h"
#include "core/config/problem_type.h"
#include "nn/module.h"
#include "nn/sparse/linear_model.h"

namespace troop {

// A linear model as a module: for evaluation, predictions and any optimizer of dense gradients.
//   in:  ids i32 [T] features of all examples, starts i32 [B + 1], values f32 [T] of the features
//   out: f32 [B, logits], as AppendLinearLogits has them
// One parameter, "weight" [features + 1, outputs], begins at zero; its last row is the bias.
// Sums are in f64. No gradient of the inputs. Errors: kInvalidArgument: sizes below 1, or more
// weights than 2^31. Errors of MakePlan: kInvalidArgument: other inputs. REQUIRES (Forward): ids
// below `features`, starts that begin at 0 and do not decrease.
Result<std::unique_ptr<Module>> MakeLinearModule(const LinearForm& form, ProblemType problem);

}  // namespace troop
