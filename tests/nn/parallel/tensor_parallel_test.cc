#include "nn/parallel/tensor_parallel.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <mutex>
#include <numeric>

#include "nn/transformer/transformer_parts.h"
#include "tests/nn/tensor_ranks.h"

namespace troop {
namespace {

using test::AtRank;
using test::OnRanks;
using test::SimRanks;
using test::TensorRank;
using test::TinyTransformer;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::int64_t> Counts(std::int64_t n, int ranks) {
  std::vector<std::int64_t> counts;
  std::int64_t end = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    const Share share = ShareOf(n, {rank, ranks});
    EXPECT_EQ(share.first, end);
    end += share.count;
    counts.push_back(share.count);
  }
  EXPECT_EQ(end, n);
  return counts;
}

TEST(TensorParallelTest, SharesAreContiguousAndDifferByAtMostOne) {
  EXPECT_THAT(Counts(12, 1), ElementsAre(12));
  EXPECT_THAT(Counts(12, 4), ElementsAre(3, 3, 3, 3));
  EXPECT_THAT(Counts(40, 3), ElementsAre(14, 13, 13));
  EXPECT_THAT(Counts(5, 3), ElementsAre(2, 2, 1));
  EXPECT_THAT(Counts(30522, 4), ElementsAre(7631, 7631, 7630, 7630));
}

// Small whole numbers, whose sums of products f32 holds exactly, whatever their order.
std::vector<float> Whole(std::size_t n, std::uint64_t stream) {
  Rng rng({stream, Purpose::kTest});
  std::vector<float> x(n);
  for (float& v : x) v = float(int(rng.Below(9)) - 4);
  return x;
}
double Dot(std::span<const float> a, std::span<const float> b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += double(a[i]) * b[i];
  return sum;
}

// A linear layer F and its backward F*, of `ranks` ranks: <F x, y> = <x, F* y>, exactly. Ranks that
// share the outputs have all of x, those that share the inputs all of y.
class AdjointTest : public ::testing::TestWithParam<std::tuple<int, bool>> {};

TEST_P(AdjointTest, BackwardIsAdjointOfForward) {
  const int ranks = std::get<0>(GetParam());
  const bool cut_out = std::get<1>(GetParam());
  constexpr std::int64_t kRows = 3, kIn = 11, kOut = 7;
  const Ranks groups = SimRanks(ranks);
  std::mutex mutex;
  double forward = 0, backward = 0, before = 0;
  RunRanks(ranks, [&](int rank) {
    TensorGroup group(groups[std::size_t(rank)].get());
    const TensorParallelRank place = group.place();
    ParamLayout layout(1);
    const Extent in = cut_out ? Extent(kIn) : Extent(kIn, ShareOf(kIn, place));
    const Extent out = cut_out ? Extent(kOut, ShareOf(kOut, place)) : Extent(kOut);
    const LinearPart linear(layout, "linear", in, out);
    std::vector<float> value = Whole(std::size_t(layout.end()), 10 + std::uint64_t(rank));
    std::fill_n(value.begin() + linear.bias, linear.out, 0.0f);
    const Params params{.value = value.data(), .gradient = nullptr, .tensor = &group};
    // Replicated inputs are drawn from the same seed on all ranks.
    const auto x = Whole(std::size_t(kRows * linear.in), cut_out ? 1 : 20 + std::uint64_t(rank));
    const auto y = Whole(std::size_t(kRows * linear.out), cut_out ? 30 + std::uint64_t(rank) : 2);
    std::vector<float> fx(y.size()), dx = Whole(x.size(), cut_out ? 3 : 40 + std::uint64_t(rank));
    const double kept = Dot(x, dx);
    linear.Forward(params, kRows, x.data(), fx.data());
    linear.Backward(params,
                    {.rows = kRows, .x = x.data(), .dy = y.data(), .beta = 1, .dx = dx.data()});
    EXPECT_TRUE(group.status().ok());
    EXPECT_EQ(group.traffic().operations, ranks == 1 ? 0u : 1u);
    const std::lock_guard lock(mutex);
    if (cut_out || rank == 0) forward += Dot(fx, y);
    if (!cut_out || rank == 0) backward += Dot(x, dx);
    if (!cut_out || rank == 0) before += kept;
  });
  EXPECT_EQ(forward + before, backward);
  EXPECT_NE(forward, 0);
}

INSTANTIATE_TEST_SUITE_P(Layers, AdjointTest,
                         ::testing::Combine(::testing::Values(1, 2, 3, 4), ::testing::Bool()));

// Uneven: 5 heads of 16, 40 words, 50 numbers in between.
TransformerOptions Uneven(TransformerHead head = TransformerHead::kMaskedLm) {
  TransformerConfig config = TinyTransformer(TransformerConfig::Family::kBert);
  config.hidden = config.embedding = 80;
  config.heads = 5;
  config.intermediate = 50;
  return {.config = config, .head = head};
}

const ParamSpec& SpecOf(const Module& module, const std::string& name) {
  for (const ParamSpec& spec : module.params()) {
    if (spec.name == name) return spec;
  }
  ADD_FAILURE() << name;
  return module.params().front();
}

// The layout of a rank, number by number: tensors of the whole model hold their own indices.
TEST(TensorParallelTest, SlicesFollowHeadsIntermediateUnitsAndVocabulary) {
  const auto whole = *MakeTransformer(Uneven());
  const auto part = *MakeTransformer(AtRank(Uneven(), 1, 3));
  std::vector<float> all(std::size_t(ParameterCount(*whole)));
  for (const ParamSpec& spec : whole->params()) {
    std::iota(all.begin() + spec.offset, all.begin() + spec.offset + spec.shape.elements(), 0.0f);
  }
  std::vector<float> mine(std::size_t(ParameterCount(*part)), -1);
  TakeSlice(*whole, *part, all, mine);
  // Rows [first_row, + rows) and columns [first_column, + columns) of a tensor `width` wide.
  const auto expect = [&](const std::string& name, std::int64_t first_row, std::int64_t rows,
                          std::int64_t first_column, std::int64_t columns, std::int64_t width) {
    const ParamSpec& spec = SpecOf(*part, name);
    EXPECT_EQ(spec.shape.elements(), rows * columns) << name;
    EXPECT_EQ(spec.shape[0], rows) << name;
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t c = 0; c < columns; ++c) {
        ASSERT_EQ(mine[std::size_t(spec.offset + r * columns + c)],
                  float((first_row + r) * width + first_column + c))
            << name << " " << r << " " << c;
      }
    }
  };
  const std::string layer = "bert.encoder.layer.1.", predictions = "cls.predictions.";
  for (const char* const name : {"query", "key", "value"}) {  // heads 2 and 3
    expect(layer + "attention.self." + name + ".weight", 32, 32, 0, 80, 80);
    expect(layer + "attention.self." + name + ".bias", 32, 32, 0, 1, 1);
  }
  expect(layer + "attention.output.dense.weight", 0, 80, 32, 32, 80);
  expect(layer + "attention.output.dense.bias", 0, 80, 0, 1, 1);
  expect(layer + "attention.output.LayerNorm.weight", 0, 80, 0, 1, 1);
  expect(layer + "intermediate.dense.weight", 17, 17, 0, 80, 80);
  expect(layer + "intermediate.dense.bias", 17, 17, 0, 1, 1);
  expect(layer + "output.dense.weight", 0, 80, 17, 17, 50);
  expect(layer + "output.dense.bias", 0, 80, 0, 1, 1);
  expect("bert.embeddings.word_embeddings.weight", 14, 13, 0, 80, 80);
  expect("bert.embeddings.position_embeddings.weight", 0, 20, 0, 80, 80);
  expect(predictions + "bias", 14, 13, 0, 1, 1);
  expect(predictions + "transform.dense.weight", 0, 80, 0, 80, 80);
}

