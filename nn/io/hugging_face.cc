// Implements reading and writing of models in the format of the Python package transformers.
#include "nn/io/hugging_face.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <set>

#include "core/storage/json.h"
#include "core/storage/lfs_pointer.h"
#include "kernels/elementwise/cast.h"
#include "kernels/elementwise/is_finite.h"

namespace troop {
namespace {

using Family = TransformerConfig::Family;

constexpr std::size_t kConfigBytesMax = 1 << 20;
constexpr char kConfigName[] = "config.json";
constexpr char kWeightsName[] = "model.safetensors";

// The number at `key`, or `missing` if it is absent or null.
Result<float> Fraction(const JsonValue& json, std::string_view key, float missing) {
  const JsonValue* const value = json.Find(key);
  if (value == nullptr || value->kind == JsonValue::Kind::kNull) return missing;
  if (value->kind != JsonValue::Kind::kNumber) return DataLoss("\"{}\" is not a number", key);
  return float(value->number);
}

// The bool at `key`, or `missing` if it is absent or null.
Result<bool> Flag(const JsonValue& json, std::string_view key, bool missing) {
  const JsonValue* const value = json.Find(key);
  if (value != nullptr && value->kind == JsonValue::Kind::kNull) return missing;
  return json.BooleanOr(key, missing);
}

// Rejects any value at `key` except `expected`; an absent key passes.
Status Expect(const JsonValue& json, std::string_view key, std::int64_t expected) {
  if (json.Find(key) == nullptr) return Status::Ok();
  TROOP_ASSIGN_OR_RETURN(const std::int64_t value, json.Integer(key));
  if (value == expected) return Status::Ok();
  return InvalidArgument("\"{}\" is {}: only {} is supported", key, value, expected);
}

// Head of the first class in `architectures`.
TransformerHead HeadOf(const JsonValue& json) {
  const JsonValue* const list = json.Find("architectures");
  if (list == nullptr || list->array.empty()) return TransformerHead::kPooled;
  const std::string& name = list->array[0].string;
  if (name.ends_with("ForMaskedLM")) return TransformerHead::kMaskedLm;
  if (name.ends_with("ForSequenceClassification")) return TransformerHead::kClassifier;
  return TransformerHead::kPooled;
}

// Rejects settings that give the same weights another meaning.
Status CheckVariants(const JsonValue& json) {
  for (const char* const key : {"is_decoder", "add_cross_attention", "is_encoder_decoder"}) {
    TROOP_ASSIGN_OR_RETURN(const bool value, Flag(json, key, false));
    if (value) return InvalidArgument("\"{}\" is true: only encoders are supported", key);
  }
  for (const char* const key : {"pruned_heads", "quantization_config", "auto_map"}) {
    const JsonValue* const value = json.Find(key);
    if (value == nullptr || value->kind == JsonValue::Kind::kNull) continue;
    if (value->kind != JsonValue::Kind::kObject || !value->object.empty())
      return InvalidArgument("\"{}\" is not supported: it changes the meaning of the weights", key);
  }
  if (const JsonValue* kind = json.Find("position_embedding_type");
      kind != nullptr && kind->kind != JsonValue::Kind::kNull && kind->string != "absolute")
    return InvalidArgument("\"position_embedding_type\" is \"{}\": only absolute is supported",
                           kind->string);
  TROOP_ASSIGN_OR_RETURN(const bool tied, Flag(json, "tie_word_embeddings", true));
  if (!tied && HeadOf(json) == TransformerHead::kMaskedLm)
    return InvalidArgument(
        "\"tie_word_embeddings\" is false: only a decoder tied to the embeddings is supported");
  return Status::Ok();
}

// "gelu" is the exact form, the others are the tanh approximation.
Result<GeluForm> ReadGelu(const JsonValue& json) {
  const Result<std::string> read = json.String("hidden_act");
  if (!read.ok()) return read.status();
  const std::string_view name = *read;
  if (name == "gelu") return GeluForm::kErf;
  if (name == "gelu_new" || name == "gelu_pytorch_tanh") return GeluForm::kTanh;
  return InvalidArgument(
      "\"hidden_act\" is \"{}\": only gelu, gelu_new and gelu_pytorch_tanh are "
      "supported",
      name);
}

// Reads the sizes; ALBERT must have a single shared layer.
Status ReadSizes(const JsonValue& json, TransformerConfig* config) {
  TROOP_ASSIGN_OR_RETURN(config->vocabulary, json.Integer("vocab_size"));
  TROOP_ASSIGN_OR_RETURN(config->hidden, json.Integer("hidden_size"));
  TROOP_ASSIGN_OR_RETURN(config->layers, json.Integer("num_hidden_layers"));
  TROOP_ASSIGN_OR_RETURN(config->heads, json.Integer("num_attention_heads"));
  TROOP_ASSIGN_OR_RETURN(config->intermediate, json.Integer("intermediate_size"));
  TROOP_ASSIGN_OR_RETURN(config->positions, json.Integer("max_position_embeddings"));
  TROOP_ASSIGN_OR_RETURN(config->token_types, json.Integer("type_vocab_size"));
  // BERT has one size for both.
  config->embedding = config->hidden;
  if (config->family == Family::kBert) return Status::Ok();
  TROOP_ASSIGN_OR_RETURN(config->embedding, json.Integer("embedding_size"));
  TROOP_RETURN_IF_ERROR(Expect(json, "num_hidden_groups", 1));
  return Expect(json, "inner_group_num", 1);
}

// Reads dropout rates and constants; absent ones have the defaults of the package.
Status ReadRates(const JsonValue& json, TransformerConfig* config) {
  // Defaults of BertConfig and AlbertConfig.
  const bool bert = config->family == Family::kBert;
  const float common = bert ? 0.1f : 0.0f;
  TROOP_ASSIGN_OR_RETURN(config->hidden_dropout, Fraction(json, "hidden_dropout_prob", common));
  TROOP_ASSIGN_OR_RETURN(config->attention_dropout,
                         Fraction(json, "attention_probs_dropout_prob", common));
  TROOP_ASSIGN_OR_RETURN(config->classifier_dropout,
                         bert ? Fraction(json, "classifier_dropout", config->hidden_dropout)
                              : Fraction(json, "classifier_dropout_prob", 0.1f));
  TROOP_ASSIGN_OR_RETURN(config->epsilon, Fraction(json, "layer_norm_eps", 1e-12f));
  TROOP_ASSIGN_OR_RETURN(config->deviation, Fraction(json, "initializer_range", 0.02f));
  return Status::Ok();
}

// True for parameters of the head, which a file pre-trained for another task may lack.
bool BelongsToHead(std::string_view name) {
  const auto has = [&](std::string_view part) { return name.find(part) != name.npos; };
  return !has(".embeddings.") && !has(".encoder.");
}

// Possible names of a parameter in a file, the usual one first: without the family prefix, and with
// the gamma and beta of 2018.
std::vector<std::string> NamesOf(const std::string& name) {
  std::vector<std::string> names = {name};
  for (const std::string_view family : {"bert.", "albert."}) {
    if (name.starts_with(family)) names.push_back(name.substr(family.size()));
  }
  for (std::size_t i = 0, n = names.size(); i < n; ++i) {
    for (const auto& [now, then] : {std::pair("LayerNorm.weight", "LayerNorm.gamma"),
                                    std::pair("LayerNorm.bias", "LayerNorm.beta")}) {
      const std::string& known = names[i];
      if (!known.ends_with(now)) continue;
      names.push_back(known.substr(0, known.size() - std::strlen(now)) + then);
    }
  }
  return names;
}

// True for redundant tensors: the tied decoder, and position ids, which count from 0.
bool IsCopy(std::string_view name) {
  return name.ends_with("predictions.decoder.weight") ||
         name.ends_with("predictions.decoder.bias") || name.ends_with("position_ids");
}

// Copies and converts one tensor after checking its shape, type and values.
Status CopyWeights(const std::string& name, const ConstTensor& from, const ParamSpec& spec,
                   std::span<float> to) {
  if (!(from.shape() == spec.shape))
    return InvalidArgument("tensor \"{}\" is {}, the model needs {}", name, from.shape().ToString(),
                           spec.shape.ToString());
  if (from.dtype() != DType::kF32 && from.dtype() != DType::kBF16)
    return InvalidArgument("tensor \"{}\" is {}: only f32 and bf16 are read", name,
                           DTypeName(from.dtype()));
  ConvertScaled({.n = spec.shape.elements(),
                 .x = from.bytes().data(),
                 .x_dtype = from.dtype(),
                 .y = to.data()});
  if (!AllFinite(to)) return DataLoss("tensor \"{}\" holds a non-finite value", name);
  return Status::Ok();
}

std::string Join(std::string_view folder, const char* name) {
  return folder.empty() ? name : fmt::format("{}/{}", folder, name);
}

// Detects repositories that were cloned without git-lfs.
Status CheckNoPointer(const std::string& path, const Buffer& bytes) {
  if (!IsLfsPointer(bytes.text().substr(0, 64))) return Status::Ok();
  return InvalidArgument("{} is a git-lfs pointer, not the file itself; fetch it: git lfs pull",
                         path);
}

}  // namespace

// Fields are read before the variants are checked, so that a missing field is reported first.
Result<TransformerOptions> ParseTransformerConfig(std::string_view text) {
  TROOP_ASSIGN_OR_RETURN(const JsonValue json, ParseJson(text));
  const Result<std::string> read = json.String("model_type");
  if (!read.ok()) return read.status();
  const std::string_view type = *read;
  if (type != "bert" && type != "albert")
    return InvalidArgument("\"model_type\" is \"{}\": only bert and albert are supported", type);
  TransformerOptions options;
  TransformerConfig& config = options.config;
  config.family = type == "bert" ? Family::kBert : Family::kAlbert;
  TROOP_RETURN_IF_ERROR(ReadSizes(json, &config));
  TROOP_RETURN_IF_ERROR(ReadRates(json, &config));
  TROOP_ASSIGN_OR_RETURN(config.gelu, ReadGelu(json));
  TROOP_RETURN_IF_ERROR(CheckVariants(json));
  options.head = HeadOf(json);
  if (const JsonValue* labels = json.Find("id2label"); labels != nullptr) {
    if (labels->kind != JsonValue::Kind::kObject && labels->kind != JsonValue::Kind::kNull)
      return DataLoss("\"id2label\" is not an object");
    options.classes = std::max<std::int64_t>(1, std::int64_t(labels->object.size()));
  }
  TROOP_RETURN_IF_ERROR(CheckTransformer(config));
  return options;
}

// Writes the keys that the package reads; two classes get the labels of sentiment models.
std::string TransformerConfigJson(const TransformerOptions& options) {
  const TransformerConfig& config = options.config;
  const bool bert = config.family == Family::kBert;
  const std::string family = bert ? "Bert" : "Albert";
  const char* const kinds[] = {"Model", "ForSequenceClassification", "ForMaskedLM"};
  // id2label, label2id, and the document.
  JsonObject labels, numbers, json;
  for (std::int64_t i = 0; i < options.classes; ++i) {
    std::string label = fmt::format("LABEL_{}", i);
    if (options.classes == 2) label = i == 0 ? "negative" : "positive";
    labels.Add(std::to_string(i), label);
    numbers.Add(label, i);
  }
  json.Add("architectures", JsonArray().Add(family + kinds[int(options.head)]))
      .Add("model_type", NameOf(config.family))
      .Add("vocab_size", config.vocabulary)
      .Add("hidden_size", config.hidden)
      .Add("num_hidden_layers", config.layers)
      .Add("num_attention_heads", config.heads)
      .Add("intermediate_size", config.intermediate)
      .Add("max_position_embeddings", config.positions)
      .Add("type_vocab_size", config.token_types)
      .Add("hidden_act", config.gelu == GeluForm::kErf ? "gelu" : "gelu_new")
      .Add("hidden_dropout_prob", double(config.hidden_dropout))
      .Add("attention_probs_dropout_prob", double(config.attention_dropout))
      .Add(bert ? "classifier_dropout" : "classifier_dropout_prob",
           double(config.classifier_dropout))
      .Add("layer_norm_eps", double(config.epsilon))
      .Add("initializer_range", double(config.deviation))
      .Add("id2label", labels)
      .Add("label2id", numbers);
  if (!bert) json.Add("embedding_size", config.embedding).Add("num_hidden_groups", std::int64_t{1});
  return json.str();
}

Result<LoadedWeights> LoadWeights(const Module& module, const TensorFile& file,
                                  std::span<float> value) {
  LoadedWeights loaded;
  std::set<std::string> used;
  for (const ParamSpec& spec : module.params()) {
    const std::vector<std::string> names = NamesOf(spec.name);
    // The first known name that the file contains.
    const auto name = std::ranges::find_if(
        names, [&](const std::string& known) { return file.tensors.contains(known); });
    if (name == names.end()) {
      // Head parameters may be missing, encoder parameters may not.
      if (!BelongsToHead(spec.name))
        return InvalidArgument("the file has no tensor \"{}\"", spec.name);
      loaded.fresh.push_back(spec.name);
      continue;
    }
    TROOP_RETURN_IF_ERROR(
        CopyWeights(*name, file.tensors.at(*name), spec,
                    value.subspan(std::size_t(spec.offset), std::size_t(spec.shape.elements()))));
    used.insert(*name);
  }
  // Redundant copies do not count as unused.
  for (const auto& [name, tensor] : file.tensors) {
    if (!used.contains(name) && !IsCopy(name)) loaded.unused.push_back(name);
  }
  return loaded;
}

// Names one tensor; more are counted.
std::string DescribeUnused(const LoadedWeights& loaded) {
  std::vector<std::string> names;
  for (const std::string& name : loaded.unused) {
    if (!BelongsToHead("." + name)) names.push_back(name);  // the prefix makes bare names match
  }
  if (names.empty()) return {};
  return fmt::format("{} of the encoder {} no counterpart in the model of config.json: {}{}",
                     names.size() == 1 ? "1 tensor" : fmt::format("{} tensors", names.size()),
                     names.size() == 1 ? "has" : "have", names[0], names.size() > 1 ? ", …" : "");
}

TensorFile SaveWeights(const Module& module, std::span<const float> value) {
  TensorFile file;
  file.metadata["format"] = "pt";  // transformers refuses files without it
  for (const ParamSpec& spec : module.params()) {
    const auto all = value.subspan(std::size_t(spec.offset), std::size_t(spec.shape.elements()));
    file.tensors[spec.name] = ConstTensor::Borrow(std::as_bytes(all), {DType::kF32, spec.shape});
  }
  return file;
}

// The weights are mapped, not read: large files cost memory only when they are used.
Result<Pretrained> ReadPretrained(Storage* storage, std::string_view folder) {
  const std::string config_path = Join(folder, kConfigName), path = Join(folder, kWeightsName);
  TROOP_ASSIGN_OR_RETURN(const Buffer text, storage->Read(config_path, kConfigBytesMax));
  // A pointer file would otherwise fail as invalid JSON.
  TROOP_RETURN_IF_ERROR(CheckNoPointer(config_path, text));
  Result<TransformerOptions> options = ParseTransformerConfig(text.text());
  if (!options.ok()) return options.status().WithContext(config_path);
  TROOP_ASSIGN_OR_RETURN(const Buffer bytes, storage->Map(path));
  TROOP_RETURN_IF_ERROR(CheckNoPointer(path, bytes));
  Result<TensorFile> weights = DecodeSafetensors(bytes);
  if (!weights.ok()) return weights.status().WithContext(path);
  return Pretrained{*std::move(options), *std::move(weights)};
}

// Weights first: a reader that finds config.json finds both.
Status WritePretrained(Storage* storage, std::string_view folder, const TransformerOptions& options,
                       const Module& module, std::span<const float> value) {
  TROOP_RETURN_IF_ERROR(storage->WriteAtomic(
      Join(folder, kWeightsName), EncodeSafetensors(SaveWeights(module, value)).bytes()));
  return storage->WriteAtomic(Join(folder, kConfigName), TransformerConfigJson(options));
}

}  // namespace troop
