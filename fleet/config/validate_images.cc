// Implements the rules of image classifiers, and of the keys that only texts or images have.
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "fleet/config/validate.h"

namespace troop {
namespace {

// Keys of images, which a run on texts would ignore.
SetKeys KeysOfImages(const Config& c) {
  const DataConfig& d = c.data;
  const ModelConfig& m = c.model;
  return {{"data.images", !d.images.empty()},
          {"data.image_channels", d.image_channels != 0},
          {"data.image_resize", d.image_resize != ResizeRule::kNone},
          {"data.image_height", d.image_height != 0},
          {"data.image_width", d.image_width != 0},
          {"data.image_padding", d.image_padding != 0},
          {"data.image_crop_height", d.image_crop_height != 0},
          {"data.image_crop_width", d.image_crop_width != 0},
          {"data.image_flip", d.image_flip != 0},
          {"data.image_color_noise", d.image_color_noise != 0},
          {"data.image_mean", !d.image_mean.empty()},
          {"data.image_deviation", !d.image_deviation.empty()},
          {"data.image_threads", d.image_threads != DataConfig().image_threads},
          {"data.image_cache_mb", d.image_cache_mb != DataConfig().image_cache_mb},
          {"model.image_height", m.image_height != 0},
          {"model.image_width", m.image_width != 0},
          {"model.image_channels", m.image_channels != 0},
          {"model.sync_batch_norm", m.sync_batch_norm},
          {"model.classifier_units", m.classifier_units != ModelConfig().classifier_units}};
}

// Keys of texts and their models, which a run on images would ignore.
SetKeys KeysOfTexts(const Config& c) {
  const DataConfig& d = c.data;
  SetKeys keys = KeysOfTextModels(c);
  keys.insert(keys.end(),
              {{"data.reviews", !d.reviews.empty()},
               {"data.validation", !d.validation.empty()},
               {"data.test", !d.test.empty()},
               {"data.text_columns", !d.text_columns.empty()},
               {"data.label_column", !d.label_column.empty()},
               {"data.delimiter", !d.delimiter.empty()},
               {"model.problem_type", c.model.problem_type != ModelConfig().problem_type}});
  return keys;
}

// Rules of the images' form. Sizes that depend on the files are checked with them.
void CheckImageForm(const DataConfig& d, Conflicts* out) {
  const bool resizes = d.image_resize != ResizeRule::kNone;
  const std::tuple<const char*, std::int64_t> sizes[] = {{"data.image_height", d.image_height},
                                                         {"data.image_width", d.image_width}};
  // A new size without a rule would be ignored, and a rule needs both sizes.
  for (const auto& [key, size] : sizes) {
    out->If(resizes && size == 0, {key, "data.image_resize"},
            "is 0, but data.image_resize = \"{}\" needs the new size in pixels; set it",
            EnumName(d.image_resize));
    out->If(!resizes && size != 0, {key, "data.image_resize"},
            "{} has no effect with data.image_resize = \"none\"; set \"stretch\" or "
            "\"center_crop\", or omit it",
            size);
  }
  out->If(d.image_channels == 2, {"data.image_channels"}, "is 2, must be 0, 1 or 3");
}

// Micro-batches of two learners may differ in number, and their exchanges would not match.
void CheckSyncBatchNorm(const Config& c, Conflicts* out) {
  if (!c.model.sync_batch_norm) return;
  const bool hidden = c.model.architecture >= ModelArchitecture::kAlexNet;
  out->If(
      hidden, {"model.sync_batch_norm", "model.architecture"},
      "has no effect with model.architecture = \"{}\", which has no batch normalization; omit it",
      EnumName(c.model.architecture));
  out->If(
      c.learner.micro_batch_size > 0, {"learner.micro_batch_size", "model.sync_batch_norm"},
      "{} would normalize parts of the batch, but model.sync_batch_norm = true all of it; set 0",
      c.learner.micro_batch_size);
}

}  // namespace

// Keys of tokens and of networks over them.
SetKeys KeysOfTextModels(const Config& c) {
  const DataConfig& d = c.data;
  const DataConfig data;
  const ModelConfig& m = c.model;
  const ModelConfig model;
  return {
      {"data.unlabeled", !d.unlabeled.empty()},
      {"data.vocabulary", !d.vocabulary.empty()},
      {"data.cased", d.cased != data.cased},
      {"data.max_length", d.max_length != data.max_length},
      {"data.truncation_side", d.truncation_side != data.truncation_side},
      {"data.word_dropout", d.word_dropout != data.word_dropout},
      {"data.cache", d.cache != data.cache},
      {"model.vocab_size", m.vocab_size != model.vocab_size},
      {"model.hidden_size", m.hidden_size != model.hidden_size},
      {"model.embedding_size", m.embedding_size != model.embedding_size},
      {"model.num_hidden_layers", m.num_hidden_layers != model.num_hidden_layers},
      {"model.num_attention_heads", m.num_attention_heads != model.num_attention_heads},
      {"model.intermediate_size", m.intermediate_size != model.intermediate_size},
      {"model.max_position_embeddings", m.max_position_embeddings != model.max_position_embeddings},
      {"model.hidden_act", m.hidden_act != model.hidden_act},
      {"model.layer_norm_eps", m.layer_norm_eps != model.layer_norm_eps},
      {"model.position_init", m.position_init != model.position_init},
      {"model.dropout", m.dropout != model.dropout},
      {"model.attention_dropout", m.attention_dropout != model.attention_dropout},
      {"model.classifier_dropout", m.classifier_dropout != model.classifier_dropout},
      {"model.gradient_checkpointing", m.gradient_checkpointing != model.gradient_checkpointing}};
}

// Features that images lack are refused here, so that no setting is ignored.
void CheckImages(const Config& c, Conflicts* out) {
  // The architecture decides between texts and images: the data have separate keys for each,
  // so that a wrong combination is found before a file is read.
  const std::string_view name = EnumName(c.model.architecture);
  if (!ClassifiesImages(c.model.architecture)) {
    for (const auto& [key, set] : KeysOfImages(c)) {
      out->If(set, {key, "model.architecture"},
              "has no effect with model.architecture = \"{}\", which reads texts; omit it, or use "
              "an image classifier such as \"resnet18\"",
              name);
    }
    return;
  }
  // One message for each key, so that all can be removed at once.
  for (const auto& [key, set] : KeysOfTexts(c)) {
    out->If(set, {key, "model.architecture"},
            "has no effect with model.architecture = \"{}\", which reads images; omit it", name);
  }
  out->If(c.data.images.empty(), {"data.images", "model.architecture"},
          "is empty, but model.architecture = \"{}\" needs labeled images; name their folder",
          name);
  CheckImageForm(c.data, out);
  const bool hidden = c.model.architecture >= ModelArchitecture::kAlexNet;
  out->If(
      !hidden && c.model.classifier_units != ModelConfig().classifier_units,
      {"model.classifier_units", "model.architecture"},
      "has no effect with model.architecture = \"{}\", which has no hidden linear layers; omit it",
      name);
  out->If(c.learner.algorithm != AlgorithmKind::kClassifier,
          {"learner.algorithm", "model.architecture"},
          "\"{}\" does not support model.architecture = \"{}\"; use \"classifier\"",
          EnumName(c.learner.algorithm), name);
  CheckSyncBatchNorm(c, out);
  // The parameter shards would not move the running statistics of batch normalization.
  out->If(c.learner.sync != LearnerSync::kAllReduce, {"learner.sync", "model.architecture"},
          "\"{}\" does not support model.architecture = \"{}\"; use \"allreduce\"",
          EnumName(c.learner.sync), name);
  // Convolutions have no slices.
  out->If(c.mesh.tp > 1, {"mesh.tp", "model.architecture"},
          "\"{}\" does not support tensor parallelism; set 1, and see mesh.dp", name);
  // "auto" selects the CPU.
  out->If(c.learner.device == DeviceChoice::kCuda, {"learner.device", "model.architecture"},
          "is \"cuda\", but \"{}\" only runs on the CPU; set \"auto\" or \"cpu\"", name);
}

}  // namespace troop
