#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string>

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

using Family = TransformerConfig::Family;

// One sequence, as the package transformers has it (modeling_bert.py and those of the others).
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
    const bool deep = is(Family::kRoberta) || is(Family::kElectra);
    Row first = x[0];
    if (deep) Drop(key_, (1u << 31) + 1, c_.classifier_dropout, 0, &first);
    const char* name = deep ? "classifier.dense" : "bert.pooler.dense";
    if (is(Family::kAlbert)) name = "albert.pooler";
    if (distil()) name = "pre_classifier";
    Row pooled = Linear(values_, name, first);
    for (double& v : pooled) {
      if (distil()) {
        v = std::max(v, 0.0);
      } else {
        v = is(Family::kElectra) ? Gelu(GeluForm::kErf, v) : std::tanh(v);
      }
    }
    Drop(key_, 1u << 31, c_.classifier_dropout, 0, &pooled);
    return Linear(values_, deep ? "classifier.out_proj" : "classifier", pooled);
  }
  Row Words(const Row& x) const {
    const auto [dense, norm, bias] = WordNames();
    const bool exact = is(Family::kRoberta) || is(Family::kElectra);
    Row y = Linear(values_, dense, x);
    for (double& v : y) v = Gelu(exact ? GeluForm::kErf : c_.gelu, v);
    y = Norm(norm, y);
    Row logits;
    for (std::int64_t word = 0; word < c_.vocabulary; ++word) {
      const Row of_word =
          values_.row(Model() + ".embeddings.word_embeddings.weight", std::size_t(word));
      logits.push_back(values_[bias][std::size_t(word)]);
      for (std::size_t i = 0; i < y.size(); ++i) logits.back() += y[i] * of_word[i];
    }
    return logits;
  }

 private:
  bool is(Family family) const { return c_.family == family; }
  bool albert() const { return is(Family::kAlbert); }
  bool distil() const { return is(Family::kDistilBert); }
  std::string Model() const {
    const char* const names[] = {"bert", "albert", "roberta", "distilbert", "electra"};
    return names[int(c_.family)];
  }
  // Linear layer, norm and bias of the masked-LM head.
  std::array<std::string, 3> WordNames() const {
    switch (c_.family) {
      case Family::kAlbert:
        return {"predictions.dense", "predictions.LayerNorm", "predictions.bias"};
      case Family::kRoberta:
        return {"lm_head.dense", "lm_head.layer_norm", "lm_head.bias"};
      case Family::kDistilBert:
        return {"vocab_transform", "vocab_layer_norm", "vocab_projector.bias"};
      case Family::kElectra:
        return {"generator_predictions.dense", "generator_predictions.LayerNorm",
                "generator_lm_head.bias"};
      case Family::kBert:
        break;
    }
    return {"cls.predictions.transform.dense", "cls.predictions.transform.LayerNorm",
            "cls.predictions.bias"};
  }

  Rows Embedded(std::span<const std::int32_t> ids, std::span<const std::int32_t> types) const {
    const std::string prefix = Model() + ".embeddings.";
    const bool roberta = is(Family::kRoberta);  // its padding has id and position 1
    std::size_t next = roberta ? 2 : 0;
    Rows x;
    for (std::size_t t = 0; t < ids.size(); ++t) {
      Row row = values_.row(prefix + "word_embeddings.weight", std::size_t(ids[t]));
      const std::size_t position = roberta && ids[t] == 1 ? 1 : next++;
      Add(values_.row(prefix + "position_embeddings.weight", position), &row);
      const std::size_t type = roberta ? 0 : std::size_t(types[t]);
      if (!distil()) Add(values_.row(prefix + "token_type_embeddings.weight", type), &row);
      x.push_back(Norm(prefix + "LayerNorm", row));
    }
    Drop(key_, 0, c_.hidden_dropout, &x);
    if (albert()) x = Map("albert.encoder.embedding_hidden_mapping_in", x);
    if (is(Family::kElectra)) x = Map("electra.embeddings_project", x);
    return x;
  }

  Rows Layer(std::uint32_t use, const Rows& x) const {
    const std::string layers = distil() ? ".transformer.layer." : ".encoder.layer.";
    const std::string prefix = albert() ? "albert.encoder.albert_layer_groups.0.albert_layers.0."
                                        : Model() + layers + std::to_string(use) + ".";
    const auto name = [&](const char* usual, const char* of_albert, const char* of_distil) {
      if (albert()) return prefix + of_albert;
      return prefix + (distil() ? of_distil : usual);
    };
    const std::uint32_t site = 1 + 3 * use;  // attention, and behind each half
    Rows hidden = Map(name("attention.output.dense", "attention.dense", "attention.out_lin"),
                      Attention(name("attention.self.", "attention.", "attention."), site, x));
    if (!distil()) Drop(key_, site + 1, c_.hidden_dropout, &hidden);
    for (std::size_t t = 0; t < x.size(); ++t) {
      Add(x[t], &hidden[t]);
      hidden[t] = Norm(name("attention.output.LayerNorm", "attention.LayerNorm", "sa_layer_norm"),
                       hidden[t]);
    }
    Rows y = Map(name("intermediate.dense", "ffn", "ffn.lin1"), hidden);
    for (Row& row : y) {
      for (double& v : row) v = Gelu(c_.gelu, v);
    }
    y = Map(name("output.dense", "ffn_output", "ffn.lin2"), y);
    if (!albert()) Drop(key_, site + 2, c_.hidden_dropout, &y);  // ALBERT has none here
    for (std::size_t t = 0; t < x.size(); ++t) {
      Add(hidden[t], &y[t]);
      y[t] = Norm(name("output.LayerNorm", "full_layer_layer_norm", "output_layer_norm"), y[t]);
    }
    return y;
  }

  Rows Attention(const std::string& prefix, std::uint32_t site, const Rows& x) const {
    const Rows q = Map(prefix + (distil() ? "q_lin" : "query"), x),
               k = Map(prefix + (distil() ? "k_lin" : "key"), x),
               v = Map(prefix + (distil() ? "v_lin" : "value"), x);
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
  Family family;
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
  batch.ids[2] = 1;          // RoBERTa's padding
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

// Each rate alone, and all of them, of every family.
std::vector<Case> AllCases() {
  std::vector<Case> cases;
  for (const Family family : test::kFamilies) {
    cases.push_back({family, 0.2f, 0, 0});
    cases.push_back({family, 0, 0.2f, 0});
    cases.push_back({family, 0, 0, 0.2f});
    cases.push_back({family, 0.3f, 0.2f, 0.1f});
    cases.push_back({family, 0.3f, 0.2f, 0, TransformerHead::kMaskedLm});
  }
  return cases;
}
INSTANTIATE_TEST_SUITE_P(Sites, EncoderDropoutTest, ::testing::ValuesIn(AllCases()));

}  // namespace
}  // namespace troop
