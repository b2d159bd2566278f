#include "nn/models/lstm_classifier.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "nn/io/hugging_face.h"
#include "nn/optimizer.h"
#include "tests/nn/f64_reference.h"
#include "tests/nn/transformer_bench.h"
#include "tests/testing/gradient_check.h"

namespace troop {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Batch = test::TokensByChance;
using test::Drop;
using test::ReadTensors;
using test::Row;
using test::Rows;
using test::Values;

// Sizes that no register divides; rates as given.
LstmConfig Tiny(std::int64_t layers, float rate = 0) {
  return {.vocabulary = 40,
          .embedding = 7,
          .hidden = 5,
          .layers = layers,
          .attention = 9,
          .classes = 3,
          .embedding_dropout = rate,
          .layer_dropout = rate,
          .classifier_dropout = rate,
          .deviation = 0.4f};
}

struct LstmBench : test::TokenBench {
  explicit LstmBench(const LstmConfig& config, Precision precision = Precision::kF32)
      : TokenBench(*MakeLstmClassifier(config), false, precision) {}
};

// Compares with PyTorch's results (tools/make_lstm_fixtures.py). Sequences of unequal lengths, one
// of them a single token.
class LstmFixtureTest : public ::testing::TestWithParam<std::pair<const char*, std::int64_t>> {};

TEST_P(LstmFixtureTest, MatchesPyTorchLogitsLossAndGradients) {
  const auto [name, layers] = GetParam();
  const TensorFile file = ReadTensors(std::string(name) + ".safetensors", "lstm/");
  LstmBench bench({.vocabulary = 20,
                   .embedding = 6,
                   .hidden = 5,
                   .layers = layers,
                   .attention = 4,
                   .classes = 3});
  const auto loaded = LoadWeights(*bench.module, file, bench.value);
  ASSERT_TRUE(loaded.ok()) << loaded.status().ToString();
  EXPECT_THAT(loaded->fresh, IsEmpty());
  const auto numbers = [&](const std::string& of) {
    return file.tensors.at(of).as<std::int32_t>();
  };
  bench.SetBatch({.ids = numbers("ids"), .starts = numbers("starts")});
  bench.Forward();
  const auto logits = file.tensors.at("logits").as<float>();
  ASSERT_EQ(std::size_t(bench.out.elements()), logits.size());
  for (std::size_t i = 0; i < logits.size(); ++i)
    EXPECT_NEAR(bench.out.data<float>()[i], logits[i], 1e-5) << i;
  Tensor dlogits;
  EXPECT_NEAR(bench.Loss(numbers("labels"), &dlogits), file.tensors.at("loss").as<float>()[0],
              1e-6);
  bench.Backward(dlogits);
  for (const ParamSpec& spec : bench.module->params()) {
    const auto gradient = file.tensors.at("gradient." + spec.name).as<float>();
    ASSERT_EQ(std::int64_t(gradient.size()), spec.shape.elements());
    for (std::size_t i = 0; i < gradient.size(); ++i)
      ASSERT_NEAR(bench.gradient[std::size_t(spec.offset) + i], gradient[i], 1e-5)
          << spec.name << " " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Layers, LstmFixtureTest,
                         ::testing::Values(std::pair("one_layer", 1), std::pair("two_layers", 2)));

TEST(LstmClassifierTest, GradientsMatchFiniteDifferences) {
  for (const std::int64_t layers : {1, 2, 3}) {
    LstmBench bench(Tiny(layers, 0.25f));
    bench.SetBatch(Batch({1, 12, 4, 12}).view(true));
    // No relu that a step could cross: long ones leave rounding behind.
    test::CheckGradients(*bench.module, bench.inputs, {.steps = {3e-2, 1e-2}});
  }
}

// One direction of one layer over one sequence, a cell at a time.
Rows RunLstm(const Values& values, const std::string& end, std::size_t hidden, const Rows& x,
             bool back) {
  Rows out(x.size());
  Row h(hidden), c(hidden);
  const auto sigma = [](double v) { return 1 / (1 + std::exp(-v)); };
  for (std::size_t i = 0; i < x.size(); ++i) {
    const std::size_t t = back ? x.size() - 1 - i : i;
    const Row from_x = Product(values, "lstm.weight_ih" + end, "lstm.bias_ih" + end, x[t]);
    const Row from_h = Product(values, "lstm.weight_hh" + end, "lstm.bias_hh" + end, h);
    const auto sum = [&](std::size_t gate, std::size_t k) {
      return from_x[gate * hidden + k] + from_h[gate * hidden + k];
    };
    for (std::size_t k = 0; k < hidden; ++k) {
      c[k] = sigma(sum(1, k)) * c[k] + sigma(sum(0, k)) * std::tanh(sum(2, k));
      h[k] = sigma(sum(3, k)) * std::tanh(c[k]);
    }
    out[t] = h;
  }
  return out;
}

// The logits of one sequence. Dropout: behind the embeddings, between layers, before the
// classifier.
Row LogitsInF64(const LstmConfig& config, const Values& values,
                std::span<const std::int32_t> tokens, const DropoutKey* key) {
  Rows x;
  for (const std::int32_t token : tokens)
    x.push_back(values.row("embedding.weight", std::size_t(token)));
  Drop(key, 0, config.embedding_dropout, &x);
  for (std::int64_t layer = 0; layer < config.layers; ++layer) {
    if (layer > 0) Drop(key, std::uint32_t(layer), config.layer_dropout, &x);
    const std::string end = "_l" + std::to_string(layer);
    const auto hidden = std::size_t(config.hidden);
    Rows forth = RunLstm(values, end, hidden, x, false);
    const Rows back = RunLstm(values, end + "_reverse", hidden, x, true);
    for (std::size_t t = 0; t < x.size(); ++t)
      forth[t].insert(forth[t].end(), back[t].begin(), back[t].end());
    x = forth;
  }
  Row share, pooled(x[0].size());
  for (const Row& h : x) {
    Row u = Linear(values, "attention", h);
    for (double& v : u) v = std::tanh(v);
    share.push_back(Product(values, "score.weight", "", u)[0]);
  }
  test::Softmax(&share);
  for (std::size_t t = 0; t < x.size(); ++t) {
    for (std::size_t i = 0; i < pooled.size(); ++i) pooled[i] += share[t] * x[t][i];
  }
  Drop(key, 1u << 31, config.classifier_dropout, 0, &pooled);
  return Linear(values, "classifier", pooled);
}

// Forward, and what backward makes of it, with dropout and without. Each site alone too: what is
// forgotten at one place must not hide behind another.
TEST(LstmClassifierTest, MatchesF64ReferenceWithEveryDropout) {
  const Batch batch({3, 1, 9, 6, 9});
  for (const std::int64_t layers : {1, 2, 3}) {
    for (const int site : {-1, 0, 1, 2, 3}) {
      LstmConfig config = Tiny(layers);
      float* const rates[] = {&config.embedding_dropout, &config.layer_dropout,
                              &config.classifier_dropout};
      for (int i = 0; i < 3; ++i) *rates[i] = site == i || site == 3 ? 0.3f : 0.0f;
      LstmBench bench(config);
      bench.SetBatch(batch.view(site >= 0));
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
          const auto first = std::size_t(batch.starts[s]), end = std::size_t(batch.starts[s + 1]);
          const Row row =
              LogitsInF64(config, values, std::span(batch.ids).subspan(first, end - first),
                          site >= 0 ? &batch.keys[s] : nullptr);
          logits.insert(logits.end(), row.begin(), row.end());
        }
        double sum = 0;
        for (std::size_t i = 0; i < logits.size(); ++i)
          sum += double(test::LossWeight(i)) * logits[i];
        return sum;
      };
      loss(std::vector<double>(bench.value.begin(), bench.value.end()));
      ASSERT_EQ(std::int64_t(logits.size()), bench.out.elements());
      for (std::size_t i = 0; i < logits.size(); ++i)
        ASSERT_NEAR(bench.out.data<float>()[i], logits[i], 1e-5) << layers << " " << site;
      test::ExpectSlopes(*bench.module, bench.value, bench.gradient, loss, 1e-5);
    }
  }
}

