// Implements the training of linear models by L-BFGS.

#include "learners/linear/linear_lbfgs.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/base/check.h"
#include "core/base/log.h"
#include "core/base/time.h"
#include "learners/cost_reporting.h"
#include "learners/fused_update.h"
#include "learners/linear/linear_data.h"
#include "learners/linear/model/linear_model_folder.h"
#include "learners/train_state.h"
#include "nn/arena.h"
#include "nn/lbfgs/lbfgs.h"
#include "nn/lbfgs/lbfgs_vectors.h"
#include "nn/sparse/linear_objective.h"
#include "nn/sparse/linear_outputs.h"
#include "nn/sparse/naive_bayes.h"

namespace troop {
namespace {

// Names in a state, besides "value".
constexpr const char* kScalars = "lbfgs.scalars";  // f64, Lbfgs::Save
constexpr const char* kVectors = "lbfgs.vectors";  // f32 [vectors, weights], in their order
constexpr const char* kOptimizer = "lbfgs";

// A copy, so that later updates do not change a state being written.
template <class T>
ConstTensor CopyOf(std::span<const T> values) {
  return ConstTensor(Buffer::Copy(std::as_bytes(values)),
                     {DTypeOf<T>::value, {std::int64_t(values.size())}});
}

// A tensor of a state. Errors: missing, of another type or size; an f32 that is not finite.
template <class T>
Result<std::span<const T>> Values(const TensorFile& state, const std::string& name,
                                  std::optional<std::size_t> size) {
  const auto found = state.tensors.find(name);
  if (found == state.tensors.end() || found->second.dtype() != DTypeOf<T>::value) {
    return InvalidArgument("the state has no \"{}\" of type {}: it was saved by another optimizer",
                           name, DTypeName(DTypeOf<T>::value));
  }
  const std::span<const T> values = found->second.template as<T>();
  if (size && values.size() != *size) {
    return InvalidArgument(
        "\"{}\" of the state has {} values, must have {}: it was saved with other data or another "
        "model",
        name, values.size(), *size);
  }
  // Scalars may be infinite: a failed line search keeps its last value.
  const bool finite = std::ranges::all_of(values, [](T x) { return std::isfinite(x); });
  if (std::is_same_v<T, float> && !finite)
    return InvalidArgument("\"{}\" of the state has a value that is not finite", name);
  return values;
}

// An update is an iteration of the search; the vectors stay between updates.
class LinearLbfgs final : public Algorithm,
                          public FusedUpdate,
                          public CostReporting,
                          public ModelFiles {
 public:
  LinearLbfgs(const TrainingConfig& config, const LinearOptions& options,
              std::shared_ptr<const LinearExamples> examples);

  // Sets what the files have besides the weights; without it there are no files.
  void SetParts(LinearModelParts parts) { parts_ = std::move(parts); }

  FusedUpdate* fused_update() override { return this; }
  const ModelFiles* model_files() const override { return parts_ ? this : nullptr; }
  Status WriteModelFiles(std::string_view folder, Storage* run) const override;
  CostReporting* cost_reporting() override { return this; }
  void ExpectNext(const SampleBatch*) override {}
  Result<LossReport> RunUpdate(const SampleBatch& batch, double progress,
                               std::span<float> priority) override;
  // The line search needs values and gradients at several weights.
  Result<LossReport> ComputeGradient(const SampleBatch&, std::span<float>,
                                     GradientWatch*) override {
    return InvalidArgument("L-BFGS has no single gradient to exchange; set fleet.learners = 1");
  }
  std::span<float> gradient() override { return {}; }
  void ApplyGradient(double, double) override { TROOP_CHECK(false, "L-BFGS runs whole updates"); }
  float LearningRate(double) const override { return 0; }  // there is none
  std::uint64_t updates() const override { return updates_; }
  std::span<const float> value() const override { return value_; }
  TensorFile State() const override;
  Status SetState(const TensorFile& state) override;
  Status RollBack(const TensorFile& state) override;
  Status CheckFinite() const override;
  UpdateCost TakeCost() override { return std::exchange(cost_, UpdateCost{}); }
  void CountAllReduce(const AllReduceStats& stats) override { cost_.Count(stats); }

 private:
  double Evaluate(std::span<const float> weights, std::span<float> gradient);
  void CountRight(std::span<const double> outputs);
  void Publish();
  std::size_t weights() const { return std::size_t(form_.rows() * form_.outputs); }
  // Vectors of a state: weights, gradient, and the pairs that can be used.
  std::size_t SavedPairs(std::int64_t iterations) const {
    return std::size_t(std::min(iterations, config_.optimizer.history_size));
  }

  const TrainingConfig config_;
  const std::shared_ptr<const LinearExamples> examples_;
  const LinearForm form_;
  std::vector<float> ratios_;  // [features] of naive Bayes; empty: none
  SparseRows own_;             // the rows with these factors
  const LbfgsOptions search_options_;
  LinearObjective objective_;
  Lbfgs lbfgs_;
  LbfgsVectors<float> vectors_;
  std::vector<double> sums_, outputs_;  // of one evaluation: gradient [weights], [n, outputs]
  double loss_ = 0;                     // mean, without the penalty, of the last evaluation
  std::int64_t right_ = 0;              // correct predictions there
  std::vector<float> value_;            // [P]
  std::uint64_t updates_ = 0;
  std::optional<LinearModelParts> parts_;  // without weights
  const SystemClock clock_;                // only for the report; results do not depend on it
  UpdateCost cost_;
};

// Factors of naive Bayes are those of MakeLinearTraining.
LinearLbfgs::LinearLbfgs(const TrainingConfig& config, const LinearOptions& options,
                         std::shared_ptr<const LinearExamples> examples)
    : config_(config),
      examples_(std::move(examples)),
      form_{.features = examples_->rows.width, .outputs = examples_->outputs, .loss = options.loss},
      search_options_{.history = int(config.optimizer.history_size),
                      .gradient_norm = config.optimizer.tolerance_grad},
      objective_{.form = form_,
                 .rows = &examples_->rows,
                 .targets = examples_->targets,
                 .scale = 1 / double(examples_->rows.size()),
                 .l2 = options.l2},
      lbfgs_(search_options_),
      vectors_(search_options_.history, std::int64_t(weights())),
      sums_(weights()),
      outputs_(examples_->targets.size()),
      value_(std::size_t(AlignParams(form_.rows() * form_.outputs))) {
  if (!options.naive_bayes) return;
  ratios_ = NaiveBayesRatios(examples_->rows, examples_->targets, options.smoothing);
  // The rows are scaled once, in a copy.
  own_ = examples_->rows;
  ScaleColumns(ratios_, &own_);
  objective_.rows = &own_;
}

// All examples, in their order.
double LinearLbfgs::Evaluate(std::span<const float> weights, std::span<float> gradient) {
  // Sums are in f64; only the result is rounded.
  std::ranges::fill(sums_, 0.0);
  loss_ = AddLinearLoss(objective_, {0, objective_.rows->size()}, weights, sums_, outputs_);
  const double penalty = AddLinearPenalty(objective_, weights, sums_);
  std::ranges::transform(sums_, gradient.begin(), [](double g) { return float(g); });
  CountRight(outputs_);
  ++cost_.gradients;
  cost_.tokens += double(objective_.rows->columns.size());
  cost_.sequences += double(objective_.rows->size());
  return loss_ + penalty;
}

// Correct predictions of all examples. outputs: [n, outputs].
void LinearLbfgs::CountRight(std::span<const double> outputs) {
  right_ = 0;
  const auto width = std::size_t(form_.outputs);
  for (std::size_t i = 0; i < outputs.size(); i += width) {
    right_ += IsLinearRight(config_.model.problem_type, outputs.subspan(i, width),
                            std::span(examples_->targets).subspan(i, width));
  }
}

// Published weights contain the factors of naive Bayes. The bias has none.
void LinearLbfgs::Publish() {
  const std::span<const float> from = std::as_const(vectors_).at(VectorName::kWeights);
  const auto width = std::size_t(form_.outputs);
  for (std::size_t i = 0; i < from.size(); ++i)
    value_[i] = from[i] * (i / width < ratios_.size() ? ratios_[i / width] : 1.0f);
}

// The outcome is logged once. A first value that is not finite is an error at every update.
Result<LossReport> LinearLbfgs::RunUpdate(const SampleBatch&, double, std::span<float> priority) {
  const Time begin = clock_.Now();
  const bool ended = lbfgs_.outcome() != Lbfgs::Outcome::kRunning;
  TROOP_RETURN_IF_ERROR(RunLbfgsIteration(
      &lbfgs_, &vectors_,
      [this](std::span<const float> w, std::span<float> g) { return Evaluate(w, g); }));
  if (lbfgs_.outcome() == Lbfgs::Outcome::kNotFinite)
    return DataLoss("L-BFGS: {}; scale the features", lbfgs_.Reason());
  if (!ended && lbfgs_.outcome() != Lbfgs::Outcome::kRunning)
    LogInfo("L-BFGS has ended after {} iterations: {}", lbfgs_.iterations(), lbfgs_.Reason());
  Publish();
  ++updates_;
  // Priorities have no meaning for a data set.
  std::ranges::fill(priority, 0.0f);
  cost_.compute_s += ToSeconds(clock_.Now() - begin);
  // A mean over the examples, as the loss of other solvers.
  const std::int64_t rows = objective_.rows->size();
  return LossReport{.loss = loss_,
                    .gradient_norm = lbfgs_.gradient_norm(),
                    .rows = double(rows),
                    .accuracy = double(right_) / double(rows),
                    .sequences = rows};
}

// Between iterations, so that the vectors of a line search are not part of it.
TensorFile LinearLbfgs::State() const {
  TensorFile state;
  state.tensors["value"] = CopyOf(std::span<const float>(value_));
  std::vector<double> scalars = lbfgs_.Save();
  scalars.insert(scalars.end(), {loss_, double(right_)});
  state.tensors[kScalars] = CopyOf(std::span<const double>(scalars));
  // Places of the history fill in order, so that later ones are still zero.
  std::vector<float> saved;
  const auto add = [&](std::uint8_t name) {
    saved.insert(saved.end(), vectors_.at(name).begin(), vectors_.at(name).end());
  };
  add(VectorName::kWeights);
  add(VectorName::kGradient);
  for (std::size_t i = 0; i < SavedPairs(lbfgs_.iterations()); ++i) {
    add(VectorName::ChangeOfWeights(int(i)));
    add(VectorName::ChangeOfGradient(int(i)));
  }
  state.tensors[kVectors] = CopyOf(std::span<const float>(saved));
  state.metadata["algorithm"] = EnumName(config_.learner.algorithm);
  state.metadata["optimizer"] = kOptimizer;
  state.metadata["updates"] = std::to_string(updates_);
  return state;
}

// All checks precede the first change.
Status LinearLbfgs::SetState(const TensorFile& state) {
  const auto optimizer = state.metadata.find("optimizer");
  if (optimizer == state.metadata.end() || optimizer->second != kOptimizer) {
    return InvalidArgument("optimizer is \"{}\" in the state, but \"{}\" in the config",
                           optimizer == state.metadata.end() ? "" : optimizer->second, kOptimizer);
  }
  TROOP_ASSIGN_OR_RETURN(const std::uint64_t updates, UpdatesOfState(state));
  TROOP_ASSIGN_OR_RETURN(const auto value, Values<float>(state, "value", value_.size()));
  TROOP_ASSIGN_OR_RETURN(const auto scalars,
                         Values<double>(state, kScalars, lbfgs_.Save().size() + 2));
  const double right = scalars.back();
  if (!(right >= 0 && right <= double(objective_.rows->size())))
    return InvalidArgument("\"{}\" of the state counts {} correct predictions", kScalars, right);
  // A separate search, whose number of iterations says how many pairs the state has.
  Lbfgs lbfgs(search_options_);
  TROOP_RETURN_IF_ERROR(lbfgs.Restore(scalars.first(scalars.size() - 2)));
  // Then the vectors.
  const std::size_t size = weights(), pairs = SavedPairs(lbfgs.iterations());
  TROOP_ASSIGN_OR_RETURN(const auto saved, Values<float>(state, kVectors, (2 + 2 * pairs) * size));
  // The order of State.
  std::size_t at = 0;
  const auto take = [&](std::uint8_t name) {
    std::ranges::copy(saved.subspan(at, size), vectors_.at(name).begin());
    at += size;
  };
  take(VectorName::kWeights);
  take(VectorName::kGradient);
  for (std::size_t i = 0; i < pairs; ++i) {
    take(VectorName::ChangeOfWeights(int(i)));
    take(VectorName::ChangeOfGradient(int(i)));
  }
  TROOP_RETURN_IF_ERROR(lbfgs_.Restore(scalars.first(scalars.size() - 2)));
  loss_ = scalars[scalars.size() - 2];
  right_ = std::int64_t(right);
  std::ranges::copy(value, value_.begin());
  updates_ = updates;
  return Status::Ok();
}

// The count continues, so that later versions are newer than all published ones.
Status LinearLbfgs::RollBack(const TensorFile& state) {
  const std::uint64_t updates = updates_;
  TROOP_RETURN_IF_ERROR(SetState(state));
  updates_ = updates + 1;
  return Status::Ok();
}

// The weights without their padding.
Status LinearLbfgs::WriteModelFiles(std::string_view folder, Storage* run) const {
  LinearModelParts model = *parts_;
  model.weights.assign(value_.begin(), value_.begin() + std::ptrdiff_t(weights()));
  return WriteLinearModel(model, folder, run);
}

Status LinearLbfgs::CheckFinite() const {
  const auto bad = std::ranges::find_if(value_, [](float w) { return !std::isfinite(w); });
  if (bad == value_.end()) return Status::Ok();
  // Weights are row by row.
  const std::int64_t at = bad - value_.begin();
  return DataLoss("the weight of feature {}, output {} is {}", at / form_.outputs,
                  at % form_.outputs, *bad);
}

// Checks that the rules of rows do not apply to: FTRL's are those of a penalized objective.
Status Check(LinearOptions options, const LinearExamples& examples) {
  if (options.l1 > 0) {
    return InvalidArgument("l1 is {}, but lbfgs needs a smooth objective; set 0", options.l1);
  }
  // An L2 of 0 is allowed.
  options.dual_ascent = false;
  options.rows.rule = RowRule::kFtrl;
  return CheckLinearProblem(options, examples);
}

}  // namespace

Result<std::unique_ptr<Algorithm>> MakeLinearLbfgs(const TrainingConfig& config,
                                                   const LinearOptions& options,
                                                   std::shared_ptr<const LinearExamples> examples) {
  TROOP_RETURN_IF_ERROR(Check(options, *examples));
  return std::unique_ptr<Algorithm>(new LinearLbfgs(config, options, std::move(examples)));
}

// The held-out rows are released here: only the evaluator uses them.
Result<std::unique_ptr<Algorithm>> MakeLinearLbfgs(const TrainingConfig& config) {
  TROOP_ASSIGN_OR_RETURN(const auto data, LoadLinearData(config));
  const ProblemType problem = config.model.problem_type;
  const auto examples = LinearExamplesOf(data->train, problem, std::ssize(data->names));
  const LinearOptions options = LinearOptionsOf(config);
  const Status fits = Check(options, *examples);
  if (!fits.ok()) return fits.WithContext("[linear]");
  auto training = std::make_unique<LinearLbfgs>(config, options, examples);
  training->SetParts({.form = {.features = examples->rows.width,
                               .outputs = examples->outputs,
                               .loss = options.loss},
                      .problem = problem,
                      .labels = data->names,
                      .vectorizer = data->vectorizer});
  return std::unique_ptr<Algorithm>(std::move(training));
}

}  // namespace troop
