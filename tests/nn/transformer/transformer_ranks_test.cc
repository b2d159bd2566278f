#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <mutex>

#include "nn/io/hugging_face.h"
#include "nn/optimizer.h"
#include "tests/nn/tensor_ranks.h"

// Transformers on several ranks, against those of another implementation and of one device.
namespace troop {
namespace {

using test::Apart;
using test::AtRank;
using Batch = test::TokensByChance;
using test::kFamilies;
using test::Norm;
using test::OnRanks;
using test::ReadFixture;
using test::ReadTensors;
using test::SimRanks;
using test::TensorRank;
using test::TinyTransformer;
using test::TransformerBench;
using ::testing::HasSubstr;

constexpr TransformerHead kHeads[] = {TransformerHead::kClassifier, TransformerHead::kMaskedLm};

std::span<const float> Of(std::span<const float> buffer, const ParamSpec& spec) {
  return buffer.subspan(std::size_t(spec.offset), std::size_t(spec.shape.elements()));
}

// Collects what all ranks have of a whole model's buffer.
class Collected {
 public:
  explicit Collected(const Module& whole)
      : whole_(whole), value(std::size_t(ParameterCount(whole)), 0.0f) {}
  void Put(const Module& part, std::span<const float> from) {
    const std::lock_guard lock(mutex_);
    PutSlice(whole_, part, from, value);
  }

 private:
  const Module& whole_;
  std::mutex mutex_;

