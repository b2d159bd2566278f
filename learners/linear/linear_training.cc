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
#include "nn/optimizer.h"
#include "nn/sparse/dual_ascent.h"
#include "nn/sparse/linear_model.h"
#include "nn/sparse/linear_outputs.h"
#include "nn/sparse/naive_bayes.h"
#include "nn/sparse/row_gradients.h"

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

// Updates by either solver. Weights before the factors of naive Bayes are those of the solver.
class LinearTraining final : public Algorithm,
                             public FusedUpdate,
                             public BatchPartition,
                             public RowGradients,
                             public ExternalOptimizer,
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
  Result<LossReport> ComputeGradient(const SampleBatch& batch, std::span<float> priority,
                                     GradientWatch* watch) override;
  // Parameter shards get the gradient of all rows; else only row_gradient() has it.
  std::span<float> gradient() override { return all_rows_; }
  double GradientNorm() override;
  void ApplyGradient(double progress, double norm) override;
  BatchPartition* batch_partition() override { return this; }
  void SetRank(int rank, int ranks) override { rank_ = rank, ranks_ = ranks; }
  void SetTrainingProgress(const TrainingProgress& progress) override { progress_ = progress; }
  RowGradients* row_gradients() override { return optimizer_ ? this : nullptr; }
  std::int64_t rows() const override { return form_.rows(); }
  RowGradientSum& row_gradient() override { return *gradient_; }
  ExternalOptimizer* external_optimizer() override { return dense_ ? this : nullptr; }
  void ReplaceWeights(std::uint64_t updates, std::span<const float> value) override;
  Optimizer& optimizer() override { return *dense_; }
  double ClipScale(double) const override { return 1; }  // no gradient is clipped
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
    double loss = 0;
    std::int64_t right = 0;
  };
  Judged Ascend(std::span<const std::int32_t> samples);
  Judged SumGradient(std::span<const std::int32_t> samples, std::size_t batch_size);
  void Descend();
  void MakeDense();
  std::vector<std::int32_t> ShareOf(std::span<const std::int32_t> batch) const;
  LossReport Report(std::span<const std::int32_t> samples, const Judged& judged,
                    std::span<float> priority);
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
    const double done = progress_ ? progress_->progress : double(updates_) / all;
    return config_.optimizer.learning_rate * schedule_.Fraction(done);
  }
  // The weights that the row optimizer steps; with naive Bayes they are not the published ones.
  std::span<float> trained() { return weights_.empty() ? value_ : weights_; }

  const TrainingConfig config_;
  const LinearOptions options_;
  const std::shared_ptr<const LinearExamples> examples_;
  const LinearForm form_;
  const LearningRateSchedule schedule_;
  const std::vector<std::int32_t> lengths_;  // all 1: any order of the examples is as good
  BatchSchedule order_;
  std::vector<float> ratios_;        // [features]; empty: none
  SparseRows own_;                   // the rows with the factors, and for solvers a constant
  const SparseRows* rows_;           // own_, or those of examples_
  std::vector<DualAscent> solvers_;  // one per output; empty: the optimizer is used
  std::optional<RowOptimizer> optimizer_;
  std::optional<RowGradientSum> gradient_;
  std::unique_ptr<Optimizer> dense_;  // of shards or threads that step the weights; else nullptr
  std::vector<float> all_rows_;       // [P] with parameter shards: gradient_ and zeros; else empty
  std::vector<float> value_, weights_;  // [P]; weights_: see trained()
  std::uint64_t updates_ = 0;
  int rank_ = 0, ranks_ = 1;
  std::optional<TrainingProgress> progress_;  // nullopt: update n uses batch n
  std::optional<LinearModelParts> parts_;     // without weights
  const SystemClock clock_;                   // only for the report; results do not depend on it
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
      lengths_(std::size_t(examples_->rows.size()), 1),
      order_(config, lengths_),
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
    MakeDense();
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

// Others step the weights with a rule that leaves rows without a gradient as they are.
void LinearTraining::MakeDense() {
  const bool shards = config_.learner.sync == LearnerSync::kParamServer;
  if (!shards && config_.learner.hogwild_threads == 1) return;
  const std::optional<OptimizerType> type = ElementwiseRuleOf(options_.rows.rule);
  if (!type || !weights_.empty()) return;  // refused by the config
  OptimizerConfig optimizer = config_.optimizer;
  optimizer.type = *type;
  dense_ = *MakeOptimizer(optimizer, std::int64_t(value_.size()));
  if (shards) all_rows_.resize(value_.size());
}

