// Implements the settings of a supervised config that depend on data, mesh and working directory.

#include "fleet/config/resolve_supervised.h"

#include <algorithm>
#include <filesystem>
#include <string>
#include <system_error>
#include <type_traits>

#include "fleet/config/role_configs.h"
#include "fleet/config/validate.h"
#include "learners/images/image_dataset.h"
#include "learners/images/image_pipeline.h"
#include "learners/linear/linear_data.h"
#include "learners/supervised/dataset.h"
#include "nn/io/hugging_face.h"
#include "nn/models/text_model.h"

namespace troop {
namespace {

namespace fs = std::filesystem;

// Makes a path independent of the working directory, for roles that start elsewhere.
Status Absolute(std::string* path) {
  if (path->empty()) return Status::Ok();
  std::error_code error;
  const fs::path absolute = fs::absolute(*path, error);
  if (error) return InvalidArgument("{}: {}", *path, error.message());
  *path = absolute.lexically_normal().string();
  return Status::Ok();
}

// Compares keys of [model] with those of the pre-trained model, and takes over those that are not
// set.
class PretrainedKeys {
 public:
  explicit PretrainedKeys(Config* config) : config_(config) {}

  // meaning: the value that *mine stands for, if that is a default such as 0.
  template <class T>
  Status Take(const char* key, const T& there, const T& fresh, T* mine, const T& meaning) {
    const auto place = config_->places.of.find(key);
    const bool given = place != config_->places.of.end() || *mine != fresh;
    if (given && meaning != there) {
      return InvalidArgument("{} is {}{}, but {} in {}/config.json; omit the key", key,
                             Text(meaning),
                             place == config_->places.of.end() ? "" : " (" + place->second + ")",
                             Text(there), config_->model.pretrained);
    }
    *mine = there;
    return Status::Ok();
  }