 public:
  std::vector<float> value;
};

// Compares with the results of Hugging Face transformers (tools/make_transformer_fixtures.py); 40
// tokens, 48 intermediate units and 4 heads are split over 3 ranks.
class RanksFixtureTest
    : public ::testing::TestWithParam<std::tuple<TransformerConfig::Family, TransformerHead, int>> {
};

TEST_P(RanksFixtureTest, MatchesHuggingFaceLogitsLossAndGradients) {
  const auto [family, head, ranks] = GetParam();
  const bool masked = head == TransformerHead::kMaskedLm;
  const std::string folder = NameOf(family);
  const std::string kind = masked ? "masked." : "classifier.";
  auto options = ParseTransformerConfig(ReadFixture(folder + "/config.json"));
  ASSERT_TRUE(options.ok()) << options.status().ToString();
  options->head = head;
  const auto whole = *MakeTransformer(*options);
  TensorFile weights = ReadTensors(folder + "/model.safetensors");
  const TensorFile expected = ReadTensors(folder + "/expected.safetensors");
  for (const auto& [name, tensor] : expected.tensors) {
    if (masked && name.starts_with("masked.")) weights.tensors[name.substr(7)] = tensor;
  }
  std::vector<float> value(std::size_t(ParameterCount(*whole)));
  ASSERT_TRUE(LoadWeights(*whole, weights, value).ok());
  const auto numbers = [&](const std::string& name) {
    return expected.tensors.at(name).as<std::int32_t>();
  };
  const auto logits = expected.tensors.at(kind + "logits").as<float>();
  const std::int64_t words = options->config.vocabulary;
  Collected gradient(*whole);
  OnRanks(*options, ranks, [&](TensorRank& mine) {
    TransformerBench& bench = mine.bench;
    TakeSlice(*whole, *bench.module, value, bench.value);
    bench.SetBatch({.ids = numbers("ids"),
                    .starts = numbers("starts"),
                    .types = numbers("types"),
                    .places = numbers("places")});
    bench.Forward();
    const Share share = masked ? ShareOf(words, mine.group.place()) : Share{0, options->classes};
    ASSERT_EQ(bench.out.dim(1), share.count);
    const std::int64_t columns = masked ? words : options->classes;
    ASSERT_EQ(std::int64_t(logits.size()), bench.out.dim(0) * columns);
    std::vector<float> want;
    for (std::int64_t r = 0; r < bench.out.dim(0); ++r) {
      const auto from = logits.begin() + r * columns + share.first;
      want.insert(want.end(), from, from + share.count);
    }
    EXPECT_LT(Apart(bench.out.as<float>(), want), 1e-5 * Norm(want));
    Tensor dlogits;
    const double loss = bench.Loss(numbers(masked ? "words" : "labels"), &dlogits);
    const double want_loss = expected.tensors.at(kind + "loss").as<float>()[0];
    EXPECT_NEAR(loss, want_loss, 1e-5 * want_loss);
    bench.Backward(dlogits);
    EXPECT_TRUE(mine.group.status().ok());
    gradient.Put(*bench.module, bench.gradient);
  });
  // Each tensor's gradient is within 1e-5 of its norm. The gradient of a key bias is only rounding
  // error, so there the norm of the whole gradient is the scale.
  const double all = Norm(gradient.value);
  for (const ParamSpec& spec : whole->params()) {
    const auto want = expected.tensors.at(kind + "gradient." + spec.name).as<float>();
    const double norm = (spec.name.ends_with("key.bias") || spec.name.ends_with("k_lin.bias"))
                            ? 1e-2 * all
                            : Norm(want);
    EXPECT_LT(Apart(Of(gradient.value, spec), want), 1e-5 * norm) << spec.name << " " << norm;
  }
}

INSTANTIATE_TEST_SUITE_P(Transformers, RanksFixtureTest,
                         ::testing::Combine(::testing::ValuesIn(kFamilies),
                                            ::testing::ValuesIn(kHeads),
                                            ::testing::Values(1, 2, 3, 4)));

// Forward, mean cross entropy and backward of a batch: labels are 0 and 1 in turn.
double Step(TransformerBench& bench, const Batch& batch, bool drops = true) {
  bench.SetBatch(batch.view(drops));
  bench.Forward();
  std::vector<std::int32_t> labels(std::size_t(bench.out.dim(0)));
  for (std::size_t i = 0; i < labels.size(); ++i) labels[i] = std::int32_t(i % 2);
  Tensor dlogits;
  const double loss = bench.Loss(labels, &dlogits);
  bench.Backward(dlogits);
  return loss;
}

// One device's masks kernels/ proves, and its gradients transformer_test.cc.
TEST(TransformerRanksTest, DropoutMatchesOneDevice) {
  const Batch batch({1, 20, 7});
  for (const TransformerConfig::Family family : kFamilies) {
    for (const TransformerHead head : kHeads) {
      const TransformerOptions options{.config = TinyTransformer(family, 0.25f), .head = head};
      TransformerBench whole(options);
      const double loss = Step(whole, batch);
      for (const int ranks : {2, 3, 4}) {
        Collected gradient(*whole.module);
        OnRanks(options, ranks, [&](TensorRank& mine) {
          EXPECT_NEAR(Step(mine.bench, batch), loss, 1e-5 * loss);
          gradient.Put(*mine.bench.module, mine.bench.gradient);
        });
        EXPECT_LT(Apart(gradient.value, whole.gradient), 1e-5 * Norm(whole.gradient))
            << int(family) << int(head) << " " << ranks;
      }
    }
  }
}

TEST(TransformerRanksTest, RecomputationIsBitExact) {
  const Batch batch({5, 20});
  for (const TransformerConfig::Family family : kFamilies) {
    TransformerOptions options{.config = TinyTransformer(family, 0.25f)};
    options.config.layers = 4;
    std::vector<float> gradients[2][3];
    for (const bool recompute : {false, true}) {
      options.recompute = recompute;
      OnRanks(options, 3, [&](TensorRank& mine) {
        Step(mine.bench, batch);
        gradients[recompute][mine.rank()] = mine.bench.gradient;
      });
    }
    for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(gradients[1][rank], gradients[0][rank]);
  }
}

// Operands are rounded like on one device, but sums are accumulated in another order, so that some
// results round to the other side.
TEST(TransformerRanksTest, BF16ApproximatesOneDevice) {
  const Batch batch({20, 9, 1});
  for (const TransformerConfig::Family family : kFamilies) {
    for (const TransformerHead head : kHeads) {
      const TransformerOptions options{.config = TinyTransformer(family), .head = head};
      TransformerBench whole(options, Precision::kBF16), exact(options);
      const double loss = Step(whole, batch);
      Step(exact, batch);
      Collected gradient(*whole.module);
      OnRanks(
          options, 3,
          [&](TensorRank& mine) {
            EXPECT_NEAR(Step(mine.bench, batch), loss, 2e-3 * loss);
            gradient.Put(*mine.bench.module, mine.bench.gradient);
          },
          Precision::kBF16);
      const double apart = Apart(gradient.value, whole.gradient);
      EXPECT_LT(apart, 0.01 * Norm(whole.gradient));
      EXPECT_LT(apart, Apart(gradient.value, exact.gradient));
    }
  }
}

OptimizerConfig AdamW() {
  OptimizerConfig config;
  config.type = OptimizerType::kAdam;
  config.learning_rate = 2e-3;
  config.weight_decay = 0.01;
  return config;
}
OptimizerConfig RAdam() {
  OptimizerConfig config = AdamW();
  config.type = OptimizerType::kRAdam;
  config.learning_rate = 5e-2;  // the first steps are small
  return config;
}

// A model, or a rank's part of one, in training.
class Trainer {
 public:
  explicit Trainer(TransformerBench* bench, const OptimizerConfig& config = AdamW())
      : bench_(bench),
        learning_rate_(float(config.learning_rate)),
        optimizer(*MakeOptimizer(config, std::int64_t(bench->value.size()))) {}
  double Train(std::int64_t step) {
    const Batch batch({3, 11, 6}, std::uint64_t(3 * step));
    const double loss = Step(*bench_, batch);
    optimizer->StepGroups(bench_->gradient, 1, DecayGroups(*bench_->module, learning_rate_),
                          bench_->value);
    return loss;
  }

