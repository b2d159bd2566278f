#include <gtest/gtest.h>

#include <cmath>

#include "tests/nn/f64_reference.h"
#include "tests/nn/transformer_bench.h"

// Checks where and what a transformer drops, with either head, against plain loops in f64. A
// fixture cannot show it, since PyTorch draws other random numbers.
namespace troop {
namespace {

using test::Drop;
using test::Linear;
using test::Row;
using test::Rows;
using test::Values;

double Gelu(GeluForm form, double x) {
  if (form == GeluForm::kErf) return x * 0.5 * std::erfc(-x / std::sqrt(2.0));
  return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}

// One sequence, as the package transformers has it (modeling_bert.py, modeling_albert.py).
class Encoder {
 public:
  Encoder(const TransformerConfig& config, const Values& values, const DropoutKey* key)
      : c_(config), values_(values), key_(key) {}

  // Returns the hidden state of each token.
  Rows States(std::span<const std::int32_t> ids, std::span<const std::int32_t> types) const {
    Rows x = Embedded(ids, types);
    for (std::int64_t use = 0; use < c_.layers; ++use) x = Layer(std::uint32_t(use), x);
    return x;
  }
  Row Classes(const Rows& x) const {
    Row pooled = Linear(values_, bert() ? "bert.pooler.dense" : "albert.pooler", x[0]);
    for (double& v : pooled) v = std::tanh(v);
    Drop(key_, 1u << 31, c_.classifier_dropout, 0, &pooled);
    return Linear(values_, "classifier", pooled);
  }
  Row Words(const Row& x) const {
    const std::string head = bert() ? "cls.predictions." : "predictions.";
    const std::string transform = head + (bert() ? "transform." : "");
    Row y = Linear(values_, transform + "dense", x);
    for (double& v : y) v = Gelu(c_.gelu, v);
    y = Norm(transform + "LayerNorm", y);
    Row logits;
    for (std::int64_t word = 0; word < c_.vocabulary; ++word) {
      const Row of_word = values_.row(
          std::string(bert() ? "bert" : "albert") + ".embeddings.word_embeddings.weight",
          std::size_t(word));
      logits.push_back(values_[head + "bias"][std::size_t(word)]);
      for (std::size_t i = 0; i < y.size(); ++i) logits.back() += y[i] * of_word[i];
    }
    return logits;
  }

 private:
  bool bert() const { return c_.family == TransformerConfig::Family::kBert; }

  Rows Embedded(std::span<const std::int32_t> ids, std::span<const std::int32_t> types) const {
    const std::string prefix = std::string(bert() ? "bert" : "albert") + ".embeddings.";
    Rows x;
    for (std::size_t t = 0; t < ids.size(); ++t) {
      Row row = values_.row(prefix + "word_embeddings.weight", std::size_t(ids[t]));
      Add(values_.row(prefix + "position_embeddings.weight", t), &row);
      Add(values_.row(prefix + "token_type_embeddings.weight", std::size_t(types[t])), &row);
      x.push_back(Norm(prefix + "LayerNorm", row));
    }
    Drop(key_, 0, c_.hidden_dropout, &x);
    if (!bert()) x = Map("albert.encoder.embedding_hidden_mapping_in", x);
    return x;
  }

  Rows Layer(std::uint32_t use, const Rows& x) const {
    const std::string prefix = bert() ? "bert.encoder.layer." + std::to_string(use) + "."
                                      : "albert.encoder.albert_layer_groups.0.albert_layers.0.";
    const std::uint32_t site = 1 + 3 * use;  // attention, and behind each half
    Rows hidden = Map(prefix + (bert() ? "attention.output.dense" : "attention.dense"),
                      Attention(prefix + (bert() ? "attention.self." : "attention."), site, x));
    Drop(key_, site + 1, c_.hidden_dropout, &hidden);
    for (std::size_t t = 0; t < x.size(); ++t) {
      Add(x[t], &hidden[t]);
      hidden[t] =
          Norm(prefix + (bert() ? "attention.output.LayerNorm" : "attention.LayerNorm"), hidden[t]);
    }
    Rows y = Map(prefix + (bert() ? "intermediate.dense" : "ffn"), hidden);
    for (Row& row : y) {
      for (double& v : row) v = Gelu(c_.gelu, v);
    }
    y = Map(prefix + (bert() ? "output.dense" : "ffn_output"), y);
    if (bert()) Drop(key_, site + 2, c_.hidden_dropout, &y);  // ALBERT has none here
    for (std::size_t t = 0; t < x.size(); ++t) {
      Add(hidden[t], &y[t]);
      y[t] = Norm(prefix + (bert() ? "output.LayerNorm" : "full_layer_layer_norm"), y[t]);
    }
    return y;
  }

  Rows Attention(const std::string& prefix, std::uint32_t site, const Rows& x) const {
    const Rows q = Map(prefix + "query", x), k = Map(prefix + "key", x),
               v = Map(prefix + "value", x);
    const std::size_t n = x.size(), heads = std::size_t(c_.heads), width = x[0].size() / heads;
    Rows out(n, Row(x[0].size(), 0.0));
    for (std::size_t head = 0; head < heads; ++head) {
      for (std::size_t i = 0; i < n; ++i) {
        Row share(n, 0.0);
        for (std::size_t j = 0; j < n; ++j) {
          for (std::size_t e = head * width; e < (head + 1) * width; ++e)
            share[j] += q[i][e] * k[j][e] / std::sqrt(double(width));
        }
        test::Softmax(&share);
        Drop(key_, site, c_.attention_dropout, (head * n + i) * n, &share);
        for (std::size_t j = 0; j < n; ++j) {
          for (std::size_t e = head * width; e < (head + 1) * width; ++e)
            out[i][e] += share[j] * v[j][e];
        }
      }
    }
    return out;
  }

