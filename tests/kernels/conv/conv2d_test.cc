#include "kernels/conv/conv2d.h"

#include <gtest/gtest.h>

#include "kernels/conv/conv2d_reference.h"
#include "kernels/onednn/onednn_layer.h"
#include "tests/kernels/layer_check.h"

namespace troop {
namespace {

using test::ExpectNear;
using test::Operand;

constexpr DType kTypes[] = {DType::kF32, DType::kBF16};

using MakeKernel = std::unique_ptr<LayerKernel>(const ConvShape&, const KernelOptions&);

void CheckConv(const ConvShape& shape, std::int64_t batch, DType compute,
               MakeKernel make = MakeConvKernel) {
  SCOPED_TRACE(fmt::format("{} x [{}, {}, {}] kernel {} stride {} padding {} groups {} -> {} {}",
                           batch, shape.height, shape.width, shape.channels, shape.kernel,
                           shape.stride, shape.padding, shape.groups, shape.filters,
                           DTypeName(compute)));
  if (compute == DType::kBF16 && !BF16Available()) return;
  const std::int64_t fan_in = shape.fan_in();
  const std::int64_t inputs = batch * shape.height * shape.width * shape.channels;
  const std::int64_t pixels = batch * shape.out_height() * shape.out_width();
  const Operand weight(shape.filters * fan_in, compute, 1), bias(shape.filters, DType::kF32, 2);
  const Operand x(inputs, compute, 3), dz(pixels * shape.filters, compute, 4);
  std::vector<float> w(weight.f64.begin(), weight.f64.end());
  const LayerWeights weights{w.data(), bias.data.data<float>()};
  const auto kernel = make(shape, {compute, Activation::kRelu});
  kernel->Pack(weights);

  std::vector<double> expected(std::size_t(pixels * shape.filters));
  ConvForwardReference(shape, Activation::kRelu, batch, weight.f64.data(), bias.f64.data(),
                       x.f64.data(), expected.data());
  Tensor y(compute, {pixels * shape.filters});
  kernel->Forward(batch, weights, x.data.bytes().data(), y.bytes().data(), compute);
  ExpectNear(y, expected, fan_in, "forward");

  expected.resize(std::size_t(inputs));
  ConvBackwardDataReference(shape, batch, weight.f64.data(), dz.f64.data(), expected.data());
  Tensor dx(compute, {inputs});
  kernel->BackwardData(batch, weights, dz.data.bytes().data(), dx.bytes().data(), compute);
  ExpectNear(dx, expected, shape.kernel * shape.kernel * shape.filters, "data gradient");

  std::vector<double> dw(weight.f64.size()), db(bias.f64.size());
  ConvBackwardWeightReference(shape, batch, x.f64.data(), dz.f64.data(), dw.data(), db.data());
  for (const bool accumulate : {false, true}) {
    Tensor weight_gradient(DType::kF32, {shape.filters * fan_in});
    Tensor bias_gradient(DType::kF32, {shape.filters});
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
    ExpectNear(weight_gradient, expected_dw, pixels + 1, "weight gradient");
    ExpectNear(bias_gradient, expected_db, pixels + 1, "bias gradient");
  }
}

TEST(ConvKernelTest, MatchesReference) {
  for (const DType compute : kTypes) {
    CheckConv({1, 1, 1, 1, 1, 1}, 1, compute);
    CheckConv({10, 10, 4, 16, 3, 1}, 3, compute);   // MinAtar
    CheckConv({9, 7, 3, 5, 2, 3}, 2, compute);      // nothing fits anything
    CheckConv({12, 12, 32, 64, 4, 2}, 2, compute);  // as Nature's second
    CheckConv({7, 7, 64, 64, 3, 1}, 1, compute);    // and its third
  }
}

// Layers of AlexNet and ResNet: padding, groups, and windows that do not fit at the end.
TEST(ConvKernelTest, PaddingAndGroupsMatchReference) {
  for (const DType compute : kTypes) {
    CheckConv({8, 8, 16, 32, 3, 1, 1}, 3, compute);
    CheckConv({9, 7, 3, 16, 7, 2, 3}, 2, compute);
    CheckConv({8, 9, 16, 24, 1, 2, 0}, 2, compute);
    CheckConv({7, 6, 32, 64, 5, 1, 2, 2}, 2, compute);
    CheckConv({6, 6, 6, 4, 3, 2, 1, 2}, 3, compute);
    CheckConv({5, 5, 8, 8, 3, 1, 1, 8}, 2, compute);  // one channel per group
    CheckConv({1, 2, 3, 4, 5, 1, 2}, 2, compute);     // smaller than the kernel
  }
}

// The weight gradient is summed over a few items at a time: here more, and an odd rest.
TEST(ConvKernelTest, ManyItemsMatchReference) {
  for (const DType compute : kTypes) CheckConv({9, 9, 16, 12, 3, 1}, 35, compute);
}

// The implementation for processors without bf16 dot products.
TEST(ConvKernelTest, DnnlAloneMatchesReference) {
  CheckConv({10, 10, 4, 16, 3, 1}, 3, DType::kBF16, MakeDnnlConv);
  CheckConv({12, 12, 32, 64, 4, 2}, 2, DType::kBF16, MakeDnnlConv);
}

// An odd number of positions leaves half a pair, whose other half must not be looked at.
TEST(ConvKernelTest, Bf16WeightGradientNeverReadsPastLastPosition) {
  if (!BF16Available()) GTEST_SKIP() << "no bf16 on this processor";
  const ConvShape shape{4, 4, 2, 3, 2, 2};  // 2 x 2 positions; then 1 x 1
  for (const std::int64_t side : {4, 2}) {
    ConvShape s = shape;
    s.height = s.width = side;
    const std::int64_t inputs = side * side * 2, outputs = s.out_height() * s.out_width() * 3;
    Tensor x(DType::kBF16, {inputs + 64}), dz(DType::kBF16, {outputs + 64});
    for (auto& v : x.as<BF16>()) v.bits = 0x7fc0;  // NaN
    for (auto& v : dz.as<BF16>()) v.bits = 0x7fc0;
    for (std::int64_t i = 0; i < inputs; ++i) x.data<BF16>()[i].bits = 0x3f80;  // 1
    for (std::int64_t i = 0; i < outputs; ++i) dz.data<BF16>()[i].bits = 0x3f80;
    Tensor dw(DType::kF32, {3 * 2 * 2 * 2}), db(DType::kF32, {3});
    MakeConvKernel(s, {DType::kBF16})
        ->BackwardWeight(1, x.bytes().data(), dz.bytes().data(),
                         {dw.data<float>(), db.data<float>()}, false);
    for (const float g : dw.as<float>()) EXPECT_EQ(g, float(outputs / 3));
    for (const float g : db.as<float>()) EXPECT_EQ(g, float(outputs / 3));
  }
}

// First layers over few channels are computed in blocks of stride x stride.
TEST(ConvKernelTest, StridedFirstLayersMatchReference) {
  for (const DType compute : kTypes) {
    CheckConv({20, 20, 4, 32, 8, 4}, 1, compute);
    CheckConv({20, 28, 4, 32, 8, 4}, 5, compute);
    CheckConv({16, 12, 3, 8, 4, 2}, 3, compute);
    CheckConv({12, 12, 1, 8, 4, 4}, 2, compute);
    CheckConv({22, 21, 4, 32, 8, 4}, 2, compute);  // the last rows and columns are not used
  }
}

}  // namespace
}  // namespace troop
