#include "learners/supervised.h"

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "core/failpoint.h"
#include "core/json.h"
#include "core/log.h"
#include "learners/bad_number.h"
#include "learners/trained_network.h"
#include "nn/hugging_face.h"
#include "nn/model.h"
#include "nn/text_model.h"
#include "text/masked_lm.h"
#include "text/read_file.h"

namespace troop {
namespace {

// What judges a masked model masks as this epoch does: no training comes to it.
constexpr std::int64_t kJudgingEpoch = std::int64_t{1} << 40;

constexpr std::size_t kVocabularyBytesMax = std::size_t{64} << 20;

class Supervised final : public Algorithm {
 public:
  Supervised(const Config& config, std::shared_ptr<const ReviewData> data,
             std::unique_ptr<Module> module, std::unique_ptr<TrainedNetwork> trained)
      : config_(config),
        data_(std::move(data)),
        module_(std::move(module)),
        trained_(std::move(trained)),
        order_(config, data_),
        batches_(config, data_->tokenizer),
        step_(module_.get(), batches_.masked()) {}

  void SetPlace(int rank, int ranks) override {
    rank_ = rank;
    ranks_ = ranks;
  }
  Result<LossReport> ComputeGradient(const SampleBatch& batch, std::span<float> priority,
                                     GradientWatch* watch) override;
  std::span<float> gradient() override { return trained_->gradient(); }
  void ApplyGradient(double, double norm) override {
    trained_->Step(Progress(), norm, ConstTensor());
  }
  void AdoptValue(std::uint64_t updates, std::span<const float> value) override {
    trained_->Adopt(updates, value);
  }
  Optimizer& optimizer() override { return trained_->optimizer(); }
  double ClipScale(double norm) const override { return trained_->ClipScale(norm); }
  float LearningRate(double progress) const override { return trained_->LearningRate(progress); }
  std::uint64_t updates() const override { return trained_->updates(); }
  std::span<const float> value() const override { return trained_->value(); }
  TensorFile State() const override { return trained_->State(); }
  Status SetState(const TensorFile& state) override { return trained_->SetState(state); }
  Status RollBack(const TensorFile& state) override { return trained_->RollBack(state); }
  Status CheckNumbers() const override { return trained_->CheckNumbers(); }

 private:
  // Of the update under way. Jobs of several updates are told one progress; this is each one's own.
  double Progress() const {
    return double(updates() + 1) / double(std::max<std::int64_t>(1, config_.learner.max_updates));
  }
  Result<TextOutcome> ComputeParts(std::span<const std::int32_t> mine,
                                   const UpdateOrder::Batch& batch, std::int64_t labels,
                                   GradientWatch* watch);
  Status Refuse(const std::string& what) const;