  Rows Map(const std::string& name, const Rows& x) const {
    Rows y;
    for (const Row& row : x) y.push_back(Linear(values_, name, row));
    return y;
  }
  Row Norm(const std::string& name, const Row& x) const {
    const auto n = double(x.size());
    double mean = 0, variance = 0;
    for (const double v : x) mean += v / n;
    for (const double v : x) variance += (v - mean) * (v - mean) / n;
    Row y;
    for (std::size_t i = 0; i < x.size(); ++i) {
      y.push_back((x[i] - mean) / std::sqrt(variance + double(c_.epsilon)) *
                      values_[name + ".weight"][i] +
                  values_[name + ".bias"][i]);
    }
    return y;
  }
  static void Add(const Row& x, Row* sum) {
    for (std::size_t i = 0; i < x.size(); ++i) (*sum)[i] += x[i];
  }

  const TransformerConfig& c_;
  const Values& values_;
  const DropoutKey* const key_;
};

struct Case {
  TransformerConfig::Family family;
  float hidden, attention, classifier;  // rates: one alone, or all
  TransformerHead head = TransformerHead::kClassifier;
};
class EncoderDropoutTest : public ::testing::TestWithParam<Case> {};

TEST_P(EncoderDropoutTest, LogitsAndGradientsMatchF64Reference) {
  const Case& rates = GetParam();
  TransformerConfig config = test::TinyTransformer(rates.family);
  config.hidden_dropout = rates.hidden;
  config.attention_dropout = rates.attention;
  config.classifier_dropout = rates.classifier;
  test::TokensByChance batch({5, 1, 4});
  batch.places = {1, 4, 8};  // none of the second sequence
  test::TransformerBench bench({.config = config, .head = rates.head});
  bench.SetBatch(batch.view(true));
  bench.Forward();
  Tensor weights(DType::kF32, bench.out.shape());
  for (std::size_t i = 0; i < std::size_t(weights.elements()); ++i)
    weights.data<float>()[i] = test::LossWeight(i);
  bench.Backward(weights);
  std::vector<double> logits;
  const auto loss = [&](std::span<const double> value) {
    logits.clear();
    const Values values(*bench.module, value);
    for (std::size_t s = 0; s + 1 < batch.starts.size(); ++s) {
      const auto first = std::size_t(batch.starts[s]);
      const std::size_t count = std::size_t(batch.starts[s + 1]) - first;
      const Encoder encoder(config, values, &batch.keys[s]);
      const Rows states = encoder.States(std::span(batch.ids).subspan(first, count),
                                         std::span(batch.types).subspan(first, count));
      const auto add = [&](const Row& row) { logits.insert(logits.end(), row.begin(), row.end()); };
      if (rates.head == TransformerHead::kClassifier) add(encoder.Classes(states));
      for (const std::int32_t place : batch.places) {
        const std::size_t token = std::size_t(place) - first;  // large, before the sequence
        if (rates.head == TransformerHead::kMaskedLm && token < count)
          add(encoder.Words(states[token]));
      }
    }
    double sum = 0;
    for (std::size_t i = 0; i < logits.size(); ++i) sum += double(test::LossWeight(i)) * logits[i];
    return sum;
  };
  loss(std::vector<double>(bench.value.begin(), bench.value.end()));
  ASSERT_EQ(std::int64_t(logits.size()), bench.out.elements());
  for (std::size_t i = 0; i < logits.size(); ++i)
    EXPECT_NEAR(bench.out.data<float>()[i], logits[i], 1e-5) << i;
  test::ExpectSlopes(*bench.module, bench.value, bench.gradient, loss, 1e-4);
}

INSTANTIATE_TEST_SUITE_P(Sites, EncoderDropoutTest,
                         ::testing::Values(Case{TransformerConfig::Family::kBert, 0.2f, 0, 0},
                                           Case{TransformerConfig::Family::kBert, 0, 0.2f, 0},
                                           Case{TransformerConfig::Family::kBert, 0, 0, 0.2f},
                                           Case{TransformerConfig::Family::kBert, 0.3f, 0.2f, 0.1f},
                                           Case{TransformerConfig::Family::kAlbert, 0.2f, 0, 0},
                                           Case{TransformerConfig::Family::kAlbert, 0, 0.2f, 0},
                                           Case{TransformerConfig::Family::kAlbert, 0, 0, 0.2f},
                                           Case{TransformerConfig::Family::kAlbert, 0.3f, 0.2f,
                                                0.1f},
                                           Case{TransformerConfig::Family::kBert, 0.3f, 0.2f, 0,
                                                TransformerHead::kMaskedLm},
                                           Case{TransformerConfig::Family::kAlbert, 0.3f, 0.2f, 0,
                                                TransformerHead::kMaskedLm}));

}  // namespace
}  // namespace troop
