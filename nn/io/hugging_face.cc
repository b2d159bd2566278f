// Implements reading and writing of models in the format of the Python package transformers.
#include "nn/io/hugging_face.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <set>

#include "core/storage/json.h"
#include "kernels/elementwise/cast.h"
#include "kernels/elementwise/is_finite.h"
#include "nn/io/weight_files.h"
#include "nn/transformer/family.h"

namespace troop {
namespace {

using Family = TransformerConfig::Family;

constexpr std::size_t kConfigBytesMax = 1 << 20;
constexpr char kConfigName[] = "config.json";
constexpr Family kFamilies[] = {Family::kBert, Family::kAlbert, Family::kRoberta,
                                Family::kDistilBert, Family::kElectra};

// Keys of config.json that differ between families.
struct ConfigNames {
  const char *hidden = "hidden_size", *layers = "num_hidden_layers", *heads = "num_attention_heads";
  const char *intermediate = "intermediate_size", *activation = "hidden_act";
  const char* hidden_dropout = "hidden_dropout_prob";
  const char* attention_dropout = "attention_probs_dropout_prob";
  const char* classifier_dropout = "classifier_dropout";
};
// ALBERT and DistilBERT were named before the package had common keys.
const ConfigNames& NamesFor(Family family) {
  static constexpr ConfigNames kUsual;
  static constexpr ConfigNames kAlbertNames = {.classifier_dropout = "classifier_dropout_prob"};
  static constexpr ConfigNames kDistilNames = {.hidden = "dim",
                                               .layers = "n_layers",
                                               .heads = "n_heads",
                                               .intermediate = "hidden_dim",
                                               .activation = "activation",
                                               .hidden_dropout = "dropout",
                                               .attention_dropout = "attention_dropout",
                                               .classifier_dropout = "seq_classif_dropout"};
  if (family == Family::kDistilBert) return kDistilNames;
  return family == Family::kAlbert ? kAlbertNames : kUsual;
}

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

// Names of the classes by id, which must be 0 to n - 1. Without the key: 2 classes without names,
// as in the package.
Status ReadLabels(const JsonValue& json, TransformerOptions* options) {
  const JsonValue* const labels = json.Find("id2label");
  if (labels != nullptr && labels->kind != JsonValue::Kind::kNull) {
    if (labels->kind != JsonValue::Kind::kObject) return DataLoss("\"id2label\" is not an object");
    for (std::size_t i = 0; i < labels->object.size(); ++i) {
      const JsonValue* const name = labels->Find(std::to_string(i));
      if (name == nullptr || name->kind != JsonValue::Kind::kString) {
        return InvalidArgument("\"id2label\" has {} labels, but no name for {}: ids are 0 to {}",
                               labels->object.size(), i, labels->object.size() - 1);
      }
      options->labels.push_back(name->string);
    }
    options->classes = std::max<std::int64_t>(1, std::int64_t(options->labels.size()));
  }
  if (const JsonValue* const n = json.Find("num_labels");
      n != nullptr && n->kind != JsonValue::Kind::kNull) {
    TROOP_ASSIGN_OR_RETURN(const std::int64_t count, json.Integer("num_labels"));
    if (count < 1 || (!options->labels.empty() && count != options->classes)) {
      return InvalidArgument("\"num_labels\" is {}, but \"id2label\" has {} labels; remove one",
                             count, options->labels.size());
    }
    options->classes = count;
  }
  return Status::Ok();
}

// The kind of prediction. Without the key one output is a regression, as in the package.
Status ReadProblemType(const JsonValue& json, TransformerOptions* options) {
  const JsonValue* const type = json.Find("problem_type");
  if (type == nullptr || type->kind == JsonValue::Kind::kNull) {
    if (options->classes == 1) options->problem_type = ProblemType::kRegression;
    return Status::Ok();
  }
  const std::optional<ProblemType> known = ParseEnum<ProblemType>(type->string);
  if (type->kind != JsonValue::Kind::kString || !known) {
    return InvalidArgument(
        "\"problem_type\" is \"{}\": only single_label_classification, "
        "multi_label_classification and regression are supported",
        type->string);
  }
  options->problem_type = *known;
  return Status::Ok();
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
  return Flag(json, "tie_word_embeddings", true).status();
}

// "gelu" is the exact form, the others are the tanh approximation.
Result<GeluForm> ReadGelu(const JsonValue& json, const char* key) {
  const Result<std::string> read = json.String(key);
  if (!read.ok()) return read.status();
  const std::string_view name = *read;
  if (name == "gelu") return GeluForm::kErf;
  if (name == "gelu_new" || name == "gelu_pytorch_tanh") return GeluForm::kTanh;
  return InvalidArgument(
      "\"{}\" is \"{}\": only gelu, gelu_new and gelu_pytorch_tanh are supported", key, name);
}

// Reads the sizes; ALBERT must have a single shared layer, RoBERTa's padding the usual id.
Status ReadSizes(const JsonValue& json, TransformerConfig* config) {
  const ConfigNames& names = NamesFor(config->family);
  TROOP_ASSIGN_OR_RETURN(config->vocabulary, json.Integer("vocab_size"));
  TROOP_ASSIGN_OR_RETURN(config->hidden, json.Integer(names.hidden));
  TROOP_ASSIGN_OR_RETURN(config->layers, json.Integer(names.layers));
  TROOP_ASSIGN_OR_RETURN(config->heads, json.Integer(names.heads));
  TROOP_ASSIGN_OR_RETURN(config->intermediate, json.Integer(names.intermediate));
  TROOP_ASSIGN_OR_RETURN(config->positions, json.Integer("max_position_embeddings"));
  const FamilyForm& form = FormOf(config->family);
  config->token_types = 1;
  if (form.types) {
    TROOP_ASSIGN_OR_RETURN(config->token_types, json.Integer("type_vocab_size"));
  }
  // Without a map both sizes are one.
  config->embedding = config->hidden;
  if (form.map[0] != '\0') {
    TROOP_ASSIGN_OR_RETURN(config->embedding, json.Integer("embedding_size"));
  }
  if (form.padding >= 0) TROOP_RETURN_IF_ERROR(Expect(json, "pad_token_id", form.padding));
  if (!form.shared) return Status::Ok();
  TROOP_RETURN_IF_ERROR(Expect(json, "num_hidden_groups", 1));
  return Expect(json, "inner_group_num", 1);
}

// Reads dropout rates and constants; absent ones have the defaults of the package.
Status ReadRates(const JsonValue& json, TransformerConfig* config) {
  const ConfigNames& names = NamesFor(config->family);
  const bool albert = config->family == Family::kAlbert;
  const float common = albert ? 0.0f : 0.1f;
  TROOP_ASSIGN_OR_RETURN(config->hidden_dropout, Fraction(json, names.hidden_dropout, common));
  TROOP_ASSIGN_OR_RETURN(config->attention_dropout,
                         Fraction(json, names.attention_dropout, common));
  // The classifier's rate follows the hidden one in BERT, RoBERTa and ELECTRA.
  float classifier = config->hidden_dropout;
  if (albert) classifier = 0.1f;
  if (config->family == Family::kDistilBert) classifier = 0.2f;
  TROOP_ASSIGN_OR_RETURN(config->classifier_dropout,
                         Fraction(json, names.classifier_dropout, classifier));
  // DistilBERT's code has a constant, and ignores the key.
  const float fixed = FormOf(config->family).fixed_epsilon;
  config->epsilon = fixed;
  if (fixed == 0) {
    TROOP_ASSIGN_OR_RETURN(config->epsilon, Fraction(json, "layer_norm_eps", 1e-12f));
  }
  TROOP_ASSIGN_OR_RETURN(config->deviation, Fraction(json, "initializer_range", 0.02f));
  return Status::Ok();
}

// True for parameters of the head, which a file pre-trained for another task may lack.
bool BelongsToHead(std::string_view name) {
  constexpr std::string_view kEncoder[] = {".embeddings.", ".encoder.", ".transformer.layer.",
                                           ".embeddings_project."};
  return std::ranges::none_of(kEncoder,
                              [&](std::string_view part) { return name.find(part) != name.npos; });
}

// Name of the bias of the tied decoder, a copy of the masked-LM head's bias.
std::string DecoderBias(const FamilyForm& form) {
  const std::string_view weight = form.decoder;
  return std::string(weight.substr(0, weight.size() - std::strlen("weight"))) + "bias";
}

// Possible names of a parameter in a file, the usual one first: without the family prefix, and with
// the gamma and beta of 2018.
std::vector<std::string> NamesOf(const std::string& name) {
  std::vector<std::string> names = {name};
  for (const Family family : kFamilies) {
    const std::string prefix = std::string(troop::NameOf(family)) + ".";
    if (name.starts_with(prefix)) names.push_back(name.substr(prefix.size()));
    if (name == FormOf(family).word_bias) names.push_back(DecoderBias(FormOf(family)));
  }
  for (std::size_t i = 0, n = names.size(); i < n; ++i) {
    for (const auto& [now, then] :
         {std::pair("orm.weight", "orm.gamma"), std::pair("orm.bias", "orm.beta")}) {
      const std::string& known = names[i];
      if (!known.ends_with(now)) continue;
      names.push_back(known.substr(0, known.size() - std::strlen(now)) + then);
    }
  }
  return names;
}

// True for redundant tensors: the tied decoder, and position ids, which count from 0.
bool IsCopy(std::string_view name) {
  return name.ends_with("position_ids") || std::ranges::any_of(kFamilies, [&](Family family) {
           const FamilyForm& form = FormOf(family);
           return name == form.decoder || (name == DecoderBias(form) && name != form.word_bias);
         });
}

// The decoder of a masked-LM head is tied to the word embeddings here. A file may repeat it, but
// not with other values: transformers would use those.
Status CheckTied(const Module& module, const TensorFile& file) {
  const auto equal = [&](const std::string& copy, const std::string& original) {
    const auto there = file.tensors.find(copy);
    if (there == file.tensors.end()) return true;
    for (const std::string& name : NamesOf(original)) {
      const auto here = file.tensors.find(name);
      if (here == file.tensors.end()) continue;
      return here->second.spec() == there->second.spec() &&
             std::ranges::equal(here->second.bytes(), there->second.bytes());
    }
    return true;
  };
  for (const Family family : kFamilies) {
    // Only the family whose masked-LM head the module has.
    const FamilyForm& form = FormOf(family);
    if (std::ranges::find(module.params(), form.word_bias, &ParamSpec::name) ==
        module.params().end())
      continue;
    const std::string words = std::string(form.name) + ".embeddings.word_embeddings.weight";
    for (const auto& [copy, original] :
         {std::pair(std::string(form.decoder), words),
          std::pair(DecoderBias(form), std::string(form.word_bias))}) {
      if (equal(copy, original)) continue;
      return InvalidArgument(
          "tensor \"{}\" differs from \"{}\": only a decoder tied to the embeddings is supported",
          copy, original);
    }
  }
  return Status::Ok();
}

// Copies and converts one tensor after checking its shape, type and values.
Status CopyWeights(const std::string& name, const ConstTensor& from, const ParamSpec& spec,
                   std::span<float> to) {
  if (!(from.shape() == spec.shape))
    return InvalidArgument("tensor \"{}\" is {}, the model needs {}", name, from.shape().ToString(),
                           spec.shape.ToString());
  if (from.dtype() != DType::kF32 && from.dtype() != DType::kBF16)
    return InvalidArgument("tensor \"{}\" is {}: only f32, f16 and bf16 are read", name,
                           DTypeName(from.dtype()));
  ConvertScaled({.n = spec.shape.elements(),
                 .x = from.bytes().data(),
                 .x_dtype = from.dtype(),
                 .y = to.data()});
  if (!AllFinite(to)) return DataLoss("tensor \"{}\" holds a non-finite value", name);
  return Status::Ok();
}

// Text of config.json.
Result<Buffer> ReadConfigText(Storage* storage, const std::string& path) {
  TROOP_ASSIGN_OR_RETURN(Buffer text, storage->Read(path, kConfigBytesMax));
  // A pointer file would otherwise fail as invalid JSON.
  TROOP_RETURN_IF_ERROR(CheckNoPointer(path, text));
  return text;
}

// A decoder that is not tied must be in the file, so that LoadWeights compares it.
Status CheckDecoder(const JsonValue& json, const TransformerOptions& options,
                    const TensorFile& weights) {
  TROOP_ASSIGN_OR_RETURN(const bool tied, Flag(json, "tie_word_embeddings", true));
  const char* const decoder = FormOf(options.config.family).decoder;
  if (tied || options.head != TransformerHead::kMaskedLm || weights.tensors.contains(decoder))
    return Status::Ok();
  return InvalidArgument(
      "\"tie_word_embeddings\" is false, but the file has no tensor \"{}\": only a decoder tied to "
      "the embeddings is supported",
      decoder);
}

}  // namespace

// Fields are read before the variants are checked, so that a missing field is reported first.
Result<TransformerOptions> ParseTransformerConfig(std::string_view text) {
  TROOP_ASSIGN_OR_RETURN(const JsonValue json, ParseJson(text));
  const Result<std::string> read = json.String("model_type");
  if (!read.ok()) return read.status();
  const std::string_view type = *read;
  const auto family = std::ranges::find(kFamilies, type, troop::NameOf);
  if (family == std::end(kFamilies))
    return InvalidArgument(
        "\"model_type\" is \"{}\": only bert, albert, roberta, distilbert and electra are "
        "supported",
        type);
  TransformerOptions options;
  TransformerConfig& config = options.config;
  config.family = *family;
  TROOP_RETURN_IF_ERROR(ReadSizes(json, &config));
  TROOP_RETURN_IF_ERROR(ReadRates(json, &config));
  TROOP_ASSIGN_OR_RETURN(config.gelu, ReadGelu(json, NamesFor(*family).activation));
  TROOP_RETURN_IF_ERROR(CheckVariants(json));
  options.head = HeadOf(json);
  TROOP_RETURN_IF_ERROR(ReadLabels(json, &options));
  if (options.head == TransformerHead::kClassifier)
    TROOP_RETURN_IF_ERROR(ReadProblemType(json, &options));
  TROOP_RETURN_IF_ERROR(CheckTransformer(config));
  return options;
}

// Writes the keys that the package reads; classes without names get the package's.
std::string TransformerConfigJson(const TransformerOptions& options) {
  const TransformerConfig& config = options.config;
  const FamilyForm& form = FormOf(config.family);
  const ConfigNames& names = NamesFor(config.family);
  const std::string family = form.package;
  const char* const kinds[] = {"Model", "ForSequenceClassification", "ForMaskedLM"};
  // id2label, label2id, and the document.
  JsonObject labels, numbers, json;
  for (std::int64_t i = 0; i < options.classes; ++i) {
    const bool named = std::int64_t(options.labels.size()) == options.classes;
    const std::string label = named ? options.labels[std::size_t(i)] : fmt::format("LABEL_{}", i);
    labels.Add(std::to_string(i), label);
    numbers.Add(label, i);
  }
  json.Add("architectures", JsonArray().Add(family + kinds[int(options.head)]))
      .Add("model_type", NameOf(config.family))
      .Add("vocab_size", config.vocabulary)
      .Add(names.hidden, config.hidden)
      .Add(names.layers, config.layers)
      .Add(names.heads, config.heads)
      .Add(names.intermediate, config.intermediate)
      .Add("max_position_embeddings", config.positions)
      .Add(names.activation, config.gelu == GeluForm::kErf ? "gelu" : "gelu_new")
      .Add(names.hidden_dropout, double(config.hidden_dropout))
      .Add(names.attention_dropout, double(config.attention_dropout))
      .Add(names.classifier_dropout, double(config.classifier_dropout))
      .Add("initializer_range", double(config.deviation))
      .Add("id2label", labels)
      .Add("label2id", numbers);
  if (form.types) json.Add("type_vocab_size", config.token_types);
  if (form.fixed_epsilon == 0) json.Add("layer_norm_eps", double(config.epsilon));
  if (form.map[0] != '\0') json.Add("embedding_size", config.embedding);
  if (form.shared) json.Add("num_hidden_groups", std::int64_t{1});
  if (form.padding >= 0) json.Add("pad_token_id", form.padding);
  if (options.head == TransformerHead::kClassifier)
    json.Add("problem_type", EnumName(options.problem_type));
  return json.str();
}

Result<LoadedWeights> LoadWeights(const Module& module, const TensorFile& file,
                                  std::span<float> value) {
  TROOP_RETURN_IF_ERROR(CheckTied(module, file));
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

Result<TransformerOptions> ReadPretrainedConfig(Storage* storage, std::string_view folder) {
  const std::string path = PathIn(folder, kConfigName);
  TROOP_ASSIGN_OR_RETURN(const Buffer text, ReadConfigText(storage, path));
  Result<TransformerOptions> options = ParseTransformerConfig(text.text());
  if (!options.ok()) return options.status().WithContext(path);
  return options;
}

// The weights are mapped, not read: large files cost memory only when they are used.
Result<Pretrained> ReadPretrained(Storage* storage, std::string_view folder) {
  TROOP_ASSIGN_OR_RETURN(TransformerOptions options, ReadPretrainedConfig(storage, folder));
  TROOP_ASSIGN_OR_RETURN(TensorFile weights, ReadWeightFiles(storage, folder));
  const std::string path = PathIn(folder, kConfigName);
  TROOP_ASSIGN_OR_RETURN(const Buffer text, ReadConfigText(storage, path));
  TROOP_ASSIGN_OR_RETURN(const JsonValue json, ParseJson(text.text()));
  TROOP_RETURN_IF_ERROR(CheckDecoder(json, options, weights).WithContext(path));
  return Pretrained{std::move(options), std::move(weights)};
}

// Weights first: a reader that finds config.json finds both.
Status WritePretrained(Storage* storage, std::string_view folder, const TransformerOptions& options,
                       const Module& module, std::span<const float> value) {
  TROOP_RETURN_IF_ERROR(storage->WriteAtomic(
      PathIn(folder, kWeightsName), EncodeSafetensors(SaveWeights(module, value)).bytes()));
  return storage->WriteAtomic(PathIn(folder, kConfigName), TransformerConfigJson(options));
}

}  // namespace troop