// Data parallelism relies on this: a sample's result depends on neither its rank nor the rest of
// its batch, except for rounding.
TEST(LstmClassifierTest, SequencesDoNotDependOnPacking) {
  LstmBench bench(Tiny(2, 0.25f));
  const std::int32_t lengths[] = {5, 20, 7};
  bench.SetBatch(Batch({5, 20, 7}).view(true));
  bench.Forward();
  const Tensor all = bench.out;
  for (std::int64_t i = 0; i < 3; ++i) {
    bench.SetBatch(Batch({lengths[i]}, std::uint64_t(i)).view(true));
    bench.Forward();
    for (int c = 0; c < 3; ++c)
      EXPECT_NEAR(bench.out.data<float>()[c], all.data<float>()[3 * i + c], 1e-5) << i;
  }
}

TEST(LstmClassifierTest, InferenceMatchesTrainingBitwise) {
  for (const std::int64_t layers : {1, 2, 3, 4}) {
    LstmBench bench(Tiny(layers));
    bench.SetBatch(Batch({5, 9, 1}).view(false));
    bench.Forward();
    const std::vector<float> trained(bench.out.as<float>().begin(), bench.out.as<float>().end());
    bench.Forward(false);
    EXPECT_TRUE(std::ranges::equal(bench.out.as<float>(), trained)) << layers;
    EXPECT_TRUE(std::isfinite(trained[0]));
  }
}

