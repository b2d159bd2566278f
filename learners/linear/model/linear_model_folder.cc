// Implements the files of linear models.

#include "learners/linear/model/linear_model_folder.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/storage/json.h"
#include "datasets/sparse/svmlight.h"
#include "nn/io/safetensors.h"
#include "nn/io/weight_files.h"

namespace troop {
namespace {

constexpr char kConfigName[] = "config.json";
constexpr char kTermsName[] = "terms.txt";
constexpr char kModelType[] = "troop_linear";
// A config has a few hundred bytes, and 100 bytes for each class.
constexpr std::size_t kConfigBytesMax = std::size_t{1} << 24;
constexpr std::size_t kTermsBytesMax = std::size_t{8} << 30;

// Options by scikit-learn's names, so that a reader can make the same vectorizer there.
JsonObject FeaturesJson(const NgramOptions& o) {
  JsonObject json;
  json.Add("analyzer", EnumName(o.analyzer))
      .Add("ngram_range", JsonArray().Add(o.ngram_min).Add(o.ngram_max))
      .Add("lowercase", o.lowercase)
      .Add("word_length_min", o.word_length_min)
      .Add("binary", o.binary)
      .Add("n_features", o.n_features)
      .Add("min_df", o.min_df)
      .Add("use_idf", o.use_idf)
      .Add("sublinear_tf", o.sublinear_tf)
      .Add("norm", EnumName(o.norm));
  return json;
}

// The contents of config.json.
std::string ConfigJson(const LinearModelParts& model) {
  JsonObject json;
  json.Add("model_type", kModelType).Add("problem_type", EnumName(model.problem));
  // Classes as transformers has them.
  JsonObject labels;
  for (std::size_t i = 0; i < model.labels.size(); ++i)
    labels.Add(std::to_string(i), model.labels[i]);
  json.Add("id2label", labels)
      .Add("loss", EnumName(model.form.loss))
      .Add("num_features", model.form.features);
  if (model.vectorizer) json.Add("features", FeaturesJson(model.vectorizer->options()));
  return json.str() + "\n";
}

// The weights row by row of the outputs, from row by row of the features.
TensorFile WeightsOf(const LinearModelParts& model) {
  const auto features = std::size_t(model.form.features), outputs = std::size_t(model.form.outputs);
  const Tensor weight =
      Tensor::Uninitialized(DType::kF32, {model.form.outputs, model.form.features});
  const Tensor bias = Tensor::Uninitialized(DType::kF32, {model.form.outputs});
  for (std::size_t k = 0; k < outputs; ++k) {
    for (std::size_t j = 0; j < features; ++j)
      weight.as<float>()[k * features + j] = model.weights[j * outputs + k];
    bias.as<float>()[k] = model.weights[features * outputs + k];
  }
  TensorFile file{.tensors = {{"weight", weight}, {"bias", bias}}};
  if (model.vectorizer && !model.vectorizer->idf().empty()) {
    const std::vector<float>& idf = model.vectorizer->idf();
    file.tensors["idf"] = ConstTensor(Buffer::Copy(std::as_bytes(std::span(idf))),
                                      {DType::kF32, {model.form.features}});
  }
  return file;
}

// N-grams of characters may contain line ends.
std::string TermsText(const std::vector<std::string>& terms) {
  std::string text;
  for (const std::string& term : terms) {
    for (const char c : term) {
      if (c == '\\') text += "\\\\";
      if (c == '\n') text += "\\n";
      if (c == '\r') text += "\\r";
      if (c != '\\' && c != '\n' && c != '\r') text += c;
    }
    text += '\n';
  }
  return text;
}

// The inverse. Errors: another escape, or a last line without an end, as in a truncated file.
Result<std::vector<std::string>> ParseTerms(std::string_view text) {
  std::vector<std::string> terms;
  std::string term;
  for (std::size_t i = 0; i < text.size(); ++i) {
    char c = text[i];
    if (c == '\n') {
      terms.push_back(std::exchange(term, {}));
      continue;
    }
    if (c == '\\') {
      const char next = i + 1 < text.size() ? text[++i] : ' ';
      if (next != '\\' && next != 'n' && next != 'r')
        return DataLoss("line {}: a backslash before {:?}", terms.size() + 1, next);
      c = next == 'n' ? '\n' : next == 'r' ? '\r' : next;
    }
    term += c;
  }
  if (!term.empty() || (!text.empty() && text.back() != '\n'))
    return DataLoss("line {} has no end: the file is truncated", terms.size() + 1);
  return terms;
}

// The choice of that name at `key`.
template <class Enum>
Result<Enum> Choice(const JsonValue& json, std::string_view key) {
  TROOP_ASSIGN_OR_RETURN(const std::string text, json.String(key));
  if (const std::optional<Enum> known = ParseEnum<Enum>(text)) return *known;
  return InvalidArgument("\"{}\" is {:?}, which is unknown", key, text);
}

// A required bool.
Result<bool> Flag(const JsonValue& json, std::string_view key) {
  if (json.Find(key) == nullptr) return DataLoss("\"{}\" is missing", key);
  return json.BooleanOr(key, false);
}

// Values are checked by NgramVectorizer::Restore.
Result<NgramOptions> ReadFeatures(const JsonValue& json) {
  NgramOptions o;
  TROOP_ASSIGN_OR_RETURN(o.analyzer, Choice<NgramAnalyzer>(json, "analyzer"));
  const JsonValue* const range = json.Find("ngram_range");
  if (range == nullptr || range->array.size() != 2 || !range->array[0].integer ||
      !range->array[1].integer)
    return DataLoss("\"ngram_range\" is not a list of two integers");
  o.ngram_min = *range->array[0].integer;
  o.ngram_max = *range->array[1].integer;
  // All keys are required: a missing one would change the features.
  TROOP_ASSIGN_OR_RETURN(o.lowercase, Flag(json, "lowercase"));
  TROOP_ASSIGN_OR_RETURN(o.word_length_min, json.Integer("word_length_min"));
  TROOP_ASSIGN_OR_RETURN(o.binary, Flag(json, "binary"));
  TROOP_ASSIGN_OR_RETURN(o.n_features, json.Integer("n_features"));
  TROOP_ASSIGN_OR_RETURN(o.min_df, json.Integer("min_df"));
  TROOP_ASSIGN_OR_RETURN(o.use_idf, Flag(json, "use_idf"));
  TROOP_ASSIGN_OR_RETURN(o.sublinear_tf, Flag(json, "sublinear_tf"));
  TROOP_ASSIGN_OR_RETURN(o.norm, Choice<RowNorm>(json, "norm"));
  return o;
}

// Contents of config.json.
struct LinearConfig {
  LinearModelParts model;  // without weights and vectorizer
  std::optional<NgramOptions> features;
};

// Sizes are bounded here, before anything is allocated for them.
Result<LinearConfig> ParseConfig(std::string_view text) {
  if (!IsLinearModelConfig(text))
    return InvalidArgument("\"model_type\" is not \"{}\": not a linear model", kModelType);
  TROOP_ASSIGN_OR_RETURN(const JsonValue json, ParseJson(text));
  LinearConfig config;
  LinearModelParts& model = config.model;
  TROOP_ASSIGN_OR_RETURN(model.problem, Choice<ProblemType>(json, "problem_type"));
  TROOP_ASSIGN_OR_RETURN(model.form.loss, Choice<LinearLoss>(json, "loss"));
  TROOP_ASSIGN_OR_RETURN(model.form.features, json.Integer("num_features"));
  if (model.form.features < 1 || model.form.features > kSparseWidthMax) {
    return DataLoss("\"num_features\" is {}, must be from 1 to {}", model.form.features,
                    kSparseWidthMax);
  }
  const JsonValue* const labels = json.Find("id2label");
  if (labels == nullptr) return DataLoss("\"id2label\" is missing");
  for (std::size_t i = 0; i < labels->object.size(); ++i) {
    TROOP_ASSIGN_OR_RETURN(std::string label, labels->String(std::to_string(i)));
    model.labels.push_back(std::move(label));
  }
  // One output for two classes and for a number.
  const auto classes = std::ssize(model.labels);
  const bool regression = model.problem == ProblemType::kRegression;
  const std::int64_t least = model.problem == ProblemType::kSingleLabel ? 2 : 1;
  if (regression ? classes > 0 : classes < least)
    return DataLoss("\"id2label\" has {} labels, which {} does not have", classes,
                    EnumName(model.problem));
  const bool one = regression || (model.problem == ProblemType::kSingleLabel && classes == 2);
  model.form.outputs = one ? 1 : classes;
  if (const JsonValue* const features = json.Find("features")) {
    Result<NgramOptions> options = ReadFeatures(*features);
    if (!options.ok()) return options.status().WithContext("\"features\"");
    config.features = *options;
  }
  return config;
}

// A tensor of exactly that shape, with finite values only.
Result<std::span<const float>> ReadTensor(const TensorFile& file, const std::string& name,
                                          const Shape& shape) {
  const auto found = file.tensors.find(name);
  if (found == file.tensors.end()) return DataLoss("there is no tensor \"{}\"", name);
  const TensorSpec want{DType::kF32, shape};
  if (found->second.spec() != want) {
    return DataLoss("\"{}\" is {}, must be {}", name, found->second.spec().ToString(),
                    want.ToString());
  }
  const std::span<const float> values = found->second.as<float>();
  if (!std::ranges::all_of(values, [](float x) { return std::isfinite(x); }))
    return DataLoss("\"{}\" has a value that is not finite", name);
  return values;
}

// Sets model->weights from the two tensors.
Status ReadWeights(const TensorFile& file, LinearModelParts* model) {
  const std::int64_t features = model->form.features, outputs = model->form.outputs;
  TROOP_ASSIGN_OR_RETURN(const auto weight, ReadTensor(file, "weight", {outputs, features}));
  TROOP_ASSIGN_OR_RETURN(const auto bias, ReadTensor(file, "bias", {outputs}));
  // The tensors have been checked against the file, so the sum of sizes is bounded by it.
  model->weights.resize(std::size_t(model->form.rows() * outputs));
  for (std::int64_t k = 0; k < outputs; ++k) {
    for (std::int64_t j = 0; j < features; ++j)
      model->weights[std::size_t(j * outputs + k)] = weight[std::size_t(k * features + j)];
    model->weights[std::size_t(features * outputs + k)] = bias[std::size_t(k)];
  }
  return Status::Ok();
}

// The vectorizer from terms.txt and the tensor "idf".
Result<NgramVectorizer> ReadVectorizer(const NgramOptions& options, const TensorFile& file,
                                       std::string_view folder, Storage* storage) {
  std::vector<std::string> terms;
  const std::string path = PathIn(folder, kTermsName);
  if (options.n_features == 0) {
    TROOP_ASSIGN_OR_RETURN(const Buffer bytes, storage->Read(path, kTermsBytesMax));
    auto parsed = ParseTerms(bytes.text());
    if (!parsed.ok()) return parsed.status().WithContext(path);
    terms = *std::move(parsed);
  }
  std::vector<float> idf;
  if (options.use_idf) {
    const std::int64_t width = options.n_features > 0 ? options.n_features : std::ssize(terms);
    const auto values = ReadTensor(file, "idf", {width});
    if (!values.ok()) return values.status().WithContext(PathIn(folder, kWeightsName));
    idf.assign(values->begin(), values->end());
  }
  auto made = NgramVectorizer::Restore(options, std::move(terms), std::move(idf));
  if (!made.ok()) return DataLoss("{}: {}", path, made.status().message());
  return made;
}

}  // namespace

bool IsLinearModelConfig(std::string_view config_json) {
  const auto json = ParseJson(config_json);
  if (!json.ok()) return false;
  const auto type = json->StringOr("model_type", "");
  return type.ok() && *type == kModelType;
}

Status WriteLinearModel(const LinearModelParts& model, std::string_view folder, Storage* storage) {
  TROOP_RETURN_IF_ERROR(storage->WriteAtomic(PathIn(folder, kWeightsName),
                                             EncodeSafetensors(WeightsOf(model)).bytes()));
  if (model.vectorizer && !model.vectorizer->terms().empty()) {
    TROOP_RETURN_IF_ERROR(
        storage->WriteAtomic(PathIn(folder, kTermsName), TermsText(model.vectorizer->terms())));
  }
  return storage->WriteAtomic(PathIn(folder, kConfigName), ConfigJson(model));
}

// Each file is checked against the ones before it.
Result<LinearModelParts> ReadLinearModel(std::string_view folder, Storage* storage) {
  const std::string path = PathIn(folder, kConfigName);
  TROOP_ASSIGN_OR_RETURN(const Buffer text, storage->Read(path, kConfigBytesMax));
  auto config = ParseConfig(text.text());
  if (!config.ok()) return config.status().WithContext(path);
  LinearModelParts model = std::move(config->model);
  const std::string weights = PathIn(folder, kWeightsName);
  TROOP_ASSIGN_OR_RETURN(const Buffer bytes, storage->Map(weights));
  const auto file = DecodeSafetensors(bytes);
  if (!file.ok()) return file.status().WithContext(weights);
  TROOP_RETURN_IF_ERROR(ReadWeights(*file, &model).WithContext(weights));
  if (!config->features) return model;
  TROOP_ASSIGN_OR_RETURN(model.vectorizer,
                         ReadVectorizer(*config->features, *file, folder, storage));
  if (model.vectorizer->width() != model.form.features) {
    return DataLoss("{}: the n-grams have {} columns, but the model has {} features",
                    PathIn(folder, kTermsName), model.vectorizer->width(), model.form.features);
  }
  return model;
}

}  // namespace troop
