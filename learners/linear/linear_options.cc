// Implements the options of linear models, and the checks of their training examples.

#include <algorithm>
#include <cmath>

#include "core/base/check.h"
#include "learners/linear/linear_training.h"

namespace troop {
namespace {

// Checks that the examples fit together, and that no product overflows.
Status CheckExamples(const LinearExamples& examples) {
  const std::int64_t n = examples.rows.size();
  if (n == 0) return InvalidArgument("there are no training examples");
  if (examples.outputs < 1 || std::ssize(examples.targets) != n * examples.outputs) {
    return InvalidArgument("{} targets for {} examples of {} outputs", examples.targets.size(), n,
                           examples.outputs);
  }
  // An infinite target would make all weights infinite after one step.
  if (!std::ranges::all_of(examples.targets, [](float y) { return std::isfinite(y); }))
    return InvalidArgument("a target is not a finite number");
  for (std::int64_t i = 0; i < n; ++i) {
    double squares = 0;
    for (const float x : examples.rows.row(i).values) squares += double(x) * double(x);
    if (squares <= kSquaredNormMax) continue;  // false for NaN, too
    return InvalidArgument(
        "the squared norm of training example {} is {:.3g}, must be at most {:.0e}; scale the "
        "features",
        i, squares, kSquaredNormMax);
  }
  return Status::Ok();
}

// Rejects settings that would be ignored, or have no meaning.
Status CheckOptions(const LinearOptions& options, const LinearExamples& examples) {
  if (options.l1 < 0 || options.l2 < 0)
    return InvalidArgument("l1 is {} and l2 is {}, must be at least 0", options.l1, options.l2);
  if (options.dual_ascent && options.l2 == 0) {
    return InvalidArgument("l2 is 0, but dual_ascent needs l2 above 0; set it, or use ftrl");
  }
  const bool penalties = options.l1 > 0 || options.l2 > 0;
  if (!options.dual_ascent && penalties && options.rows.rule != RowRule::kFtrl) {
    return InvalidArgument(
        "l1 is {} and l2 is {}, but {} has no penalty; set them to 0, or use ftrl or dual_ascent",
        options.l1, options.l2, EnumName(options.rows.rule));
  }
  if (!options.naive_bayes) return Status::Ok();
  if (examples.outputs > 1 || options.loss == LinearLoss::kSquaredError) {
    return InvalidArgument(
        "naive_bayes needs two classes and a loss of classes, but the model has {} outputs and {}; "
        "set naive_bayes = false",
        examples.outputs, EnumName(options.loss));
  }
  if (!(options.smoothing > 0))
    return InvalidArgument("smoothing is {}, must be above 0", options.smoothing);
  if (std::ranges::any_of(examples.rows.values, [](float x) { return x < 0; })) {
    return InvalidArgument(
        "naive_bayes needs features of 0 or more, but one is negative; set naive_bayes = false");
  }
  return Status::Ok();
}

}  // namespace

// Examples come first: the checks of the options read their values.
Status CheckLinearProblem(const LinearOptions& options, const LinearExamples& examples) {
  TROOP_RETURN_IF_ERROR(CheckExamples(examples));
  return CheckOptions(options, examples);
}

// Two classes have one output, and more have one each.
std::vector<float> ClassTargets(std::span<const std::int32_t> labels, std::int64_t classes) {
  TROOP_CHECK(classes >= 2, "{} classes", classes);
  const std::int64_t outputs = classes == 2 ? 1 : classes;
  std::vector<float> targets;
  targets.reserve(labels.size() * std::size_t(outputs));
  for (const std::int32_t label : labels) {
    TROOP_CHECK(label >= 0 && label < classes, "label {} of {} classes", label, classes);
    // One output is that of class 1.
    for (std::int64_t k = 0; k < outputs; ++k)
      targets.push_back(label == (outputs == 1 ? 1 : k) ? 1.0f : -1.0f);
  }
  return targets;
}

// A gradient of zero changes neither a weight nor a state under these two rules. Lazy Adam and FTRL
// have state that depends on the rows of a gradient.
std::optional<OptimizerType> ElementwiseRuleOf(RowRule rule) {
  if (rule == RowRule::kSgd) return OptimizerType::kSgd;
  if (rule == RowRule::kAdaGrad) return OptimizerType::kAdaGrad;
  return std::nullopt;
}

// The penalties of row optimizers are in the options, too, where CheckOptions refuses them.
LinearOptions LinearOptionsOf(const TrainingConfig& config) {
  const LinearConfig& linear = config.linear;
  LinearOptions options{.loss = linear.loss,
                        .dual_ascent = linear.solver == LinearSolver::kDualAscent,
                        .rows = {.epsilon = config.optimizer.epsilon,
                                 .beta1 = config.optimizer.beta1,
                                 .beta2 = config.optimizer.beta2},
                        .l2 = linear.l2,
                        .l1 = linear.l1,
                        .naive_bayes = linear.naive_bayes,
                        .smoothing = linear.smoothing};
  // Dual ascent has no rule of rows.
  if (linear.solver == LinearSolver::kFtrl) options.rows.rule = RowRule::kFtrl;
  if (linear.solver == LinearSolver::kAdaGrad) options.rows.rule = RowRule::kAdaGrad;
  if (linear.solver == LinearSolver::kAdam) options.rows.rule = RowRule::kAdam;
  return options;
}

}  // namespace troop
