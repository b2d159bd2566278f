// Implements the training of linear models on sparse rows.

#include "learners/linear/linear_training.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <utility>

#include "core/base/check.h"
#include "core/base/time.h"
#include "learners/cost_reporting.h"
#include "learners/fused_update.h"
#include "learners/learning_rate_schedule.h"
#include "learners/linear/linear_data.h"
#include "learners/linear/model/linear_model_folder.h"
#include "learners/supervised/supervised.h"
#include "learners/train_state.h"
#include "nn/arena.h"
#include "nn/sparse/dual_ascent.h"
#include "nn/sparse/linear_model.h"
#include "nn/sparse/linear_outputs.h"
#include "nn/sparse/naive_bayes.h"

namespace troop {
namespace {

// Names of the tensors in a state, besides "value".
constexpr const char* kDuals = "dual_ascent.duals";  // [outputs, n]
constexpr const char* kSums = "dual_ascent.sums";    // [outputs, features + 1]
constexpr const char* kRows = "optimizer.rows";
constexpr const char* kSlots = "optimizer.values";
constexpr const char* kSteps = "optimizer.steps";
constexpr const char* kWeights = "weights";  // before the factors of naive Bayes

// A copy, so that later updates do not change a state being written.
template <class T>
ConstTensor CopyOf(std::span<const T> values) {
  return ConstTensor(Buffer::Copy(std::as_bytes(values)),
                     {DTypeOf<T>::value, {std::int64_t(values.size())}});
}

// A tensor of a state as a vector; without one it is empty, since empty tensors are not written.
template <class T>
Result<std::vector<T>> ReadVector(const TensorFile& state, const std::string& name) {
  const auto found = state.tensors.find(name);
  if (found == state.tensors.end()) return std::vector<T>();
  if (found->second.dtype() != DTypeOf<T>::value) {
    return InvalidArgument("\"{}\" of the state is {}, must be {}", name,
                           found->second.spec().ToString(), DTypeName(DTypeOf<T>::value));
  }
  const std::span<const T> values = found->second.template as<T>();
  return std::vector<T>(values.begin(), values.end());
}

// The f32 values of a state's tensor. Errors: another size, or a value that is not finite.
Result<std::vector<float>> ReadFloats(const TensorFile& state, const std::string& name,
                                      std::size_t size) {
  TROOP_ASSIGN_OR_RETURN(std::vector<float> values, ReadVector<float>(state, name));
  if (values.size() != size) {
    return InvalidArgument(
        "\"{}\" of the state has {} values, must have {}: it was saved with other data or another "
        "model",
        name, values.size(), size);
  }
  if (!std::ranges::all_of(values, [](float x) { return std::isfinite(x); }))
    return InvalidArgument("\"{}\" of the state has a value that is not finite", name);
  return values;
}

// The rows with a further column, which is 1 everywhere.
SparseRows WithConstant(const SparseRows& rows) {
  SparseRows out{.width = rows.width + 1};
  out.columns.reserve(rows.columns.size() + std::size_t(rows.size()));
  out.values.reserve(out.columns.capacity());
  for (std::int64_t i = 0; i < rows.size(); ++i) {
    const SparseRow row = rows.row(i);
    out.columns.insert(out.columns.end(), row.columns.begin(), row.columns.end());
    out.values.insert(out.values.end(), row.values.begin(), row.values.end());
    out.columns.push_back(std::int32_t(rows.width));
    out.values.push_back(1);
    out.EndRow();
  }
  return out;
}

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

// Updates by either solver. Weights before the factors of naive Bayes are those of the solver.
class LinearTraining final : public Algorithm,
                             public FusedUpdate,
                             public CostReporting,
                             public ModelFiles {
 public:
  LinearTraining(const TrainingConfig& config, const LinearOptions& options,
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
  // Half an update would need a gradient of all features.
  Result<LossReport> ComputeGradient(const SampleBatch&, std::span<float>,
                                     GradientWatch*) override {
    return InvalidArgument(
        "a linear model has no dense gradient to exchange; set fleet.learners = 1");
  }
  std::span<float> gradient() override { return {}; }
  void ApplyGradient(double, double) override {
    TROOP_CHECK(false, "a linear model is updated by RunUpdate");
  }
  float LearningRate(double) const override {
    return options_.dual_ascent ? 0.0f : float(Rate());  // 0: there is none
  }
  std::uint64_t updates() const override { return updates_; }
  std::span<const float> value() const override { return value_; }
  TensorFile State() const override;
  Status SetState(const TensorFile& state) override;
  Status RollBack(const TensorFile& state) override;
  Status CheckFinite() const override;
  UpdateCost TakeCost() override { return std::exchange(cost_, UpdateCost{}); }
  void CountAllReduce(const AllReduceStats& stats) override { cost_.Count(stats); }

 private:
  // Results of a batch, as sums.
  struct Judged {
    double loss = 0, gradient_norm = 0;
    std::int64_t right = 0;
  };
  Judged Ascend(std::span<const std::int32_t> samples);
  Result<Judged> Descend(std::span<const std::int32_t> samples);
  void Publish(std::int32_t row, std::span<const float> weights);
  void PublishColumns(std::span<const std::int32_t> samples);
  Status SetSolvers(const TensorFile& state);
  Status SetOptimizer(const TensorFile& state);
  std::string_view optimizer_name() const {
    return options_.dual_ascent ? "dual_ascent" : EnumName(options_.rows.rule);
  }
  std::span<const float> TargetsOf(std::int32_t sample) const {
    const auto outputs = std::size_t(form_.outputs);
    return std::span(examples_->targets).subspan(std::size_t(sample) * outputs, outputs);
  }
  // A schedule refers to the updates of the whole run, as that of dense models.
  double Rate() const {
    const double all = double(std::max<std::int64_t>(1, config_.run.max_updates));
    return config_.optimizer.learning_rate * schedule_.Fraction(double(updates_) / all);
  }
  // The weights that the row optimizer steps; with naive Bayes they are not the published ones.
  std::span<float> trained() { return weights_.empty() ? value_ : weights_; }

  const TrainingConfig config_;
  const LinearOptions options_;
  const std::shared_ptr<const LinearExamples> examples_;
  const LinearForm form_;
  const LearningRateSchedule schedule_;
  BatchSchedule order_;
  std::vector<float> ratios_;        // [features]; empty: none
  SparseRows own_;                   // the rows with the factors, and for solvers a constant
  const SparseRows* rows_;           // own_, or those of examples_
  std::vector<DualAscent> solvers_;  // one per output; empty: the optimizer is used
  std::optional<RowOptimizer> optimizer_;
  std::optional<RowGradientSum> gradient_;
  std::vector<float> value_, weights_;  // [P]; weights_: see trained()
  std::uint64_t updates_ = 0;
  std::optional<LinearModelParts> parts_;  // without weights
  const SystemClock clock_;                // only for the report; results do not depend on it
  UpdateCost cost_;
};

// Steps: factors of the features, the rows to train on, then one of the two solvers.
LinearTraining::LinearTraining(const TrainingConfig& config, const LinearOptions& options,
                               std::shared_ptr<const LinearExamples> examples)
    : config_(config),
      options_(options),
      examples_(std::move(examples)),
      form_{.features = examples_->rows.width, .outputs = examples_->outputs, .loss = options.loss},
      schedule_(config),
      order_(config, std::vector<std::int32_t>(std::size_t(examples_->rows.size()), 1)),
      rows_(&examples_->rows),
      value_(std::size_t(AlignParams(form_.rows() * form_.outputs))) {
  const LinearExamples& all = *examples_;
  if (options.naive_bayes) ratios_ = NaiveBayesRatios(all.rows, all.targets, options.smoothing);
  if (options.dual_ascent || !ratios_.empty()) {
    own_ = all.rows;
    if (!ratios_.empty()) ScaleColumns(ratios_, &own_);
    if (options.dual_ascent) own_ = WithConstant(own_);
    rows_ = &own_;
  }
  if (!options.dual_ascent) {
    RowOptimizerOptions rules = options.rows;
    rules.l1 = options.l1;
    rules.l2 = options.l2;
    optimizer_.emplace(rules, form_.rows(), form_.outputs);
    gradient_.emplace(form_.rows(), form_.outputs);
    if (!ratios_.empty()) weights_.resize(value_.size());
    return;
  }
  const auto outputs = std::size_t(form_.outputs);
  solvers_.reserve(outputs);
  for (std::size_t k = 0; k < outputs; ++k) {
    std::vector<float> targets;
    for (std::size_t i = k; i < all.targets.size(); i += outputs) targets.push_back(all.targets[i]);
    solvers_.emplace_back(DualAscentOptions{options.loss, options.l2, options.l1}, &own_, targets);
  }
}

// Writes the published weights of a row. weights: [outputs], of the solver. The bias has no factor.
void LinearTraining::Publish(std::int32_t row, std::span<const float> weights) {
  const bool scaled = !ratios_.empty() && std::size_t(row) < ratios_.size();
  const float factor = scaled ? ratios_[std::size_t(row)] : 1;
  float* const to = value_.data() + std::size_t(row) * weights.size();
  for (std::size_t k = 0; k < weights.size(); ++k) to[k] = factor * weights[k];
}

// Steps changed the weights of the samples' columns only.
void LinearTraining::PublishColumns(std::span<const std::int32_t> samples) {
  std::vector<float> weights(solvers_.size());
  for (const std::int32_t sample : samples) {
    for (const std::int32_t column : own_.row(sample).columns) {
      for (std::size_t k = 0; k < weights.size(); ++k)
        weights[k] = solvers_[k].weights()[std::size_t(column)];
      Publish(column, weights);
    }
  }
}

// One pass of each output's solver over the batch. Outputs are those before each example's step.
LinearTraining::Judged LinearTraining::Ascend(std::span<const std::int32_t> samples) {
  Judged judged;
  std::vector<std::vector<double>> outputs(solvers_.size());
  for (std::size_t k = 0; k < solvers_.size(); ++k)
    judged.loss += solvers_[k].Pass(samples, &outputs[k]);
  std::vector<double> row(solvers_.size());
  for (std::size_t i = 0; i < samples.size(); ++i) {
    for (std::size_t k = 0; k < row.size(); ++k) row[k] = outputs[k][i];
    judged.right += IsLinearRight(config_.model.problem_type, row, TargetsOf(samples[i]));
  }
  PublishColumns(samples);
  return judged;
}

// The gradient of the mean loss, then one step. An error comes before the step.
Result<LinearTraining::Judged> LinearTraining::Descend(std::span<const std::int32_t> samples) {
  Judged judged;
  // Padding behind the weights is neither read nor written.
  const auto size = std::size_t(form_.rows() * form_.outputs);
  gradient_->Clear();
  std::vector<double> outputs(static_cast<std::size_t>(form_.outputs));
  for (const std::int32_t sample : samples) {
    const LinearExample example{.row = rows_->row(sample),
                                .targets = TargetsOf(sample),
                                .scale = 1 / double(samples.size()),
                                .seen = outputs};
    judged.loss += AddLinearGradient(form_, trained().first(size), example, &*gradient_);
    judged.right += IsLinearRight(config_.model.problem_type, outputs, example.targets);
  }
  const RowGradient& gradient = gradient_->sum();
  double squares = 0;
  for (const float g : gradient.values) squares += double(g) * double(g);
  judged.gradient_norm = std::sqrt(squares);
  if (!std::isfinite(judged.loss) || !std::isfinite(judged.gradient_norm)) {
    return DataLoss(
        "update {}: the loss is {}, the gradient norm {}; the batch was skipped; lower "
        "optimizer.learning_rate",
        updates_ + 1, judged.loss, judged.gradient_norm);
  }
  optimizer_->Step(gradient, Rate(), trained().first(size));
  if (weights_.empty()) return judged;
  // The step changed the gradient's rows only.
  const auto width = std::size_t(form_.outputs);
  for (const std::int32_t row : gradient.rows)
    Publish(row, std::span(weights_).subspan(std::size_t(row) * width, width));
  return judged;
}

// The batch follows from the number of updates, so that a resumed run continues exactly.
Result<LossReport> LinearTraining::RunUpdate(const SampleBatch&, double,
                                             std::span<float> priority) {
  const Time begin = clock_.Now();
  ++cost_.gradients;
  const std::span<const std::int32_t> samples = order_.BatchOf(updates_).samples;
  Judged judged;
  if (options_.dual_ascent) {
    judged = Ascend(samples);
  } else {
    TROOP_ASSIGN_OR_RETURN(judged, Descend(samples));
  }
  // Priorities have no meaning for a data set.
  ++updates_;
  std::ranges::fill(priority, 0.0f);
  for (const std::int32_t sample : samples)
    cost_.tokens += double(examples_->rows.row(sample).columns.size());
  cost_.sequences += double(samples.size());
  cost_.compute_s += ToSeconds(clock_.Now() - begin);
  const double rows = double(samples.size());
  return LossReport{.loss = judged.loss / rows,
                    .gradient_norm = judged.gradient_norm,
                    .rows = rows,
                    .accuracy = double(judged.right) / rows,
                    .sequences = std::ssize(samples)};
}

// Tensors without elements are left out.
TensorFile LinearTraining::State() const {
  TensorFile state;
  state.tensors["value"] = CopyOf(std::span<const float>(value_));
  if (!weights_.empty()) state.tensors[kWeights] = CopyOf(std::span<const float>(weights_));
  state.metadata["algorithm"] = EnumName(config_.learner.algorithm);
  state.metadata["optimizer"] = optimizer_name();
  state.metadata["updates"] = std::to_string(updates_);
  if (optimizer_) {
    const RowOptimizer::State& rows = optimizer_->state();
    state.tensors[kSteps] = CopyOf(std::span<const std::int64_t>(&rows.steps, 1));
    if (rows.rows.empty()) return state;
    state.tensors[kRows] = CopyOf(std::span<const std::int32_t>(rows.rows));
    state.tensors[kSlots] = CopyOf(std::span<const float>(rows.values));
    return state;
  }
  // Output after output.
  std::vector<float> duals, sums;
  for (const DualAscent& solver : solvers_) {
    duals.insert(duals.end(), solver.state().duals.begin(), solver.state().duals.end());
    sums.insert(sums.end(), solver.state().sums.begin(), solver.state().sums.end());
  }
  state.tensors[kDuals] = CopyOf(std::span<const float>(duals));
  state.tensors[kSums] = CopyOf(std::span<const float>(sums));
  return state;
}

// All checks precede the first change.
Status LinearTraining::SetSolvers(const TensorFile& state) {
  const std::size_t examples = std::size_t(own_.size()), width = std::size_t(own_.width);
  TROOP_ASSIGN_OR_RETURN(const auto duals, ReadFloats(state, kDuals, solvers_.size() * examples));
  TROOP_ASSIGN_OR_RETURN(const auto sums, ReadFloats(state, kSums, solvers_.size() * width));
  for (std::size_t k = 0; k < solvers_.size(); ++k) {
    const auto dual = duals.begin() + std::ptrdiff_t(k * examples);
    const auto sum = sums.begin() + std::ptrdiff_t(k * width);
    const Status set = solvers_[k].SetState(
        {{dual, dual + std::ptrdiff_t(examples)}, {sum, sum + std::ptrdiff_t(width)}});
    TROOP_CHECK(set.ok(), "{}", set.message());
  }
  return Status::Ok();
}

Status LinearTraining::SetOptimizer(const TensorFile& state) {
  RowOptimizer::State rows;
  TROOP_ASSIGN_OR_RETURN(const auto steps, ReadVector<std::int64_t>(state, kSteps));
  // A state without steps is that of dual ascent, or damaged.
  if (steps.size() != 1) return InvalidArgument("the state has no \"{}\"", kSteps);
  rows.steps = steps[0];
  TROOP_ASSIGN_OR_RETURN(rows.rows, ReadVector<std::int32_t>(state, kRows));
  TROOP_ASSIGN_OR_RETURN(rows.values, ReadVector<float>(state, kSlots));
  if (!std::ranges::all_of(rows.values, [](float x) { return std::isfinite(x); }))
    return InvalidArgument("\"{}\" of the state has a value that is not finite", kSlots);
  return optimizer_->SetState(rows);
}

// A state must come from the same algorithm, optimizer and data. The solver is set last, since its
// own checks are the last ones.
Status LinearTraining::SetState(const TensorFile& state) {
  for (const auto& [key, want] :
       {std::pair<std::string, std::string_view>{"algorithm", EnumName(config_.learner.algorithm)},
        std::pair<std::string, std::string_view>{"optimizer", optimizer_name()}}) {
    const auto found = state.metadata.find(key);
    if (found == state.metadata.end() || found->second != want) {
      return InvalidArgument("{} is \"{}\" in the state, but \"{}\" in the config", key,
                             found == state.metadata.end() ? "" : found->second, want);
    }
  }
  TROOP_ASSIGN_OR_RETURN(const std::uint64_t updates, UpdatesOfState(state));
  TROOP_ASSIGN_OR_RETURN(auto value, ReadFloats(state, "value", value_.size()));
  TROOP_ASSIGN_OR_RETURN(auto weights, ReadFloats(state, kWeights, weights_.size()));
  TROOP_RETURN_IF_ERROR(optimizer_ ? SetOptimizer(state) : SetSolvers(state));
  value_ = std::move(value);
  weights_ = std::move(weights);
  updates_ = updates;
  return Status::Ok();
}

// The count continues, so that later versions are newer than all published ones.
Status LinearTraining::RollBack(const TensorFile& state) {
  const std::uint64_t updates = updates_;
  TROOP_RETURN_IF_ERROR(SetState(state));
  updates_ = updates + 1;
  return Status::Ok();
}

// The weights without their padding.
Status LinearTraining::WriteModelFiles(std::string_view folder, Storage* run) const {
  LinearModelParts model = *parts_;
  model.weights.assign(value_.begin(), value_.begin() + form_.rows() * form_.outputs);
  return WriteLinearModel(model, folder, run);
}

Status LinearTraining::CheckFinite() const {
  const auto bad = std::ranges::find_if(value_, [](float w) { return !std::isfinite(w); });
  if (bad == value_.end()) return Status::Ok();
  const std::int64_t at = bad - value_.begin();
  return DataLoss("the weight of feature {}, output {} is {}", at / form_.outputs,
                  at % form_.outputs, *bad);
}

}  // namespace

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

Result<std::unique_ptr<Algorithm>> MakeLinearTraining(
    const TrainingConfig& config, const LinearOptions& options,
    std::shared_ptr<const LinearExamples> examples) {
  TROOP_RETURN_IF_ERROR(CheckExamples(*examples));
  TROOP_RETURN_IF_ERROR(CheckOptions(options, *examples));
  return std::unique_ptr<Algorithm>(new LinearTraining(config, options, std::move(examples)));
}

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

// The held-out rows are released here: only the evaluator uses them.
Result<std::unique_ptr<Algorithm>> MakeLinearTraining(const TrainingConfig& config) {
  TROOP_ASSIGN_OR_RETURN(const auto data, LoadLinearData(config));
  const ProblemType problem = config.model.problem_type;
  const auto examples = LinearExamplesOf(data->train, problem, std::ssize(data->names));
  const LinearOptions options = LinearOptionsOf(config);
  Status fits = CheckExamples(*examples);
  if (fits.ok()) fits = CheckOptions(options, *examples);
  if (!fits.ok()) return fits.WithContext("[linear]");
  auto training = std::make_unique<LinearTraining>(config, options, examples);
  training->SetParts({.form = {.features = examples->rows.width,
                               .outputs = examples->outputs,
                               .loss = options.loss},
                      .problem = problem,
                      .labels = data->names,
                      .vectorizer = data->vectorizer});
  return std::unique_ptr<Algorithm>(std::move(training));
}

}  // namespace troop
