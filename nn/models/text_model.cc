// Implements the models of supervised runs: transformers and the LSTM classifier.
#include "nn/models/text_model.h"

#include "nn/sparse/linear_module.h"

namespace troop {

// The config has one list of architectures for texts and images; the names are equal.
ImageModelOptions ImageOptionsOf(const ModelConfig& m) {
  return {.architecture = *ParseEnum<ImageArchitecture>(EnumName(m.architecture)),
          .height = m.image_height,
          .width = m.image_width,
          .channels = m.image_channels,
          .classes = OutputsOf(m),
          .hidden = m.classifier_units};
}

namespace {

// The classifier of a run on images. Height, width and channels come from the data.
Result<std::unique_ptr<Module>> MakeImageModel(const ModelConfig& m) {
  Result<std::unique_ptr<Module>> module = MakeImageClassifier(ImageOptionsOf(m));
  if (!module.ok()) return module.status().WithContext("[model]");
  return module;
}

// A linear model. The number of features is that of the data; two classes share one output.
Result<std::unique_ptr<Module>> MakeLinearModel(const ModelConfig& m) {
  const bool two = m.problem_type == ProblemType::kSingleLabel && OutputsOf(m) == 2;
  auto module = MakeLinearModule({.features = m.num_features, .outputs = two ? 1 : OutputsOf(m)},
                                 m.problem_type);
  if (!module.ok()) return module.status().WithContext("model.num_features");
  return module;
}

// The vocabulary size is counted from data.vocabulary before the model is created.
Status CheckVocabulary(const ModelSetup& setup) {
  if (setup.model.vocab_size > 0) return Status::Ok();
  return InvalidArgument("model.vocab_size is 0, must be the number of rows of data.vocabulary");
}

// The LSTM, linear models and image classifiers are not transformers; their callers do not come
// here.
TransformerConfig::Family FamilyOf(ModelArchitecture architecture) {
  using Family = TransformerConfig::Family;
  switch (architecture) {
    case ModelArchitecture::kAlbert:
      return Family::kAlbert;
    case ModelArchitecture::kRoberta:
      return Family::kRoberta;
    case ModelArchitecture::kDistilBert:
      return Family::kDistilBert;
    case ModelArchitecture::kElectra:
      return Family::kElectra;
    case ModelArchitecture::kBert:
    case ModelArchitecture::kLstm:
    case ModelArchitecture::kLinear:
    case ModelArchitecture::kCnn:
    case ModelArchitecture::kResNet18:
    case ModelArchitecture::kResNet50:
    case ModelArchitecture::kAlexNet:
    case ModelArchitecture::kAlexNetTorchvision:
    case ModelArchitecture::kVgg16:
      break;
  }
  return Family::kBert;
}

// Segments that have embeddings: RoBERTa has one, DistilBERT none.
std::int64_t PublishedTypes(TransformerConfig::Family family) {
  using Family = TransformerConfig::Family;
  return family == Family::kRoberta || family == Family::kDistilBert ? 1 : 2;
}

// RoBERTa was trained with fairseq, whose default is larger.
float PublishedEpsilon(TransformerConfig::Family family) {
  return family == TransformerConfig::Family::kRoberta ? 1e-5f : 1e-12f;
}

// Only ALBERT was published with the approximation.
GeluForm GeluOf(HiddenActivation activation, TransformerConfig::Family family) {
  if (activation == HiddenActivation::kAuto)
    return family == TransformerConfig::Family::kAlbert ? GeluForm::kTanh : GeluForm::kErf;
  return activation == HiddenActivation::kGelu ? GeluForm::kErf : GeluForm::kTanh;
}

}  // namespace

// Attention has the size of hidden, as has the embedding unless model.embedding_size is set.
Result<LstmConfig> LstmModelOptions(const ModelSetup& setup) {
  const ModelConfig& m = setup.model;
  TROOP_RETURN_IF_ERROR(CheckVocabulary(setup));
  return LstmConfig{.vocabulary = m.vocab_size,
                    .embedding = m.embedding_size > 0 ? m.embedding_size : m.hidden_size,
                    .hidden = m.hidden_size,
                    .layers = m.num_hidden_layers,
                    .attention = m.hidden_size,
                    .classes = OutputsOf(m),
                    .embedding_dropout = float(m.dropout),
                    .layer_dropout = float(m.dropout),
                    .classifier_dropout = float(m.classifier_dropout),
                    .output_bias = float(m.output_bias)};
}

// Settings that are not given are those of the published models.
Result<TransformerOptions> TextModelOptions(const ModelSetup& setup) {
  const ModelConfig& m = setup.model;
  TROOP_RETURN_IF_ERROR(CheckVocabulary(setup));
  const TransformerConfig::Family family = FamilyOf(m.architecture);
  TransformerOptions options;
  options.config = {
      .family = family,
      .vocabulary = m.vocab_size,
      .hidden = m.hidden_size,
      .embedding = m.embedding_size > 0 ? m.embedding_size : m.hidden_size,
      .layers = m.num_hidden_layers,
      .heads = m.num_attention_heads,
      .intermediate = m.intermediate_size > 0 ? m.intermediate_size : 4 * m.hidden_size,
      .positions = m.max_position_embeddings,
      .token_types = PublishedTypes(family),
      .gelu = GeluOf(m.hidden_act, family),
      .epsilon = m.layer_norm_eps > 0 ? float(m.layer_norm_eps) : PublishedEpsilon(family),
      .hidden_dropout = float(m.dropout),
      .attention_dropout = float(m.attention_dropout),
      .classifier_dropout = float(m.classifier_dropout),
      .sinusoids = m.position_init == PositionInit::kSinusoids};
  options.head = setup.algorithm == AlgorithmKind::kMaskedLm ? TransformerHead::kMaskedLm
                                                             : TransformerHead::kClassifier;
  options.classes = OutputsOf(m);
  options.labels = m.labels;
  options.problem_type = m.problem_type;
  options.output_bias = float(m.output_bias);
  options.recompute = m.gradient_checkpointing;
  const Status fits = CheckTransformer(options.config);
  if (!fits.ok()) return fits.WithContext("[model]");
  return options;
}

// Images, linear models and the LSTM are not tensor-parallel.
Result<std::unique_ptr<Module>> MakeTextModel(const ModelSetup& setup,
                                              const TensorParallelRank& tensor) {
  if (ClassifiesImages(setup.model.architecture)) return MakeImageModel(setup.model);
  if (setup.model.architecture == ModelArchitecture::kLinear) return MakeLinearModel(setup.model);
  if (setup.model.architecture == ModelArchitecture::kLstm) {
    TROOP_ASSIGN_OR_RETURN(const LstmConfig config, LstmModelOptions(setup));
    return MakeLstmClassifier(config);
  }
  TROOP_ASSIGN_OR_RETURN(TransformerOptions options, TextModelOptions(setup));
  options.tensor = tensor;
  return MakeTransformer(options);
}

// The classes are the actions.
EnvSpec ReviewSpec(const ModelSetup& setup) {
  EnvSpec spec;
  const ModelConfig& m = setup.model;
  const bool images = ClassifiesImages(m.architecture);
  spec.id = images ? "images" : "reviews";
  spec.observation = {DType::kI32, {setup.max_length}};
  if (images) spec.observation = {DType::kF32, {m.image_height, m.image_width, m.image_channels}};
  spec.action.count = OutputsOf(setup.model);
  return spec;
}

}  // namespace troop