// Whole models and slices: initial values, back and forth, and what the ranks answer for.
TEST(TensorParallelTest, SlicesOfAllRanksReassembleModel) {
  for (const TransformerConfig::Family family : test::kFamilies) {
    for (const int ranks : {2, 3, 4}) {
      TransformerOptions options{.config = TinyTransformer(family),
                                 .head = TransformerHead::kMaskedLm};
      const auto whole = *MakeTransformer(options);
      std::vector<float> all(std::size_t(ParameterCount(*whole))), again(all.size(), NAN);
      InitParameters(*whole, 9, all);
      double squares = 0;
      std::int64_t elements = 0, of_all = 0;
      for (int rank = 0; rank < ranks; ++rank) {
        const auto part = *MakeTransformer(AtRank(options, rank, ranks));
        std::vector<float> mine(std::size_t(ParameterCount(*part))), begun(mine.size());
        InitParameters(*part, 9, begun);
        TakeSlice(*whole, *part, all, mine);
        EXPECT_EQ(mine, begun);
        PutSlice(*whole, *part, mine, again);
        squares += SliceNormSquared(*part, {rank, ranks}, mine);
        for (const ParamSpec& spec : part->params()) {
          elements += spec.shape.elements();
          if (IsWhole(spec)) of_all += spec.shape.elements();
        }
      }
      EXPECT_EQ(elements, ElementCount(*whole) + (ranks - 1) * (of_all / ranks));
      EXPECT_LT(of_all / ranks, ElementCount(*whole) / 2);
      for (const ParamSpec& spec : whole->params()) {
        const auto at = all.begin() + spec.offset;
        EXPECT_TRUE(std::equal(at, at + spec.shape.elements(), again.begin() + spec.offset));
      }
      const double norm = test::Norm(all);
      EXPECT_NEAR(squares, norm * norm, 1e-6 * squares);
    }
  }
}

