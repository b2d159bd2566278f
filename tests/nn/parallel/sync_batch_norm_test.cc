// Batch normalization of a batch whose rows are divided among ranks.
#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "nn/layers/image_layers.h"
#include "nn/parallel/tensor_parallel.h"
#include "tests/nn/tensor_ranks.h"
#include "tests/testing/gradient_check.h"

namespace troop {
namespace {

using test::ModuleBench;

constexpr std::int64_t kRows = 8, kChannels = 3;
// Rows of the ranks.
constexpr std::array<std::int64_t, 2> kParts{5, 3};

// One pass of a rank's rows.
struct Pass {
  std::vector<float> out, din, gradient, statistics;
  TensorTraffic traffic;
};

// x, y: [kRows, kChannels]: input and gradient of the output. The passes of both ranks.
std::vector<Pass> OnRanks(const Module& module, std::span<const float> x,
                          std::span<const float> y) {
  std::vector<Pass> passes(2);
  const auto ranks = test::SimRanks(2);
  RunRanks(2, [&](int rank) {
    const auto r = std::size_t(rank);
    TensorGroup group(ranks[r].get());
    const auto first = std::size_t(rank == 0 ? 0 : kParts[0] * kChannels);
    ModuleBench bench(module, {DType::kF32, {kParts[r], kChannels}}, Precision::kF32);
    const auto count = bench.input.as<float>().size();
    std::ranges::copy(x.subspan(first, count), bench.input.as<float>().begin());
    std::ranges::copy(y.subspan(first, count), bench.direction.as<float>().begin());
    Pass& pass = passes[r];
    pass.statistics.resize(bench.value.size());
    bench.statistics = pass.statistics;
    bench.replicas = &group;
    (void)bench.Loss();
    const Tensor din(DType::kF32, {kParts[r], kChannels});
    bench.Backward(din);
    EXPECT_TRUE(group.status().ok());
    pass.out.assign(bench.output.as<float>().begin(), bench.output.as<float>().end());
    pass.din.assign(din.as<float>().begin(), din.as<float>().end());
    pass.gradient = bench.gradient;
    pass.traffic = group.traffic();
  });
  return passes;
}

// Both parts, one after the other.
std::vector<float> Joined(std::vector<float> a, const std::vector<float>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

void ExpectNear(std::span<const float> a, std::span<const float> b, double tolerance) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i)
    EXPECT_NEAR(double(a[i]), double(b[i]), tolerance) << i;
}

// The oracle is the layer on one rank, which is compared with PyTorch elsewhere.
TEST(SyncBatchNormTest, PartsEqualTheWholeBatch) {
  const auto module = MakeBatchNorm({.channels = kChannels, .activation = Activation::kRelu});
  ModuleBench whole(*module, {DType::kF32, {kRows, kChannels}}, Precision::kF32);
  // Parts of unequal means.
  for (std::size_t i = 0; i < 12; ++i) whole.input.as<float>()[i] += 3;
  std::vector<float> statistics(whole.value.size());
  whole.statistics = statistics;
  (void)whole.Loss();
  const Tensor din(DType::kF32, {kRows, kChannels});
  whole.Backward(din);
  const auto parts = OnRanks(*module, whole.input.as<float>(), whole.direction.as<float>());
  ExpectNear(Joined(parts[0].out, parts[1].out), whole.output.as<float>(), 1e-5);
  ExpectNear(Joined(parts[0].din, parts[1].din), din.as<float>(), 1e-5);
  // Each rank has the statistics of all rows, and its own gradient.
  for (const Pass& part : parts) {
    ExpectNear(part.statistics, statistics, 1e-5);
    // Σ x and n, Σ (x - mean)², then two sums of the backward pass.
    EXPECT_EQ(part.traffic, (TensorTraffic{3, 4 * (kChannels + 1 + kChannels + 2 * kChannels)}));
  }
  std::vector<float> sum = parts[0].gradient;
  for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += parts[1].gradient[i];
  ExpectNear(sum, whole.gradient, 1e-5);
}

// <J u, y> = <u, J* y> of the layer over both ranks, J u by a central difference. A backward pass
// that did not exchange its sums would miss the rows of the other rank.
TEST(SyncBatchNormTest, BackwardIsTheAdjointOfForward) {
  const auto module = MakeBatchNorm({.channels = kChannels});
  Rng rng({.run_seed = 3, .purpose = Purpose::kTest});
  const auto random = [&rng] {
    std::vector<float> numbers(kRows * kChannels);
    for (float& x : numbers) x = float(rng.Normal());
    return numbers;
  };
  const std::vector<float> x = random(), u = random(), y = random();
  const auto forward = [&](float h) {
    std::vector<float> at = x;
    for (std::size_t i = 0; i < at.size(); ++i) at[i] += h * u[i];
    const auto parts = OnRanks(*module, at, y);
    return Joined(parts[0].out, parts[1].out);
  };
  constexpr float kStep = 1e-2f;
  const std::vector<float> above = forward(kStep), below = forward(-kStep);
  const auto parts = OnRanks(*module, x, y);
  const std::vector<float> back = Joined(parts[0].din, parts[1].din);
  double there = 0, adjoint = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    there += double(above[i] - below[i]) / (2 * double(kStep)) * double(y[i]);
    adjoint += double(u[i]) * double(back[i]);
  }
  EXPECT_GT(std::abs(there), 0.1);
  EXPECT_NEAR(there, adjoint, 1e-3 * std::abs(there));
}

}  // namespace
}  // namespace troop
