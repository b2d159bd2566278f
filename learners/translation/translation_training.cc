// Implements supervised training of translation models on the CPU.

#include "learners/translation/translation_training.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/base/time.h"
#include "learners/nonfinite_report.h"
#include "learners/supervised/supervised.h"
#include "learners/train_state.h"
#include "learners/translation/translation_step.h"

namespace troop {
namespace {

// The gradient is the sum over micro-batches; TrainState makes the step.
class TranslationTraining final : public Algorithm, public BatchPartition, public CostReporting {
 public:
  // Made by the factory, so that the constructor cannot fail.
  struct Parts {
    std::shared_ptr<const TranslationData> data;
    std::unique_ptr<Gnmt> model;
    std::unique_ptr<TrainState> trained;
    float smoothing = 0;
  };
  TranslationTraining(const TrainingConfig& config, Parts parts)
      : config_(config),
        parts_(std::move(parts)),
        lengths_(parts_.data->train.Lengths()),
        order_(config, lengths_),
        step_(parts_.model.get()) {}

  BatchPartition* batch_partition() override { return this; }
  CostReporting* cost_reporting() override { return this; }
  void SetRank(int rank, int ranks) override { rank_ = rank, ranks_ = ranks; }
  void SetTrainingProgress(const TrainingProgress& progress) override { progress_ = progress; }

  Result<LossReport> ComputeGradient(const SampleBatch&, std::span<float> priority,
                                     GradientWatch* watch) override;
  void ApplyGradient(double, double norm) override;
  UpdateCost TakeCost() override { return std::exchange(cost_, UpdateCost{}); }
  void CountAllReduce(const AllReduceStats& stats) override { cost_.Count(stats); }

  // The rest forwards to TrainState.
  std::span<float> gradient() override { return trained_->gradient(); }
  float LearningRate(double) const override { return trained_->LearningRate(Progress()); }
  std::uint64_t updates() const override { return trained_->updates(); }
  std::span<const float> value() const override { return trained_->value(); }
  TensorFile State() const override { return trained_->State(); }
  Status SetState(const TensorFile& state) override { return trained_->SetState(state); }
  Status RollBack(const TensorFile& state) override { return trained_->RollBack(state); }
  Status CheckFinite() const override { return trained_->CheckFinite(); }

 private:
  // Progress of the current update. A job of several updates has one progress value; this is exact.
  double Progress() const {
    if (progress_) return progress_->progress;
    return double(updates()) / double(std::max<std::int64_t>(1, config_.run.max_updates));
  }
  std::vector<std::int32_t> ShareOf(const BatchSchedule::Batch& batch) const;
  Result<TokenLosses> ComputeParts(const BatchSchedule::Batch& batch,
                                   std::span<const std::int32_t> mine, GradientWatch* watch);
  Status Refuse(const std::string& what) const;

