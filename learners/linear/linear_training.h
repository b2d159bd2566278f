#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "core/base/status.h"
#include "core/tensor/sparse_rows.h"
#include "learners/algorithm.h"
#include "learners/training_config.h"
#include "nn/optimizer_config.h"
#include "nn/sparse/linear_loss.h"
#include "nn/sparse/row_optimizer.h"

namespace troop {

// Training examples of a linear model. Immutable, so usable from any thread.
struct LinearExamples {
  SparseRows rows;             // [n, features]
  std::int64_t outputs = 1;    // 1: two classes or a number; else one per class
  std::vector<float> targets;  // [n, outputs]: ±1, or numbers (kSquaredError)
};

// Targets of classes: one output for two of them, 1 for class 1 and -1 for class 0; else one output
// for each class, 1 for that class and -1 for the rest. Returns [n, outputs]. REQUIRES: labels from
// 0 to classes - 1, and at least two classes.
std::vector<float> ClassTargets(std::span<const std::int32_t> labels, std::int64_t classes);

// How a linear model is trained.
struct LinearOptions {
  LinearLoss loss = LinearLoss::kSquaredHinge;
  // True: DualAscent, which needs neither a learning rate nor its schedule; the bias is the weight
  // of a constant feature and is penalized like the others, as in liblinear. False: `rows`.
  bool dual_ascent = true;
  RowOptimizerOptions rows{};  // without its l1 and l2
  double l2 = 1e-4, l1 = 0;    // penalties; of the row optimizers only FTRL has them
  // NB-SVM (Wang & Manning 2012): features are multiplied by their log-count ratios. Published
  // weights contain the factors, so that predictions do not need them.
  bool naive_bayes = false;
  double smoothing = 1;  // of the counts, above 0
};

// Trains a linear model; several outputs are trained one against the rest. The weights are those
// of MakeLinearModule, [features + 1, outputs] and its padding. An update uses one batch of
// BatchSchedule, and makes either a step of each example's dual variable, or one step of the row
// optimizer with the gradient of the batch's mean loss at config.optimizer.learning_rate and its
// schedule. No dense gradient exists: the row optimizers have row_gradients(), of each learner's
// part of the batch (SplitBatch), and sgd and adagrad an external_optimizer() with parameter shards
// or Hogwild threads; dual ascent makes whole updates only (FusedUpdate), by a single learner. The
// SampleBatch is ignored. Time and memory of an update: O(entries of the batch). Deterministic, and
// State() continues exactly.
//
// Errors: kInvalidArgument: no examples, or not one target per output; a row whose squared norm is
// above kSquaredNormMax or not a number; dual_ascent without l2; l1 or l2 with a row optimizer
// other than FTRL; naive_bayes with several outputs, with kSquaredError or with negative values.
Result<std::unique_ptr<Algorithm>> MakeLinearTraining(
    const TrainingConfig& config, const LinearOptions& options,
    std::shared_ptr<const LinearExamples> examples);
// Checks examples and options as MakeLinearTraining does, with the same errors.
Status CheckLinearProblem(const LinearOptions& options, const LinearExamples& examples);
// MakeLinearTraining for the data and the settings of `config`; its model_files() are those of
// learners/linear/model. Errors: those of LoadLinearData, too.
Result<std::unique_ptr<Algorithm>> MakeLinearTraining(const TrainingConfig& config);
// The optimizer with the same steps as a row optimizer, for shards and threads that step all
// weights; nullopt: none, since the rule depends on which rows a gradient has.
std::optional<OptimizerType> ElementwiseRuleOf(RowRule rule);
// The settings of [linear] and [optimizer].
LinearOptions LinearOptionsOf(const TrainingConfig& config);

// Limit of a row's squared norm, so that no product of an update overflows an f32.
inline constexpr double kSquaredNormMax = 1e12;

}  // namespace troop
