// Implements supervised training of text models on the CPU, and the order of samples.

#include "learners/supervised/supervised.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/base/failpoint.h"
#include "core/base/log.h"
#include "core/base/time.h"
#include "datasets/text/masked_lm.h"
#include "learners/nonfinite_report.h"
#include "learners/supervised/class_weights.h"
#include "learners/supervised/gpu_supervised.h"
#include "learners/supervised/model_shard.h"
#include "learners/supervised/tokenizer_settings.h"
#include "learners/train_state.h"
#include "nn/io/hugging_face.h"
#include "nn/io/image_model_files.h"
#include "nn/models/model.h"
#include "nn/models/text_model.h"
#include "nn/transformer/family.h"

namespace troop {
namespace {

// The epoch that keys the masks of evaluation; training never reaches it.
constexpr std::int64_t kJudgingEpoch = std::int64_t{1} << 40;

// The gradient is the sum over micro-batches; TrainState makes the step.
class Supervised final : public Algorithm,
                         public ExternalOptimizer,
                         public TensorParallelMember,
                         public BatchPartition,
                         public CostReporting {
 public:
  // Made by the factory, so that the constructor cannot fail.
  struct Parts {
    std::shared_ptr<const ReviewData> data;
    ModelShard model;
    std::unique_ptr<TrainState> trained;
  };
  Supervised(const TrainingConfig& config, Parts parts)
      : config_(config),
        parts_(std::move(parts)),
        share_(config, parts_.data),
        step_(&model_.module(), share_.batches().words(), config.model.problem_type) {}

  ExternalOptimizer* external_optimizer() override { return this; }
  TensorParallelMember* tensor_parallel() override { return this; }
  BatchPartition* batch_partition() override { return this; }
  CostReporting* cost_reporting() override { return this; }

  void SetRank(int rank, int ranks) override { share_.SetRank(rank, ranks); }
  void SetTrainingProgress(const TrainingProgress& course) override {
    share_.SetTrainingProgress(course);
  }
  Result<LossReport> ComputeGradient(const SampleBatch& batch, std::span<float> priority,
                                     GradientWatch* watch) override;
  std::span<float> gradient() override { return trained_->gradient(); }
  void ApplyGradient(double, double norm) override {
    const Time begin = clock_.Now();
    trained_->Step(Progress(), norm, ConstTensor());
    cost_.step_s += ToSeconds(clock_.Now() - begin);
  }
  UpdateCost TakeCost() override { return std::exchange(cost_, UpdateCost{}); }
  void CountAllReduce(const AllReduceStats& stats) override { cost_.Count(stats); }
  void ReplaceWeights(std::uint64_t updates, std::span<const float> value) override {
    trained_->Adopt(updates, value);
  }
  // The rest forwards to TrainState, by way of ModelShard where the whole model counts.
  Optimizer& optimizer() override { return trained_->optimizer(); }
  double ClipScale(double norm) const override { return trained_->ClipScale(norm); }
  float LearningRate(double) const override { return trained_->LearningRate(Progress()); }
  std::uint64_t updates() const override { return trained_->updates(); }
  std::span<const float> value() const override { return trained_->value(); }
  TensorFile State() const override { return trained_->State(); }
  Status SetState(const TensorFile& state) override {
    return trained_->SetState(model_.Begin(state));
  }
  Status RollBack(const TensorFile& state) override {
    return trained_->RollBack(model_.Cut(state));
  }
  Status CheckFinite() const override { return trained_->CheckFinite(); }
  void SetTensorGroup(Collective* group, Collective* devices) override;
  Status tensor_status() const override { return tensor_ ? tensor_->status() : Status::Ok(); }
  double GradientNorm() override {
    if (!model_.cut()) return Algorithm::GradientNorm();
    return model_.Norm(tensor_.get(), trained_->gradient());
  }
  Status Gather(bool state) override { return model_.Gather(collective_, *this, state); }
  std::span<const float> WholeValue() const override {
    return model_.cut() ? model_.value() : value();
  }
  TensorFile WholeState() const override { return model_.cut() ? model_.state() : State(); }

 private:
  // Progress of the current update. A job of several updates has one progress value; this is exact.
  double Progress() const { return share_.Progress(updates()); }
  Result<TextOutcome> ComputeParts(GradientWatch* watch);
  Status Refuse(const std::string& what) const;

  const TrainingConfig config_;
  Parts parts_;
  ModelShard& model_ = parts_.model;
  TrainState* const trained_ = parts_.trained.get();
  DistributedSampler share_;
  TextStep step_;
  const SystemClock clock_;  // only for the report; results do not depend on it
  UpdateCost cost_;
  // Tensor parallelism: the group of the other parts; nullptr otherwise.
  Collective* collective_ = nullptr;
  std::unique_ptr<TensorGroup> tensor_;
};

void Supervised::SetTensorGroup(Collective* group, Collective*) {
  collective_ = group;
  tensor_ = group != nullptr ? std::make_unique<TensorGroup>(group, &clock_) : nullptr;
  step_.SetTensorGroup(tensor_.get());
}

// The SampleBatch is ignored: the samples follow from updates().
Result<LossReport> Supervised::ComputeGradient(const SampleBatch&, std::span<float> priority,
                                               GradientWatch* watch) {
  ++cost_.gradients;
  TROOP_ASSIGN_OR_RETURN(const TextOutcome outcome, ComputeParts(watch));
  if (model_.place().rank == 0) {  // the other ranks have the same
    cost_.tokens += double(outcome.tokens);
    cost_.sequences += double(outcome.sequences);
  }
  TROOP_RETURN_IF_ERROR(tensor_status());
  if (!std::isfinite(outcome.loss)) return Refuse(fmt::format("the loss is {}", outcome.loss));
  // With tensor parallelism AllReduceStep checks the norm, because all ranks must decide alike.
  const double norm = model_.cut() ? 0 : GradientNorm();
  if (!std::isfinite(norm)) return Refuse(fmt::format("the gradient norm is {}", norm));
  std::ranges::fill(priority, 0.0f);
  const double rows = double(std::max<std::int64_t>(1, outcome.rows));
  return LossReport{.loss = outcome.loss / rows,
                    .gradient_norm = norm,
                    .rows = double(outcome.rows),
                    .accuracy = double(outcome.right) / rows,
                    .sequences = outcome.sequences};
}

// Forward and backward of all micro-batches, with their cost. Only the last one notifies `watch`,
// since the gradient is final then.
Result<TextOutcome> Supervised::ComputeParts(GradientWatch* watch) {
  TextOutcome sum;
  const TextStep::Weights weights{trained_->value(), trained_->packed_value()};
  TextStep::Gradient gradient{.gradient = trained_->gradient()};
  // The time spent waiting for ranks is subtracted from the compute time.
  const auto compute = [&](const TextBatch& text, float scale, bool last) -> Status {
    const Time computes = clock_.Now();
    const Duration waited = tensor_ ? tensor_->waited() : Duration();
    const std::uint64_t exchanged = tensor_ ? tensor_->traffic().bytes : 0;
    gradient.scale = scale;
    gradient.watch = last ? watch : nullptr;
    TROOP_ASSIGN_OR_RETURN(const TextOutcome outcome,
                           step_.ForwardBackward(weights, text, gradient));
    gradient.accumulate = true;
    sum += outcome;
    const Duration waits = tensor_ ? tensor_->waited() - waited : Duration();
    cost_.tensor_s += ToSeconds(waits);
    cost_.compute_s += ToSeconds(clock_.Now() - computes - waits);
    cost_.tensor_bytes += double((tensor_ ? tensor_->traffic().bytes : 0) - exchanged);
    cost_.flops +=
        TrainingFlops(config_, text, LastLayer::kFromQueriesOn) / double(model_.place().ranks);
    return Status::Ok();
  };
  TROOP_RETURN_IF_ERROR(share_.ForEach(updates(), &cost_.data_s, compute));
  // No micro-batch had a label, so the gradient is zero.
  if (!gradient.accumulate) std::ranges::fill(gradient.gradient, 0.0f);
  // Failpoint of the divergence tests.
  if (const auto bad = InjectedValue(Failpoint::kLearnerGradient)) gradient.gradient[0] = *bad;
  return sum;
}

// Names the origin: a weight, or else a parameter's gradient.
Status Supervised::Refuse(const std::string& what) const {
  std::string origin = CheckFinite().message();
  if (origin.empty()) {
    const std::string parameter = FindNonFiniteParameter(model_.module(), trained_->gradient());
    if (!parameter.empty()) origin = "the gradient of " + parameter;
  }
  return DataLoss("update {}: {}{}{}; the batch was skipped", updates() + 1, what,
                  origin.empty() ? "" : ": ", origin);
}

// A classifier of other classes starts at random values, the layers before it do not.
void DropOtherClasses(const TransformerOptions& wanted, Pretrained* there, bool tell) {
  if (there->options.head != TransformerHead::kClassifier ||
      wanted.head != TransformerHead::kClassifier || there->options.classes == wanted.classes)
    return;
  const std::string name = FormOf(wanted.config.family).classifier;
  there->weights.tensors.erase(name + ".weight");
  there->weights.tensors.erase(name + ".bias");
  if (tell)
    LogInfo("model.pretrained: the model has {} classes, this run {}: its last layer starts again",
            there->options.classes, wanted.classes);
}

// tell: log the parameters that keep their random initial values.
Status LoadPretrained(const TrainingConfig& config, const Module& whole, std::span<float> value,
                      bool tell) {
  if (ClassifiesImages(config)) return LoadPretrainedImages(config.model, whole, value, tell);
  const std::string& path = config.model.pretrained;
  TROOP_ASSIGN_OR_RETURN(const auto storage, MakeDiskStorage(path));
  Result<Pretrained> pretrained = ReadPretrained(storage.get(), "");
  if (!pretrained.ok()) return pretrained.status().WithContext("model.pretrained: " + path);
  TROOP_ASSIGN_OR_RETURN(const TransformerOptions wanted, TextModelOptions(ModelSetupOf(config)));
  TransformerConfig there = pretrained->options.config;
  // Training settings, which do not affect the stored weights.
  there.hidden_dropout = wanted.config.hidden_dropout;
  there.attention_dropout = wanted.config.attention_dropout;
  there.classifier_dropout = wanted.config.classifier_dropout;
  there.deviation = wanted.config.deviation;
  there.sinusoids = wanted.config.sinusoids;
  if (!(there == wanted.config)) {
    return InvalidArgument(
        "model.pretrained: {} is {:?} with {} tokens, {} layers, hidden size {} and {} positions; "
        "model.* is {:?} with {}, {}, {} and {}, or other keys of config.json differ",
        path, NameOf(there.family), there.vocabulary, there.layers, there.hidden, there.positions,
        NameOf(wanted.config.family), wanted.config.vocabulary, wanted.config.layers,
        wanted.config.hidden, wanted.config.positions);
  }
  DropOtherClasses(wanted, &*pretrained, tell);
  Result<LoadedWeights> loaded = LoadWeights(whole, pretrained->weights, value);
  if (!loaded.ok()) return loaded.status().WithContext("model.pretrained: " + path);
  if (const std::string unused = DescribeUnused(*loaded); !unused.empty()) {
    LogWarning("model.pretrained: {}: {}", path, unused);
  }
  for (const std::string& name : loaded->fresh) {
    if (!tell) break;
    LogInfo("model.pretrained: {} has no {}: it starts at random values", path, name);
  }
  return Status::Ok();
}

}  // namespace

BatchSchedule::BatchSchedule(const TrainingConfig& config, std::vector<std::int32_t> lengths)
    : config_(config), lengths_(std::move(lengths)) {}

// The order of an epoch is computed once; batches of other epochs rebuild it.
BatchSchedule::Batch BatchSchedule::BatchOf(std::uint64_t number) {
  const auto batches = std::uint64_t(BatchesOfEpoch(config_, std::int64_t(lengths_.size())));
  const auto epoch = std::int64_t(number / batches);
  if (epoch != epoch_) {
    order_.emplace(lengths_, BucketBatchSampler::Options{
                                 .seed = std::uint64_t(config_.seed),
                                 .epoch = epoch,
                                 .batch_size = std::int32_t(config_.learner.batch_size)});
    epoch_ = epoch;
  }
  return {
      .epoch = epoch, .number = number, .samples = order_->batch(std::int64_t(number % batches))};
}

// Matrix products only. A layer's weights cost 2 FLOP per weight and token, attention costs 4 per
// pair of tokens and hidden unit; backward costs twice as much as forward.
double TrainingFlops(const TrainingConfig& config, const TextBatch& batch, LastLayer last_layer) {
  const ModelConfig& m = config.model;
  const double hidden = double(m.hidden_size), layers = double(m.num_hidden_layers);
  const double embedding = m.embedding_size > 0 ? double(m.embedding_size) : hidden;
  const double tokens = double(batch.ids.size()), rows = double(batch.rows());
  const bool masked = config.learner.algorithm == AlgorithmKind::kMaskedLm;
  // Pairs of tokens that attend to each other, in one layer.
  double pairs = 0, last_pairs = 0;  // last: of the tokens that the head reads, with all others
  std::size_t place = 0;
  for (std::size_t i = 0; i + 1 < batch.starts.size(); ++i) {
    const double length = double(batch.starts[i + 1] - batch.starts[i]);
    const std::size_t before = place;
    while (place < batch.places.size() && batch.places[place] < batch.starts[i + 1]) ++place;
    pairs += length * length;
    last_pairs += length * (masked ? double(place - before) : 1);
  }
  double forward = 0;
  if (m.architecture == ModelArchitecture::kLstm) {
    // Four gates in two directions; a layer above the first reads both directions.
    for (std::int64_t i = 0; i < m.num_hidden_layers; ++i) {
      forward += 2 * tokens * 8 * hidden * ((i == 0 ? embedding : 2 * hidden) + hidden);
    }
    forward += 2 * tokens * 2 * hidden * hidden;
  } else {
    const double inner = m.intermediate_size > 0 ? double(m.intermediate_size) : 4 * hidden;
    const double third = 2 * hidden * hidden;  // queries, keys or values, or the attention's output
    // Dense part after the attention: output projection and feed-forward layers.
    const double behind = third + 2 * 2 * hidden * inner;
    const double layer = tokens * (3 * third + behind) + 4 * pairs * hidden;
    const double last = last_layer == LastLayer::kBehindAttention
                            ? tokens * 3 * third + 4 * pairs * hidden
                            : (tokens * 2 + rows) * third + 4 * last_pairs * hidden;
    forward = (layers - 1) * layer + last + rows * behind;
    if (m.architecture == ModelArchitecture::kAlbert ||
        (m.architecture == ModelArchitecture::kElectra && embedding != hidden))
      forward += 2 * tokens * embedding * hidden;
    // The head: transform and vocabulary of a masked LM, or the pooler of a classifier.
    const double words =
        masked ? hidden * embedding + embedding * double(m.vocab_size) : hidden * hidden;
    forward += 2 * rows * words;
  }
  // Forward once; backward twice, for the inputs and for the weights.
  return 3 * forward;
}

TextCollator::TextCollator(const TrainingConfig& config, std::shared_ptr<const Tokenizer> tokenizer)
    : masked_(config.learner.algorithm == AlgorithmKind::kMaskedLm),
      word_dropout_(config.data.word_dropout),
      words_(config.model.vocab_size),
      segments_(HasSegments(config.model.architecture)),
      seed_(std::uint64_t(config.seed)),
      tokenizer_(std::move(tokenizer)) {}

// Labels are the masked tokens, or the classes; multi-label and regression have targets instead.
TextBatch TextCollator::Make(PackedBatch packed, std::int64_t epoch) const {
  TextBatch batch;
  if (masked_) {
    MaskedBatch masked =
        MaskTokens(std::move(packed), *tokenizer_, {.seed = seed_, .epoch = epoch});
    packed = std::move(masked.batch);
    batch.places = std::move(masked.positions);
    batch.labels = std::move(masked.targets);
  } else {
    if (packed.targets.empty()) batch.labels = std::move(packed.labels);
    batch.targets = std::move(packed.targets);
  }
  if (segments_) batch.types = std::move(packed.types);
  batch.ids = std::move(packed.ids);
  batch.starts = std::move(packed.begins);
  return batch;
}

// Dropout keys and masks depend on sample and batch number only, not on the learner.
TextBatch TextCollator::ForTraining(const TokenizedDataset& set,
                                    std::span<const std::int32_t> samples,
                                    const BatchSchedule::Batch& batch) const {
  PackedBatch packed = PackBatch(set, samples);
  if (word_dropout_ > 0) {
    packed = MaskTokens(std::move(packed), *tokenizer_,
                        {.seed = seed_, .epoch = batch.epoch, .chosen = word_dropout_, .masked = 1})
                 .batch;
  }
  TextBatch made = Make(std::move(packed), batch.epoch);
  for (const std::int32_t sample : samples) {
    made.dropout.push_back(MakeDropoutKey(seed_, std::uint64_t(sample), batch.number));
  }
  return made;
}

TextBatch TextCollator::ForJudging(const TokenizedDataset& set,
                                   std::span<const std::int32_t> samples) const {
  return Make(PackBatch(set, samples), kJudgingEpoch);
}

// Masking must run, because its number of tokens is random.
std::int64_t TextCollator::LabelsOf(const TokenizedDataset& set,
                                    std::span<const std::int32_t> samples,
                                    const BatchSchedule::Batch& batch) const {
  if (!masked_) return std::int64_t(samples.size());
  return std::int64_t(Make(PackBatch(set, samples), batch.epoch).labels.size());
}

// Order and batches are the same on all learners; only rank_ and ranks_ differ.
DistributedSampler::DistributedSampler(const TrainingConfig& config,
                                       std::shared_ptr<const ReviewData> data)
    : config_(config),
      data_(std::move(data)),
      order_(config, data_->lengths),
      batches_(config, data_->tokenizer) {
  if (config.learner.class_weights == ClassWeights::kBalanced)
    class_weights_ = BalancedClassWeights(classes_ = data_->train.labels);
}

void DistributedSampler::SetRank(int rank, int ranks) {
  rank_ = rank;
  ranks_ = ranks;
}

// A course is set with parameter shards; otherwise max_updates is the length of the run.
double DistributedSampler::Progress(std::uint64_t updates) const {
  if (training_progress_) return training_progress_->progress;
  return double(updates) / double(std::max<std::int64_t>(1, config_.run.max_updates));
}

// Uses the pieces made ahead, if they are for this update and rank.
DistributedSampler::Pieces DistributedSampler::Begin(std::uint64_t number) {
  if (ahead_ && ahead_->batch.number == number && ahead_->rank == rank_ &&
      ahead_->ranks == ranks_) {
    Pieces made = std::move(*ahead_);
    ahead_.reset();
    return made;
  }
  Pieces pieces{.rank = rank_, .ranks = ranks_};
  pieces.batch = order_.BatchOf(number);
  // Unequal shares apply only while all learners are present: which ones are missing is unknown
  // here.
  const std::vector<double>& given = config_.mesh.batch_shares;
  const auto shares =
      given.size() == std::size_t(ranks_) ? given : std::vector<double>(std::size_t(ranks_), 1.0);
  pieces.samples = SplitBatch(pieces.batch.samples, data_->lengths, shares)[std::size_t(rank_)];
  const std::int64_t labels = batches_.LabelsOf(data_->train, pieces.batch.samples, pieces.batch);
  // The mean over learners of the scaled sums is the mean over all labels of the batch.
  pieces.scale = float(double(ranks_) / double(std::max<std::int64_t>(1, labels)));
  if (!class_weights_.empty()) {
    for (const std::int32_t i : pieces.batch.samples)
      pieces.labels.push_back(classes_[std::size_t(i)]);
  }
  pieces.batch.samples = {};  // they belong to order_ and become invalid
  return pieces;
}

std::size_t DistributedSampler::micro(const Pieces& pieces) const {
  const std::int64_t asked = config_.learner.micro_batch_size;
  return std::max<std::size_t>(1, asked > 0 ? std::size_t(asked) : pieces.samples.size());
}

TextBatch DistributedSampler::Make(const Pieces& pieces, std::size_t first) const {
  const std::span<const std::int32_t> mine(pieces.samples);
  const auto now = mine.subspan(first, std::min(micro(pieces), mine.size() - first));
  TextBatch text = batches_.ForTraining(data_->train, now, pieces.batch);
  text.weights = RowWeights(class_weights_, pieces.labels, text.labels);
  return text;
}

// Time spent in `use` does not count as data time.
Status DistributedSampler::ForEach(std::uint64_t updates, double* data_s, const Use& use) {
  Time begin = clock_.Now();
  const Pieces pieces = Begin(BatchBehind(updates));
  const std::size_t step = micro(pieces), count = pieces.samples.size();
  for (std::size_t first = 0, i = 0; first < count; first += step, ++i) {
    const TextBatch text = i < pieces.ahead.size() ? pieces.ahead[i] : Make(pieces, first);
    *data_s += ToSeconds(clock_.Now() - begin);
    // No label: the samples are too short for a token to be masked.
    if (text.rows() > 0) TROOP_RETURN_IF_ERROR(use(text, pieces.scale, first + step >= count));
    begin = clock_.Now();
  }
  return Status::Ok();
}

// Begin uses the result if the rank stays the same, and discards it otherwise.
void DistributedSampler::MakeAhead(std::uint64_t updates) {
  Pieces pieces = Begin(BatchBehind(updates) + 1);
  for (std::size_t first = 0; first < pieces.samples.size(); first += micro(pieces))
    pieces.ahead.push_back(Make(pieces, first));
  ahead_ = std::move(pieces);
}

// Weight decay skips the parameters that the module excludes (DecayGroups). No target network.
Result<std::unique_ptr<TrainState>> MakeTextTrainState(const TrainingConfig& config,
                                                       const Module* module) {
  std::vector<TrainState::Group> groups;
  std::int64_t end = 0;
  for (const Optimizer::Group& group : DecayGroups(*module, 0)) {
    end += group.count;
    groups.push_back({end, config.optimizer.learning_rate, group.decays});
  }
  return TrainState::Make(config, module, std::string(EnumName(config.learner.algorithm)),
                          std::move(groups), TrainState::Target::kNone);
}

// Parameters that the pretrained model lacks keep their random values.
Status FirstWeights(const TrainingConfig& config, const Module& whole, std::span<float> value) {
  InitParameters(whole, std::uint64_t(config.seed), value);
  if (!IsSupervised(config.learner) || config.model.pretrained.empty()) return Status::Ok();
  TROOP_RETURN_IF_ERROR(CheckPretrained(config.model));
  return LoadPretrained(config, whole, value, true);
}

Status CheckPretrainedFiles(const TrainingConfig& config) {
  const std::string& path = config.model.pretrained;
  if (!IsSupervised(config.learner) || path.empty()) return Status::Ok();
  TROOP_RETURN_IF_ERROR(CheckPretrained(config.model));
  if (ClassifiesImages(config)) return CheckPretrainedImages(path);
  TROOP_ASSIGN_OR_RETURN(const auto storage, MakeDiskStorage(path));
  return ReadPretrained(storage.get(), "").status().WithContext("model.pretrained: " + path);
}

// Loads into scratch memory: only loading compares all names and sizes.
Status CheckFirstWeights(const TrainingConfig& config) {
  if (!IsSupervised(config.learner) || config.model.pretrained.empty()) return Status::Ok();
  TROOP_RETURN_IF_ERROR(CheckPretrained(config.model));
  TROOP_ASSIGN_OR_RETURN(const auto module, MakeTextModel(ModelSetupOf(config)));
  std::vector<float> value(std::size_t(ParameterCount(*module)));
  return LoadPretrained(config, *module, value, false);
}

// Every rank loads the whole model, and takes its slice.
Status BeginPretrained(const TrainingConfig& config, const ModelShard& model, TrainState* trained) {
  if (config.model.pretrained.empty()) return Status::Ok();
  std::vector<float> value(std::size_t(ParameterCount(model.whole())));
  TROOP_RETURN_IF_ERROR(FirstWeights(config, model.whole(), value));
  std::vector<float> mine(trained->value().size());
  TakeSlice(model.whole(), model.module(), value, mine);
  trained->Begin(mine);
  return Status::Ok();
}

Result<std::unique_ptr<Algorithm>> MakeSupervised(const TrainingConfig& config,
                                                  std::shared_ptr<const ReviewData> data,
                                                  const TensorParallelRank& tensor) {
  TROOP_ASSIGN_OR_RETURN(ModelShard model, ModelShard::Make(config, tensor));
  TROOP_ASSIGN_OR_RETURN(auto trained, MakeTextTrainState(config, &model.module()));
  TROOP_RETURN_IF_ERROR(BeginPretrained(config, model, trained.get()));
  return std::unique_ptr<Algorithm>(new Supervised(
      config, {.data = std::move(data), .model = std::move(model), .trained = std::move(trained)}));
}

// Writes the files that transformers needs to load model and tokenizer.
Status WriteModel(const TrainingConfig& config, Storage* run, const Module& module,
                  std::span<const float> value) {
  if (ClassifiesImages(config)) {
    const ImageModelForm form{&config.model, config.data.image_mean, config.data.image_deviation};
    return WriteImageModel(form, module, value, kModelFolder, run);
  }
  // transformers has no LSTM.
  if (config.model.architecture == ModelArchitecture::kLstm) return Status::Ok();
  TROOP_ASSIGN_OR_RETURN(const TransformerOptions options, TextModelOptions(ModelSetupOf(config)));
  TROOP_RETURN_IF_ERROR(WritePretrained(run, kModelFolder, options, module, value));
  return WriteTokenizer(config.data, kModelFolder, run);
}

Result<std::unique_ptr<Algorithm>> MakeSupervised(const TrainingConfig& config,
                                                  const TensorParallelRank& tensor, int learner) {
  TROOP_ASSIGN_OR_RETURN(std::shared_ptr<const ReviewData> data, LoadReviewData(config));
  if (config.learner.device != DeviceChoice::kCpu) {
    auto on_device = MakeGpuSupervised(config, data, tensor, learner);
    if (on_device.ok() || config.learner.device == DeviceChoice::kCuda) return on_device;
    // A missing GPU is normal; one that exists and is not used is logged.
    if (on_device.status().code() != Code::kUnavailable)
      LogInfo("updates are computed on the CPU: {}", on_device.status().message());
  }
  return MakeSupervised(config, std::move(data), tensor);
}

}  // namespace troop
