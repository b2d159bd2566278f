#include "learners/cuda/text_step.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "tests/cuda/parity_cases.h"

namespace troop::cuda {
namespace {

using Numbers = std::vector<double>;

// A batch in the host's memory.
struct Batch {
  std::vector<std::int32_t> ids, starts = {0}, places, labels;
  std::vector<DropoutKey> dropout;
  HostTokens view() const { return {ids, starts, dropout, places, labels}; }
};

// The formulas of the papers in f64, one number after the other: what a batch's losses add up to.
// Derivatives of it are differences.
class Oracle {
 public:
  Oracle(const TransformerSpec& spec, const Batch& batch) : s_(spec), b_(batch) {}

  double Loss(const Numbers& value) {
    v_ = &value;
    Numbers x;
    for (std::size_t s = 0; s + 1 < b_.starts.size(); ++s) {
      for (std::int32_t t = b_.starts[s]; t < b_.starts[s + 1]; ++t) {
        for (std::int64_t c = 0; c < s_.embedding; ++c) {
          x.push_back(
              value[std::size_t(s_.word_table + b_.ids[std::size_t(t)] * s_.embedding + c)] +
              value[std::size_t(s_.position_table + (t - b_.starts[s]) * s_.embedding + c)] +
              value[std::size_t(s_.type_table + c)]);
        }
      }
    }
    x = Dropped(Norm(x, s_.embedding_norm), s_.embedding, 0, s_.hidden_dropout);
    if (s_.albert) x = Linear(x, s_.map);
    for (std::int64_t use = 0; use < s_.layers; ++use) x = Layer(x, use);
    return Head(x);
  }
  std::int64_t right() const { return right_; }

 private:
  double V(std::int64_t at) const { return (*v_)[std::size_t(at)]; }

  Numbers Linear(const Numbers& x, const TransformerSpec::Linear& linear) const {
    const std::int64_t rows = std::int64_t(x.size()) / linear.in;
    Numbers y;
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t o = 0; o < linear.out; ++o) {
        const auto w = v_->begin() + linear.weight + o * linear.in;
        y.push_back(
            std::inner_product(w, w + linear.in, x.begin() + r * linear.in, V(linear.bias + o)));
      }
    }
    return y;
  }
  Numbers Norm(Numbers x, const TransformerSpec::Norm& norm) const {
    for (std::size_t r = 0; r < x.size(); r += std::size_t(norm.n)) {
      double mean = 0, variance = 0;
      for (std::int64_t i = 0; i < norm.n; ++i) mean += x[r + std::size_t(i)] / double(norm.n);
      for (std::int64_t i = 0; i < norm.n; ++i)
        variance += std::pow(x[r + std::size_t(i)] - mean, 2) / double(norm.n);
      for (std::int64_t i = 0; i < norm.n; ++i) {
        double& one = x[r + std::size_t(i)];
        one = V(norm.gamma + i) * (one - mean) / std::sqrt(variance + double(s_.epsilon)) +
              V(norm.beta + i);
      }
    }
    return x;
  }
  std::vector<float> Factors(std::size_t sequence, std::uint32_t site, float rate,
                             std::int64_t first, std::int64_t n) const {
    std::vector<float> factor(std::size_t(n), 1.0f);
    if (!b_.dropout.empty() && rate > 0)
      DropoutFactors({b_.dropout[sequence], site}, rate, first, n, factor.data());
    return factor;
  }
  Numbers Dropped(Numbers x, std::int64_t width, std::uint32_t site, float rate) const {
    std::size_t at = 0;
    for (std::size_t s = 0; s + 1 < b_.starts.size(); ++s) {
      for (const float f : Factors(s, site, rate, 0, (b_.starts[s + 1] - b_.starts[s]) * width))
        x[at++] *= double(f);
    }
    return x;
  }
  double Gelu(double z) const {
    if (s_.gelu == GeluForm::kErf) return z * 0.5 * (1 + std::erf(z / std::sqrt(2.0)));
    return z * 0.5 * (1 + std::tanh(std::sqrt(2 / M_PI) * (z + 0.044715 * z * z * z)));
  }

