// Implements the options of a text model's training step on a GPU.

#include "learners/supervised/gpu_text.h"

#ifdef TROOP_HAS_CUDA

#include <algorithm>
#include <string>
#include <utility>

#include "learners/gpu/optimizer_rule.h"
#include "nn/models/q_network_spec.h"
#include "nn/models/text_model.h"
#include "nn/transformer/family.h"

namespace troop {
namespace {

// An error with learner.device = "cuda"; "auto" logs it and uses the CPU.
Status OnlyOnCpu(std::string_view what) {
  return InvalidArgument("{} only runs on the CPU; set learner.device = \"cpu\"", what);
}

cuda::TransformerSpec::Pooler PoolerOf(FamilyForm::Head activation) {
  using Pooler = cuda::TransformerSpec::Pooler;
  switch (activation) {
    case FamilyForm::Head::kTanh:
      return Pooler::kTanh;
    case FamilyForm::Head::kRelu:
      return Pooler::kRelu;
    case FamilyForm::Head::kGelu:
      break;
  }
  return Pooler::kGelu;
}

// The model's form for the GPU, with the same parameter layout as the CPU module.
Result<cuda::TransformerSpec> SpecOf(const TransformerOptions& options, cuda::Precision precision) {
  const TransformerConfig& config = options.config;
  const FamilyForm& form = FormOf(config.family);
  cuda::TransformerSpec spec;
  spec.place = options.tensor;
  spec.recompute = options.recompute;
  spec.vocabulary = config.vocabulary;
  spec.hidden = config.hidden;
  spec.embedding = config.embedding;
  spec.layers = config.layers;
  spec.heads = config.heads;
  spec.intermediate = config.intermediate;
  spec.positions = config.positions;
  spec.token_types = form.types ? config.token_types : 0;
  spec.gelu = config.gelu;
  spec.epsilon = config.epsilon;
  spec.hidden_dropout = config.hidden_dropout;
  spec.attention_dropout = config.attention_dropout;
  spec.classifier_dropout = config.classifier_dropout;
  spec.classes = options.head == TransformerHead::kMaskedLm ? 0 : options.classes;
  // Differences between the families.
  spec.shared = form.shared;
  spec.has_map = HasMap(config);
  spec.padding = form.padding;
  spec.drops_attention = form.drops_attention;
  spec.drops_ffn = form.drops_ffn;
  spec.drops_first = form.drops_first;
  spec.pooler = PoolerOf(form.activation);
  spec.word_gelu = WordGelu(config);
  // Limits of the attention kernels, which depend on the precision.
  const std::string refused = cuda::Transformer::CheckForm(spec, precision);
  if (!refused.empty())
    return InvalidArgument("model.num_attention_heads makes {}; or set learner.device = \"cpu\"",
                           refused);
  cuda::LayOut(&spec);
  return spec;
}

}  // namespace

// Device first, then unsupported settings, then the step's options.
Result<TextDevice> OpenTextDevice(const TrainingConfig& config, const TensorParallelRank& place,
                                  int learner) {
  TextDevice opened;
  std::string error;
  // A missing GPU is reported before unsupported settings.
  opened.ordinal = learner % std::max(1, cuda::Device::Count());
  opened.device = cuda::Device::Open(opened.ordinal, &error);
  if (opened.device == nullptr) return Unavailable("{}", error);
  // Settings without a GPU implementation; learner.device = "auto" falls back to the CPU.
  if (config.model.architecture == ModelArchitecture::kLstm)
    return OnlyOnCpu(
        fmt::format("model.architecture = \"{}\"", EnumName(config.model.architecture)));
  if (config.optimizer.type == OptimizerType::kAdaGrad)
    return OnlyOnCpu("optimizer.type = \"adagrad\"");
  if (config.learner.hogwild_threads > 1) return OnlyOnCpu("learner.hogwild_threads");
  TROOP_ASSIGN_OR_RETURN(opened.step.precision,
                         DevicePrecisionOf(ModelSetupOf(config), opened.device->info()));
  TROOP_ASSIGN_OR_RETURN(TransformerOptions options, TextModelOptions(ModelSetupOf(config)));
  options.tensor = place;
  TROOP_ASSIGN_OR_RETURN(opened.step.model, SpecOf(options, opened.step.precision));
  opened.step.problem = config.model.problem_type;
  opened.step.rule = MakeOptimizerRule(config);
  opened.bounds = BoundsOf(options.config);
  return opened;
}

}  // namespace troop

#endif