  const Config config_;
  const std::shared_ptr<const ReviewData> data_;
  const std::unique_ptr<Module> module_;
  const std::unique_ptr<TrainedNetwork> trained_;
  UpdateOrder order_;
  const TextBatches batches_;
  TextStep step_;
  int rank_ = 0, ranks_ = 1;
};

Result<LossReport> Supervised::ComputeGradient(const SampleBatch&, std::span<float> priority,
                                               GradientWatch* watch) {
  const UpdateOrder::Batch batch = order_.BatchOf(updates());
  const std::vector<double> shares(std::size_t(ranks_), 1.0);
  const auto parts = SplitBatch(batch.samples, data_->lengths, shares);
  const std::int64_t labels = batches_.LabelsOf(data_->train, batch.samples, batch);
  TROOP_ASSIGN_OR_RETURN(const TextOutcome outcome,
                         ComputeParts(parts[std::size_t(rank_)], batch, labels, watch));
  if (!std::isfinite(outcome.loss)) return Refuse(fmt::format("the loss is {}", outcome.loss));
  const double norm = GradientNorm();
  if (!std::isfinite(norm)) return Refuse(fmt::format("the gradient's norm is {}", norm));
  std::ranges::fill(priority, 0.0f);
  const double rows = double(std::max<std::int64_t>(1, outcome.rows));
  return LossReport{.loss = outcome.loss / rows,
                    .gradient_norm = norm,
                    .accuracy = double(outcome.right) / rows,
                    .tokens = outcome.tokens,
                    .sequences = outcome.sequences};
}

// The gradient of this learner's part, times the learners: their mean is that of the batch.
Result<TextOutcome> Supervised::ComputeParts(std::span<const std::int32_t> mine,
                                             const UpdateOrder::Batch& batch, std::int64_t labels,
                                             GradientWatch* watch) {
  TextOutcome sum;
  const std::size_t micro =
      config_.learner.micro_batch > 0 ? std::size_t(config_.learner.micro_batch) : mine.size();
  const TextStep::Weights weights{trained_->value(), trained_->packed_value()};
  TextStep::Gradient gradient{.gradient = trained_->gradient(),
                              .scale = float(double(ranks_) / double(std::max<std::int64_t>(
                                                                  1, labels)))};
  for (std::size_t begin = 0; begin < mine.size(); begin += micro) {
    const auto now = mine.subspan(begin, std::min(micro, mine.size() - begin));
    const TextBatch text = batches_.ForTraining(data_->train, now, batch);
    if (text.labels.empty()) continue;  // too short for a word to be masked
    gradient.watch = begin + micro >= mine.size() ? watch : nullptr;
    TROOP_ASSIGN_OR_RETURN(const TextOutcome outcome,
                           step_.ForwardBackward(weights, text, gradient));
    gradient.accumulate = true;
    sum += outcome;
  }
  if (!gradient.accumulate) std::ranges::fill(gradient.gradient, 0.0f);
  if (const auto bad = SpoiledNumber(Failpoint::kLearnerGradient)) gradient.gradient[0] = *bad;
  return sum;
}

Status Supervised::Refuse(const std::string& what) const {
  std::string origin = CheckNumbers().message();
  if (origin.empty()) {
    const std::string parameter = FindBadParameter(*module_, trained_->gradient());
    if (!parameter.empty()) origin = "the gradient of " + parameter;
  }
  return DataLoss("update {}: {}{}{}; the batch was left out", updates() + 1, what,
                  origin.empty() ? "" : ": ", origin);
}

Status LoadPretrained(const Config& config, const Module& module, TrainedNetwork* trained) {
  const std::string& path = config.model.pretrained;
  TROOP_ASSIGN_OR_RETURN(const auto storage, MakeDiskStorage(path));
  Result<Pretrained> pretrained = ReadPretrained(storage.get(), "");
  if (!pretrained.ok()) return pretrained.status().WithContext("model.pretrained: " + path);
  TROOP_ASSIGN_OR_RETURN(const TransformerOptions wanted, TextModelOptions(config));
  TransformerConfig there = pretrained->options.config;
  // What training does, not what the weights are.
  there.hidden_dropout = wanted.config.hidden_dropout;
  there.attention_dropout = wanted.config.attention_dropout;
  there.classifier_dropout = wanted.config.classifier_dropout;
  there.deviation = wanted.config.deviation;
  if (!(there == wanted.config)) {
    return InvalidArgument(
        "model.pretrained: {} is a model of {} words, {} layers, {} hidden numbers and {} "
        "positions; model.* has {}, {}, {} and {}, or differs in what config.json has beside them",
        path, there.vocabulary, there.layers, there.hidden, there.positions,
        wanted.config.vocabulary, wanted.config.layers, wanted.config.hidden,
        wanted.config.positions);
  }
  std::vector<float> value(trained->value().begin(), trained->value().end());
  Result<LoadedWeights> loaded = LoadWeights(module, pretrained->weights, value);
  if (!loaded.ok()) return loaded.status().WithContext("model.pretrained: " + path);
  for (const std::string& name : loaded->fresh) {
    LogInfo("model.pretrained: {} has no {}: it begins at random", path, name);
  }
  trained->Begin(value);
  return Status::Ok();
}

// Where the file of another program is needed, its folder must be there already.
Status CheckFolder(const std::string& path) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) return Status::Ok();
  return NotFound("model.pretrained: {}: no such folder", path);
}

}  // namespace

UpdateOrder::UpdateOrder(const Config& config, std::shared_ptr<const ReviewData> data)
    : config_(config), data_(std::move(data)) {}

UpdateOrder::Batch UpdateOrder::BatchOf(std::uint64_t updates) {
  const auto batches = std::uint64_t(UpdatesOfEpoch(config_, data_->train.size()) /
                                     UpdatesOfBatch(config_));
  const std::uint64_t number = updates / std::uint64_t(UpdatesOfBatch(config_));
  const auto epoch = std::int64_t(number / batches);
  if (epoch != epoch_) {
    order_.emplace(data_->lengths,
                   EpochOrder::Options{.seed = std::uint64_t(config_.seed),
                                       .epoch = epoch,
                                       .batch_size = std::int32_t(config_.learner.batch_size)});
    epoch_ = epoch;
  }
  return {.epoch = epoch,
          .number = number,
          .samples = order_->batch(std::int64_t(number % batches))};
}

