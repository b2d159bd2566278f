#include "kernels/linear/linear.h"

#include <gtest/gtest.h>

#include "kernels/linear/linear_reference.h"
#include "kernels/linear/small_batch_linear.h"
#include "tests/kernels/layer_check.h"

namespace troop {
namespace {

using test::ExpectNear;
using test::Operand;

constexpr DType kTypes[] = {DType::kF32, DType::kBF16};

// The three directions of one layer against loops in f64.
void CheckLinear(const LinearShape& shape, std::int64_t batch, DType compute) {
  SCOPED_TRACE(fmt::format("{} x {} -> {} {}", batch, shape.in, shape.out, DTypeName(compute)));
  if (compute == DType::kBF16 && !BF16Available()) return;
  // Weights that bf16 holds exactly, so that both sides multiply the same numbers.
  const Operand weight(shape.out * shape.in, compute, 1), bias(shape.out, DType::kF32, 2);
  const Operand x(batch * shape.in, compute, 3), dz(batch * shape.out, compute, 4);
  std::vector<float> w(weight.f64.begin(), weight.f64.end());
  const LayerWeights weights{w.data(), bias.data.data<float>()};
  const auto kernel = MakeLinearKernel(shape, {compute, Activation::kRelu});
  kernel->Pack(weights);

  std::vector<double> expected(std::size_t(batch * shape.out));
  LinearForwardReference(shape, Activation::kRelu, batch, weight.f64.data(), bias.f64.data(),
                         x.f64.data(), expected.data());
  for (const DType out : kTypes) {
    if (out == DType::kBF16 && compute == DType::kF32) continue;
    Tensor y(out, {batch * shape.out});
    kernel->Forward(batch, weights, x.data.bytes().data(), y.bytes().data(), out);
    ExpectNear(y, expected, shape.in, "forward");
  }

  expected.resize(std::size_t(batch * shape.in));
  LinearBackwardDataReference(shape, batch, weight.f64.data(), dz.f64.data(), expected.data());
  Tensor dx(compute, {batch * shape.in});
  kernel->BackwardData(batch, weights, dz.data.bytes().data(), dx.bytes().data(), compute);
  ExpectNear(dx, expected, shape.out, "data gradient");

  std::vector<double> dw(std::size_t(shape.out * shape.in)), db(std::size_t(shape.out));
  LinearBackwardWeightReference(shape, batch, x.f64.data(), dz.f64.data(), dw.data(), db.data());
  for (const bool accumulate : {false, true}) {
    Tensor weight_gradient(DType::kF32, {shape.out * shape.in});
    Tensor bias_gradient(DType::kF32, {shape.out});
    // Overwritten, or added to: 1 is there before.
    for (float& g : weight_gradient.as<float>()) g = 1;
    for (float& g : bias_gradient.as<float>()) g = 1;
    kernel->BackwardWeight(batch, x.data.bytes().data(), dz.data.bytes().data(),
                           {weight_gradient.data<float>(), bias_gradient.data<float>()},
                           accumulate);
    auto expected_dw = dw, expected_db = db;
    if (accumulate) {
      for (double& g : expected_dw) g += 1;
      for (double& g : expected_db) g += 1;
    }
    ExpectNear(weight_gradient, expected_dw, batch + 1, "weight gradient");
    ExpectNear(bias_gradient, expected_db, batch + 1, "bias gradient");
  }
}

TEST(LinearKernelTest, SmallLayersMatchReference) {
  for (const DType compute : kTypes) {
    for (const std::int64_t batch : {1, 2, 7, 32}) {
      CheckLinear({1, 1}, batch, compute);
      CheckLinear({33, 17}, batch, compute);
      CheckLinear({128, 64}, batch, compute);
    }
  }
}

// 543 x 500 weights are enough for the kernels without packing; 70 rows are too many for them.
TEST(LinearKernelTest, WideLayersMatchReferenceAroundBatchLimit) {
  for (const DType compute : kTypes) {
    for (const std::int64_t batch : {1, 2, 5, 19, 40, 70}) {
      CheckLinear({543, 500}, batch, compute);
      CheckLinear({544, 500}, batch, compute);
    }
  }
}

TEST(LinearKernelTest, PackTracksWeights) {
  const LinearShape shape{600, 500};
  for (const DType compute : kTypes) {
    if (compute == DType::kBF16 && !BF16Available()) continue;
    for (const std::int64_t batch : {4, 70}) {
      std::vector<float> weight(std::size_t(shape.in * shape.out), 0.5f), bias(500, 0.0f);
      const LayerWeights weights{weight.data(), bias.data()};
      const Operand x(batch * shape.in, compute, 1);
      Tensor first(DType::kF32, {batch * shape.out}), second(DType::kF32, {batch * shape.out});
      const auto kernel = MakeLinearKernel(shape, {compute});
      kernel->Pack(weights);
      kernel->Forward(batch, weights, x.data.bytes().data(), first.bytes().data(), DType::kF32);
      for (float& w : weight) w = 1;
      kernel->Pack(weights);
      kernel->Forward(batch, weights, x.data.bytes().data(), second.bytes().data(), DType::kF32);
      for (std::int64_t i = 0; i < first.elements(); ++i)
        ASSERT_EQ(second.data<float>()[i], 2 * first.data<float>()[i]);
    }
  }
}

// All levels against f64, on shapes that leave every kind of remainder.
TEST(NarrowKernelsTest, EveryInstructionSetMatchesReference) {
  for (const LinearShape shape : {LinearShape{1, 1}, {15, 5}, {100, 13}, {1100, 70}, {2100, 7}}) {
    for (const std::int64_t batch : {1, 3, 8, 25, 33}) {
      const Operand w(shape.in * shape.out, DType::kF32, 1), bias(shape.out, DType::kF32, 2);
      const Operand x(batch * shape.in, DType::kF32, 3), dz(batch * shape.out, DType::kF32, 4);
      std::vector<double> y(std::size_t(batch * shape.out)), dx(x.f64.size()), dw(w.f64.size()),
          db(bias.f64.size());
      LinearForwardReference(shape, Activation::kNone, batch, w.f64.data(), bias.f64.data(),
                             x.f64.data(), y.data());
      LinearBackwardDataReference(shape, batch, w.f64.data(), dz.f64.data(), dx.data());
      LinearBackwardWeightReference(shape, batch, x.f64.data(), dz.f64.data(), dw.data(),
                                    db.data());
      for (const CpuLevel level : SupportedCpuLevels()) {
        SCOPED_TRACE(
            fmt::format("{} x {} -> {} {}", batch, shape.in, shape.out, CpuLevelName(level)));
        const auto& kernels = NarrowKernelsF32For(level);
        Tensor got(DType::kF32, {batch * shape.out});
        std::vector<float> scratch(std::size_t(NarrowScratch(shape, batch)));
        kernels.forward(shape, batch, w.data.data<float>(), bias.data.data<float>(),
                        x.data.data<float>(), scratch.data(), got.data<float>());
        ExpectNear(got, y, shape.in, "forward");
        got = Tensor(DType::kF32, {batch * shape.in});
        kernels.backward_data(shape, batch, w.data.data<float>(), dz.data.data<float>(),
                              got.data<float>());
        ExpectNear(got, dx, shape.out, "data gradient");
        got = Tensor(DType::kF32, {shape.out * shape.in});
        Tensor bias_gradient(DType::kF32, {shape.out});
        kernels.backward_weight(shape, batch, x.data.data<float>(), dz.data.data<float>(),
                                scratch.data(), got.data<float>(), bias_gradient.data<float>(),
                                false);
        ExpectNear(got, dw, batch, "weight gradient");
        ExpectNear(bias_gradient, db, batch, "bias gradient");
      }
    }
  }
}

TEST(KernelThreadsTest, TwoThreadsMatchOne) {
  const LinearShape shape{128, 96};
  const Operand w(shape.in * shape.out, DType::kF32, 1), bias(shape.out, DType::kF32, 2);
  const Operand x(256 * shape.in, DType::kF32, 3);
  const LayerWeights weights{w.data.data<float>(), bias.data.data<float>()};
  Tensor one(DType::kF32, {256 * shape.out}), two(DType::kF32, {256 * shape.out});
  MakeLinearKernel(shape, {})->Forward(256, weights, x.data.bytes().data(), one.bytes().data(),
                                       DType::kF32);
  SetKernelThreads(2);
  MakeLinearKernel(shape, {})->Forward(256, weights, x.data.bytes().data(), two.bytes().data(),
                                       DType::kF32);
  SetKernelThreads(1);
  for (std::int64_t i = 0; i < one.elements(); ++i)
    ASSERT_NEAR(one.data<float>()[i], two.data<float>()[i], 1e-4);
}

}  // namespace
}  // namespace troop