  Numbers Attention(const Numbers& qkv, std::uint32_t site) const {
    const std::int64_t width = s_.hidden / s_.heads;
    Numbers out(qkv.size() / 3);
    const auto at = [&](std::int64_t t, int which, std::int64_t head) {
      return qkv.begin() + ((t * 3 + which) * s_.heads + head) * width;
    };
    for (std::size_t s = 0; s + 1 < b_.starts.size(); ++s) {
      const std::int64_t begin = b_.starts[s], n = b_.starts[s + 1] - begin;
      for (std::int64_t head = 0; head < s_.heads; ++head) {
        for (std::int64_t q = 0; q < n; ++q) {
          Numbers p;
          double sum = 0;
          for (std::int64_t k = 0; k < n; ++k) {
            const auto query = at(begin + q, 0, head);
            p.push_back(
                std::exp(std::inner_product(query, query + width, at(begin + k, 1, head), 0.0) /
                         std::sqrt(double(width))));
            sum += p.back();
          }
          const auto factor = Factors(s, site, s_.attention_dropout, (head * n + q) * n, n);
          for (std::int64_t k = 0; k < n; ++k) {
            for (std::int64_t d = 0; d < width; ++d) {
              out[std::size_t(((begin + q) * s_.heads + head) * width + d)] +=
                  p[std::size_t(k)] / sum * double(factor[std::size_t(k)]) *
                  at(begin + k, 2, head)[d];
            }
          }
        }
      }
    }
    return out;
  }

  static Numbers Sum(Numbers a, const Numbers& b) {
    std::ranges::transform(a, b, a.begin(), std::plus<>());
    return a;
  }
  Numbers Layer(const Numbers& x, std::int64_t use) const {
    const TransformerSpec::Layer& layer = s_.layer[s_.albert ? 0 : std::size_t(use)];
    const auto site = std::uint32_t(1 + 3 * use);
    Numbers y = Linear(Attention(Linear(x, layer.qkv), site), layer.attention_out);
    const Numbers hidden =
        Norm(Sum(Dropped(y, s_.hidden, site + 1, s_.hidden_dropout), x), layer.norm1);
    y = Linear(hidden, layer.ffn);
    for (double& z : y) z = Gelu(z);
    y = Linear(y, layer.ffn_out);
    if (!s_.albert) y = Dropped(y, s_.hidden, site + 2, s_.hidden_dropout);
    return Norm(Sum(y, hidden), layer.norm2);
  }

  double Head(const Numbers& x) {
    Numbers in;
    const auto take = [&](std::int64_t token) {
      in.insert(in.end(), x.begin() + token * s_.hidden, x.begin() + (token + 1) * s_.hidden);
    };
    Numbers logits;
    if (s_.masked()) {
      for (const std::int32_t place : b_.places) take(place);
      Numbers y = Linear(in, s_.first);
      for (double& z : y) z = Gelu(z);
      TransformerSpec::Linear decoder{s_.embedding, s_.vocabulary, s_.word_table, s_.word_bias};
      logits = Linear(Norm(y, s_.head_norm), decoder);
    } else {
      for (std::size_t s = 0; s + 1 < b_.starts.size(); ++s) take(b_.starts[s]);
      Numbers y = Linear(in, s_.first);
      for (double& z : y) z = std::tanh(z);
      for (std::size_t s = 0; s + 1 < b_.starts.size(); ++s) {
        const auto factor = Factors(s, 1u << 31, s_.classifier_dropout, 0, s_.hidden);
        for (std::size_t c = 0; c < factor.size(); ++c)
          y[s * factor.size() + c] *= double(factor[c]);
      }
      logits = Linear(y, s_.classifier);
    }
    double loss = 0;
    right_ = 0;
    const std::size_t n = logits.size() / b_.labels.size();
    for (std::size_t r = 0; r < b_.labels.size(); ++r) {
      const auto row = logits.begin() + std::int64_t(r * n), end = row + std::int64_t(n);
      double sum = 0;
      for (auto i = row; i < end; ++i) sum += std::exp(*i);
      loss += std::log(sum) - row[b_.labels[r]];
      right_ += std::max_element(row, end) - row == b_.labels[r];
    }
    return loss;
  }