  const TrainingConfig config_;
  const Parts parts_;
  TrainState* const trained_ = parts_.trained.get();
  const std::vector<std::int32_t> lengths_;
  BatchSchedule order_;
  TranslationStep step_;
  int rank_ = 0, ranks_ = 1;
  std::optional<TrainingProgress> progress_;  // nullopt: update n uses batch n
  const SystemClock clock_;                   // only for the report; results do not depend on it
  UpdateCost cost_;
};

// Unequal shares apply only while all learners are present, as for texts.
std::vector<std::int32_t> TranslationTraining::ShareOf(const BatchSchedule::Batch& batch) const {
  const std::vector<double>& given = config_.mesh.batch_shares;
  const auto shares =
      given.size() == std::size_t(ranks_) ? given : std::vector<double>(std::size_t(ranks_), 1.0);
  return SplitBatch(batch.samples, lengths_, shares)[std::size_t(rank_)];
}

// The SampleBatch is ignored: the pairs follow from updates().
Result<LossReport> TranslationTraining::ComputeGradient(const SampleBatch&,
                                                        std::span<float> priority,
                                                        GradientWatch* watch) {
  ++cost_.gradients;
  const BatchSchedule::Batch batch = order_.BatchOf(progress_ ? progress_->batches : updates());
  const std::vector<std::int32_t> mine = ShareOf(batch);
  TROOP_ASSIGN_OR_RETURN(const TokenLosses losses, ComputeParts(batch, mine, watch));
  cost_.sequences += double(mine.size());
  cost_.tokens += double(losses.tokens);
  if (!std::isfinite(losses.smoothed))
    return Refuse(fmt::format("the loss is {}", losses.smoothed));
  const double norm = GradientNorm();
  if (!std::isfinite(norm)) return Refuse(fmt::format("the gradient norm is {}", norm));
  std::ranges::fill(priority, 0.0f);
  // A learner may have no pair of a small batch.
  const double tokens = double(std::max<std::int64_t>(1, losses.tokens));
  return LossReport{.loss = losses.smoothed / tokens,
                    .gradient_norm = norm,
                    .rows = double(losses.tokens),
                    .accuracy = double(losses.right) / tokens,
                    .sequences = std::int64_t(mine.size())};
}

// Only the last micro-batch notifies `watch`, since the gradient is final then.
Result<TokenLosses> TranslationTraining::ComputeParts(const BatchSchedule::Batch& batch,
                                                      std::span<const std::int32_t> mine,
                                                      GradientWatch* watch) {
  const EncodedPairs& pairs = parts_.data->train;
  // The mean over learners of the scaled sums is the mean over all target tokens of the batch,
  // whose lengths every learner has.
  std::int64_t tokens = 0;
  for (const std::int32_t i : batch.samples) tokens += std::ssize(pairs.target_of(i)) + 1;
  TranslationStep::Gradient gradient{.gradient = trained_->gradient(),
                                     .scale = float(double(ranks_) / double(tokens)),
                                     .smoothing = parts_.smoothing};
  std::ranges::fill(gradient.gradient, 0.0f);
  const std::int64_t asked = config_.learner.micro_batch_size;
  const std::size_t micro = std::max<std::size_t>(1, asked > 0 ? std::size_t(asked) : mine.size());
  TokenLosses sum;
  for (std::size_t first = 0; first < mine.size(); first += micro) {
    const std::size_t count = std::min(micro, mine.size() - first);
    const Time begin = clock_.Now();
    TranslationBatch packed = PackPairs(pairs, mine.subspan(first, count));
    // The key has no learner and no place in the batch, so that any mesh drops the same elements.
    for (const std::int32_t i : mine.subspan(first, count))
      packed.dropout.push_back(
          MakeDropoutKey(std::uint64_t(config_.seed), std::uint64_t(i), batch.number));
    const Time computes = clock_.Now();
    cost_.data_s += ToSeconds(computes - begin);
    // Earlier micro-batches would report parts that still grow.
    gradient.watch = first + micro >= mine.size() ? watch : nullptr;
    TROOP_ASSIGN_OR_RETURN(
        const TokenLosses losses,
        step_.ForwardBackward({trained_->value(), trained_->packed_value()}, packed, gradient));
    sum.smoothed += losses.smoothed;
    sum.likelihood += losses.likelihood;
    sum.right += losses.right;
    sum.tokens += losses.tokens;
    cost_.compute_s += ToSeconds(clock_.Now() - computes);
  }
  return sum;
}

// All parameters are trained, so the step needs no statistics.
void TranslationTraining::ApplyGradient(double, double norm) {
  const Time begin = clock_.Now();
  trained_->Step(Progress(), norm, {});
  cost_.step_s += ToSeconds(clock_.Now() - begin);
}

// Names the origin: a weight, or else a parameter's gradient.
Status TranslationTraining::Refuse(const std::string& what) const {
  std::string origin = CheckFinite().message();
  if (origin.empty()) {
    const std::string parameter = FindNonFiniteParameter(*parts_.model, trained_->gradient());
    if (!parameter.empty()) origin = "the gradient of " + parameter;
  }
  return DataLoss("update {}: {}{}{}; the batch was skipped", updates() + 1, what,
                  origin.empty() ? "" : ": ", origin);
}

}  // namespace

// Initial weights are those of MakeTextTrainState, from the run's seed.
Result<std::unique_ptr<Algorithm>> MakeTranslationTraining(
    const TrainingConfig& config, const TranslationOptions& options,
    std::shared_ptr<const TranslationData> data) {
  if (options.model.vocabulary != data->subwords.size()) {
    return InvalidArgument("the model has a vocabulary of {}, but the data have {} subwords",
                           options.model.vocabulary, data->subwords.size());
  }
  TROOP_ASSIGN_OR_RETURN(auto model, Gnmt::Make(options.model));
  TROOP_ASSIGN_OR_RETURN(auto trained, MakeTextTrainState(config, model.get()));
  return std::unique_ptr<Algorithm>(
      new TranslationTraining(config, {.data = std::move(data),
                                       .model = std::move(model),
                                       .trained = std::move(trained),
                                       .smoothing = options.label_smoothing}));
}

}  // namespace troop