 private:
  template <class T>
  static std::string Text(const T& value) {
    if constexpr (std::is_enum_v<T>) {
      return fmt::format("\"{}\"", EnumName(value));
    } else {
      return fmt::format("{}", value);
    }
  }
  Config* const config_;
};

ModelArchitecture ArchitectureOf(TransformerConfig::Family family) {
  using Family = TransformerConfig::Family;
  switch (family) {
    case Family::kBert:
      return ModelArchitecture::kBert;
    case Family::kAlbert:
      return ModelArchitecture::kAlbert;
    case Family::kRoberta:
      return ModelArchitecture::kRoberta;
    case Family::kDistilBert:
      return ModelArchitecture::kDistilBert;
    case Family::kElectra:
      return ModelArchitecture::kElectra;
  }
  return ModelArchitecture::kBert;
}

// The shortest decimal number that gives the same float.
double Shortest(float value) { return std::stod(fmt::format("{}", value)); }

// Family and constants. A key of 0 or "auto" stands for the published value.
Status TakeForm(const TransformerConfig& there, const TransformerConfig& mine, Config* config) {
  const ModelConfig fresh;
  ModelConfig& m = config->model;
  PretrainedKeys keys(config);
  const auto name = [](GeluForm form) {
    return form == GeluForm::kErf ? HiddenActivation::kGelu : HiddenActivation::kGeluNew;
  };
  TROOP_RETURN_IF_ERROR(keys.Take("model.hidden_act", name(there.gelu), fresh.hidden_act,
                                  &m.hidden_act, name(mine.gelu)));
  TROOP_RETURN_IF_ERROR(keys.Take("model.layer_norm_eps", Shortest(there.epsilon),
                                  fresh.layer_norm_eps, &m.layer_norm_eps, Shortest(mine.epsilon)));
  if (there.token_types == mine.token_types) return Status::Ok();
  return InvalidArgument(
      "model.pretrained: {}/config.json: \"type_vocab_size\" is {}: only {} is supported for "
      "\"{}\"",
      m.pretrained, there.token_types, mine.token_types, EnumName(m.architecture));
}

// Sizes, in the order in which defaults depend on each other.
Status TakeSizes(const TransformerConfig& there, Config* config) {
  const ModelConfig fresh;
  ModelConfig& m = config->model;
  PretrainedKeys keys(config);
  const auto size = [&](const char* key, std::int64_t value, std::int64_t ModelConfig::*field,
                        std::int64_t meaning) {
    return keys.Take(key, value, fresh.*field, &(m.*field), meaning);
  };
  TROOP_RETURN_IF_ERROR(keys.Take("model.architecture", ArchitectureOf(there.family),
                                  fresh.architecture, &m.architecture, m.architecture));
  // 0 is not a size: the vocabulary's is compared with the model's later.
  TROOP_RETURN_IF_ERROR(size("model.vocab_size", there.vocabulary, &ModelConfig::vocab_size,
                             m.vocab_size > 0 ? m.vocab_size : there.vocabulary));
  TROOP_RETURN_IF_ERROR(
      size("model.hidden_size", there.hidden, &ModelConfig::hidden_size, m.hidden_size));
  TROOP_RETURN_IF_ERROR(size("model.embedding_size", there.embedding, &ModelConfig::embedding_size,
                             m.embedding_size > 0 ? m.embedding_size : m.hidden_size));
  TROOP_RETURN_IF_ERROR(size("model.intermediate_size", there.intermediate,
                             &ModelConfig::intermediate_size,
                             m.intermediate_size > 0 ? m.intermediate_size : 4 * m.hidden_size));
  TROOP_RETURN_IF_ERROR(size("model.num_hidden_layers", there.layers,
                             &ModelConfig::num_hidden_layers, m.num_hidden_layers));
  TROOP_RETURN_IF_ERROR(size("model.num_attention_heads", there.heads,
                             &ModelConfig::num_attention_heads, m.num_attention_heads));
  return size("model.max_position_embeddings", there.positions,
              &ModelConfig::max_position_embeddings, m.max_position_embeddings);
}

// Takes the form of the model over from model.pretrained, then checks it: before, it was unknown.
Status TakePretrained(Config* config) {
  const std::string& path = config->model.pretrained;
  if (path.empty()) return Status::Ok();
  TROOP_RETURN_IF_ERROR(CheckPretrained(config->model));
  // Sizes of images come from the data; the preflight check compares all tensors.
  if (ClassifiesImages(config->model.architecture)) return Status::Ok();
  TROOP_ASSIGN_OR_RETURN(const auto storage, MakeDiskStorage(path));
  const Result<TransformerOptions> there = ReadPretrainedConfig(storage.get(), "");
  if (!there.ok()) return there.status().WithContext("model.pretrained: " + path);
  TROOP_RETURN_IF_ERROR(TakeSizes(there->config, config));
  TROOP_ASSIGN_OR_RETURN(const TransformerOptions mine, TextModelOptions(ModelSetupOf(*config)));
  TROOP_RETURN_IF_ERROR(TakeForm(there->config, mine.config, config));
  Conflicts conflicts;
  CheckModelSizes(*config, &conflicts);
  for (const ConfigConflict& conflict : conflicts.Take())
    return InvalidArgument("{}: {}", conflict.keys[0], conflict.message);
  return Status::Ok();
}

// Each kind of supervised run reads its own kind of data.
Result<DataSettings> SettingsOf(const TrainingConfig& training) {
  if (ClassifiesImages(training)) return DeriveImageSettings(training);
  return IsLinearModel(training) ? DeriveLinearSettings(training) : DeriveDataSettings(training);
}

}  // namespace

// After an error the mesh and the paths may be set already.
Status ResolveSupervised(Config* config) {
  TROOP_RETURN_IF_ERROR(Absolute(&config->learner.demonstrations));
  if (IsOffline(*config)) {
    config->run.total_steps = double(config->run.max_updates) * double(config->learner.batch_size);
  }
  if (!IsSupervised(*config)) return Status::Ok();
  // Step 1: the mesh, from the number of learners if it is not given.
  MeshConfig& mesh = config->mesh;
  const std::int64_t parts = mesh.tp * mesh.pp;
  if (mesh.dp == 0) mesh.dp = std::max<std::int64_t>(1, config->fleet.learners / parts);
  config->fleet.learners = mesh.dp * parts;
  // Step 2: absolute paths.
  for (std::string* path : {&config->data.reviews, &config->data.validation, &config->data.test,
                            &config->data.unlabeled, &config->data.vocabulary, &config->data.images,
                            &config->model.pretrained, &config->log.dir}) {
    TROOP_RETURN_IF_ERROR(Absolute(path));
  }
  // Step 3: the sizes of a pre-trained model.
  TROOP_RETURN_IF_ERROR(TakePretrained(config));
  // Step 4: the settings that follow from the data present now.
  const TrainingConfig training = TrainingConfigOf(*config);
  TROOP_ASSIGN_OR_RETURN(const DataSettings settings, SettingsOf(training));
  config->data_identity = settings.data_identity;
  config->model.vocab_size = settings.vocab_size;
  config->model.labels = settings.labels;
  config->model.output_bias = settings.output_bias;
  config->data.text_columns = settings.text_columns;
  config->model.num_features = settings.num_features;
  config->model.image_height = settings.image_height;
  config->model.image_width = settings.image_width;
  config->model.image_channels = settings.image_channels;
  config->paramserver.push_every = settings.push_every;
  config->paramserver.pull_every = settings.pull_every;
  config->run.max_updates = settings.max_updates;
  config->run.total_steps = settings.total_steps;
  // Step 5: the stages of a pipeline, which depend on the sizes of the images.
  if (mesh.pp == 1) return Status::Ok();
  return MakeImagePipeline(TrainingConfigOf(*config)).status();
}

}  // namespace troop
