// Implements the rules of linear models, and of the keys that only they have.
#include <utility>
#include <vector>

#include "fleet/config/validate.h"
#include "learners/linear/linear_data.h"

namespace troop {
namespace {

// Keys of n-grams, without the number of columns, which svmlight files have, too.
SetKeys KeysOfNgrams(const Config& c) {
  const NgramOptions& f = c.features;
  const NgramOptions fresh;
  return {{"features.analyzer", f.analyzer != fresh.analyzer},
          {"features.ngram_min", f.ngram_min != fresh.ngram_min},
          {"features.ngram_max", f.ngram_max != fresh.ngram_max},
          {"features.lowercase", f.lowercase != fresh.lowercase},
          {"features.word_length_min", f.word_length_min != fresh.word_length_min},
          {"features.min_df", f.min_df != fresh.min_df},
          {"features.binary", f.binary != fresh.binary},
          {"features.use_idf", f.use_idf != fresh.use_idf},
          {"features.sublinear_tf", f.sublinear_tf != fresh.sublinear_tf},
          {"features.norm", f.norm != fresh.norm}};
}

// Keys of linear models, which other supervised runs would ignore.
SetKeys KeysOfLinear(const Config& c) {
  const LinearConfig fresh;
  SetKeys keys = KeysOfNgrams(c);
  keys.insert(keys.end(), {{"features.n_features", c.features.n_features != 0},
                           {"model.num_features", c.model.num_features != 0},
                           {"linear.solver", c.linear.solver != fresh.solver},
                           {"linear.loss", c.linear.loss != fresh.loss},
                           {"linear.l2", c.linear.l2 != fresh.l2},
                           {"linear.l1", c.linear.l1 != fresh.l1},
                           {"linear.naive_bayes", c.linear.naive_bayes != fresh.naive_bayes},
                           {"linear.smoothing", c.linear.smoothing != fresh.smoothing}});
  return keys;
}

// Keys of the learner and of its optimizer that a linear model ignores.
SetKeys IgnoredKeys(const Config& c) {
  const OptimizerConfig& o = c.optimizer;
  const OptimizerConfig fresh;
  const LearnerConfig learner;
  // Dual ascent has no learning rate, and only AdaGrad and Adam divide by a root.
  const LinearSolver solver = c.linear.solver;
  const bool batch = o.type == OptimizerType::kLbfgs;
  const bool dual = batch || solver == LinearSolver::kDualAscent;
  const bool adam = !batch && solver == LinearSolver::kAdam;
  return {{"optimizer.type", !batch && o.type != fresh.type},
          {"optimizer.learning_rate", dual && o.learning_rate != fresh.learning_rate},
          {"optimizer.lr_schedule", dual && o.lr_schedule != fresh.lr_schedule},
          {"optimizer.final_lr_fraction", dual && o.final_lr_fraction != fresh.final_lr_fraction},
          {"optimizer.warmup_ratio", dual && o.warmup_ratio != fresh.warmup_ratio},
          {"optimizer.beta1", !adam && o.beta1 != fresh.beta1},
          {"optimizer.beta2", !adam && o.beta2 != fresh.beta2},
          {"optimizer.epsilon",
           !adam && (batch || solver != LinearSolver::kAdaGrad) && o.epsilon != fresh.epsilon},
          {"optimizer.decay", o.decay != fresh.decay},
          {"optimizer.centered", o.centered != fresh.centered},
          {"optimizer.momentum", o.momentum != fresh.momentum},
          {"optimizer.weight_decay", o.weight_decay != fresh.weight_decay},
          {"learner.micro_batch_size", c.learner.micro_batch_size != learner.micro_batch_size},
          {"learner.max_grad_norm", c.learner.max_grad_norm != learner.max_grad_norm},
          {"learner.class_weights", c.learner.class_weights != learner.class_weights},
          {"learner.init_from", c.learner.init_from != learner.init_from},
          {"model.pretrained", !c.model.pretrained.empty()},
          {"model.output_bias", c.model.output_bias != 0}};
}

// Rules of the features, and of the files that have them already.
void CheckFeatures(const Config& c, Conflicts* out) {
  const NgramOptions& f = c.features;
  out->If(f.ngram_max < f.ngram_min, {"features.ngram_max", "features.ngram_min"},
          "{} is below features.ngram_min = {}; raise it", f.ngram_max, f.ngram_min);
  if (IsSvmlightPath(c.data.reviews)) {
    SetKeys keys = KeysOfNgrams(c);
    keys.insert(keys.end(), {{"data.text_columns", !c.data.text_columns.empty()},
                             {"data.label_column", !c.data.label_column.empty()},
                             {"data.delimiter", !c.data.delimiter.empty()}});
    for (const auto& [key, set] : keys) {
      out->If(set, {key, "data.reviews"},
              "has no effect on svmlight files, which have features already; omit it");
    }
    return;
  }
  // Contradictions would leave one of two keys without effect.
  // Vocabulary and hashing exclude each other.
  out->If(f.n_features > 0 && f.min_df > 1, {"features.min_df", "features.n_features"},
          "{} has no effect on hashed n-grams; set 1, or features.n_features = 0 for a vocabulary",
          f.min_df);
  out->If(f.binary && f.sublinear_tf, {"features.sublinear_tf", "features.binary"},
          "has no effect on counts of 1; set one of the two to false");
  out->If(f.analyzer != NgramAnalyzer::kWord && f.word_length_min != NgramOptions().word_length_min,
          {"features.word_length_min", "features.analyzer"},
          "{} applies to words, not to \"{}\"; omit it", f.word_length_min, EnumName(f.analyzer));
}

// L-BFGS minimizes smooth objectives, and replaces linear.solver.
void CheckLbfgs(const Config& c, Conflicts* out) {
  const OptimizerConfig fresh;
  const bool batch = c.optimizer.type == OptimizerType::kLbfgs;
  out->If(batch && c.model.architecture != ModelArchitecture::kLinear,
          {"optimizer.type", "model.architecture"},
          "\"lbfgs\" trains linear models only; set model.architecture = \"linear\", or another "
          "optimizer");
  for (const auto& [key, set] :
       {std::pair{"optimizer.history_size", c.optimizer.history_size != fresh.history_size},
        {"optimizer.tolerance_grad", c.optimizer.tolerance_grad != fresh.tolerance_grad}}) {
    out->If(!batch && set, {key, "optimizer.type"},
            "has no effect with optimizer.type = \"{}\"; omit it, or set \"lbfgs\"",
            EnumName(c.optimizer.type));
  }
  if (!batch) return;
  out->If(c.linear.solver != LinearConfig().solver, {"linear.solver", "optimizer.type"},
          "has no effect with optimizer.type = \"lbfgs\"; omit it");
  // The absolute value has no derivative at 0.
  out->If(c.linear.l1 > 0, {"linear.l1", "optimizer.type"},
          "is {}, but \"lbfgs\" needs a smooth objective; set 0, or use linear.solver = "
          "\"dual_ascent\"",
          TomlNumber(c.linear.l1));
}

// Rules of the objective and its solver.
void CheckObjective(const Config& c, Conflicts* out) {
  const LinearConfig& l = c.linear;
  const bool regression = c.model.problem_type == ProblemType::kRegression;
  // A regression has no margin, so that the other losses do not apply.
  const bool squared = l.loss == LinearLoss::kSquaredError;
  out->If(regression && !squared, {"linear.loss", "model.problem_type"},
          "\"{}\" has no meaning for numbers; set \"squared_error\"", EnumName(l.loss));
  const bool batch = c.optimizer.type == OptimizerType::kLbfgs;
  // L-BFGS needs no penalty.
  const bool dual = !batch && l.solver == LinearSolver::kDualAscent;
  out->If(dual && l.l2 == 0, {"linear.l2", "linear.solver"},
          "is 0, but \"dual_ascent\" divides by it; set it above 0, or linear.solver = \"ftrl\"");
  // Only these two have proximal steps.
  const bool penalized =
      batch || l.solver == LinearSolver::kDualAscent || l.solver == LinearSolver::kFtrl;
  for (const auto& [key, value] : {std::pair("linear.l2", l.l2), {"linear.l1", l.l1}}) {
    out->If(!penalized && value > 0, {key, "linear.solver"},
            "is {}, but \"{}\" has no penalty; set 0, or linear.solver = \"ftrl\" or "
            "\"dual_ascent\"",
            TomlNumber(value), EnumName(l.solver));
  }
  out->If(l.naive_bayes && (squared || c.model.problem_type != ProblemType::kSingleLabel),
          {"linear.naive_bayes", "linear.loss", "model.problem_type"},
          "needs two classes and linear.loss = \"squared_hinge\" or \"log_loss\"; set false");
  out->If(!l.naive_bayes && l.smoothing != LinearConfig().smoothing,
          {"linear.smoothing", "linear.naive_bayes"},
          "has no effect without linear.naive_bayes; omit it");
}

// Rules of several learners and threads, which exchange the gradients of the row optimizers.
void CheckLearners(const Config& c, Conflicts* out) {
  const LinearSolver solver = c.linear.solver;
  if (c.optimizer.type == OptimizerType::kLbfgs) {
    // Its update is a whole search along a direction, which one learner makes.
    const auto alone = [&](bool set, const char* key, std::string_view remedy) {
      out->If(set, {key, "optimizer.type"},
              "is not supported with optimizer.type = \"lbfgs\", which trains on one thread of one "
              "learner; {}",
              remedy);
    };
    alone(c.fleet.learners > 1, "fleet.learners", "set 1");
    alone(c.mesh.dp > 1, "mesh.dp", "set 1");
    alone(c.learner.sync == LearnerSync::kParamServer, "learner.sync", "set \"allreduce\"");
    alone(c.learner.hogwild_threads > 1, "learner.hogwild_threads", "set 1");
    return;
  }
  for (const auto& [key, count] :
       {std::pair("fleet.learners", c.fleet.learners), {"mesh.dp", c.mesh.dp}}) {
    out->If(solver == LinearSolver::kDualAscent && count > 1, {key, "linear.solver"},
            "is {}, but linear.solver = \"dual_ascent\" has one learner; set 1, or use \"ftrl\", "
            "\"adagrad\", \"adam\" or \"sgd\"",
            count);
  }
  // Shards and threads step each weight by itself.
  const bool shards = c.learner.sync == LearnerSync::kParamServer;
  if (!shards && c.learner.hogwild_threads == 1) return;
  const std::string key = shards ? "learner.sync" : "learner.hogwild_threads";
  out->If(solver != LinearSolver::kSgd && solver != LinearSolver::kAdaGrad, {"linear.solver", key},
          "\"{}\" is not supported by {}; use \"sgd\" or \"adagrad\"", EnumName(solver),
          shards ? "parameter shards" : "learner.hogwild_threads");
  out->If(c.linear.naive_bayes, {"linear.naive_bayes", key},
          "is not supported by {}, which publish weights without its factors; set false",
          shards ? "parameter shards" : "threads that share weights");
  if (!shards) return;
  const ParamServerConfig& p = c.paramserver;
  const bool halves =
      p.compression == GradientCodec::kFp16 || p.compression == GradientCodec::kBf16;
  out->If(halves, {"paramserver.compression", "model.architecture"},
          "\"{}\" sends all weights, but a gradient of \"linear\" has few rows; set \"none\" (the "
          "rows exactly), \"top_k\" or \"strom\"",
          EnumName(p.compression));
  out->If(p.mode == SyncMode::kLocalSgd && solver == LinearSolver::kAdaGrad,
          {"linear.solver", "paramserver.mode"},
          "\"adagrad\" has a state, which \"local_sgd\" does not average; use \"sgd\"");
}

}  // namespace

// A linear model is trained on the CPU. Each refusal names the key to change.
void CheckLinear(const Config& c, Conflicts* out) {
  CheckLbfgs(c, out);
  const std::string_view name = EnumName(c.model.architecture);
  if (c.model.architecture != ModelArchitecture::kLinear) {
    for (const auto& [key, set] : KeysOfLinear(c)) {
      out->If(set, {key, "model.architecture"},
              "has no effect with model.architecture = \"{}\"; omit it, or use \"linear\"", name);
    }
    return;
  }
  // All keys are reported at once, so that a copied config is corrected in one step.
  for (const SetKeys& keys : {KeysOfTextModels(c), IgnoredKeys(c)}) {
    for (const auto& [key, set] : keys) {
      out->If(set, {key, "model.architecture"},
              "has no effect with model.architecture = \"linear\"{}; omit it",
              std::string_view(key).starts_with("optimizer.")
                  ? c.optimizer.type == OptimizerType::kLbfgs
                        ? " and optimizer.type = \"lbfgs\""
                        : fmt::format(" and linear.solver = \"{}\"", EnumName(c.linear.solver))
                  : std::string());
    }
  }
  CheckFeatures(c, out);
  CheckObjective(c, out);
  out->If(c.learner.algorithm != AlgorithmKind::kClassifier,
          {"learner.algorithm", "model.architecture"},
          "\"{}\" does not support model.architecture = \"linear\"; use \"classifier\"",
          EnumName(c.learner.algorithm));
  out->If(c.mesh.tp > 1, {"mesh.tp", "model.architecture"},
          "is {}, but model.architecture = \"linear\" is not split; set 1, or raise mesh.dp",
          c.mesh.tp);
  CheckLearners(c, out);
  // "auto" selects the CPU.
  out->If(c.learner.device == DeviceChoice::kCuda, {"learner.device", "model.architecture"},
          "is \"cuda\", but \"linear\" only runs on the CPU; set \"auto\" or \"cpu\"");
  out->If(c.network.precision == NetworkPrecision::kBf16,
          {"network.precision", "model.architecture"},
          "\"bf16\" is not supported by \"linear\"; set \"fp32\"");
}

}  // namespace troop
