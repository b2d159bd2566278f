// Names and units of what a run learns, for messages and reports.
#include "fleet/run/task_info.h"

#include <fmt/format.h>

#include <cmath>

#include "core/base/counted.h"
#include "datasets/text/labeled_texts.h"
#include "envs/environment.h"
#include "fleet/config/role_configs.h"
#include "nn/models/text_model.h"

namespace troop {

Result<EnvSpec> TaskSpec(const Config& config) {
  if (IsSupervised(config)) return ReviewSpec(ModelSetupOf(config));
  Result<EnvSpec> spec = FindEnvSpec(config.env.id, EnvOptionsOf(config));
  // Messages that already name a config key need no prefix.
  if (spec.ok() || spec.status().message().starts_with("env.")) return spec;
  return spec.status().WithContext("env.id");
}

namespace {

// The part of a spec that a network depends on.
std::string InterfaceText(const EnvSpec& spec) {
  return fmt::format("observations {} with scale {} and {}", DescribeObservation(spec),
                     spec.observation_scale, DescribeActions(spec.action));
}

}  // namespace

// The limit of an episode may differ: it is not part of the network's interface.
Status CheckEvaluationSpec(const Config& config, const EnvSpec& training) {
  const EnvConfig env = EvaluationEnv(config.env, config.evaluator.env);
  if (env == config.env) return Status::Ok();
  const Result<EnvSpec> spec =
      FindEnvSpec(env.id, EnvOptionsFor(env, config.fleet.mode == FleetMode::kSerial));
  if (!spec.ok()) return spec.status().WithContext("evaluator.env");
  if (spec->observation == training.observation && spec->action == training.action &&
      spec->parts == training.parts && spec->observation_scale == training.observation_scale) {
    return Status::Ok();
  }
  return InvalidArgument(
      "evaluator.env: {} has {}, but {} of the actors has {}; both must be equal, so change "
      "evaluator.env",
      env.id, InterfaceText(*spec), training.id, InterfaceText(training));
}

const std::string& SourceOfExamples(const Config& config) {
  return ClassifiesImages(config.model.architecture) ? config.data.images : config.data.reviews;
}

// That of a linear model is the sum over its outputs, as in training.
std::string LossName(const Config& config, std::string_view space) {
  if (IsLinearModel(config)) {
    // In the order of LinearLoss.
    constexpr std::string_view kFirst[] = {"log", "squared", "squared"};
    constexpr std::string_view kSecond[] = {"loss", "hinge", "error"};
    const auto loss = std::size_t(config.linear.loss);
    return fmt::format("{}{}{}", kFirst[loss], space, kSecond[loss]);
  }
  const bool regression = config.model.problem_type == ProblemType::kRegression;
  return regression ? fmt::format("squared{}error", space) : fmt::format("cross{}entropy", space);
}

std::string TaskName(const Config& config) {
  return IsSupervised(config) ? SourceOfExamples(config) : config.env.id;
}

const char* StepsName(const Config& config) {
  if (IsOffline(config)) return "samples";
  return IsSupervised(config) ? "examples" : "agent steps";
}

// Data sets without test examples are evaluated on held-out training examples.
ScoreLabels GetScoreLabels(const Config& config) {
  if (!IsSupervised(config)) return {"mean return", "episodes"};
  // Only reading all images tells whether the folder has a test set.
  if (ClassifiesImages(config.model.architecture)) return {"% accuracy", "evaluation images"};
  const bool tests =
      !config.data.test.empty() || config.data.test_split > 0 || HasTestTexts(config.data.reviews);
  if (config.learner.algorithm == AlgorithmKind::kMaskedLm)
    return {"% masked-token accuracy", tests ? "test examples" : "held-out examples"};
  if (config.model.problem_type == ProblemType::kRegression)
    return {"% Pearson correlation", tests ? "test examples" : "held-out examples"};
  return {"% accuracy", tests ? "test examples" : "held-out examples"};
}

// Reports of supervised runs have their confidence interval in return_min and return_max.
std::string SpreadText(bool supervised, const EvaluationReport& report) {
  if (!supervised) return " ± " + ScoreText(report.return_std);
  return fmt::format(" (95 % interval {:.2f} to {:.2f})", report.return_min, report.return_max);
}

// Fixed notation would be unreadable for huge returns.
std::string ScoreText(double score) {
  return std::abs(score) < 1e7 ? fmt::format("{:.2f}", score) : fmt::format("{:.4g}", score);
}

std::string ReturnText(const EvaluationReport& report) {
  const std::string mean = ScoreText(report.return_mean);
  if (report.episodes == 1) return mean + " over 1 episode";
  return fmt::format("{}{} over {} (min {}, max {})", mean, SpreadText(false, report),
                     Counted(report.episodes, "episode"), ScoreText(report.return_min),
                     ScoreText(report.return_max));
}

}  // namespace troop