void LinearTraining::ReplaceWeights(std::uint64_t updates, std::span<const float> value) {
  TROOP_CHECK(value.size() == value_.size(), "{} weights, not {}", value.size(), value_.size());
  std::ranges::copy(value, value_.begin());
  updates_ = updates;
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

// One learner has the whole batch, in its order. Unequal shares apply only while all learners are
// present, as for texts.
std::vector<std::int32_t> LinearTraining::ShareOf(std::span<const std::int32_t> batch) const {
  if (ranks_ == 1) return {batch.begin(), batch.end()};
  const std::vector<double>& given = config_.mesh.batch_shares;
  const auto shares =
      given.size() == std::size_t(ranks_) ? given : std::vector<double>(std::size_t(ranks_), 1.0);
  return SplitBatch(batch, lengths_, shares)[std::size_t(rank_)];
}

// The mean over learners of the scaled sums is the gradient of the whole batch's mean loss.
LinearTraining::Judged LinearTraining::SumGradient(std::span<const std::int32_t> samples,
                                                   std::size_t batch_size) {
  Judged judged;
  // Padding behind the weights is neither read nor written.
  const auto size = std::size_t(form_.rows() * form_.outputs);
  const auto width = std::size_t(form_.outputs);
  if (!all_rows_.empty()) {
    for (const std::int32_t row : gradient_->sum().rows)
      std::fill_n(all_rows_.begin() + std::ptrdiff_t(std::size_t(row) * width), width, 0.0f);
  }
  gradient_->Clear();
  std::vector<double> outputs(static_cast<std::size_t>(form_.outputs));
  for (const std::int32_t sample : samples) {
    const LinearExample example{.row = rows_->row(sample),
                                .targets = TargetsOf(sample),
                                .scale = double(ranks_) / double(batch_size),
                                .seen = outputs};
    judged.loss += AddLinearGradient(form_, trained().first(size), example, &*gradient_);
    judged.right += IsLinearRight(config_.model.problem_type, outputs, example.targets);
  }
  if (all_rows_.empty()) return judged;
  const RowGradient& sum = gradient_->sum();
  for (std::size_t i = 0; i < sum.rows.size(); ++i) {
    std::copy_n(sum.values.begin() + std::ptrdiff_t(i * width), width,
                all_rows_.begin() + std::ptrdiff_t(std::size_t(sum.rows[i]) * width));
  }
  return judged;
}

// All other rows are zero.
double LinearTraining::GradientNorm() {
  double squares = 0;
  for (const float g : gradient_->sum().values) squares += double(g) * double(g);
  return std::sqrt(squares);
}

// Steps the rows of the gradient.
void LinearTraining::Descend() {
  const RowGradient& gradient = gradient_->sum();
  optimizer_->Step(gradient, Rate(), trained().first(std::size_t(form_.rows() * form_.outputs)));
  ++updates_;
  if (weights_.empty()) return;
  // The step changed the gradient's rows only.
  const auto width = std::size_t(form_.outputs);
  for (const std::int32_t row : gradient.rows)
    Publish(row, std::span(weights_).subspan(std::size_t(row) * width, width));
}

// Counts the cost of the samples. Priorities have no meaning for a data set.
LossReport LinearTraining::Report(std::span<const std::int32_t> samples, const Judged& judged,
                                  std::span<float> priority) {
  std::ranges::fill(priority, 0.0f);
  for (const std::int32_t sample : samples)
    cost_.tokens += double(examples_->rows.row(sample).columns.size());
  cost_.sequences += double(samples.size());
  // A learner may have no example of a small batch.
  const double rows = double(std::max<std::size_t>(1, samples.size()));
  return LossReport{.loss = judged.loss / rows,
                    .gradient_norm = optimizer_ ? GradientNorm() : 0,
                    .rows = double(samples.size()),
                    .accuracy = double(judged.right) / rows,
                    .sequences = std::ssize(samples)};
}

// The batch follows from the number of updates, so that a resumed run continues exactly.
Result<LossReport> LinearTraining::ComputeGradient(const SampleBatch&, std::span<float> priority,
                                                   GradientWatch*) {
  if (!optimizer_) {
    return InvalidArgument(
        "\"dual_ascent\" has no gradient to exchange; set fleet.learners = 1, or another "
        "linear.solver");
  }
  const Time begin = clock_.Now();
  ++cost_.gradients;
  const auto batch = order_.BatchOf(progress_ ? progress_->batches : updates_);
  const std::vector<std::int32_t> samples = ShareOf(batch.samples);
  const LossReport report = Report(samples, SumGradient(samples, batch.samples.size()), priority);
  cost_.compute_s += ToSeconds(clock_.Now() - begin);
  if (std::isfinite(report.loss) && std::isfinite(report.gradient_norm)) return report;
  return DataLoss(
      "update {}: the loss is {}, the gradient norm {}; the batch was skipped; lower "
      "optimizer.learning_rate",
      updates_ + 1, report.loss * report.rows, report.gradient_norm);
}

// The norm is not needed: nothing is clipped.
void LinearTraining::ApplyGradient(double, double) {
  TROOP_CHECK(optimizer_.has_value(), "dual ascent has no gradient to apply");
  const Time begin = clock_.Now();
  Descend();
  cost_.step_s += ToSeconds(clock_.Now() - begin);
}

// An error comes before the step.
Result<LossReport> LinearTraining::RunUpdate(const SampleBatch& batch, double progress,
                                             std::span<float> priority) {
  if (optimizer_) {
    TROOP_ASSIGN_OR_RETURN(const LossReport report, ComputeGradient(batch, priority, nullptr));
    ApplyGradient(progress, report.gradient_norm);
    return report;
  }
  const Time begin = clock_.Now();
  ++cost_.gradients;
  const std::span<const std::int32_t> samples = order_.BatchOf(updates_).samples;
  const Judged judged = Ascend(samples);
  ++updates_;
  const LossReport report = Report(samples, judged, priority);
  cost_.compute_s += ToSeconds(clock_.Now() - begin);
  return report;
}

// Tensors without elements are left out.
TensorFile LinearTraining::State() const {
  TensorFile state;
  state.tensors["value"] = CopyOf(std::span<const float>(value_));
  if (!weights_.empty()) state.tensors[kWeights] = CopyOf(std::span<const float>(weights_));
  state.metadata["algorithm"] = EnumName(config_.learner.algorithm);
  state.metadata["optimizer"] = optimizer_name();
  state.metadata["updates"] = std::to_string(updates_);
  // The state of shards is theirs.
  if (dense_ && all_rows_.empty()) {
    for (const Optimizer::Slot& slot : dense_->slots())
      state.tensors["optimizer." + slot.name] = CopyOf(std::span<const float>(slot.values));
  }
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
  std::vector<std::vector<float>> slots;
  if (dense_ && all_rows_.empty()) {
    for (const Optimizer::Slot& slot : dense_->slots()) {
      TROOP_ASSIGN_OR_RETURN(slots.emplace_back(),
                             ReadFloats(state, "optimizer." + slot.name, slot.values.size()));
    }
  }
  TROOP_RETURN_IF_ERROR(optimizer_->SetState(rows));
  // All checks have passed.
  for (std::size_t i = 0; i < slots.size(); ++i)
    std::ranges::copy(slots[i], dense_->slots()[i].values.begin());
  return Status::Ok();
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

Result<std::unique_ptr<Algorithm>> MakeLinearTraining(
    const TrainingConfig& config, const LinearOptions& options,
    std::shared_ptr<const LinearExamples> examples) {
  TROOP_RETURN_IF_ERROR(CheckLinearProblem(options, *examples));
  return std::unique_ptr<Algorithm>(new LinearTraining(config, options, std::move(examples)));
}

// The held-out rows are released here: only the evaluator uses them.
Result<std::unique_ptr<Algorithm>> MakeLinearTraining(const TrainingConfig& config) {
  TROOP_ASSIGN_OR_RETURN(const auto data, LoadLinearData(config));
  const ProblemType problem = config.model.problem_type;
  const auto examples = LinearExamplesOf(data->train, problem, std::ssize(data->names));
  const LinearOptions options = LinearOptionsOf(config);
  const Status fits = CheckLinearProblem(options, *examples);
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