 private:
  TransformerBench* const bench_;
  const float learning_rate_;

 public:
  std::unique_ptr<Optimizer> optimizer;
};

std::vector<double> OneDeviceLosses(const TransformerOptions& options, int steps,
                                    const OptimizerConfig& config = AdamW()) {
  TransformerBench bench(options);
  Trainer trainer(&bench, config);
  std::vector<double> losses;
  for (int step = 0; step < steps; ++step) losses.push_back(trainer.Train(step));
  return losses;
}

class CurveTest
    : public ::testing::TestWithParam<std::tuple<TransformerConfig::Family, TransformerHead, int>> {
};

#ifdef __SANITIZE_THREAD__  // the first ten already contain every exchange between the threads
constexpr int kSteps = 10;
#else
constexpr int kSteps = 50;
#endif

// Steps of AdamW with dropout: the losses of one device, and on all ranks the same bytes of what
// each has.
TEST_P(CurveTest, FiftyStepsMatchOneDevice) {
  const auto [family, head, ranks] = GetParam();
  const TransformerOptions options{.config = TinyTransformer(family, 0.1f), .head = head};
  const std::vector<double> want = OneDeviceLosses(options, kSteps);
  // Too few steps need not lower a loss with dropout.
  if (kSteps == 50) {
    EXPECT_LT(want.back(), 0.7 * want.front());
  }
  std::vector<std::vector<float>> values{std::size_t(ranks)}, gradients{std::size_t(ranks)};
  OnRanks(options, ranks, [&](TensorRank& mine) {
    Trainer trainer(&mine.bench);
    for (int step = 0; step < kSteps; ++step)
      EXPECT_NEAR(trainer.Train(step), want[std::size_t(step)], 1e-4) << step;
    values[std::size_t(mine.rank())] = mine.bench.value;
    gradients[std::size_t(mine.rank())] = mine.bench.gradient;
  });
  const auto first = *MakeTransformer(AtRank(options, 0, ranks));
  for (int rank = 1; rank < ranks; ++rank) {
    const auto part = *MakeTransformer(AtRank(options, rank, ranks));
    for (std::size_t p = 0; p < part->params().size(); ++p) {
      const ParamSpec &a = first->params()[p], &b = part->params()[p];
      if (!IsWhole(b)) continue;
      EXPECT_TRUE(std::ranges::equal(Of(values[0], a), Of(values[std::size_t(rank)], b))) << a.name;
      EXPECT_TRUE(std::ranges::equal(Of(gradients[0], a), Of(gradients[std::size_t(rank)], b)))
          << a.name;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Transformers, CurveTest,
                         ::testing::Combine(::testing::ValuesIn(kFamilies),
                                            ::testing::ValuesIn(kHeads),
                                            ::testing::Values(2, 3, 4)));

// Values and the optimizer's slots go from 2 ranks to the whole and on to 3.
void ResumeWithOtherRanks(const OptimizerConfig& config, int before) {
  const TransformerOptions options{
      .config = TinyTransformer(TransformerConfig::Family::kBert, 0.1f),
      .head = TransformerHead::kMaskedLm};
  const std::vector<double> want = OneDeviceLosses(options, 12, config);
  const auto whole = *MakeTransformer(options);
  const auto parameters = std::size_t(ParameterCount(*whole));
  std::vector<float> value(parameters);
  std::vector<std::vector<float>> slots(2, std::vector<float>(parameters));
  std::int64_t steps = 0;
  OnRanks(options, 2, [&](TensorRank& mine) {
    Trainer trainer(&mine.bench, config);
    for (int step = 0; step < before; ++step) trainer.Train(step);
    const auto gather = [&](std::span<const float> from, std::vector<float>* to) {
      std::vector<float> all(parameters);
      EXPECT_TRUE(GatherSlices(*mine.collective, *whole, *mine.bench.module, from, all).ok());
      if (mine.rank() == 1) *to = all;
    };
    gather(mine.bench.value, &value);
    ASSERT_EQ(trainer.optimizer->slots().size(), 2u);
    for (std::size_t i = 0; i < 2; ++i) gather(trainer.optimizer->slots()[i].values, &slots[i]);
    if (mine.rank() == 1) steps = trainer.optimizer->steps();
  });
  OnRanks(options, 3, [&](TensorRank& mine) {
    Trainer trainer(&mine.bench, config);
    TakeSlice(*whole, *mine.bench.module, value, mine.bench.value);
    for (std::size_t i = 0; i < 2; ++i)
      TakeSlice(*whole, *mine.bench.module, slots[i], trainer.optimizer->slots()[i].values);
    trainer.optimizer->set_steps(steps);
    for (int step = before; step < 12; ++step)
      EXPECT_NEAR(trainer.Train(step), want[std::size_t(step)], 1e-4) << step;
  });
}

TEST(TransformerRanksTest, ResumesWithDifferentNumberOfRanks) { ResumeWithOtherRanks(AdamW(), 6); }

// RAdam divides from its sixth step, the second one after the resume.
TEST(TransformerRanksTest, ResumesRAdamWithDifferentNumberOfRanks) {
  ResumeWithOtherRanks(RAdam(), 4);
}

// In the last layer, three all-reduces cover only the rows that the head reads.
TEST(TransformerRanksTest, SendsOnlyFourAllReducesPerLayer) {
  const Batch batch({5, 20});
  constexpr std::uint64_t kTokens = 25, kPlaces = 3, kHidden = 32;
  for (const TransformerConfig::Family family : kFamilies) {
    for (const TransformerHead head : kHeads) {
      for (const bool recompute : {false, true}) {
        TransformerOptions options{
            .config = TinyTransformer(family), .head = head, .recompute = recompute};
        options.config.layers = 3;
        const std::uint64_t embedding = std::uint64_t(options.config.embedding);
        const std::uint64_t layers = 3 * 4 + (recompute ? 2 * 2 : 0);
        const std::uint64_t asked = head == TransformerHead::kMaskedLm ? kPlaces : 2;
        TensorTraffic want{layers + 1, 4 * kTokens * ((layers - 3) * kHidden + embedding)};
        want.bytes += 4 * 3 * asked * kHidden;
        if (head == TransformerHead::kMaskedLm) {
          want.operations += 3;
          want.bytes += 4 * kPlaces * (embedding + 3);
        }
        OnRanks(options, 2, [&](TensorRank& mine) {
          Step(mine.bench, batch);
          EXPECT_EQ(mine.group.traffic(), want);
          EXPECT_EQ(StepTraffic(AtRank(options, mine.rank(), 2), kTokens, asked), want);
        });
        EXPECT_EQ(StepTraffic(options, kTokens, kPlaces), TensorTraffic());
      }
    }
  }
}

}  // namespace
}  // namespace troop
