#pragma once

#include <span>
#include <vector>

#include "core/config/problem_type.h"

namespace troop {

// Appends the logits of outputs [form.outputs] to `logits`, as the losses of text models read them:
//   classes     ln σ(±z) of two, else ln σ(z) of each: their softmax is σ(z) / Σ σ(z),
//   scikit-learn's
//               probabilities of one against the rest. For losses other than kLog they only order
//               the classes
//   labels      z
//   regression  z
void AppendLinearLogits(ProblemType problem, std::span<const double> outputs,
                        std::vector<float>* logits);

// True if the prediction of outputs [outputs] is that of the targets [outputs], ±1: the largest
// output is that of the class, or all outputs have the signs of their targets. A regression has no
// right predictions.
bool IsLinearRight(ProblemType problem, std::span<const double> outputs,
                   std::span<const float> targets);

}  // namespace troop
