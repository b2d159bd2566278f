// Implements loading of text data, and the settings of a run that follow from them.

#include "learners/supervised/dataset.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <tuple>
#include <utility>
#include <vector>

#include "core/base/philox.h"
#include "core/storage/crc32c.h"
#include "core/storage/storage.h"
#include "datasets/shared_data.h"
#include "datasets/text/length_bucketing.h"
#include "datasets/text/token_cache.h"
#include "learners/supervised/tokenizer_settings.h"
#include "paramserver/service/options_from_config.h"

namespace troop {
namespace {

namespace fs = std::filesystem;

void Append(const TokenizedDataset& from, TokenizedDataset* to) {
  for (std::int64_t i = 0; i < from.size(); ++i) to->AddFrom(from, i);
}

// Moves a share of the samples of *train to the end of *to.
void SplitOff(double share, const TrainingConfig& config, HeldPart part, TokenizedDataset* train,
              TokenizedDataset* to) {
  if (share == 0) return;
  const std::vector<bool> held = HeldOut(train->labels, share, std::uint64_t(config.seed), part);
  TokenizedDataset rest{.width = train->width};
  to->width = train->width;
  for (std::int64_t i = 0; i < train->size(); ++i) {
    (held[std::size_t(i)] ? to : &rest)->AddFrom(*train, i);
  }
  *train = std::move(rest);
}

// The sources of a run. Labels are not needed by a masked LM.
TextSources SourcesOf(const TrainingConfig& config) {
  const DataConfig& data = config.data;
  const bool labeled = config.learner.algorithm == AlgorithmKind::kClassifier;
  return {.train = data.reviews,
          .validation = data.validation,
          .test = data.test,
          .format = {.text_columns = data.text_columns,
                     .label_column = data.label_column,
                     .delimiter = data.delimiter,
                     .problem_type = config.model.problem_type,
                     .labeled = labeled},
          .names = labeled ? config.model.labels : std::vector<std::string>()};
}

// Tokenizes a data set, or reads it from the cache. The cache's name covers the settings that
// change tokens and labels; its key covers the content of the files.
Result<TokenizedTexts> Load(const TrainingConfig& config, const TextSources& sources,
                            const Tokenizer& tokenizer) {
  std::unique_ptr<Storage> storage;
  if (!config.data.cache.empty()) {
    auto made = MakeDiskStorage((fs::path(config.log_dir) / config.data.cache).string());
    if (made.ok()) storage = *std::move(made);  // the cache is optional
  }
  const bool left = config.data.truncation_side == TruncationSide::kLeft;
  const TextFormat& format = sources.format;
  const std::string settings = fmt::format(
      "{} {} {} {} {} {} {}", sources.validation, sources.test, fmt::join(format.text_columns, " "),
      format.label_column, format.delimiter, EnumName(format.problem_type), format.labeled);
  const std::string name =
      fmt::format("{}-{:08x}-{:08x}-{}{}.tokens", fs::path(sources.train).filename().string(),
                  Crc32c(std::as_bytes(std::span(settings))), tokenizer.fingerprint(),
                  config.data.max_length, left ? "-left" : "");
  const TokenizationOptions options{.max_length = std::int32_t(config.data.max_length),
                                    .side = left ? TruncationSide::kLeft : TruncationSide::kRight};
  return LoadTokenizedTexts(sources, tokenizer, options, {storage.get(), name});
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
      "data.reviews: {}: the data here ({}) are not the run's ({}); copy data.reviews, and the "
      "other files of [data], from the machine where the run started",
      config.data.reviews, here, config.data_identity);
}

// The vocabulary size. More rows than pieces are padding.
Result<std::int64_t> VocabularyRows(const TrainingConfig& config, std::int64_t pieces) {
  const std::int64_t rows = config.model.vocab_size == 0 ? pieces : config.model.vocab_size;
  // With a pretrained model the size is that of its embedding, which no key changes.
  if (rows < pieces && !config.model.pretrained.empty()) {
    return InvalidArgument(
        "data.vocabulary: {} has {} pieces, but the embedding of model.pretrained ({}) has {} "
        "rows: "
        "they belong to different models; use the vocabulary of the model",
        config.data.vocabulary, pieces, config.model.pretrained, rows);
  }
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

// The order in the file does not matter, such as alternating classes.
std::vector<bool> HeldOut(std::span<const std::int32_t> labels, double held, std::uint64_t seed,
                          HeldPart part) {
  std::vector<bool> out(labels.size());
  // Samples by class, from -1 on.
  std::vector<std::vector<std::size_t>> strata;
  for (std::size_t i = 0; i < out.size(); ++i) {
    const auto at = std::size_t(labels[i] + 1);
    if (at >= strata.size()) strata.resize(at + 1);
    strata[at].push_back(i);
  }
  std::size_t before = 0;  // samples of the classes so far
  for (std::size_t at = 0; at < strata.size(); ++at) {
    std::vector<std::size_t>& rest = strata[at];
    const std::size_t all = before + rest.size();
    // Rounds the running total, not each class, so that the sum is exact.
    auto wanted = std::size_t(double(all) * held) - std::size_t(double(before) * held);
    Rng rng({seed, Purpose::kHoldout, std::uint64_t(at) - 1, std::uint64_t(part)});
    for (; wanted > 0; --wanted) {
      const std::size_t chosen = rng.Below(std::uint32_t(rest.size()));
      out[rest[chosen]] = true;
      rest[chosen] = rest.back();
      rest.pop_back();
    }
    before = all;
  }
  return out;
}

// A pair has a second segment even if its text is empty.
bool ReviewData::pairs() const {
  return std::ranges::any_of(train.second, [](std::int32_t begin) { return begin > 0; });
}

// Covers order and boundaries of the samples, since learners exchange indices only.
std::string ReviewData::Identity() const {
  std::uint32_t checksum = tokenizer->fingerprint();
  std::size_t tokens = 0;
  // Reviews of two sentiments keep the text that runs of earlier versions stored.
  const bool reviews =
      names == std::vector<std::string>{"negative", "positive"} && train.width == 0 && !pairs();
  for (const TokenizedDataset* set : {&train, &validation_split, &test}) {
    checksum = Checksum(set->begins, checksum);
    checksum = Checksum(set->ids, checksum);
    tokens += set->ids.size();
    if (reviews) {
      const std::vector<std::int8_t> sentiments(set->labels.begin(), set->labels.end());
      checksum = Checksum(sentiments, checksum);
      continue;
    }
    checksum = Checksum(set->labels, checksum);
    checksum = Checksum(set->second, checksum);
    checksum = Checksum(set->targets, checksum);
  }
  // Stored in configs and compared across versions: the text must not change.
  if (reviews) {
    return fmt::format(
        "{} reviews to learn ({} positive), {} held out, {} to test, {} tokens, "
        "checksum {:08x}",
        train.size(), std::ranges::count(train.labels, 1), validation_split.size(), test.size(),
        tokens, checksum);
  }
  // Lengths separate the names.
  for (const std::string& name : names) {
    const std::string text = fmt::format("{} {}", name.size(), name);
    checksum = Crc32c(std::as_bytes(std::span(text)), checksum);
  }
  return fmt::format(
      "{} examples to learn, {} held out, {} to test, {} classes, {} tokens, checksum {:08x}",
      train.size(), validation_split.size(), test.size(), names.size(), tokens, checksum);
}

namespace {

// Splits the sets, in this order: the test set must not depend on data.validation_split. A set that
// exists excludes its split.
Status MakeSets(const TrainingConfig& config, TokenizedTexts* texts, ReviewData* data) {
  const DataConfig& c = config.data;
  for (const auto& [key, share, set] :
       {std::tuple{"data.test_split", c.test_split, &texts->test},
        {"data.validation_split", c.validation_split, &texts->validation}}) {
    if (share == 0 || set->size() == 0) continue;
    return InvalidArgument("{} is {}, but data.reviews: {} or a separate source has {} examples {}",
                           key, share, c.reviews, set->size(), "of this set; set 0");
  }
  SplitOff(c.test_split, config, HeldPart::kTest, &texts->train, &texts->test);
  SplitOff(c.validation_split, config, HeldPart::kValidation, &texts->train, &texts->validation);
  data->train = std::move(texts->train);
  data->validation_split = std::move(texts->validation);
  data->test = std::move(texts->test);
  data->names = std::move(texts->names);
  return Status::Ok();
}

// Adds the texts without labels, from which a masked LM learns too.
Status AddUnlabeled(const TrainingConfig& config, const TokenizedDataset& unlabeled,
                    ReviewData* data) {
  if (config.learner.algorithm != AlgorithmKind::kMaskedLm) return Status::Ok();
  Append(unlabeled, &data->train);
  if (config.data.unlabeled.empty()) return Status::Ok();
  TextSources sources = SourcesOf(config);
  sources.train = config.data.unlabeled;
  sources.train_key = "data.unlabeled";
  sources.validation.clear();
  sources.test.clear();
  if (!IsTextTable(sources.train)) sources.format = {.labeled = false};
  TROOP_ASSIGN_OR_RETURN(const TokenizedTexts more, Load(config, sources, *data->tokenizer));
  for (const TokenizedDataset* set : {&more.train, &more.unlabeled}) Append(*set, &data->train);
  return Status::Ok();
}

// Steps: tokenizer, labeled texts, splits, unlabeled texts, checks.
Result<std::shared_ptr<const ReviewData>> ReadReviewData(const TrainingConfig& config) {
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
  TROOP_ASSIGN_OR_RETURN(TokenizedTexts texts, Load(config, SourcesOf(config), *data->tokenizer));
  TROOP_RETURN_IF_ERROR(MakeSets(config, &texts, data.get()));
  TROOP_RETURN_IF_ERROR(AddUnlabeled(config, texts.unlabeled, data.get()));
  if (data->train.size() == 0) {
    const bool split = data->validation_split.size() > 0 && config.data.validation_split > 0;
    return InvalidArgument("data.reviews: {} has no training examples{}", config.data.reviews,
                           split ? "; lower data.validation_split" : "");
  }
  if (config.evaluator_enabled && data->test.size() + data->validation_split.size() == 0) {
    return InvalidArgument(
        "data.reviews: {} has no test examples; set data.test, or data.validation_split to a share "
        "of the training examples to evaluate on, or evaluator.enabled = false",
        config.data.reviews);
  }
  // Each of the two sets stands in for the other, so that both evaluations work.
  if (data->test.size() == 0) data->test = data->validation_split;
  if (data->validation_split.size() == 0) data->validation_split = data->test;
  data->lengths = LengthsOf(data->train);
  TROOP_RETURN_IF_ERROR(CheckIdentity(config, *data));
  return std::shared_ptr<const ReviewData>(std::move(data));
}

}  // namespace

// Roles of one process, and copies of an algorithm, have one copy of the data.
Result<std::shared_ptr<const ReviewData>> LoadReviewData(const TrainingConfig& config) {
  static SharedData<ReviewData>& shared = *new SharedData<ReviewData>();
  return shared.Get(DataKeyOf(config), [&config] { return ReadReviewData(config); });
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

// The columns must be the same in all tables: prediction reads them as names of one text or a pair.
// Other errors are left to the reader of the texts.
Result<std::vector<std::string>> ResolvedTextColumns(const TrainingConfig& config) {
  const std::vector<std::string>& given = config.data.text_columns;
  if (config.learner.algorithm != AlgorithmKind::kClassifier || !given.empty()) return given;
  const TextSources sources = SourcesOf(config);
  const auto found = FindTextColumns(sources.train, sources.format);
  if (!found.ok() || found->empty()) return given;
  // A source that is not a table has no columns.
  for (const auto& [key, path] :
       {std::pair{"data.validation", sources.validation}, {"data.test", sources.test}}) {
    if (path.empty()) continue;
    const auto other = FindTextColumns(path, sources.format);
    if (!other.ok() || other->empty() || *other == *found) continue;
    return InvalidArgument(
        "{}: {} has the text columns {}, but data.reviews: {} has {}; rename them, or set "
        "data.text_columns to columns that both have",
        key, path, fmt::join(*other, " and "), sources.train, fmt::join(*found, " and "));
  }
  return *found;
}

void SetRunLength(const TrainingConfig& config, std::int64_t samples, DataSettings* settings) {
  TrainingConfig resolved = config;
  const std::int64_t epoch = BatchesOfEpoch(config, samples);
  ParamServerConfig& shards = resolved.paramserver;
  for (std::int64_t* every : {&shards.push_every, &shards.pull_every}) {
    if (*every == 0) *every = epoch;
  }
  settings->push_every = shards.push_every;
  settings->pull_every = shards.pull_every;
  // run.epochs may be fractional; max_updates is an additional limit.
  const auto asked = std::int64_t(UpdatesOfBatches(
      resolved, std::uint64_t(std::max(1.0, std::ceil(config.run.epochs * double(epoch))))));
  const std::int64_t most = config.run.max_updates;
  settings->max_updates = most > 0 ? std::min(most, asked) : asked;
  // The last batch of an epoch may be smaller.
  const auto batches =
      std::int64_t(BatchesOfUpdates(resolved, std::uint64_t(settings->max_updates)));
  settings->total_steps = double(batches / epoch * samples +
                                 std::min(samples, batches % epoch * config.learner.batch_size));
}

// For the same data, the settings of a config with these settings are the same.
Result<DataSettings> DeriveDataSettings(const TrainingConfig& config) {
  TROOP_RETURN_IF_ERROR(CheckPretrained(config.model));
  TrainingConfig resolved = config;
  resolved.data_identity.clear();  // fixed by the data present now
  TROOP_ASSIGN_OR_RETURN(resolved.data.text_columns, ResolvedTextColumns(config));
  TROOP_ASSIGN_OR_RETURN(const auto data, LoadReviewData(resolved));
  DataSettings settings{.data_identity = data->Identity(),
                        .labels = config.model.labels,
                        .output_bias = config.model.output_bias,
                        .text_columns = resolved.data.text_columns};
  // A regression starts at the mean of its targets, in the precision of the weights.
  if (config.model.problem_type == ProblemType::kRegression && settings.output_bias == 0) {
    const std::vector<float>& targets = data->train.targets;
    const double sum = std::accumulate(targets.begin(), targets.end(), 0.0);
    settings.output_bias = double(float(sum / double(targets.size())));
  }
  if (config.learner.algorithm == AlgorithmKind::kClassifier) settings.labels = data->names;
  TROOP_ASSIGN_OR_RETURN(settings.vocab_size, VocabularyRows(config, data->tokenizer->size()));
  SetRunLength(resolved, data->train.size(), &settings);
  return settings;
}

}  // namespace troop
