// The translation model, against PyTorch (tools/fixtures/make_gnmt_fixtures.py).
#include "nn/translation/gnmt.h"

#include <gmock/gmock.h>

#include "nn/translation/sentence_decoder.h"
#include "nn/translation/smoothed_loss.h"
#include "tests/nn/translation/gnmt_fixture.h"

namespace troop {
namespace {

using test::FixtureModel;
using test::FixturePairs;
using test::FixtureWeights;
using test::GnmtExpected;
using test::GnmtRun;
using testing::HasSubstr;

TEST(GnmtTest, LossAndEveryGradientEqualThoseOfPyTorch) {
  const test::PairBatch batch = FixturePairs();
  for (const JsonValue& one : GnmtExpected().Find("cases")->array) {
    const auto model = FixtureModel(one);
    const std::vector<float> value = FixtureWeights(*model);
    GnmtRun run(*model, batch);
    run.Forward(value);
    const auto& logits = one.Find("logits")->array;
    ASSERT_EQ(run.logits.spec().shape.elements(), std::ssize(logits));
    for (std::size_t i = 0; i < logits.size(); ++i)
      ASSERT_NEAR(run.logits.as<float>()[i], logits[i].number, 1e-5) << i;
    const TokenLosses losses = SmoothedLoss({.vocabulary = 11,
                                             .labels = batch.labels,
                                             .smoothing = float(one.Find("smoothing")->number),
                                             .differentiate = true,
                                             .logits = run.logits.data<float>()});
    EXPECT_NEAR(losses.smoothed, one.Find("loss")->number, 1e-4);
    const std::vector<float> gradient = run.Backward(value, run.logits);
    const auto& expected = one.Find("gradients")->object;
    EXPECT_EQ(expected.size(), model->params().size());
    for (const ParamSpec& spec : model->params()) {
      const auto found = expected.find(spec.name);
      ASSERT_NE(found, expected.end()) << spec.name;
      ASSERT_EQ(std::ssize(found->second.array), spec.shape.elements()) << spec.name;
      for (std::int64_t i = 0; i < spec.shape.elements(); ++i)
        ASSERT_NEAR(gradient[std::size_t(spec.offset + i)],
                    found->second.array[std::size_t(i)].number, 1e-4)
            << spec.name << " " << i;
    }
  }
}

// The case with residual connections and separate embeddings.
const JsonValue& DeepCase() { return GnmtExpected().Find("cases")->array[0]; }

// Dropout is a part of the function that is differentiated: central differences in f32, whose
// error is about 1e-3.
TEST(GnmtTest, GradientsWithDropoutEqualDifferences) {
  const test::PairBatch batch = FixturePairs();
  const auto model = FixtureModel(DeepCase(), 0.4f);
  std::vector<float> value = FixtureWeights(*model);
  GnmtRun run(*model, batch);
  for (std::uint64_t i = 0; i < 4; ++i) run.dropout.push_back(MakeDropoutKey(1, i, 2));
  const auto loss = [&](bool differentiate) {
    run.Forward(value);
    return SmoothedLoss({.vocabulary = 11,
                         .labels = batch.labels,
                         .smoothing = 0.1f,
                         .differentiate = differentiate,
                         .logits = run.logits.data<float>()})
        .smoothed;
  };
  const double before = loss(true);
  const std::vector<float> gradient = run.Backward(value, run.logits);
  constexpr float kStep = 1e-2f;
  for (const ParamSpec& spec : model->params()) {
    // A few elements of each parameter.
    for (std::int64_t i = 0; i < spec.shape.elements(); i += 7) {
      const auto at = std::size_t(spec.offset + i);
      const float kept = value[at];
      value[at] = kept + kStep;
      const double more = loss(false);
      value[at] = kept - kStep;
      const double less = loss(false);
      value[at] = kept;
      ASSERT_NEAR(gradient[at], (more - less) / (2 * double(kStep)), 3e-3) << spec.name << " " << i;
    }
  }
  run.dropout.clear();
  EXPECT_GT(std::abs(loss(false) - before), 1e-3);
}

// Pairs of a batch are independent, with dropout too, and inference computes the same.
TEST(GnmtTest, PairGivesTheSameLogitsAloneAndInABatch) {
  const test::PairBatch batch = FixturePairs();
  const auto model = FixtureModel(DeepCase(), 0.4f);
  const std::vector<float> value = FixtureWeights(*model);
  for (const bool drops : {false, true}) {
    GnmtRun run(*model, batch);
    for (std::uint64_t i = 0; i < 4 && drops; ++i) run.dropout.push_back(MakeDropoutKey(1, i, 2));
    run.Forward(value);
    const std::vector<float> all(run.logits.as<float>().begin(), run.logits.as<float>().end());
    run.Forward(value, false);
    EXPECT_THAT(run.logits.as<float>(), testing::ElementsAreArray(all));
    test::PairBatch last;
    const auto& pair = GnmtExpected().Find("pairs")->array[3];
    last.Add(test::Ids(*pair.Find("source")), test::Ids(*pair.Find("target")));
    GnmtRun alone(*model, last);
    if (drops) alone.dropout = {run.dropout[3]};
    alone.Forward(value);
    const auto logits = alone.logits.as<float>();
    for (std::size_t i = 0; i < logits.size(); ++i)
      ASSERT_NEAR(logits[i], all[all.size() - logits.size() + i], 1e-5) << i;
  }
}

// Teacher forcing: the decoder's steps along a known translation.
TEST(GnmtTest, StepsOfTheDecoderEqualTheWholePass) {
  const test::PairBatch batch = FixturePairs();
  for (const JsonValue& one : GnmtExpected().Find("cases")->array) {
    const auto model = FixtureModel(one);
    const std::vector<float> value = FixtureWeights(*model);
    GnmtRun run(*model, batch);
    run.Forward(value, false);
    SentenceDecoder decoder(model.get(), value, nullptr);
    std::size_t row = 0;
    for (const JsonValue& pair : GnmtExpected().Find("pairs")->array) {
      const auto source = test::Ids(*pair.Find("source"));
      decoder.Begin(source, 2);
      // Two equal rows, of which the second is the parent.
      std::vector<std::int32_t> parents = {0, 0};
      for (const std::int32_t id : test::Ids(*pair.Find("target"))) {
        const std::vector<std::int32_t> tokens = {3, id};
        std::vector<float> log_p(22), attention(2 * source.size());
        decoder.Step({parents, tokens, log_p, attention});
        parents = {1, 1};
        const auto logits = run.logits.as<float>().subspan(11 * row++, 11);
        double sum = 0;
        for (const float x : logits) sum += std::exp(double(x));
        for (std::size_t i = 0; i < 11; ++i)
          ASSERT_NEAR(log_p[11 + i], double(logits[i]) - std::log(sum), 1e-5) << row;
        float whole = 0;
        for (std::size_t s = 0; s < source.size(); ++s) whole += attention[source.size() + s];
        EXPECT_NEAR(whole, 1, 1e-5);
      }
    }
    const Hypothesis found =
        decoder.Translate(test::Ids(GnmtExpected().Find("pairs")->array[0].object.at("source")),
                          {.beam = 3, .length_max = 6});
    EXPECT_LE(found.tokens.size(), 6u);
  }
}

TEST(GnmtTest, BadSizesAreNamed) {
  const auto message = [](const GnmtConfig& config) {
    return Gnmt::Make(config).status().message();
  };
  EXPECT_THAT(message({.vocabulary = 0}), HasSubstr("vocabulary = 0: needs 1 to"));
  EXPECT_THAT(message({.hidden = -1}), HasSubstr("hidden size = -1"));
  EXPECT_THAT(message({.encoder_layers = 1}), HasSubstr("encoder layers = 1: needs 2 to 16"));
  EXPECT_THAT(message({.decoder_layers = 17}), HasSubstr("decoder layers = 17: needs 2 to 16"));
  EXPECT_THAT(message({.dropout = 1}), HasSubstr("dropout = 1"));
  const auto model = FixtureModel(DeepCase());
  const auto plan = [&](std::int64_t source, std::int64_t starts, std::int64_t target) {
    const std::vector<TensorSpec> in = {{DType::kI32, {source}},
                                        {DType::kI32, {starts}},
                                        {DType::kI32, {target}},
                                        {DType::kI32, {starts}}};
    return model->MakePlan(in);
  };
  EXPECT_TRUE(plan(4, 3, 5).ok());
  EXPECT_THAT(plan(1, 3, 5).status().message(), HasSubstr("2 pairs with 1 and 5 tokens"));
  EXPECT_FALSE(plan(5, 1, 5).ok());
  EXPECT_FALSE(model->MakePlan(std::vector<TensorSpec>{{DType::kI32, {4}}}).ok());
}

}  // namespace
}  // namespace troop