TEST(LstmClassifierTest, AccumulatesOrOverwritesGradients) {
  LstmBench bench(Tiny(2, 0.25f));
  bench.SetBatch(Batch({5, 9}).view(true));
  bench.Forward();
  Tensor dlogits;
  bench.Loss(std::vector<std::int32_t>{0, 1}, &dlogits);
  bench.Backward(dlogits);
  const std::vector<float> once = bench.gradient;
  bench.Backward(dlogits);
  EXPECT_EQ(bench.gradient, once);
  bench.Backward(dlogits, true);
  for (std::size_t i = 0; i < once.size(); ++i)
    ASSERT_NEAR(bench.gradient[i], 2 * once[i], 1e-5 * (1 + std::abs(once[i]))) << i;
}

TEST(LstmClassifierTest, ReportsGradientsReadyOnlyWhenFinal) {
  LstmBench bench(Tiny(3));
  struct Watch final : GradientWatch {
    void GradientReady(std::int64_t from) override {
      told.push_back(from);
      seen.emplace_back(gradient->begin() + from, gradient->end());
    }
    const std::vector<float>* gradient = nullptr;
    std::vector<std::int64_t> told;
    std::vector<std::vector<float>> seen;
  } watch;
  watch.gradient = &bench.gradient;
  bench.SetBatch(Batch({5, 9}).view(false));
  bench.Forward();
  Tensor dlogits;
  bench.Loss(std::vector<std::int32_t>{0, 1}, &dlogits);
  bench.Backward(dlogits, false, &watch);
  std::vector<std::int64_t> begins;
  for (const char* const name :
       {"attention.weight", "lstm.weight_ih_l2", "lstm.weight_ih_l1", "lstm.weight_ih_l0"}) {
    for (const ParamSpec& spec : bench.module->params()) {
      if (spec.name == name) begins.push_back(spec.offset);
    }
  }
  EXPECT_EQ(watch.told, begins);
  for (std::size_t i = 0; i < watch.told.size(); ++i) {
    EXPECT_TRUE(std::equal(watch.seen[i].begin(), watch.seen[i].end(),
                           bench.gradient.begin() + watch.told[i]));
  }
}

// Operands have 8 bits: a product of sums is off by some 2^-8, and the gradient by little more.
TEST(LstmClassifierTest, BF16ApproximatesF32LogitsAndGradients) {
  std::vector<float> logits, gradient;
  double norm = 0, apart = 0;
  for (const auto precision : {Precision::kF32, Precision::kBF16}) {
    LstmBench bench(Tiny(2), precision);
    bench.SetBatch(Batch({20, 9, 1}).view(false));
    bench.Forward();
    Tensor dlogits;
    bench.Loss(std::vector<std::int32_t>{1, 0, 2}, &dlogits);
    bench.Backward(dlogits);
    if (precision == Precision::kF32) {
      logits.assign(bench.out.as<float>().begin(), bench.out.as<float>().end());
      gradient = bench.gradient;
      continue;
    }
    EXPECT_FALSE(std::ranges::equal(bench.out.as<float>(), logits));
    for (std::size_t i = 0; i < logits.size(); ++i)
      EXPECT_NEAR(bench.out.data<float>()[i], logits[i], 0.05) << i;
    for (std::size_t i = 0; i < gradient.size(); ++i) {
      norm += double(gradient[i]) * gradient[i];
      apart += std::pow(double(gradient[i]) - bench.gradient[i], 2);
    }
  }
  EXPECT_LT(std::sqrt(apart), 0.03 * std::sqrt(norm));
}

TEST(LstmClassifierTest, IgnoresTokenTypes) {
  LstmBench bench(Tiny(1));
  Batch batch({5, 9});
  bench.SetBatch(batch.view(false));
  bench.Forward();
  const Tensor with = bench.out;
  batch.types.clear();
  bench.SetBatch(batch.view(false));
  bench.Forward();
  EXPECT_TRUE(std::ranges::equal(bench.out.as<float>(), with.as<float>()));
}

