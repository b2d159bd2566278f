// Implements loading of review data, and the settings of a run that follow from them.

#include "learners/supervised/dataset.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <utility>
#include <vector>

#include "core/base/philox.h"
#include "core/storage/crc32c.h"
#include "core/storage/storage.h"
#include "datasets/text/length_bucketing.h"
#include "datasets/text/token_cache.h"
#include "learners/supervised/tokenizer_settings.h"
#include "paramserver/service/options_from_config.h"

namespace troop {
namespace {

namespace fs = std::filesystem;

void Append(const TokenizedDataset& from, TokenizedDataset* to) {
  for (std::int64_t i = 0; i < from.size(); ++i) {
    to->Add(from.tokens(i), from.sentiments[std::size_t(i)]);
  }
}

// Selects a random share `held` of the samples, stratified by sentiment. The order in the file does
// not matter, such as alternating sentiments.
std::vector<bool> HeldOut(const TokenizedDataset& set, double held, std::uint64_t seed) {
  std::vector<bool> out(std::size_t(set.size()));
  std::size_t before = 0;  // samples of the classes so far
  for (const Sentiment sentiment : {Sentiment::kNone, Sentiment::kNegative, Sentiment::kPositive}) {
    std::vector<std::size_t> rest;
    for (std::size_t i = 0; i < out.size(); ++i) {
      if (set.sentiments[i] == sentiment) rest.push_back(i);
    }
    const std::size_t all = before + rest.size();
    // Rounds the running total, not each class, so that the sum is exact.
    auto wanted = std::size_t(double(all) * held) - std::size_t(double(before) * held);
    Rng rng({seed, Purpose::kHoldout, std::uint64_t(sentiment)});
    for (; wanted > 0; --wanted) {
      const std::size_t at = rng.Below(std::uint32_t(rest.size()));
      out[rest[at]] = true;
      rest[at] = rest.back();
      rest.pop_back();
    }
    before = all;
  }
  return out;
}

// Reported before the validation_split is taken, because the cause is the file.
Status CheckBothSentiments(const TrainingConfig& config, const TokenizedDataset& train) {
  const std::int64_t positive = std::ranges::count(train.sentiments, Sentiment::kPositive);
  if (train.size() == 0 || (positive > 0 && positive < train.size())) return Status::Ok();
  return InvalidArgument(
      "data.reviews: {}: all {} training reviews are {}; a classifier needs both sentiments",
      config.data.reviews, train.size(), positive > 0 ? "positive" : "negative");
}

// Tokenizes a data set, or reads it from the cache. The cache's name covers all that changes
// tokens.
Result<TokenizedReviews> Load(const TrainingConfig& config, const std::string& path,
                              const Tokenizer& tokenizer) {
  std::unique_ptr<Storage> storage;
  if (!config.data.cache.empty()) {
    auto made = MakeDiskStorage((fs::path(config.log_dir) / config.data.cache).string());
    if (made.ok()) storage = *std::move(made);  // the cache is optional
  }
  const bool left = config.data.truncation_side == TruncationSide::kLeft;
  const std::string name =
      fmt::format("{}-{:08x}-{}{}.tokens", fs::path(path).filename().string(),
                  tokenizer.fingerprint(), config.data.max_length, left ? "-left" : "");
  return LoadTokenizedReviews(path, tokenizer, std::int32_t(config.data.max_length), storage.get(),
                              name, left ? TruncationSide::kLeft : TruncationSide::kRight);
}

// Gradients (of a worker's share of a batch) per update, and per batch.
std::pair<std::uint64_t, std::uint64_t> GradientsOfUpdate(const TrainingConfig& config) {
  if (config.learner.sync != LearnerSync::kParamServer) return {1, 1};
  const std::int64_t workers = WorkersOf(config.learners, config.mesh.tp);
  return {
      std::uint64_t(PushesOfUpdate(config.paramserver, workers) * config.paramserver.push_every),
      std::uint64_t(workers)};
}

// Learners with other data would exchange sample indices that mean other samples.
Status CheckIdentity(const TrainingConfig& config, const ReviewData& data) {
  if (config.data_identity.empty()) return Status::Ok();
  const std::string here = data.Identity();
  if (here == config.data_identity) return Status::Ok();
  return InvalidArgument(
      "data.reviews: {}: the data here ({}) are not the run's ({}); copy data.reviews, "
      "data.unlabeled and data.vocabulary from the machine where the run started",
      config.data.reviews, here, config.data_identity);
}

// The vocabulary size. More rows than pieces are padding.
Result<std::int64_t> VocabularyRows(const TrainingConfig& config, std::int64_t pieces) {
  const std::int64_t rows = config.model.vocab_size == 0 ? pieces : config.model.vocab_size;
  if (rows < pieces) {
    return InvalidArgument(
        "model.vocab_size is {}, must be 0 or at least the size of data.vocabulary ({})", rows,
        pieces);
  }
  TROOP_RETURN_IF_ERROR(CheckVocabularyWhole(config.data.vocabulary, pieces, rows));
  if (!config.model.pretrained.empty() && pieces < rows / 2) {
    return InvalidArgument(
        "{} has {} pieces, but model.pretrained has {}: the file is truncated, or belongs to "
        "another "
        "model; copy it again",
        config.data.vocabulary, pieces, rows);
  }
  return rows;
}

template <class T>
std::uint32_t Checksum(const std::vector<T>& values, std::uint32_t before) {
  return Crc32c(std::as_bytes(std::span(values)), before);
}

}  // namespace

// Covers order and boundaries of the samples, since learners exchange indices only.
std::string ReviewData::Identity() const {
  std::uint32_t checksum = tokenizer->fingerprint();
  std::size_t tokens = 0;
  for (const TokenizedDataset* set : {&train, &validation_split, &test}) {
    checksum = Checksum(set->begins, checksum);
    checksum = Checksum(set->ids, checksum);
    checksum = Checksum(set->sentiments, checksum);
    tokens += set->ids.size();
  }
  // Stored in configs and compared across versions: the text must not change.
  return fmt::format(
      "{} reviews to learn ({} positive), {} held out, {} to test, {} tokens, "
      "checksum {:08x}",
      train.size(), std::ranges::count(train.sentiments, Sentiment::kPositive),
      validation_split.size(), test.size(), tokens, checksum);
}

// Steps: tokenizer, labeled reviews, validation_split, unlabeled reviews, checks.
Result<std::shared_ptr<const ReviewData>> LoadReviewData(const TrainingConfig& config) {
  auto data = std::make_shared<ReviewData>();
  TROOP_RETURN_IF_ERROR(CheckTokenizerSettings(config.data, config.model.pretrained));
  auto tokenizer = OpenVocabulary(config.data.vocabulary, config.data.cased);
  if (!tokenizer.ok()) {
    return Status(tokenizer.status().code(),
                  fmt::format("data.vocabulary: {}; set a vocab.txt, spiece.model, vocab.json or "
                              "tokenizer.json",
                              tokenizer.status().message()));
  }
  data->tokenizer = *std::move(tokenizer);
  TROOP_ASSIGN_OR_RETURN(TokenizedReviews reviews,
                         Load(config, config.data.reviews, *data->tokenizer));
  if (config.learner.algorithm == AlgorithmKind::kClassifier) {
    TROOP_RETURN_IF_ERROR(CheckBothSentiments(config, reviews.train));
  }
  // The validation_split is a part of the training reviews; the test set stays complete.
  const std::vector<bool> held_out =
      HeldOut(reviews.train, config.data.validation_split, std::uint64_t(config.seed));
  for (std::int64_t i = 0; i < reviews.train.size(); ++i) {
    TokenizedDataset* const to = held_out[std::size_t(i)] ? &data->validation_split : &data->train;
    to->Add(reviews.train.tokens(i), reviews.train.sentiments[std::size_t(i)]);
  }
  data->test = std::move(reviews.test);
  if (config.learner.algorithm == AlgorithmKind::kMaskedLm) {
    Append(reviews.unlabeled, &data->train);
    if (!config.data.unlabeled.empty()) {
      TROOP_ASSIGN_OR_RETURN(const TokenizedReviews more,
                             Load(config, config.data.unlabeled, *data->tokenizer));
      for (const TokenizedDataset* set : {&more.train, &more.unlabeled}) Append(*set, &data->train);
    }
  }
  if (data->train.size() == 0) {
    return InvalidArgument(
        "data.reviews: {} has no training reviews{}", config.data.reviews,
        data->validation_split.size() > 0 ? "; lower data.validation_split" : "");
  }
  if (config.evaluator_enabled && data->test.size() + data->validation_split.size() == 0) {
    return InvalidArgument(
        "data.reviews: {} has no test reviews; set data.validation_split to a share of the "
        "training reviews "
        "to "
        "evaluate on, or evaluator.enabled = false",
        config.data.reviews);
  }
  // Each of the two sets stands in for the other, so that both evaluations work.
  if (data->test.size() == 0) data->test = data->validation_split;
  if (data->validation_split.size() == 0) data->validation_split = data->test;
  data->lengths = LengthsOf(data->train);
  TROOP_RETURN_IF_ERROR(CheckIdentity(config, *data));
  return std::shared_ptr<const ReviewData>(std::move(data));
}

std::int64_t BatchesOfEpoch(const TrainingConfig& config, std::int64_t samples) {
  const std::int64_t batch = config.learner.batch_size;
  return (samples + batch - 1) / batch;
}

std::uint64_t BatchesOfUpdates(const TrainingConfig& config, std::uint64_t updates) {
  const auto [gradients, workers] = GradientsOfUpdate(config);
  return updates * gradients / workers;
}

std::uint64_t UpdatesOfBatches(const TrainingConfig& config, std::uint64_t batches) {
  const auto [gradients, workers] = GradientsOfUpdate(config);
  return (batches * workers + gradients - 1) / gradients;
}

Status CheckVocabularyWhole(const std::string& path, std::int64_t pieces, std::int64_t rows) {
  // Other kinds are verified by their parsers.
  if (pieces >= rows || VocabularyKindOf(path) != VocabularyKind::kWordPiece) return Status::Ok();
  std::ifstream file(path, std::ios::binary);
  file.seekg(-1, std::ios::end);
  if (file.get() == '\n') return Status::Ok();
  return InvalidArgument(
      "{} has {} pieces and ends within a line, but the model has {}: the file is truncated; "
      "copy it again",
      path, pieces, rows);
}

Status CheckPretrained(const ModelConfig& model) {
  const std::string& path = model.pretrained;
  std::error_code error;
  if (path.empty() || std::filesystem::is_directory(path, error)) return Status::Ok();
  return NotFound(
      "model.pretrained: {}: no such folder; set it to the model/ of a run, or a folder with "
      "config.json and model.safetensors",
      path);
}

// For the same data, the settings of a config with these settings are the same.
Result<DataSettings> DeriveDataSettings(const TrainingConfig& config) {
  TROOP_RETURN_IF_ERROR(CheckPretrained(config.model));
  TrainingConfig resolved = config;
  resolved.data_identity.clear();  // fixed by the data present now
  TROOP_ASSIGN_OR_RETURN(const auto data, LoadReviewData(resolved));
  DataSettings settings{.data_identity = data->Identity()};
  TROOP_ASSIGN_OR_RETURN(settings.vocab_size, VocabularyRows(config, data->tokenizer->size()));
  // The length of the run in updates and reviews, from here on.
  const std::int64_t samples = data->train.size(), epoch = BatchesOfEpoch(config, samples);
  ParamServerConfig& shards = resolved.paramserver;
  for (std::int64_t* every : {&shards.push_every, &shards.pull_every}) {
    if (*every == 0) *every = epoch;
  }
  settings.push_every = shards.push_every;
  settings.pull_every = shards.pull_every;
  // run.epochs may be fractional; max_updates is an additional limit.
  const auto asked = std::int64_t(UpdatesOfBatches(
      resolved, std::uint64_t(std::max(1.0, std::ceil(config.run.epochs * double(epoch))))));
  const std::int64_t most = config.run.max_updates;
  settings.max_updates = most > 0 ? std::min(most, asked) : asked;
  // The last batch of an epoch may be smaller.
  const auto batches =
      std::int64_t(BatchesOfUpdates(resolved, std::uint64_t(settings.max_updates)));
  settings.total_steps = double(batches / epoch * samples +
                                std::min(samples, batches % epoch * config.learner.batch_size));
  return settings;
}

}  // namespace troop
