#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/config/enum_names.h"
#include "core/config/problem_type.h"

namespace troop {

class ConfigVisitor;

// Architecture of a text model, of a linear model (nn/sparse) or, from kCnn on, of an image
// classifier (nn/images).
enum class ModelArchitecture : std::uint8_t {
  kBert,
  kAlbert,
  kLstm,
  kRoberta,
  kDistilBert,
  kElectra,
  kLinear,
  kCnn,
  kResNet18,
  kResNet50,
  kAlexNet,
  kAlexNetTorchvision,
  kVgg16
};
constexpr auto EnumNames(ModelArchitecture) {
  return std::to_array<std::string_view>({"bert", "albert", "lstm", "roberta", "distilbert",
                                          "electra", "linear", "cnn", "resnet18", "resnet50",
                                          "alexnet", "alexnet_torchvision", "vgg16"});
}
// True for the architectures that classify images (data.images) instead of texts.
constexpr bool ClassifiesImages(ModelArchitecture architecture) {
  return architecture >= ModelArchitecture::kCnn;
}

// Activation of the feed-forward layers: GELU (Hendrycks & Gimpel 2016), exact or with tanh. kAuto:
// as published: "gelu_new" for ALBERT, else "gelu".
enum class HiddenActivation : std::uint8_t { kAuto, kGelu, kGeluNew };
constexpr auto EnumNames(HiddenActivation) {
  return std::to_array<std::string_view>({"auto", "gelu", "gelu_new"});
}

// Initial values of the position embeddings.
enum class PositionInit : std::uint8_t { kNormal, kSinusoids };
constexpr auto EnumNames(PositionInit) {
  return std::to_array<std::string_view>({"normal", "sinusoids"});
}

// The model of a supervised run ([model]); names as in Hugging Face's configs.
struct ModelConfig {
  ModelArchitecture architecture = ModelArchitecture::kBert;
  std::string pretrained;        // folder with initial weights; empty: random
  bool sync_batch_norm = false;  // images: statistics of the batch of all learners
  ProblemType problem_type = ProblemType::kSingleLabel;
  std::vector<std::string> labels;  // names of the classes by id; empty: those of the data
  std::int64_t vocab_size = 0;      // 0: size of data.vocabulary
  std::int64_t hidden_size = 128;
  std::int64_t embedding_size = 0;  // albert, electra, lstm; 0: same as hidden
  std::int64_t num_hidden_layers = 2;
  std::int64_t num_attention_heads = 2;
  std::int64_t intermediate_size = 0;  // 0: 4 * hidden
  std::int64_t max_position_embeddings = 512;
  HiddenActivation hidden_act = HiddenActivation::kAuto;
  double layer_norm_eps = 0;  // 0: as published
  double output_bias = 0;     // regression: initial bias; 0: mean of the training targets
  PositionInit position_init = PositionInit::kNormal;
  double dropout = 0.1, attention_dropout = 0.1, classifier_dropout = 0.1;
  bool gradient_checkpointing = false;
  std::int64_t num_features = 0;  // linear; 0: those of the data
  // Shape of the images that an image classifier takes; 0: as data.images and the crop have it.
  std::int64_t image_height = 0, image_width = 0, image_channels = 0;
  std::int64_t classifier_units = 4096;  // AlexNet, VGG-16: of each of the two hidden linear layers
  bool operator==(const ModelConfig&) const = default;
};
// True if model.embedding_size may differ from model.hidden_size.
constexpr bool HasEmbeddingSize(ModelArchitecture architecture) {
  return architecture == ModelArchitecture::kAlbert ||
         architecture == ModelArchitecture::kElectra || architecture == ModelArchitecture::kLstm;
}
// True if the model has an embedding for each segment of a pair of texts.
constexpr bool HasSegments(ModelArchitecture architecture) {
  return architecture == ModelArchitecture::kBert || architecture == ModelArchitecture::kAlbert ||
         architecture == ModelArchitecture::kElectra;
}
// The longest text in tokens; RoBERTa has two position embeddings more.
constexpr std::int64_t TokensMax(const ModelConfig& config) {
  const bool roberta = config.architecture == ModelArchitecture::kRoberta;
  return config.max_position_embeddings - (roberta ? 2 : 0);
}
// Number of a classifier's outputs: one per class, or the number of a regression.
inline std::int64_t OutputsOf(const ModelConfig& model) {
  if (model.problem_type == ProblemType::kRegression) return 1;
  return model.labels.empty() ? 2 : std::int64_t(model.labels.size());
}
// Declares the keys.
void VisitKeys(ModelConfig& config, ConfigVisitor& visitor);

}  // namespace troop