TEST(TensorParallelTest, GatheredSlicesAreBitExactOnAllRanks) {
  const TransformerOptions options{.config = TinyTransformer(TransformerConfig::Family::kBert)};
  const auto whole = *MakeTransformer(options);
  std::vector<float> all(std::size_t(ParameterCount(*whole)));
  InitParameters(*whole, 9, all);
  all[1] = -0.0f;
  all[2] = std::bit_cast<float>(1u);  // a subnormal number
  OnRanks(options, 3, [&](TensorRank& mine) {
    TakeSlice(*whole, *mine.bench.module, all, mine.bench.value);
    std::vector<float> gathered(all.size(), NAN);
    const Status status =
        GatherSlices(*mine.collective, *whole, *mine.bench.module, mine.bench.value, gathered);
    ASSERT_TRUE(status.ok()) << status.ToString();
    EXPECT_EQ(std::memcmp(gathered.data(), all.data(), all.size() * sizeof(float)), 0);
    // A norm of one rank that went its own way.
    const ParamSpec& norm = SpecOf(*mine.bench.module, "bert.embeddings.LayerNorm.weight");
    if (mine.rank() == 2) mine.bench.value[std::size_t(norm.offset)] += 1e-6f;
    const Status apart =
        GatherSlices(*mine.collective, *whole, *mine.bench.module, mine.bench.value, gathered);
    EXPECT_EQ(apart.code(), Code::kInternal);
    EXPECT_THAT(apart.message(), HasSubstr("ranks 0 and 2"));
  });
}

// From the definition, in f64. Rows of ordinary logits, and of some that lie far from 0.
TEST(TensorParallelTest, SlicedCrossEntropyMatchesWholeVocabulary) {
  constexpr std::int64_t kWords = 11;
  const std::vector<std::int32_t> labels = {0, 10, 4, kIgnoredLabel, 7, 3, 5};
  const auto rows = std::int64_t(labels.size());
  const float scale = 0.25f;
  std::vector<float> logits(std::size_t(rows * kWords));
  Rng rng({7, Purpose::kTest});
  for (float& x : logits) x = float(3 * rng.Normal());
  for (std::int64_t i = 0; i < kWords; ++i) {
    logits[std::size_t(4 * kWords + i)] += 10'000;
    logits[std::size_t(5 * kWords + i)] -= 10'000;
  }
  logits[std::size_t(6 * kWords + 1)] = 300;  // relative to it the other exponentials are 0
  for (const int ranks : {1, 2, 3, 4}) {
    const Ranks groups = SimRanks(ranks);
    RunRanks(ranks, [&](int rank) {
      TensorGroup group(groups[std::size_t(rank)].get());
      const Share share = ShareOf(kWords, group.place());
      std::vector<float> mine, loss(labels.size(), NAN);
      for (std::int64_t r = 0; r < rows; ++r) {
        const auto from = logits.begin() + r * kWords + share.first;
        mine.insert(mine.end(), from, from + share.count);
      }
      SlicedCrossEntropy(
          ranks == 1 ? nullptr : &group,
          {.vocabulary = kWords, .labels = labels, .scale = scale, .logits = mine, .loss = loss});
      ASSERT_TRUE(group.status().ok());
      const TensorTraffic expected{2, 3 * 4 * std::uint64_t(rows)};
      EXPECT_EQ(group.traffic(), ranks == 1 ? TensorTraffic() : expected);
      for (std::int64_t r = 0; r < rows; ++r) {
        const float* const x = &logits[std::size_t(r * kWords)];
        const std::int32_t label = labels[std::size_t(r)];
        double sum = 0;
        for (std::int64_t i = 0; i < kWords; ++i) sum += std::exp(double(x[i]) - x[0]);
        const bool counts = label != kIgnoredLabel;
        const double want = counts ? std::log(sum) + x[0] - x[label] : 0;
        // With one rank, the kernel of whole rows computes it, whose log-sum-exp is less exact.
        const double near = (ranks == 1 ? 2e-3 : 2e-6) * (1 + std::abs(want));
        EXPECT_NEAR(loss[std::size_t(r)], want, near) << ranks << " " << r;
        for (std::int64_t i = 0; i < share.count; ++i) {
          const std::int64_t word = share.first + i;
          const double p = std::exp(double(x[word]) - x[0]) / sum;
          const double d = counts ? scale * (p - (word == label ? 1 : 0)) : 0;
          EXPECT_NEAR(mine[std::size_t(r * share.count + i)], d, near) << ranks << " " << r;
        }
      }
    });
  }
}

std::string PlaceError(TensorParallelRank place) {
  TransformerOptions options{.config = TinyTransformer(TransformerConfig::Family::kBert)};
  options.tensor = place;
  const auto made = MakeTransformer(options);
  return made.ok() ? "ok" : made.status().message();
}

TEST(TensorParallelTest, RejectsRanksOutOfBounds) {
  EXPECT_EQ(PlaceError({3, 4}), "ok");
  EXPECT_THAT(PlaceError({4, 4}), HasSubstr("rank 4 of 4: needs 0 to 3"));
  EXPECT_THAT(PlaceError({-1, 4}), HasSubstr("rank -1 of 4"));
  EXPECT_THAT(PlaceError({0, 0}), HasSubstr("0 tensor-parallel ranks: needs at least 1"));
  EXPECT_THAT(PlaceError({0, 5}),
              HasSubstr("5 tensor-parallel ranks share a transformer's 4 heads"));
}

}  // namespace
}  // namespace troop