TextBatches::TextBatches(const Config& config, std::shared_ptr<const Tokenizer> tokenizer)
    : masked_(config.learner.algorithm == "masked_lm"),
      seed_(std::uint64_t(config.seed)),
      tokenizer_(std::move(tokenizer)) {}

TextBatch TextBatches::Make(PackedBatch packed, std::int64_t epoch) const {
  TextBatch batch;
  if (masked_) {
    MaskedBatch masked =
        MaskTokens(std::move(packed), *tokenizer_, {.seed = seed_, .epoch = epoch});
    packed = std::move(masked.batch);
    batch.places = std::move(masked.positions);
    batch.labels = std::move(masked.targets);
  } else {
    batch.labels = std::move(packed.sentiments);
  }
  batch.ids = std::move(packed.ids);
  batch.starts = std::move(packed.begins);
  return batch;
}

TextBatch TextBatches::ForTraining(const TokenSet& set, std::span<const std::int32_t> samples,
                                   const UpdateOrder::Batch& batch) const {
  TextBatch made = Make(PackBatch(set, samples), batch.epoch);
  for (const std::int32_t sample : samples) {
    made.dropout.push_back(MakeDropoutKey(seed_, std::uint64_t(sample), batch.number));
  }
  return made;
}

TextBatch TextBatches::ForJudging(const TokenSet& set,
                                  std::span<const std::int32_t> samples) const {
  return Make(PackBatch(set, samples), kJudgingEpoch);
}

std::int64_t TextBatches::LabelsOf(const TokenSet& set, std::span<const std::int32_t> samples,
                                   const UpdateOrder::Batch& batch) const {
  if (!masked_) return std::int64_t(samples.size());
  return std::int64_t(Make(PackBatch(set, samples), batch.epoch).labels.size());
}

Result<std::unique_ptr<Algorithm>> MakeSupervised(const Config& config,
                                                  std::shared_ptr<const ReviewData> data) {
  TROOP_ASSIGN_OR_RETURN(std::unique_ptr<Module> module, MakeTextModel(config));
  std::vector<TrainedNetwork::Group> groups;
  std::int64_t end = 0;
  for (const Optimizer::Group& group : DecayGroups(*module, 0)) {
    end += group.count;
    groups.push_back({end, config.optimizer.learning_rate, group.decays});
  }
  TROOP_ASSIGN_OR_RETURN(auto trained,
                         TrainedNetwork::Make(config, module.get(), config.learner.algorithm,
                                              std::move(groups), TrainedNetwork::Target::kNone));
  if (!config.model.pretrained.empty()) {
    TROOP_RETURN_IF_ERROR(CheckFolder(config.model.pretrained));
    TROOP_RETURN_IF_ERROR(LoadPretrained(config, *module, trained.get()));
  }
  return std::unique_ptr<Algorithm>(
      new Supervised(config, std::move(data), std::move(module), std::move(trained)));
}

Status WriteModel(const Config& config, Storage* run, const Module& module,
                  std::span<const float> value) {
  TROOP_ASSIGN_OR_RETURN(const TransformerOptions options, TextModelOptions(config));
  TROOP_RETURN_IF_ERROR(WritePretrained(run, kModelFolder, options, module, value));
  TROOP_ASSIGN_OR_RETURN(const std::string vocabulary,
                         ReadFile(config.data.vocabulary, kVocabularyBytesMax));
  const bool unigram = config.data.vocabulary.ends_with(".model");
  const std::string folder = std::string(kModelFolder) + "/";
  TROOP_RETURN_IF_ERROR(
      run->WriteAtomic(folder + (unigram ? "spiece.model" : "vocab.txt"), vocabulary));
  const std::string tokenizer =
      JsonObject()
          .Add("tokenizer_class", std::string_view(unigram ? "AlbertTokenizer" : "BertTokenizer"))
          .Add("do_lower_case", !config.data.cased)
          .Add("model_max_length", config.data.tokens_max)
          .str();
  return run->WriteAtomic(folder + "tokenizer_config.json", tokenizer + "\n");
}

Result<std::unique_ptr<Algorithm>> MakeSupervised(const Config& config) {
  TROOP_ASSIGN_OR_RETURN(std::shared_ptr<const ReviewData> data, LoadReviewData(config));
  return MakeSupervised(config, std::move(data));
}

}  // namespace troop
