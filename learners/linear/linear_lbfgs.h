#pragma once

#include <memory>

#include "core/base/status.h"
#include "learners/algorithm.h"
#include "learners/linear/linear_training.h"

namespace troop {

// Trains a linear model by L-BFGS (nn/lbfgs/lbfgs.h) on all examples: an update is an iteration,
// with one pass over the data for each trial of its line search. Minimizes the mean loss plus
// l2/2 |weights|², where the bias is not penalized, as in scikit-learn's LogisticRegression. When
// the search has ended, further updates change nothing. Vectors are in f32, sums in f64; memory:
// 5 + 2 · history vectors of the weights' size. Otherwise as MakeLinearTraining: only whole updates
// by a single learner; deterministic, and State() continues exactly.
//
// Errors: those of CheckLinearProblem; kInvalidArgument: l1 above 0.
Result<std::unique_ptr<Algorithm>> MakeLinearLbfgs(const TrainingConfig& config,
                                                   const LinearOptions& options,
                                                   std::shared_ptr<const LinearExamples> examples);
// MakeLinearLbfgs for the data and the settings of `config`. Errors: those of LoadLinearData, too.
Result<std::unique_ptr<Algorithm>> MakeLinearLbfgs(const TrainingConfig& config);

}  // namespace troop
