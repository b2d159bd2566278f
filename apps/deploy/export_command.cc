// `troop export`: the policy or text model of a checkpoint as one file for other programs.
#include "apps/deploy/export_command.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "apps/deploy/exported_policy.h"
#include "apps/deploy/loaded_checkpoint.h"
#include "core/storage/json.h"
#include "datasets/tokenizers/tokenizer.h"
#include "fleet/config/role_configs.h"
#include "fleet/launcher/exit_code.h"
#include "learners/supervised/text_predictor.h"
#include "nn/export/c_policy.h"
#include "nn/export/onnx_policy.h"
#include "nn/export/onnx_text_model.h"
#include "nn/io/image_weights.h"
#include "nn/models/text_model.h"

namespace troop {
namespace {

namespace fs = std::filesystem;

// The description travels in the metadata of safetensors and ONNX. file_name: the prefix of all
// names in C.
Result<Buffer> Encode(ExportFormat format, const std::string& file_name, ExportedPolicy policy) {
  switch (format) {
    case ExportFormat::kSafetensors:
      return EncodeForLibrary(std::move(policy));
    case ExportFormat::kOnnx:
      return EncodeOnnxPolicy(policy.description, policy.tensors);
    case ExportFormat::kC:
      break;
  }
  TROOP_ASSIGN_OR_RETURN(const std::string text,
                         EncodeCPolicy(policy.description, policy.tensors, CPolicyName(file_name)));
  return Buffer::Copy(std::as_bytes(std::span(text)));
}

// How texts become input_ids, with the names of Hugging Face's tokenizer_config.json and
// config.json. The labels are those of troop predict.
std::string TextModelJson(const Config& config) {
  JsonObject json;
  json.Add("version", 1)
      .Add("architecture", EnumName(config.model.architecture))
      .Add("vocabulary", fs::path(config.data.vocabulary).filename().string())
      .Add("vocab_size", config.model.vocab_size)
      .Add("model_max_length", std::min(TokensMax(config.model), config.data.max_length))
      .Add("truncation_side", EnumName(config.data.truncation_side));
  // A JSON file determines the case itself, and a tokenizer.json also its special tokens.
  const VocabularyKind kind = VocabularyKindOf(config.data.vocabulary);
  if (HasCaseOption(kind)) json.Add("do_lower_case", !config.data.cased);
  const bool roberta = kind == VocabularyKind::kBpe;
  if (kind != VocabularyKind::kTokenizerJson) {
    json.Add("cls_token", roberta ? "<s>" : "[CLS]").Add("sep_token", roberta ? "</s>" : "[SEP]");
  }
  // A masked language model predicts words, a classifier labels.
  if (config.learner.algorithm == AlgorithmKind::kMaskedLm) {
    if (kind != VocabularyKind::kTokenizerJson) {
      json.Add("mask_token", roberta ? "<mask>" : "[MASK]");
    }
  } else {
    json.Add("problem_type", EnumName(config.model.problem_type));
    JsonObject labels;
    std::int64_t id = 0;
    for (const std::string& name : NamesOfClasses(config.model))
      labels.Add(std::to_string(id++), name);
    if (id > 0) json.Add("id2label", labels);
  }
  return json.str();
}

// A text model as an ONNX model, an image classifier as a state dict of torchvision.
Result<Buffer> EncodeTextModel(const LoadedCheckpoint& loaded, ExportFormat format) {
  if (ClassifiesImages(loaded.config.model.architecture)) {
    if (format != ExportFormat::kSafetensors) {
      return InvalidArgument(
          "{}: an image classifier ({}) can't be exported as \"{}\"; use --format safetensors, "
          "which "
          "torchvision's model loads",
          loaded.path, EnumName(loaded.config.model.architecture), EnumName(format));
    }
    TROOP_ASSIGN_OR_RETURN(const auto module, MakeTextModel(ModelSetupOf(loaded.config)));
    TROOP_RETURN_IF_ERROR(NamedParameters(loaded, *module).status());
    return EncodeSafetensors(SaveImageWeights(*module, loaded.weights()));
  }
  // Its input would be sparse rows, which ONNX models of texts do not have.
  if (IsLinearModel(loaded.config)) {
    return InvalidArgument(
        "{}: a linear model can't be exported; its run writes model/ (config.json, "
        "model.safetensors, terms.txt) when it ends",
        loaded.path);
  }
  if (format != ExportFormat::kOnnx) {
    // A run of an LSTM writes no model/, because transformers has no such model.
    const bool lstm = loaded.config.model.architecture == ModelArchitecture::kLstm;
    return InvalidArgument(
        "{}: a text model has no policy, and --format {} is for policies; use --format onnx{}",
        loaded.path, EnumName(format),
        lstm ? "" : ", or the run's model/ folder, which is in the format of transformers");
  }
  const ModelSetup setup = ModelSetupOf(loaded.config);
  TROOP_ASSIGN_OR_RETURN(const std::unique_ptr<Module> model, MakeTextModel(setup));
  TROOP_ASSIGN_OR_RETURN(TensorFile file, NamedParameters(loaded, *model));
  file.metadata = OriginOf(loaded, "");
  file.metadata[kTextModelKey] = TextModelJson(loaded.config);
  return EncodeOnnxTextModel(setup, file);
}

// The policy of an agent. file_name: of the output.
Result<Buffer> EncodeAgent(const LoadedCheckpoint& loaded, ExportFormat format,
                           const std::string& file_name) {
  TROOP_ASSIGN_OR_RETURN(const EnvSpec env, EnvSpecOf(loaded));
  TROOP_ASSIGN_OR_RETURN(ExportedPolicy policy, PolicyOf(loaded, env));
  return Encode(format, file_name, std::move(policy));
}

}  // namespace

Result<std::string> ExportPolicy(const ExportOptions& options) {
  TROOP_ASSIGN_OR_RETURN(const LoadedCheckpoint loaded,
                         LoadCheckpoint(options.path, options.best ? CheckpointChoice::kBest
                                                                   : CheckpointChoice::kNewest));
  const fs::path path = fs::absolute(
      options.output.empty() ? fmt::format("policy.{}", EnumName(options.format)) : options.output);
  TROOP_ASSIGN_OR_RETURN(const Buffer bytes,
                         IsSupervised(loaded.config)
                             ? EncodeTextModel(loaded, options.format)
                             : EncodeAgent(loaded, options.format, path.filename().string()));
  TROOP_ASSIGN_OR_RETURN(const auto folder, MakeDiskStorage(path.parent_path().string()));
  TROOP_RETURN_IF_ERROR(folder->WriteAtomic(path.filename().string(), bytes.bytes()));
  return path.string();
}

void RegisterExport(CLI::App& app, ChosenCommand* chosen) {
  const auto options = std::make_shared<ExportOptions>();
  CLI::App* command =
      app.add_subcommand("export", "write the policy or text model of a checkpoint to a file");
  command
      ->add_option("checkpoint", options->path,
                   "run folder (newest checkpoint), or checkpoint folder")
      ->required();
  command->add_flag("--best", options->best,
                    "the best checkpoint of the run (evaluator.keep_best)");
  command
      ->add_option_function<std::string>(
          "--format",
          [options](const std::string& name) { options->format = *ParseEnum<ExportFormat>(name); },
          "safetensors (default), for libtroop_policy or of an image classifier for torchvision; "
          "onnx; or c, for microcontrollers")
      ->check(CLI::IsMember(std::vector<std::string>{"safetensors", "onnx", "c"}))
      ->type_name("FORMAT");
  command->add_option("--out", options->output, "the file (policy.FORMAT)");
  // The path is printed, because the default is in the present folder.
  command->callback([options, chosen] {
    *chosen = [options] {
      const Result<std::string> path = ExportPolicy(*options);
      if (!path.ok()) {
        fmt::print(stderr, "troop: {}\n", path.status().message());
        return ExitCodeFor(path.status());
      }
      fmt::print("wrote {}\n", *path);
      return int(kExitOk);
    };
  });
}

}  // namespace troop