  const TransformerSpec& s_;
  const Batch& b_;
  const Numbers* v_ = nullptr;
  std::int64_t right_ = 0;
};

enum class Kind : std::uint8_t { kBert, kAlbert };

TransformerSpec SpecOf(Kind kind, bool masked, bool drops, Precision precision) {
  TransformerSpec spec;
  const bool albert = kind == Kind::kAlbert, bf16 = precision == Precision::kBF16;
  spec.albert = albert;
  spec.vocabulary = 43;
  spec.hidden = bf16 ? 64 : 32;
  spec.embedding = albert ? 16 : spec.hidden;
  spec.layers = 2;
  spec.heads = bf16 ? 1 : 2;
  spec.intermediate = 48;
  spec.positions = 20;
  spec.gelu = albert ? GeluForm::kTanh : GeluForm::kErf;
  spec.epsilon = 1e-6f;
  if (drops) spec.hidden_dropout = 0.2f, spec.attention_dropout = 0.3f;
  if (drops) spec.classifier_dropout = 0.4f;
  spec.classes = masked ? 0 : 3;
  LayOut(&spec);
  return spec;
}

Batch BatchOf(Parity& parity, const TransformerSpec& spec,
              const std::vector<std::int32_t>& lengths) {
  Batch batch;
  for (const std::int32_t length : lengths) {
    for (std::int32_t i = 0; i < length; ++i) {
      const std::int32_t token = std::int32_t(batch.ids.size());
      batch.ids.push_back(std::int32_t(parity.Below(spec.vocabulary)));
      if (spec.masked() && i % 3 == 0) {
        batch.places.push_back(token);
        batch.labels.push_back(std::int32_t(parity.Below(spec.vocabulary)));
      }
    }
    batch.starts.push_back(std::int32_t(batch.ids.size()));
    if (!spec.masked()) batch.labels.push_back(std::int32_t(parity.Below(spec.classes)));
    if (spec.hidden_dropout > 0) {
      const auto word = [&] { return std::uint32_t(parity.Below(1 << 30)); };
      batch.dropout.push_back({{word(), word()}, {word(), word()}});
    }
  }
  return batch;
}

// Norms near 1, the rest random: wide enough that attention is no mean.
std::vector<float> ValueOf(Parity& parity, const TransformerSpec& spec, double size = 0.3) {
  std::vector<float> value = parity.Random(spec.parameters, -size, size);
  const auto near_one = [&](const TransformerSpec::Norm& norm) {
    for (std::int64_t i = 0; i < norm.n; ++i) value[std::size_t(norm.gamma + i)] += 1;
  };
  near_one(spec.embedding_norm);
  if (spec.masked()) near_one(spec.head_norm);
  for (const auto& layer : spec.layer) near_one(layer.norm1), near_one(layer.norm2);
  return value;
}

// Where each of the model's arrays begins and ends.
std::vector<std::pair<std::int64_t, std::int64_t>> ArraysOf(const TransformerSpec& spec) {
  std::vector<std::pair<std::int64_t, std::int64_t>> arrays;
  const auto add = [&](std::int64_t at, std::int64_t n) { arrays.push_back({at, at + n}); };
  const auto linear = [&](const TransformerSpec::Linear& l) {
    add(l.weight, l.in * l.out), add(l.bias, l.out);
  };
  const auto norm = [&](const TransformerSpec::Norm& n) { add(n.gamma, n.n), add(n.beta, n.n); };
  add(spec.word_table, spec.vocabulary * spec.embedding);
  add(spec.position_table, spec.positions * spec.embedding);
  add(spec.type_table, spec.token_types * spec.embedding);
  norm(spec.embedding_norm);
  if (spec.albert) linear(spec.map);
  for (const auto& layer : spec.layer) {
    linear(layer.qkv), linear(layer.attention_out), norm(layer.norm1);
    linear(layer.ffn), linear(layer.ffn_out), norm(layer.norm2);
  }
  linear(spec.first);
  if (!spec.masked()) linear(spec.classifier);
  if (spec.masked()) norm(spec.head_norm), add(spec.word_bias, spec.vocabulary);
  return arrays;
}

