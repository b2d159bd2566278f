#include <algorithm>
#include <cmath>
#include <optional>

#include "tests/cuda/parity_cases.h"
#include "tests/cuda/text_oracle.h"

namespace troop::cuda {
namespace {

// Form of a check. expected: targets of this problem, or weights of classes; nullopt: classes.
struct Trial {
  Kind kind = Kind::kBert;
  bool masked = false, drops = false;
  Precision precision = Precision::kF32;
  std::optional<ProblemType> expected;
  bool pairs = false;  // the last tokens of every seven are second segments
};

void CheckGradient(Parity& parity, const Trial& trial) {
  const auto& [kind, masked, drops, precision, expected, pairs] = trial;
  const ProblemType problem = expected.value_or(ProblemType::kSingleLabel);
  const bool exact = precision == Precision::kF32;
  // Through all layers, f32 rounds each sum of some thousand products (2^-24 sqrt(n) each), TF32
  // each factor to 2^-11, and bf16 to 2^-9; small gradients in early layers accumulate several of
  // these.
  const double near = exact ? 2e-5 : precision == Precision::kTF32 ? 1e-2 : 5e-2;
  const TransformerSpec spec = SpecOf(kind, masked, drops, precision);
  Batch batch = BatchOf(parity, spec, {7, 1, 12});
  if (expected) SetTargets(parity, spec, problem, &batch);
  for (std::size_t i = 0; pairs && i < batch.ids.size(); ++i) batch.types.push_back(i % 7 > 3);
  const std::vector<float> floats = ValueOf(parity, spec, exact ? 0.3 : 0.15);
  Numbers value = Doubles(floats);
  TextOracle oracle(spec, batch, problem);
  const double want_loss = oracle.Loss(value);
  const std::int64_t want_right = oracle.right();

  TextStep step(parity.device(), {.model = spec, .problem = problem, .precision = precision});
  std::vector<float> copy = floats;
  step.SetState(parity.stream(), {.value = copy});
  step.Begin(parity.stream());
  step.Add(parity.stream(), batch.view(), 0.5f);
  const TextStepReport report = step.Finish(parity.stream());
  parity.Close("loss", Numbers{report.loss}, Numbers{want_loss}, exact ? 1e-5 : 1e-2);
  if (exact) parity.True("right answers", report.right == want_right);
  parity.True("a finite gradient", report.finite == 1);
  const std::vector<float> gradient = Download(parity, step.gradient(), spec.parameters);
  double norm = 0;
  for (const float g : gradient) norm += double(g) * double(g);
  parity.Close("norm", Numbers{report.gradient_norm}, Numbers{std::sqrt(norm)}, 1e-6);
  // A few elements of each array, some at its ends.
  Numbers got, want;
  const std::int64_t each = parity.large() ? 12 : 3;
  for (const auto& [begin, end] : ArraysOf(spec)) {
    for (std::int64_t i = 0; i < each; ++i) {
      const std::int64_t at = i == 0 ? begin : i == 1 ? end - 1 : begin + parity.Below(end - begin);
      constexpr double kStep = 1e-5;
      double& x = value[std::size_t(at)];
      const double before = x;
      x = before + kStep;
      const double up = oracle.Loss(value);
      x = before - kStep;
      want.push_back(0.5 * (up - oracle.Loss(value)) / (2 * kStep));
      x = before;
      got.push_back(double(gradient[std::size_t(at)]));
    }
  }
  parity.Close("gradient", got, want, near);
  if (masked || drops) return;
  std::vector<float> logits;
  const TextStepReport judged = step.Judge(parity.stream(), batch.view(), &logits);
  parity.Close("logits", logits, oracle.logits(), near);
  parity.True("the same loss without a gradient", judged.loss == report.loss);
  parity.True("the same answers", judged.right == report.right);
}

void Gradients(Parity& parity) {
  for (const Kind kind : {Kind::kBert, Kind::kAlbert}) {
    for (const bool masked : {false, true}) {
      for (const bool drops : {false, true})
        CheckGradient(parity, {kind, masked, drops, Precision::kF32, {}, false});
    }
  }
}

// Families that differ by embeddings, dropout and heads.
void GradientsOfFamilies(Parity& parity) {
  for (const Kind kind : {Kind::kRoberta, Kind::kDistilBert, Kind::kElectra}) {
    CheckGradient(parity, {kind, false, true, Precision::kF32, {}, false});
    CheckGradient(parity, {kind, true, kind == Kind::kElectra, Precision::kF32, {}, false});
  }
}
void GradientsOfBF16(Parity& parity) {
  constexpr auto kMultiLabel = ProblemType::kMultiLabel;
  CheckGradient(parity, {Kind::kBert, false, true, Precision::kBF16, {}, false});
  CheckGradient(parity, {Kind::kAlbert, true, false, Precision::kBF16, {}, false});
  CheckGradient(parity, {Kind::kBert, true, false, Precision::kTF32, {}, false});
  CheckGradient(parity, {Kind::kAlbert, false, false, Precision::kBF16, kMultiLabel, false});
  // GELU after the pooler, positions by padding ids.
  CheckGradient(parity, {Kind::kElectra, false, true, Precision::kBF16, {}, false});
  CheckGradient(parity, {Kind::kRoberta, true, false, Precision::kBF16, {}, false});
}

// Labels, numbers and weighted classes; the classifier's logits come with an evaluation.
void GradientsOfProblems(Parity& parity) {
  constexpr auto kF32 = Precision::kF32;
  for (const ProblemType problem :
       {ProblemType::kSingleLabel, ProblemType::kMultiLabel, ProblemType::kRegression})
    CheckGradient(parity, {Kind::kBert, false, true, kF32, problem, false});
  CheckGradient(parity, {Kind::kAlbert, false, false, kF32, ProblemType::kMultiLabel, false});
}

// Segments of pairs, with both heads; padding has the first type.
void GradientsOfPairs(Parity& parity) {
  for (const bool masked : {false, true}) {
    CheckGradient(parity,
                  {.kind = masked ? Kind::kAlbert : Kind::kBert, .masked = masked, .pairs = true});
  }
}

// The gradients of micro-batches add up to the whole; gradients that were reported as ready do not
// change.
void PartsOfABatch(Parity& parity) {
  for (const bool masked : {false, true}) {
    const TransformerSpec spec = SpecOf(Kind::kBert, masked, true, Precision::kF32);
    const Batch first = BatchOf(parity, spec, {9, 3}), second = BatchOf(parity, spec, {15});
    Batch both = first;
    const auto shifted = [&](const std::vector<std::int32_t>& from, std::vector<std::int32_t>* to) {
      for (const std::int32_t x : from) to->push_back(x + std::int32_t(first.ids.size()));
    };
    both.starts.pop_back();
    shifted(second.starts, &both.starts);
    shifted(second.places, &both.places);
    both.ids.insert(both.ids.end(), second.ids.begin(), second.ids.end());
    both.labels.insert(both.labels.end(), second.labels.begin(), second.labels.end());
    both.dropout.insert(both.dropout.end(), second.dropout.begin(), second.dropout.end());
    TextStep step(parity.device(), {.model = spec, .precision = Precision::kF32});
    std::vector<float> value = ValueOf(parity, spec);
    Stream& stream = parity.stream();
    step.SetState(stream, {.value = value});
    step.Begin(stream);
    step.Add(stream, first.view(), 1);
    step.Add(stream, second.view(), 1);
    const TextStepReport parts = step.Finish(stream);
    const auto want = Doubles(Download(parity, step.gradient(), spec.parameters));
    step.Begin(stream);
    const auto seen = parity.Output<float>(spec.parameters);
    std::vector<std::int64_t> told;
    step.Add(stream, both.view(), 1, [&](std::int64_t from) {
      const std::int64_t end = told.empty() ? spec.parameters : told.back();
      stream.CopyOnDevice(seen.data() + from, step.gradient() + from,
                          std::size_t(end - from) * sizeof(float));
      told.push_back(from);
    });
    const TextStepReport whole = step.Finish(stream);
    const auto got = Download(parity, step.gradient(), spec.parameters);
    parity.Close("gradient", Doubles(got), want, 1e-5);
    parity.Close("loss", Numbers{whole.loss}, Numbers{parts.loss}, 1e-5);
    parity.True("right answers", whole.right == parts.right);
    parity.Equal("the ranges reported as ready", parity.Download(seen), got);
    parity.True("the gradient is reported layer by layer", told.size() == 4 && told.back() == 0);
  }
}

// The optimizer step on a given gradient: norm weights and biases do not decay, and a non-finite
// loss changes nothing.
void Steps(Parity& parity) {
  const TransformerSpec spec = SpecOf(Kind::kBert, false, false, Precision::kF32);
  OptimizerRule rule;
  rule.max_grad_norm = 0.5;
  rule.weight_decay = 0.1;
  rule.epsilon = 1e-4;
  TextStep step(parity.device(), {.model = spec, .precision = Precision::kF32, .rule = rule});
  const Batch batch = BatchOf(parity, spec, {6, 11});
  std::vector<float> value = ValueOf(parity, spec);
  Stream& stream = parity.stream();
  step.SetState(stream, {.value = value});
  Numbers want = Doubles(value), m(value.size()), v(value.size());
  constexpr double kRate = 0.01;
  for (int t = 1; t <= 3; ++t) {
    step.Begin(stream);
    step.Add(stream, batch.view(), 1);
    const double norm = step.Finish(stream).gradient_norm;
    const auto gradient = Download(parity, step.gradient(), spec.parameters);
    const double clip = norm > 0.5 ? 0.5 / norm : 1;
    std::vector<bool> decays(value.size());
    for (const auto& [begin, end] : ArraysOf(spec)) {
      // Matrices decay: in this model, all arrays longer than a bias.
      for (std::int64_t i = begin; i < end; ++i)
        decays[std::size_t(i)] = end - begin > 3 * spec.hidden || begin == spec.type_table ||
                                 begin == spec.classifier.weight;
    }
    for (std::size_t i = 0; i < want.size(); ++i) {
      const double g = double(gradient[i]) * clip;
      if (decays[i]) want[i] *= 1 - kRate * 0.1;
      m[i] = 0.9 * m[i] + 0.1 * g;
      v[i] = 0.999 * v[i] + 0.001 * g * g;
      want[i] -= kRate * (m[i] / (1 - std::pow(0.9, t))) /
                 (std::sqrt(v[i] / (1 - std::pow(0.999, t))) + 1e-4);
    }
    step.RunStep(stream, kRate, false);
    parity.Close("value", Doubles(Download(parity, step.value(), spec.parameters)), want, 1e-5);
  }
  std::vector<float> state_m(value.size()), state_v(value.size());
  TextStep::State state{.value = value, .m = state_m, .v = state_v};
  step.GetState(stream, &state);
  parity.True("steps are counted", state.steps == 3);
  parity.Close("m", Doubles(state_m), m, 1e-4);
  // Weights that give a non-finite loss, which the gradient does not show.
  std::vector<float> bad = value;
  for (std::int64_t c = 0; c < spec.classes; ++c)
    bad[std::size_t(spec.classifier.bias + c)] = c == batch.labels[0] ? -3e38f : 3e38f;
  step.SetState(stream, {.value = bad, .m = state_m, .v = state_v, .steps = 3});
  step.Begin(stream);
  step.Add(stream, batch.view(), 1);
  const TextStepReport told = step.Finish(stream);
  parity.True("a non-finite loss is reported",
              told.finite == 0 && std::isfinite(told.gradient_norm));
  step.RunStep(stream, kRate, false);
  const auto after = Download(parity, step.value(), spec.parameters);
  parity.True("a non-finite loss changes nothing",
              std::equal(after.begin(), after.begin() + 100, bad.begin()));
}

}  // namespace

std::vector<ParityCase> TextStepCases() {
  return {{"TextStep.GradientsOfEveryModel", Gradients},
          {"TextStep.GradientsOfFamilies", GradientsOfFamilies},
          {"TextStep.GradientsOfBF16", GradientsOfBF16, 80},
          {"TextStep.GradientsOfProblems", GradientsOfProblems},
          {"TextStep.GradientsOfPairs", GradientsOfPairs},
          {"TextStep.PartsOfABatch", PartsOfABatch},
          {"TextStep.StepsOfTheOptimizer", Steps}};
}

}  // namespace troop::cuda
