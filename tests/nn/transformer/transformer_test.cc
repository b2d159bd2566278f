#include "nn/transformer/transformer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "nn/io/hugging_face.h"
#include "nn/optimizer.h"
#include "tests/nn/transformer_bench.h"

namespace troop {
namespace {

using ::testing::HasSubstr;
using Batch = test::TokensByChance;
using test::kFamilies;
using test::ReadFixture;
using test::ReadTensors;
using test::TinyTransformer;
using test::TransformerBench;

bool HasPooler(TransformerConfig::Family family) {
  return family == TransformerConfig::Family::kBert || family == TransformerConfig::Family::kAlbert;
}

std::int64_t PublishedCount(const TransformerConfig& config, TransformerHead head) {
  return ElementCount(**MakeTransformer({.config = config, .head = head}));
}

TEST(TransformerTest, BaseModelsHavePublishedParameterCounts) {
  EXPECT_EQ(PublishedCount(BertBase(), TransformerHead::kPooled), 109'482'240);
  EXPECT_EQ(PublishedCount(BertBase(), TransformerHead::kClassifier), 109'483'778);
  EXPECT_EQ(PublishedCount(AlbertBase(), TransformerHead::kPooled), 11'683'584);
  EXPECT_EQ(PublishedCount(AlbertBase(), TransformerHead::kClassifier), 11'685'122);
  // roberta-base, distilbert-base-uncased and electra-small-discriminator with a classifier of two
  // classes, as counted by transformers.
  TransformerConfig config = BertBase();
  config.family = TransformerConfig::Family::kRoberta;
  config.vocabulary = 50265, config.positions = 514, config.token_types = 1;
  EXPECT_EQ(PublishedCount(config, TransformerHead::kClassifier), 124'647'170);
  config = BertBase();
  config.family = TransformerConfig::Family::kDistilBert;
  config.layers = 6, config.token_types = 1;
  EXPECT_EQ(PublishedCount(config, TransformerHead::kClassifier), 66'955'010);
  config = BertBase();
  config.family = TransformerConfig::Family::kElectra;
  config.hidden = 256, config.embedding = 128, config.heads = 4, config.intermediate = 1024;
  EXPECT_EQ(PublishedCount(config, TransformerHead::kClassifier), 13'549'314);
}

// The largest magnitude.
float Largest(std::span<const float> values) {
  float largest = 0;
  for (const float v : values) largest = std::max(largest, std::abs(v));
  return largest;
}

// Compares with the results of Hugging Face transformers: tools/make_transformer_fixtures.py. Every
// gradient is within 1e-4 of the largest value of its tensor. The gradient of a key's bias is only
// rounding error, so there that of the queries is the scale.
class FixtureTest
    : public ::testing::TestWithParam<std::tuple<TransformerConfig::Family, TransformerHead>> {};

TEST_P(FixtureTest, MatchesHuggingFaceLogitsLossAndGradients) {
  const auto [family, head] = GetParam();
  const bool masked = head == TransformerHead::kMaskedLm;
  const std::string folder = NameOf(family), kind = masked ? "masked." : "classifier.";
  auto options = ParseTransformerConfig(ReadFixture(folder + "/config.json"));
  ASSERT_TRUE(options.ok()) << options.status().ToString();
  EXPECT_EQ(options->head, TransformerHead::kClassifier);
  options->head = head;
  TransformerBench bench(*options);
  TensorFile weights = ReadTensors(folder + "/model.safetensors");
  const TensorFile expected = ReadTensors(folder + "/expected.safetensors");
  for (const auto& [name, tensor] : expected.tensors) {
    if (masked && name.starts_with("masked.")) weights.tensors[name.substr(7)] = tensor;
  }
  const auto loaded = LoadWeights(*bench.module, weights, bench.value);
  ASSERT_TRUE(loaded.ok()) << loaded.status().ToString();
  EXPECT_TRUE(loaded->fresh.empty());
  const auto numbers = [&](const std::string& name) {
    return expected.tensors.at(name).as<std::int32_t>();
  };
  bench.SetBatch({.ids = numbers("ids"),
                  .starts = numbers("starts"),
                  .types = numbers("types"),
                  .places = numbers("places")});

  bench.Forward();
  const auto logits = expected.tensors.at(kind + "logits").as<float>();
  ASSERT_EQ(std::size_t(bench.out.elements()), logits.size());
  for (std::size_t i = 0; i < logits.size(); ++i)
    EXPECT_NEAR(bench.out.data<float>()[i], logits[i], 1e-4) << i;
  Tensor dlogits;
  const double loss = bench.Loss(numbers(masked ? "words" : "labels"), &dlogits);
  EXPECT_NEAR(loss, expected.tensors.at(kind + "loss").as<float>()[0], 1e-5);
  bench.Backward(dlogits);
  for (const ParamSpec& spec : bench.module->params()) {
    const auto gradient = expected.tensors.at(kind + "gradient." + spec.name).as<float>();
    std::string scale = spec.name;
    for (const auto& [key, query] :
         {std::pair("key.bias", "query.bias"), std::pair("k_lin.bias", "q_lin.bias")}) {
      if (scale.ends_with(key)) scale.replace(scale.rfind(key), scale.npos, query);
    }
    const float largest = Largest(expected.tensors.at(kind + "gradient." + scale).as<float>());
    for (std::size_t i = 0; i < gradient.size(); ++i)
      ASSERT_NEAR(bench.gradient[std::size_t(spec.offset) + i], gradient[i], 1e-4 * largest)
          << spec.name << " " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Transformers, FixtureTest,
                         ::testing::Combine(::testing::ValuesIn(kFamilies),
                                            ::testing::Values(TransformerHead::kClassifier,
                                                              TransformerHead::kMaskedLm)));

// With dropout, where transformers draws other numbers: a central difference along the gradient.
// The embeddings of the third model are wider than its hidden layers.
TEST(TransformerTest, GradientsWithDropoutMatchFiniteDifferences) {
  const Batch batch({1, 20, 7});
  const std::int32_t labels[] = {1, 0, 1};
  std::vector<TransformerConfig> configs;
  for (const TransformerConfig::Family family : kFamilies)
    configs.push_back(TinyTransformer(family, 0.25f));
  configs.push_back(configs.back());
  configs.back().embedding = 3 * configs.back().hidden;
  for (const TransformerConfig& config : configs) {
    for (const auto head :
         {TransformerHead::kPooled, TransformerHead::kClassifier, TransformerHead::kMaskedLm}) {
      if (head == TransformerHead::kPooled && !HasPooler(config.family)) continue;
      TransformerBench bench({.config = config, .head = head});
      bench.SetBatch(batch.view(true));
      bench.Forward();
      Tensor dlogits;
      bench.Loss(labels, &dlogits);
      bench.Backward(dlogits);
      const std::vector<float> origin = bench.value;
      double norm = 0;
      for (const float g : bench.gradient) norm += double(g) * g;
      norm = std::sqrt(norm);
      ASSERT_GT(norm, 0.1);
      const auto loss_at = [&](double step) {
        for (std::size_t i = 0; i < origin.size(); ++i)
          bench.value[i] = float(origin[i] + step * bench.gradient[i] / norm);
        bench.Forward(false);
        return bench.Loss(labels);
      };
      const double h = 5e-4, slope = (loss_at(h) - loss_at(-h)) / (2 * h);
      EXPECT_NEAR(slope, norm, 5e-3 * norm)
          << NameOf(config.family) << " " << config.embedding << " " << int(head);
    }
  }
}

// Data parallelism relies on this: a sample's result depends on neither its rank nor the rest of
// its batch, except for rounding.
TEST(TransformerTest, SequencesDoNotDependOnPacking) {
  for (const TransformerConfig::Family family : kFamilies) {
    TransformerBench bench({.config = TinyTransformer(family, 0.25f)});
    bench.SetBatch(Batch({5, 20, 7}).view(true));
    bench.Forward();
    const Tensor all = bench.out;
    for (std::int64_t i = 0; i < 3; ++i) {
      const std::int32_t lengths[] = {5, 20, 7};
      bench.SetBatch(Batch({lengths[i]}, std::uint64_t(i)).view(true));
      bench.Forward();
      for (int c = 0; c < 2; ++c)
        EXPECT_NEAR(bench.out.data<float>()[c], all.data<float>()[2 * i + c], 1e-5) << i;
    }
  }
}

TEST(TransformerTest, InferenceMatchesTrainingBitwise) {
  for (const TransformerConfig::Family family : kFamilies) {
    for (const std::int64_t layers : {1, 2, 5}) {
      TransformerConfig config = TinyTransformer(family);
      config.layers = layers;
      TransformerBench bench({.config = config, .head = TransformerHead::kMaskedLm});
      bench.SetBatch(Batch({5, 9}).view(false));
      bench.Forward();
      const std::vector<float> trained(bench.out.as<float>().begin(), bench.out.as<float>().end());
      bench.Forward(false);
      EXPECT_TRUE(std::ranges::equal(bench.out.as<float>(), trained));
      EXPECT_TRUE(std::isfinite(trained[0]));
    }
  }
}

TEST(TransformerTest, RecomputationIsBitExactInLessMemory) {
  const Batch batch({5, 20});
  for (const TransformerConfig::Family family : kFamilies) {
    TransformerOptions options{.config = TinyTransformer(family, 0.25f)};
    options.config.layers = 4;
    std::vector<float> gradient;
    std::size_t bytes = 0;
    for (const bool recompute : {false, true}) {
      options.recompute = recompute;
      TransformerBench bench(options);
      bench.SetBatch(batch.view(true));
      bench.Forward();
      Tensor dlogits;
      bench.Loss(std::vector<std::int32_t>{0, 1}, &dlogits);
      bench.Backward(dlogits);
      if (recompute) {
        EXPECT_EQ(bench.gradient, gradient);
        EXPECT_LT(bench.cache_bytes(), bytes / 2);
      }
      gradient = bench.gradient;
      bytes = bench.cache_bytes();
    }
  }
}

// Operands have 8 bits: a product of sums is off by some 2^-8, and the gradient by little more. In
// these sequences rounding changes the sign of none of the values before DistilBERT's ReLU.
TEST(TransformerTest, BF16ApproximatesF32LogitsAndGradients) {
  for (const TransformerConfig::Family family : kFamilies) {
    for (const auto head : {TransformerHead::kClassifier, TransformerHead::kMaskedLm}) {
      std::vector<float> logits, gradients[2];
      double norm = 0, apart = 0;
      for (const auto precision : {Precision::kF32, Precision::kBF16}) {
        TransformerBench bench({.config = TinyTransformer(family), .head = head}, precision);
        bench.SetBatch(Batch({20, 9, 1}, 9).view(false));
        bench.Forward();
        const auto out = bench.out.as<float>();
        if (precision == Precision::kF32) logits.assign(out.begin(), out.end());
        for (std::size_t i = 0; i < logits.size(); ++i) {
          ASSERT_NEAR(out[i], logits[i], 0.1) << i;
          if (precision == Precision::kBF16) apart += std::abs(out[i] - logits[i]);
        }
        Tensor dlogits;
        bench.Loss(std::vector<std::int32_t>{1, 0, 1}, &dlogits);
        bench.Backward(dlogits);
        gradients[int(precision)] = bench.gradient;
      }
      EXPECT_GT(apart, 0);
      apart = 0;
      for (std::size_t i = 0; i < gradients[0].size(); ++i) {
        norm += double(gradients[0][i]) * gradients[0][i];
        apart += std::pow(double(gradients[0][i]) - gradients[1][i], 2);
      }
      EXPECT_LT(std::sqrt(apart), 0.03 * std::sqrt(norm)) << NameOf(family) << " " << int(head);
    }
  }
}

TEST(TransformerTest, AccumulatesOrOverwritesGradients) {
  for (const TransformerConfig::Family family : kFamilies) {
    TransformerBench bench({.config = TinyTransformer(family)});
    bench.SetBatch(Batch({5, 9}).view(false));
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
}

// A gradient reported as ready is final: it equals the result of the whole backward pass.
TEST(TransformerTest, ReportsGradientsReadyOnlyWhenFinal) {
  for (const TransformerConfig::Family family : kFamilies) {
    TransformerBench bench({.config = TinyTransformer(family)});
    struct Watch final : GradientWatch {
      void GradientReady(std::int64_t from) override {
        if (!told.empty()) {
          EXPECT_LT(from, told.back());
        }
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
    EXPECT_EQ(watch.told.size(), family == TransformerConfig::Family::kAlbert ? 2u : 3u);
    for (std::size_t i = 0; i < watch.told.size(); ++i) {
      EXPECT_TRUE(std::equal(watch.seen[i].begin(), watch.seen[i].end(),
                             bench.gradient.begin() + watch.told[i]));
    }
  }
}

TEST(TransformerTest, InitializesWeightsNormallyAndNormsAsIdentity) {
  TransformerConfig config = TinyTransformer(TransformerConfig::Family::kBert);
  config.vocabulary = 4000;
  const auto module = *MakeTransformer({.config = config});
  std::vector<float> value(std::size_t(ParameterCount(*module)));
  InitParameters(*module, 9, value);
  for (const ParamSpec& spec : module->params()) {
    const float first = value[std::size_t(spec.offset)];
    if (spec.name.ends_with("LayerNorm.weight")) {
      EXPECT_EQ(first, 1) << spec.name;
    } else if (spec.name.ends_with("bias")) {
      EXPECT_EQ(first, 0) << spec.name;
    } else {
      EXPECT_NE(first, 0) << spec.name;
    }
  }
  double square = 0;  // of 128,000 numbers: a fixed seed, within 2 %
  for (std::size_t i = 0; i < 128'000; ++i) square += double(value[i]) * value[i];
  EXPECT_NEAR(std::sqrt(square / 128'000), 0.2, 0.004);
}

TEST(TransformerTest, InitializesPositionsAsSinusoids) {
  for (const TransformerConfig::Family family : kFamilies) {
    TransformerConfig config = TinyTransformer(family);
    const auto random = *MakeTransformer({.config = config});
    config.sinusoids = true;
    const auto module = *MakeTransformer({.config = config});
    std::vector<float> value(std::size_t(ParameterCount(*module))), other(value.size());
    InitParameters(*module, 9, value);
    InitParameters(*random, 9, other);
    for (const ParamSpec& spec : module->params()) {
      EXPECT_EQ(spec.decays, spec.shape.rank() == 2) << spec.name;
      const auto from = value.begin() + spec.offset, to = from + spec.shape.elements();
      if (!spec.name.ends_with("position_embeddings.weight")) {
        EXPECT_TRUE(std::equal(from, to, other.begin() + spec.offset)) << spec.name;
        continue;
      }
      const std::int64_t width = spec.shape[1];
      const auto at = [&](std::int64_t place, std::int64_t i) { return from[place * width + i]; };
      const double size = config.deviation * std::sqrt(2.0);
      EXPECT_NEAR(at(3, 0), size * std::sin(3.0), 1e-6);
      EXPECT_NEAR(at(3, 1), size * std::cos(3.0), 1e-6);
      EXPECT_NEAR(at(3, width - 1), size * std::cos(3 / std::pow(1e4, 1 - 2.0 / double(width))),
                  1e-6);
      for (std::int64_t place = 0; place + 2 < spec.shape[0]; ++place) {
        double square = 0, product = 0, as_first = 0;
        for (std::int64_t i = 0; i < width; ++i) {
          square += double(at(place, i)) * at(place, i);
          product += double(at(place, i)) * at(place + 2, i);
          as_first += double(at(0, i)) * at(2, i);
        }
        EXPECT_NEAR(square, double(width) * config.deviation * config.deviation, 1e-5);
        EXPECT_NEAR(product, as_first, 1e-5) << place;  // the distance alone counts
      }
    }
  }
}

TEST(TransformerTest, WeightDecayAppliesOnlyToWeightsAndEmbeddings) {
  const auto module =
      *MakeTransformer({.config = TinyTransformer(TransformerConfig::Family::kBert)});
  std::vector<bool> decays;
  for (const Optimizer::Group& group : DecayGroups(*module, 0.1f)) {
    EXPECT_EQ(group.learning_rate, 0.1f);
    decays.insert(decays.end(), std::size_t(group.count), group.decays);
  }
  ASSERT_EQ(std::int64_t(decays.size()), ParameterCount(*module));
  for (const ParamSpec& spec : module->params()) {
    const bool expected = spec.shape.rank() == 2;
    EXPECT_EQ(decays[std::size_t(spec.offset)], expected) << spec.name;
    EXPECT_EQ(decays[std::size_t(spec.offset + spec.shape.elements() - 1)], expected) << spec.name;
  }
}

std::string TokenError(const TokenBatch& batch) {
  const Status status = CheckTokens(TinyTransformer(TransformerConfig::Family::kBert), batch);
  return status.ok() ? "ok" : status.message();
}

TEST(TransformerTest, RejectsTokensOutOfBounds) {
  const Batch good({5, 20});
  EXPECT_EQ(TokenError(good.view(true)), "ok");
  Batch b = good;
  b.ids[7] = 40;
  EXPECT_THAT(TokenError(b.view(false)), HasSubstr("token 7 is 40"));
  b = good;
  b.ids[0] = -1;
  EXPECT_THAT(TokenError(b.view(false)), HasSubstr("token 0 is -1"));
  b = good;
  b.types[3] = 2;
  EXPECT_THAT(TokenError(b.view(false)), HasSubstr("type 3 is 2"));
  b = good;
  b.types.pop_back();
  EXPECT_THAT(TokenError(b.view(false)), HasSubstr("24 types of 25 tokens"));
  b = good;
  b.places = {25};
  EXPECT_THAT(TokenError(b.view(false)), HasSubstr("place 0 is 25"));
  b.places = {2, 7, 7};
  EXPECT_THAT(TokenError(b.view(false)), HasSubstr("place 7 comes before place 7"));
  b = good;
  b.keys.pop_back();
  EXPECT_THAT(TokenError(b.view(true)), HasSubstr("1 dropout keys of 2 sequences"));
  b = good;
  b.starts = {0, 4, 25};
  EXPECT_THAT(TokenError(b.view(false)), HasSubstr("sequence 1 has 21 tokens: needs 1 to 20"));
  b.starts = {0, 5, 5, 25};
  EXPECT_THAT(TokenError(b.view(false)), HasSubstr("sequence 1 has 0 tokens"));
  for (const auto& starts : {std::vector<std::int32_t>{0}, {1, 25}, {0, 5, 24}}) {
    b.starts = starts;
    EXPECT_THAT(TokenError(b.view(false)), HasSubstr("go from 0 to 25, the number of tokens"));
  }
}

TEST(TransformerTest, RejectsConfigsOutOfBounds) {
  const auto error = [](auto change) {
    TransformerConfig config = TinyTransformer(TransformerConfig::Family::kBert);
    change(config);
    const auto made = MakeTransformer({.config = config});
    return made.ok() ? std::string("ok") : made.status().message();
  };
  EXPECT_EQ(error([](auto&) {}), "ok");
  EXPECT_THAT(error([](auto& c) { c.hidden = 24; }), HasSubstr("multiple of 16"));
  EXPECT_THAT(error([](auto& c) { c.heads = 3; }), HasSubstr("its 3 heads"));
  EXPECT_THAT(error([](auto& c) { c.vocabulary = 0; }), HasSubstr("vocabulary = 0"));
  EXPECT_THAT(error([](auto& c) { c.layers = 1 << 20; }), HasSubstr("number of layers"));
  EXPECT_THAT(error([](auto& c) { c.hidden_dropout = 1; }), HasSubstr("hidden_dropout = 1"));
  EXPECT_THAT(error([](auto& c) { c.epsilon = NAN; }), HasSubstr("epsilon"));
  EXPECT_THAT(error([](auto& c) { c.embedding = 16; }), HasSubstr("embedding size = 16"));
}

TEST(TransformerTest, RejectsMismatchedInputs) {
  const auto module =
      *MakeTransformer({.config = TinyTransformer(TransformerConfig::Family::kBert)});
  const TensorSpec ids{DType::kI32, {9}}, starts{DType::kI32, {3}}, none;
  EXPECT_TRUE(module->MakePlan(std::vector{ids, starts, none, none}).ok());
  EXPECT_FALSE(module->MakePlan(std::vector{ids, starts}).ok());
  EXPECT_FALSE(module->MakePlan(std::vector{{DType::kF32, {9}}, starts, none, none}).ok());
  EXPECT_FALSE(module->MakePlan(std::vector{ids, {DType::kI32, {1}}, none, none}).ok());
  EXPECT_FALSE(module->MakePlan(std::vector{ids, {DType::kI32, {11}}, none, none}).ok());
}

}  // namespace
}  // namespace troop
