#include "tests/cuda/text_oracle.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

namespace troop::cuda {

double TextOracle::Loss(const Numbers& value) {
  v_ = &value;
  Numbers x = Dropped(Norm(Embedded(), s_.embedding_norm), s_.embedding, 0, s_.hidden_dropout);
  if (s_.has_map) x = Linear(x, s_.map);
  for (std::int64_t use = 0; use < s_.layers; ++use) x = Layer(x, use);
  return Head(x);
}

// Positions begin after that of the padding id, if there is one.
Numbers TextOracle::Embedded() const {
  Numbers x;
  const auto row = [&](std::int64_t table, std::int64_t number, std::int64_t c) {
    return V(table + number * s_.embedding + c);
  };
  for (std::size_t s = 0; s + 1 < b_.starts.size(); ++s) {
    std::int64_t next = s_.padding + 1;
    for (std::int32_t t = b_.starts[s]; t < b_.starts[s + 1]; ++t) {
      const std::int64_t id = b_.ids[std::size_t(t)];
      const std::int64_t place = id == s_.padding ? s_.padding : next++;
      for (std::int64_t c = 0; c < s_.embedding; ++c) {
        const double type = s_.token_types > 0 ? row(s_.type_table, TypeOf(t), c) : 0;
        x.push_back(row(s_.word_table, id, c) + row(s_.position_table, place, c) + type);
      }
    }
  }
  return x;
}

// The innermost loop runs over rows, whose sums are independent.
Numbers TextOracle::Linear(const Numbers& x, const TransformerSpec::Linear& linear) const {
  const auto in = std::size_t(linear.in), out = std::size_t(linear.out), rows = x.size() / in;
  Numbers columns(x.size()), sums(rows), y(rows * out);
  for (std::size_t r = 0; r < rows; ++r) {
    for (std::size_t i = 0; i < in; ++i) columns[i * rows + r] = x[r * in + i];
  }
  for (std::size_t o = 0; o < out; ++o) {
    std::fill(sums.begin(), sums.end(), V(linear.bias + std::int64_t(o)));
    for (std::size_t i = 0; i < in; ++i) {
      const double w = V(linear.weight + std::int64_t(o * in + i));
      const double* const column = columns.data() + i * rows;
      double* const sum = sums.data();
      for (std::size_t r = 0; r < rows; ++r) sum[r] += w * column[r];
    }
    for (std::size_t r = 0; r < rows; ++r) y[r * out + o] = sums[r];
  }
  return y;
}

Numbers TextOracle::Norm(Numbers x, const TransformerSpec::Norm& norm) const {
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

std::vector<float> TextOracle::Factors(std::size_t sequence, std::uint32_t site, float rate,
                                       std::int64_t first, std::int64_t n) const {
  std::vector<float> factor(std::size_t(n), 1.0f);
  if (!b_.dropout.empty() && rate > 0)
    DropoutFactors({b_.dropout[sequence], site}, rate, first, n, factor.data());
  return factor;
}

Numbers TextOracle::Dropped(Numbers x, std::int64_t width, std::uint32_t site, float rate) const {
  std::size_t at = 0;
  for (std::size_t s = 0; s + 1 < b_.starts.size(); ++s) {
    for (const float f : Factors(s, site, rate, 0, (b_.starts[s + 1] - b_.starts[s]) * width))
      x[at++] *= double(f);
  }
  return x;
}

double TextOracle::Gelu(double z, GeluForm form) const {
  if (form == GeluForm::kErf) return z * 0.5 * (1 + std::erf(z / std::sqrt(2.0)));
  return z * 0.5 * (1 + std::tanh(std::sqrt(2 / M_PI) * (z + 0.044715 * z * z * z)));
}

// Activation of the classifier's first layer.
double TextOracle::Pooled(double z) const {
  if (s_.pooler == TransformerSpec::Pooler::kTanh) return std::tanh(z);
  if (s_.pooler == TransformerSpec::Pooler::kRelu) return std::max(z, 0.0);
  return Gelu(z, GeluForm::kErf);
}

// Dropout of the head's rows, one per sequence.
void TextOracle::DropRows(Numbers* rows, std::uint32_t site) const {
  for (std::size_t s = 0; s + 1 < b_.starts.size(); ++s) {
    const auto factor = Factors(s, site, s_.classifier_dropout, 0, s_.hidden);
    for (std::size_t c = 0; c < factor.size(); ++c)
      (*rows)[s * factor.size() + c] *= double(factor[c]);
  }
}

Numbers TextOracle::Attention(const Numbers& qkv, std::uint32_t site) const {
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

Numbers TextOracle::Sum(Numbers a, const Numbers& b) {
  std::ranges::transform(a, b, a.begin(), std::plus<>());
  return a;
}

Numbers TextOracle::Layer(const Numbers& x, std::int64_t use) const {
  const TransformerSpec::Layer& layer = s_.layer[s_.shared ? 0 : std::size_t(use)];
  const auto site = std::uint32_t(1 + 3 * use);
  Numbers y = Linear(Attention(Linear(x, layer.qkv), site), layer.attention_out);
  if (s_.drops_attention) y = Dropped(y, s_.hidden, site + 1, s_.hidden_dropout);
  const Numbers hidden = Norm(Sum(y, x), layer.norm1);
  y = Linear(hidden, layer.ffn);
  for (double& z : y) z = Gelu(z, s_.gelu);
  y = Linear(y, layer.ffn_out);
  if (s_.drops_ffn) y = Dropped(y, s_.hidden, site + 2, s_.hidden_dropout);
  return Norm(Sum(y, hidden), layer.norm2);
}

double TextOracle::Head(const Numbers& x) {
  Numbers in;
  const auto take = [&](std::int64_t token) {
    in.insert(in.end(), x.begin() + token * s_.hidden, x.begin() + (token + 1) * s_.hidden);
  };
  Numbers logits;
  if (s_.masked()) {
    for (const std::int32_t place : b_.places) take(place);
    Numbers y = Linear(in, s_.first);
    for (double& z : y) z = Gelu(z, s_.word_gelu);
    TransformerSpec::Linear decoder{s_.embedding, s_.vocabulary, s_.word_table, s_.word_bias};
    logits = Linear(Norm(y, s_.head_norm), decoder);
  } else {
    for (std::size_t s = 0; s + 1 < b_.starts.size(); ++s) take(b_.starts[s]);
    if (s_.drops_first) DropRows(&in, (1u << 31) + 1);
    Numbers y = Linear(in, s_.first);
    for (double& z : y) z = Pooled(z);
    DropRows(&y, 1u << 31);
    logits = Linear(y, s_.classifier);
  }
  return LossOf(logits);
}

// A loss of targets is the mean over a row's outputs; a row's weight is a factor of its loss.
double TextOracle::LossOf(const Numbers& logits) {
  double loss = 0;
  right_ = 0;
  logits_ = logits;
  const bool single = problem_ == ProblemType::kSingleLabel;
  const std::size_t rows = single ? b_.labels.size() : b_.starts.size() - 1;
  const std::size_t n = logits.size() / rows;
  for (std::size_t r = 0; r < rows; ++r) {
    const auto row = logits.begin() + std::int64_t(r * n), end = row + std::int64_t(n);
    double of_row = 0;
    if (single) {
      for (auto i = row; i < end; ++i) of_row += std::exp(*i);
      of_row = std::log(of_row) - row[b_.labels[r]];
      right_ += std::max_element(row, end) - row == b_.labels[r];
    } else {
      bool all = problem_ == ProblemType::kMultiLabel;
      for (std::size_t i = 0; i < n; ++i) {
        const double x = row[std::int64_t(i)], t = double(b_.targets[r * n + i]);
        const double p = 1 / (1 + std::exp(-x));
        of_row += problem_ == ProblemType::kMultiLabel
                      ? -(t * std::log(p) + (1 - t) * std::log(1 - p)) / double(n)
                      : (x - t) * (x - t) / double(n);
        all = all && (p > 0.5) == (t == 1);
      }
      right_ += all;
    }
    loss += (b_.weights.empty() ? 1.0 : double(b_.weights[r])) * of_row;
  }
  return loss;
}

TransformerSpec SpecOf(Kind kind, bool masked, bool drops, Precision precision) {
  TransformerSpec spec;
  const bool albert = kind == Kind::kAlbert, bf16 = precision == Precision::kBF16;
  const bool electra = kind == Kind::kElectra, roberta = kind == Kind::kRoberta;
  const bool distil = kind == Kind::kDistilBert;
  spec.shared = albert;
  spec.has_map = albert || electra;
  spec.padding = roberta ? 1 : -1;
  spec.token_types = distil ? 0 : roberta ? 1 : 2;
  spec.drops_attention = !distil;
  spec.drops_ffn = !albert;
  spec.drops_first = roberta || electra;
  spec.pooler = distil    ? TransformerSpec::Pooler::kRelu
                : electra ? TransformerSpec::Pooler::kGelu
                          : TransformerSpec::Pooler::kTanh;
  spec.vocabulary = 43;
  spec.hidden = bf16 ? 64 : 32;
  spec.embedding = spec.has_map ? 16 : spec.hidden;
  spec.layers = 2;
  spec.heads = bf16 ? 1 : 2;
  spec.intermediate = 48;
  spec.positions = roberta ? 22 : 20;
  spec.gelu = albert || electra ? GeluForm::kTanh : GeluForm::kErf;
  spec.word_gelu = albert ? GeluForm::kTanh : GeluForm::kErf;
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
      // RoBERTa: some tokens in the sequences have the padding id.
      const bool pads = spec.padding >= 0 && i % 5 == 2;
      batch.ids.push_back(std::int32_t(pads ? spec.padding : parity.Below(spec.vocabulary)));
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

void SetTargets(Parity& parity, const TransformerSpec& spec, ProblemType problem, Batch* batch) {
  const auto rows = std::int64_t(batch->labels.size());
  if (problem == ProblemType::kSingleLabel) {
    batch->weights = parity.Random(rows, 0.2, 2);
    return;
  }
  batch->labels.clear();
  batch->targets = parity.Random(rows * spec.classes, -3, 3);
  for (float& t : batch->targets) {
    if (problem == ProblemType::kMultiLabel) t = t > 0 ? 1.0f : 0.0f;
  }
}

std::vector<float> ValueOf(Parity& parity, const TransformerSpec& spec, double size) {
  std::vector<float> value = parity.Random(spec.parameters, -size, size);
  const auto near_one = [&](const TransformerSpec::Norm& norm) {
    for (std::int64_t i = 0; i < norm.n; ++i) value[std::size_t(norm.gamma + i)] += 1;
  };
  near_one(spec.embedding_norm);
  if (spec.masked()) near_one(spec.head_norm);
  for (const auto& layer : spec.layer) near_one(layer.norm1), near_one(layer.norm2);
  return value;
}

std::vector<std::pair<std::int64_t, std::int64_t>> ArraysOf(const TransformerSpec& spec) {
  std::vector<std::pair<std::int64_t, std::int64_t>> arrays;
  const auto add = [&](std::int64_t at, std::int64_t n) {
    if (n > 0) arrays.push_back({at, at + n});
  };
  const auto linear = [&](const TransformerSpec::Linear& l) {
    add(l.weight, l.in * l.out), add(l.bias, l.out);
  };
  const auto norm = [&](const TransformerSpec::Norm& n) { add(n.gamma, n.n), add(n.beta, n.n); };
  add(spec.word_table, spec.vocabulary * spec.embedding);
  add(spec.position_table, spec.positions * spec.embedding);
  add(spec.type_table, spec.token_types * spec.embedding);
  norm(spec.embedding_norm);
  if (spec.has_map) linear(spec.map);
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

}  // namespace troop::cuda
