// Implements loading of the data of linear models.

#include "learners/linear/linear_data.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <span>
#include <string_view>
#include <tuple>
#include <utility>

#include "core/base/phase_progress.h"
#include "core/storage/crc32c.h"
#include "datasets/shared_data.h"
#include "datasets/sparse/svmlight.h"
#include "datasets/text/label_map.h"
#include "datasets/text/text_sources.h"
#include "learners/linear/feature_cache.h"
#include "learners/supervised/dataset.h"

namespace troop {
namespace {

// Examples as they were read. Rows of svmlight files are complete; texts become rows later.
struct Pool {
  std::vector<LabeledText> examples;
  SparseRows rows;  // rows of svmlight files, else empty
};
// All examples that the config names.
struct Pools {
  Pool train, validation, test;
  std::vector<std::string> names;
  bool svmlight = false;
};

// Some examples of a pool with their labels.
struct Chosen {
  const Pool* pool = nullptr;
  std::vector<std::int64_t> places;  // in the pool
  LinearSet set;                     // without rows
  void Add(std::int64_t place, std::int32_t label, std::span<const float> targets) {
    places.push_back(place);
    set.labels.push_back(label);
    set.targets.insert(set.targets.end(), targets.begin(), targets.end());
  }
};

// The settings of texts as those of other supervised runs, so that labels and columns are found
// alike.
TextSources SourcesOf(const TrainingConfig& config) {
  const DataConfig& data = config.data;
  return {.train = data.reviews,
          .validation = data.validation,
          .test = data.test,
          .format = {.text_columns = data.text_columns,
                     .label_column = data.label_column,
                     .delimiter = data.delimiter,
                     .problem_type = config.model.problem_type},
          .names = config.model.labels};
}

// Labels of an svmlight file as those of a table; rows keep their order.
Result<Pool> ReadSvmlightPool(const std::string& key, const std::string& path,
                              const SvmlightOptions& options) {
  Result<SvmlightData> read = ReadSvmlight(path, options);
  // The message has path and line; the key says which source it is.
  if (!read.ok()) return read.status().WithContext(key);
  Pool pool{.rows = std::move(read->rows)};
  for (std::size_t i = 0; i < read->labels.size(); ++i) {
    pool.examples.push_back(
        {.labels = std::move(read->labels[i]), .labeled = true, .line = read->lines[i]});
  }
  return pool;
}

// The width of the training file is that of all.
Result<Pools> ReadSvmlightPools(const TrainingConfig& config) {
  const DataConfig& data = config.data;
  Pools pools{.names = config.model.labels, .svmlight = true};
  SvmlightOptions options{.width = config.features.n_features};
  TROOP_ASSIGN_OR_RETURN(pools.train, ReadSvmlightPool("data.reviews", data.reviews, options));
  options.width = pools.train.rows.width;
  for (const auto& [key, path, pool] :
       {std::tuple{"data.validation", data.validation, &Pools::validation},
        {"data.test", data.test, &Pools::test}}) {
    if (path.empty()) continue;
    if (!IsSvmlightPath(path)) {
      return InvalidArgument("{}: {} is not an svmlight file, but data.reviews: {} is one", key,
                             path, data.reviews);
    }
    TROOP_ASSIGN_OR_RETURN(pools.*pool, ReadSvmlightPool(key, path, options));
  }
  // Numbers have no names; given names are kept.
  if (config.model.problem_type == ProblemType::kRegression || !pools.names.empty()) return pools;
  const auto map = LabelMap::Learn(pools.train.examples, config.model.problem_type);
  if (!map.ok()) return map.status().WithContext("data.reviews: " + data.reviews);
  pools.names = map->names();
  return pools;
}

// Texts stay texts here: the vectorizer is fitted after the splits.
Result<Pools> ReadTextPools(const TrainingConfig& config) {
  const DataConfig& data = config.data;
  for (const auto& [key, path] :
       {std::pair{"data.validation", data.validation}, std::pair{"data.test", data.test}}) {
    if (!IsSvmlightPath(path)) continue;
    return InvalidArgument("{}: {} is an svmlight file, but data.reviews: {} is not", key, path,
                           data.reviews);
  }
  TROOP_ASSIGN_OR_RETURN(LabeledTexts texts, ReadSources(SourcesOf(config)));
  if (texts.pairs) {
    return InvalidArgument(
        "data.reviews: {} has pairs of texts, but a linear model reads single texts; name one "
        "column in data.text_columns",
        data.reviews);
  }
  return Pools{.train = {.examples = std::move(texts.train)},
               .validation = {.examples = std::move(texts.validation)},
               .test = {.examples = std::move(texts.test)},
               .names = std::move(texts.names)};
}

// Converts the labels of a pool. map: nullopt: numbers.
Result<Chosen> ChooseLabeled(const Pool& pool, ProblemType problem,
                             const std::optional<LabelMap>& map) {
  Chosen chosen{.pool = &pool};
  if (problem == ProblemType::kMultiLabel) chosen.set.width = std::ssize(map->names());
  if (problem == ProblemType::kRegression) chosen.set.width = 1;
  for (std::size_t i = 0; i < pool.examples.size(); ++i) {
    if (!pool.examples[i].labeled) continue;
    std::vector<float> targets(std::size_t(chosen.set.width), 0.0f);
    ConvertedLabel label{.targets = targets};
    TROOP_RETURN_IF_ERROR(ConvertLabel(pool.examples[i], problem, map ? &*map : nullptr, &label));
    chosen.Add(std::int64_t(i), label.label, targets);
  }
  return chosen;
}

// Moves a share of *train to *to. Errors: *to has examples already.
Status SplitOff(const TrainingConfig& config, HeldPart part, Chosen* train, Chosen* to) {
  const bool test = part == HeldPart::kTest;
  const double share = test ? config.data.test_split : config.data.validation_split;
  if (share == 0) return Status::Ok();
  if (to->set.size() > 0) {
    return InvalidArgument("{} is {}, but data.reviews: {} or a separate source has {} examples {}",
                           test ? "data.test_split" : "data.validation_split", share,
                           config.data.reviews, to->set.size(), "of this set; set 0");
  }
  const std::vector<bool> held =
      HeldOut(train->set.labels, share, std::uint64_t(config.seed), part);
  Chosen rest{.pool = train->pool}, out{.pool = train->pool};
  const auto width = std::size_t(train->set.width);
  rest.set.width = out.set.width = train->set.width;
  for (std::size_t i = 0; i < held.size(); ++i) {
    (held[i] ? out : rest)
        .Add(train->places[i], train->set.labels[i],
             std::span(train->set.targets).subspan(i * width, width));
  }
  *train = std::move(rest);
  *to = std::move(out);
  return Status::Ok();
}

// The rows of chosen examples: copies, or the n-grams of their texts.
LinearSet WithRows(Chosen chosen, const std::optional<NgramVectorizer>& vectorizer,
                   PhaseProgress* progress, std::int64_t* done) {
  SparseRows& rows = chosen.set.rows;
  rows.width = vectorizer ? vectorizer->width() : chosen.pool->rows.width;
  for (const std::int64_t place : chosen.places) {
    progress->Show(++*done);
    if (vectorizer) {
      vectorizer->Transform(chosen.pool->examples[std::size_t(place)].text, &rows);
      continue;
    }
    const SparseRow row = chosen.pool->rows.row(place);
    rows.columns.insert(rows.columns.end(), row.columns.begin(), row.columns.end());
    rows.values.insert(rows.values.end(), row.values.begin(), row.values.end());
    rows.EndRow();
  }
  return std::move(chosen.set);
}

// A vectorizer of the training texts; nullopt: svmlight files.
// Only training texts give terms and frequencies, so that evaluations see no others.
Result<std::optional<NgramVectorizer>> FitVectorizer(const Pools& pools, const Chosen& train,
                                                     const NgramOptions& features) {
  if (pools.svmlight) return std::optional<NgramVectorizer>();
  std::vector<std::string_view> texts;
  for (const std::int64_t place : train.places)
    texts.push_back(pools.train.examples[std::size_t(place)].text);
  TROOP_ASSIGN_OR_RETURN(NgramVectorizer made, NgramVectorizer::Fit(features, texts));
  return std::optional<NgramVectorizer>(std::move(made));
}

// A fleet's roles must train and evaluate on equal examples.
Status CheckIdentity(const TrainingConfig& config, const LinearData& data) {
  if (config.data_identity.empty()) return Status::Ok();
  const std::string here = data.Identity();
  if (here == config.data_identity) return Status::Ok();
  return InvalidArgument(
      "data.reviews: {}: the data here ({}) are not the run's ({}); copy data.reviews, and the "
      "other files of [data], from the machine where the run started",
      config.data.reviews, here, config.data_identity);
}

// Continues a checksum over the bytes of a list.
template <class T>
std::uint32_t Checksum(const std::vector<T>& values, std::uint32_t before) {
  return Crc32c(std::as_bytes(std::span(values)), before);
}

// Steps: read, convert labels, split, fit the vectorizer, make the rows.
Result<std::shared_ptr<const LinearData>> MakeLinearData(const TrainingConfig& config) {
  const ProblemType problem = config.model.problem_type;
  TROOP_ASSIGN_OR_RETURN(const Pools pools, IsSvmlightPath(config.data.reviews)
                                                ? ReadSvmlightPools(config)
                                                : ReadTextPools(config));
  std::optional<LabelMap> map;
  if (problem != ProblemType::kRegression) {
    TROOP_ASSIGN_OR_RETURN(map, LabelMap::Make(pools.names, problem));
  }
  Chosen train, validation, test;
  for (const auto& [key, pool, chosen] : {std::tuple{"data.reviews", &pools.train, &train},
                                          {"data.validation", &pools.validation, &validation},
                                          {"data.test", &pools.test, &test}}) {
    Result<Chosen> made = ChooseLabeled(*pool, problem, map);
    if (!made.ok()) return made.status().WithContext(key);
    *chosen = *std::move(made);
  }
  // The test set must not depend on data.validation_split.
  TROOP_RETURN_IF_ERROR(SplitOff(config, HeldPart::kTest, &train, &test));
  TROOP_RETURN_IF_ERROR(SplitOff(config, HeldPart::kValidation, &train, &validation));
  if (train.places.empty())
    return InvalidArgument("data.reviews: {} has no training examples", config.data.reviews);
  auto data = std::make_shared<LinearData>();
  auto fitted = FitVectorizer(pools, train, config.features);
  if (!fitted.ok()) return fitted.status().WithContext("data.reviews: " + config.data.reviews);
  data->vectorizer = *std::move(fitted);
  std::int64_t done = 0;
  PhaseProgress progress(
      "making features of", "examples",
      std::int64_t(train.places.size() + validation.places.size() + test.places.size()));
  data->train = WithRows(std::move(train), data->vectorizer, &progress, &done);
  data->validation_split = WithRows(std::move(validation), data->vectorizer, &progress, &done);
  data->test = WithRows(std::move(test), data->vectorizer, &progress, &done);
  if (config.evaluator_enabled && data->test.size() + data->validation_split.size() == 0) {
    return InvalidArgument(
        "data.reviews: {} has no test examples; set data.test, or data.validation_split to a share "
        "of the training examples to evaluate on, or evaluator.enabled = false",
        config.data.reviews);
  }
  // Each of the two sets stands in for the other, so that both evaluations work.
  if (data->test.size() == 0) data->test = data->validation_split;
  if (data->validation_split.size() == 0) data->validation_split = data->test;
  data->names = pools.names;
  return std::shared_ptr<const LinearData>(std::move(data));
}

// The first role of a machine makes the features, and later ones read them.
Result<std::shared_ptr<const LinearData>> ReadLinearData(const TrainingConfig& config) {
  const FeatureCache cache(config);
  std::shared_ptr<const LinearData> data = cache.Read();
  if (data == nullptr) {
    TROOP_ASSIGN_OR_RETURN(data, MakeLinearData(config));
    cache.Write(*data);
  }
  TROOP_RETURN_IF_ERROR(CheckIdentity(config, *data));
  return data;
}

}  // namespace

// The rows contain what the vectorizer makes of the texts.
std::string LinearData::Identity() const {
  std::uint32_t checksum = 0;
  std::size_t entries = 0;
  for (const LinearSet* set : {&train, &validation_split, &test}) {
    checksum = Checksum(set->rows.begins, checksum);
    checksum = Checksum(set->rows.columns, checksum);
    checksum = Checksum(set->rows.values, checksum);
    checksum = Checksum(set->labels, checksum);
    checksum = Checksum(set->targets, checksum);
    entries += set->rows.columns.size();
  }
  // Lengths separate the names, and the terms.
  const auto add = [&](const std::string& name) {
    const std::string text = fmt::format("{} {}", name.size(), name);
    checksum = Crc32c(std::as_bytes(std::span(text)), checksum);
  };
  for (const std::string& name : names) add(name);
  if (vectorizer) {
    for (const std::string& term : vectorizer->terms()) add(term);
  }
  return fmt::format(
      "{} examples to learn, {} held out, {} to test, {} classes, {} features, {} entries, "
      "checksum {:08x}",
      train.size(), validation_split.size(), test.size(), names.size(), train.rows.width, entries,
      checksum);
}

// Only the name decides, since a table of texts may begin alike.
bool IsSvmlightPath(const std::string& path) {
  const std::string extension = std::filesystem::path(path).extension().string();
  return extension == ".svm" || extension == ".svmlight" || extension == ".libsvm";
}

// Roles of one process, and copies of an algorithm, have one copy of the data.
Result<std::shared_ptr<const LinearData>> LoadLinearData(const TrainingConfig& config) {
  static SharedData<LinearData>& shared = *new SharedData<LinearData>();
  return shared.Get(DataKeyOf(config), [&config] { return ReadLinearData(config); });
}

// For the same data, the settings of a config with these settings are the same.
Result<DataSettings> DeriveLinearSettings(const TrainingConfig& config) {
  TrainingConfig resolved = config;
  resolved.data_identity.clear();  // fixed by the data present now
  TROOP_ASSIGN_OR_RETURN(resolved.data.text_columns, ResolvedTextColumns(config));
  TROOP_ASSIGN_OR_RETURN(const auto data, LoadLinearData(resolved));
  const std::int64_t features = data->train.rows.width;
  if (config.model.num_features != 0 && config.model.num_features != features) {
    return InvalidArgument("model.num_features is {}, but the data have {}; omit the key",
                           config.model.num_features, features);
  }
  // A line search compares values, which those of different batches do not allow.
  if (config.optimizer.type == OptimizerType::kLbfgs &&
      config.learner.batch_size < data->train.size()) {
    return InvalidArgument(
        "learner.batch_size is {}, but optimizer.type = \"lbfgs\" needs all {} training examples "
        "in each update; set it to {} or more, or omit optimizer.type for linear.solver",
        config.learner.batch_size, data->train.size(), data->train.size());
  }
  DataSettings settings{.data_identity = data->Identity(),
                        .labels = data->names,
                        .text_columns = resolved.data.text_columns,
                        .num_features = features};
  SetRunLength(config, data->train.size(), &settings);
  return settings;
}

std::shared_ptr<const LinearExamples> LinearExamplesOf(const LinearSet& set, ProblemType problem,
                                                       std::int64_t classes) {
  auto examples = std::make_shared<LinearExamples>();
  examples->rows = set.rows;
  if (problem == ProblemType::kSingleLabel) {
    examples->outputs = classes == 2 ? 1 : classes;
    examples->targets = ClassTargets(set.labels, classes);
    return examples;
  }
  examples->outputs = set.width;
  examples->targets = set.targets;
  if (problem == ProblemType::kRegression) return examples;
  // 0 and 1 of labels become -1 and 1.
  for (float& y : examples->targets) y = y > 0 ? 1.0f : -1.0f;
  return examples;
}

}  // namespace troop