std::vector<float> Download(Parity& parity, const float* from, std::int64_t n) {
  std::vector<float> to(std::size_t(n), 0);
  CopyOut(parity.stream(), from, to);
  return to;
}

void CheckGradient(Parity& parity, Kind kind, bool masked, bool drops, Precision precision) {
  const bool exact = precision == Precision::kF32;
  // Through all layers: f32 rounds each sum of some thousand products (2^-24 sqrt(n) each), tf32
  // each factor to 2^-11 and bf16 to 2^-9, which small gradients behind them feel several times.
  const double near = exact ? 2e-5 : precision == Precision::kTF32 ? 1e-2 : 5e-2;
  const TransformerSpec spec = SpecOf(kind, masked, drops, precision);
  const Batch batch = BatchOf(parity, spec, {7, 1, 12});
  const std::vector<float> floats = ValueOf(parity, spec, exact ? 0.3 : 0.15);
  Numbers value = Doubles(floats);
  Oracle oracle(spec, batch);
  const double want_loss = oracle.Loss(value);
  const std::int64_t want_right = oracle.right();

  TextStep step(parity.device(), {.model = spec, .precision = precision});
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
  // A few of each array's: some at its ends.
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
  const TextStepReport judged = step.Judge(parity.stream(), batch.view());
  parity.True("the same loss without a gradient", judged.loss == report.loss);
  parity.True("the same answers", judged.right == report.right);
}

void Gradients(Parity& parity) {
  for (const Kind kind : {Kind::kBert, Kind::kAlbert}) {
    for (const bool masked : {false, true}) {
      for (const bool drops : {false, true})
        CheckGradient(parity, kind, masked, drops, Precision::kF32);
    }
  }
}
void GradientsOfBF16(Parity& parity) {
  CheckGradient(parity, Kind::kBert, false, true, Precision::kBF16);
  CheckGradient(parity, Kind::kAlbert, true, false, Precision::kBF16);
  CheckGradient(parity, Kind::kBert, true, false, Precision::kTF32);
}

// Parts add up to the whole; and what was told ready is what it will be.
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
    parity.Equal("what was told ready", parity.Download(seen), got);
    parity.True("it is told layer by layer", told.size() == 4 && told.back() == 0);
  }
}

// The step on what gradient there is: norms and biases do not decay, and a bad loss changes
// nothing.
void Steps(Parity& parity) {
  const TransformerSpec spec = SpecOf(Kind::kBert, false, false, Precision::kF32);
  StepRule rule;
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
      // Matrices are what decays: of this model, whatever is longer than a bias.
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
  // Weights that give no finite loss, of which the gradient knows nothing.
  std::vector<float> bad = value;
  for (std::int64_t c = 0; c < spec.classes; ++c)
    bad[std::size_t(spec.classifier.bias + c)] = c == batch.labels[0] ? -3e38f : 3e38f;
  step.SetState(stream, {.value = bad, .m = state_m, .v = state_v, .steps = 3});
  step.Begin(stream);
  step.Add(stream, batch.view(), 1);
  const TextStepReport told = step.Finish(stream);
  parity.True("a bad loss is told", told.finite == 0 && std::isfinite(told.gradient_norm));
  step.RunStep(stream, kRate, false);
  const auto after = Download(parity, step.value(), spec.parameters);
  parity.True("and changes nothing", std::equal(after.begin(), after.begin() + 100, bad.begin()));
}

}  // namespace

std::vector<ParityCase> TextStepCases() {
  return {{"TextStep.GradientsOfEveryModel", Gradients},
          {"TextStep.GradientsOfBF16", GradientsOfBF16, 80},
          {"TextStep.PartsOfABatch", PartsOfABatch},
          {"TextStep.StepsOfTheOptimizer", Steps}};
}

}  // namespace troop::cuda