TEST(LstmClassifierTest, ParameterNamesAndInitMatchPyTorch) {
  const auto module = *MakeLstmClassifier(Tiny(1));
  std::vector<float> value(std::size_t(ParameterCount(*module)));
  InitParameters(*module, 9, value);
  std::vector<std::string> names;
  for (const ParamSpec& spec : module->params()) {
    names.push_back(spec.name + spec.shape.ToString());
    float most = 0;
    for (std::int64_t i = 0; i < spec.shape.elements(); ++i)
      most = std::max(most, std::abs(value[std::size_t(spec.offset + i)]));
    if (spec.name.starts_with("lstm.")) {
      EXPECT_LE(most, 1 / std::sqrt(5.0f)) << spec.name;
      EXPECT_GT(most, 0.8f / std::sqrt(5.0f)) << spec.name;  // of 20 and more: 1 - 0.8^20
    } else {
      EXPECT_EQ(most == 0, spec.name.ends_with("bias")) << spec.name;
    }
  }
  EXPECT_THAT(
      names,
      ElementsAre("embedding.weight[40, 7]", "lstm.weight_ih_l0[20, 7]", "lstm.weight_hh_l0[20, 5]",
                  "lstm.bias_ih_l0[20]", "lstm.bias_hh_l0[20]", "lstm.weight_ih_l0_reverse[20, 7]",
                  "lstm.weight_hh_l0_reverse[20, 5]", "lstm.bias_ih_l0_reverse[20]",
                  "lstm.bias_hh_l0_reverse[20]", "attention.weight[9, 10]", "attention.bias[9]",
                  "score.weight[1, 9]", "classifier.weight[3, 10]", "classifier.bias[3]"));
  std::vector<bool> decays;
  for (const Optimizer::Group& group : DecayGroups(*module, 0.1f))
    decays.insert(decays.end(), std::size_t(group.count), group.decays);
  for (const ParamSpec& spec : module->params())
    EXPECT_EQ(decays[std::size_t(spec.offset)], spec.shape.rank() == 2) << spec.name;
}

TEST(LstmClassifierTest, RejectsConfigsOutOfBounds) {
  const auto error = [](auto change) {
    LstmConfig config = Tiny(1);
    change(config);
    const auto made = MakeLstmClassifier(config);
    return made.ok() ? std::string("ok") : made.status().ToString();
  };
  EXPECT_EQ(error([](auto&) {}), "ok");
  EXPECT_THAT(error([](auto& c) { c.vocabulary = 0; }),
              HasSubstr("an LSTM classifier's vocabulary = 0: needs 1 to 1048576"));
  EXPECT_THAT(error([](auto& c) { c.embedding = -1; }), HasSubstr("embedding size = -1"));
  EXPECT_THAT(error([](auto& c) { c.hidden = 1 << 21; }), HasSubstr("hidden size = 2097152"));
  EXPECT_THAT(error([](auto& c) { c.layers = 65; }),
              HasSubstr("number of layers = 65: needs 1 to"));
  EXPECT_THAT(error([](auto& c) { c.attention = 0; }), HasSubstr("attention size = 0"));
  EXPECT_THAT(error([](auto& c) { c.classes = 0; }), HasSubstr("number of classes = 0"));
  EXPECT_THAT(error([](auto& c) { c.deviation = NAN; }), HasSubstr("deviation"));
  EXPECT_THAT(error([](auto& c) { c.embedding_dropout = 1; }), HasSubstr("embedding_dropout = 1"));
  EXPECT_THAT(error([](auto& c) { c.layer_dropout = -1; }), HasSubstr("layer_dropout = -1"));
  EXPECT_THAT(error([](auto& c) { c.classifier_dropout = NAN; }), HasSubstr("classifier_dropout"));
}

TEST(LstmClassifierTest, RejectsMismatchedInputs) {
  const auto module = *MakeLstmClassifier(Tiny(1));
  const TensorSpec ids{DType::kI32, {9}}, starts{DType::kI32, {3}}, none;
  EXPECT_TRUE(module->MakePlan(std::vector{ids, starts, none, none}).ok());
  EXPECT_FALSE(module->MakePlan(std::vector{ids, starts}).ok());
  EXPECT_FALSE(module->MakePlan(std::vector{{DType::kF32, {9}}, starts, none, none}).ok());
  EXPECT_FALSE(module->MakePlan(std::vector{ids, {DType::kI32, {1}}, none, none}).ok());
  EXPECT_FALSE(module->MakePlan(std::vector{ids, {DType::kI32, {11}}, none, none}).ok());
}

TEST(LstmClassifierDeathTest, AbortsOnTokenPastVocabulary) {
  LstmBench bench(Tiny(1));
  Batch batch({2});
  batch.ids[1] = 40;
  bench.SetBatch(batch.view(false));
  EXPECT_DEATH(bench.Forward(), "token 1 is 40: needs 0 to 39");
}

}  // namespace
}  // namespace troop
