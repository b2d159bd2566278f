// Networks with padding, max_pool and residual layers, against plain loops in f64.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "nn/layers/layers.h"
#include "nn/models/model.h"
#include "nn/models/q_network_spec.h"
#include "tests/nn/f64_reference.h"
#include "tests/nn/policy_cases.h"

namespace troop {
namespace {

using test::Row;
using test::Values;
using testing::HasSubstr;

constexpr std::int64_t kBatch = 3, kHeight = 6, kWidth = 5, kChannels = 2, kActions = 3;

EnvSpec PictureEnv() { return DiscreteEnv({DType::kF32, {kHeight, kWidth, kChannels}}, kActions); }
// IMPALA's section: a padded convolution, a pool, and two residual blocks.
ModelSetup DeepSetup() {
  ModelSetup setup;
  LayerConfig conv = ConvLayer(4, 3, 1);
  conv.padding = 1;
  conv.activation = Activation::kNone;
  setup.network.layers = {conv, PoolLayer(3, 2, 1), ResidualLayer(Activation::kNone),
                          ResidualLayer(Activation::kTanh), LinearLayer(7, Activation::kTanh)};
  setup.network.dueling = false;
  return setup;
}

// An image in f64, [height, width, channels]; zero outside.
struct Image {
  std::int64_t height, width, channels;
  std::vector<double> x;
  double At(std::int64_t i, std::int64_t j, std::int64_t c) const {
    if (i < 0 || j < 0 || i >= height || j >= width) return 0;
    return x[std::size_t((i * width + j) * channels + c)];
  }
  template <class F>
  Image Map(F f) const {
    Image out = *this;
    for (double& v : out.x) v = f(v);
    return out;
  }
};
double Relu(double x) { return std::max(x, 0.0); }

// A convolution of 3 x 3 that keeps height and width.
Image Convolve(const Image& in, const Values& values, const std::string& name,
               std::int64_t filters) {
  Image out{in.height, in.width, filters, {}};
  const double* const weight = values[name + ".weight"];
  for (std::int64_t i = 0; i < in.height; ++i) {
    for (std::int64_t j = 0; j < in.width; ++j) {
      for (std::int64_t f = 0; f < filters; ++f) {
        double sum = values[name + ".bias"][f];
        for (std::int64_t k = 0; k < 9 * in.channels; ++k) {
          const std::int64_t c = k % in.channels, place = k / in.channels;
          sum += weight[f * 9 * in.channels + k] * in.At(i + place / 3 - 1, j + place % 3 - 1, c);
        }
        out.x.push_back(sum);
      }
    }
  }
  return out;
}

// Windows of 3 x 3, 2 apart, that begin one pixel outside.
Image Pool(const Image& in) {
  Image out{(in.height + 1) / 2, (in.width + 1) / 2, in.channels, {}};
  for (std::int64_t i = 0; i < out.height; ++i) {
    for (std::int64_t j = 0; j < out.width; ++j) {
      for (std::int64_t c = 0; c < in.channels; ++c) {
        double most = -std::numeric_limits<double>::infinity();
        for (std::int64_t y = 2 * i - 1; y <= 2 * i + 1; ++y) {
          for (std::int64_t x = 2 * j - 1; x <= 2 * j + 1; ++x) {
            if (y >= 0 && x >= 0 && y < in.height && x < in.width)
              most = std::max(most, in.At(y, x, c));
          }
        }
        out.x.push_back(most);
      }
    }
  }
  return out;
}

Image Block(const Image& in, const Values& values, const std::string& name) {
  const Image first = Convolve(in.Map(Relu), values, name + ".conv0", in.channels);
  Image sum = Convolve(first.Map(Relu), values, name + ".conv1", in.channels);
  for (std::size_t i = 0; i < sum.x.size(); ++i) sum.x[i] += in.x[i];
  return sum;
}

// Outputs of DeepSetup for row b.
Row Reference(const Module& module, std::span<const double> value, const Tensor& rows,
              std::int64_t b) {
  const Values values(module, value);
  Image image{kHeight, kWidth, kChannels, {}};
  const auto row = rows.Rows(b, 1).as<float>();
  image.x.assign(row.begin(), row.end());
  image = Pool(Convolve(image, values, "layers.0", 4));
  image = Block(image, values, "layers.2");
  image = Block(image, values, "layers.3").Map([](double x) { return std::tanh(x); });
  Row hidden = test::Linear(values, "layers.4", image.x);
  for (double& x : hidden) x = std::tanh(x);
  return test::Linear(values, "head", hidden);
}

class DeepNetwork {
 public:
  DeepNetwork() : network_(*MakeNetwork(DeepSetup(), PictureEnv())) {
    value_.resize(std::size_t(ParameterCount(*network_)));
    InitParameters(*network_, 7, value_);
    Rng rng({3, Purpose::kTest});
    for (float& x : rows_.as<float>()) x = float(rng.Normal());
    plan_ = *network_->MakePlan({{rows_.spec()}});
    workspace_ = MutableBuffer::Zeros(plan_.workspace_bytes);
    cache_ = MutableBuffer::Zeros(plan_.cache_bytes);
  }
  const Module& module() const { return *network_; }
  std::span<const float> value() const { return value_; }
  const Tensor& rows() const { return rows_; }
  std::vector<float> Forward(bool keep, const Packed* packed = nullptr) {
    const Tensor out(DType::kF32, plan_.out[0].shape);
    const ConstTensor in(rows_);
    network_->Forward({.value = value_, .packed = packed, .workspace = workspace_.bytes()},
                      {&in, 1}, {&out, 1}, keep ? cache_.bytes() : Cache());
    return {out.as<float>().begin(), out.as<float>().end()};
  }
  std::vector<float> Backward(const std::vector<float>& given) {
    std::vector<float> gradient(value_.size());
    const Tensor dout(DType::kF32, plan_.out[0].shape);
    std::ranges::copy(given, dout.as<float>().begin());
    const ConstTensor in(rows_), dy(dout);
    network_->Backward({.value = value_, .gradient = gradient, .workspace = workspace_.bytes()},
                       {&in, 1}, {&dy, 1}, cache_.bytes(), {});
    return gradient;
  }

 private:
  const std::unique_ptr<Module> network_;
  const Tensor rows_{DType::kF32, {kBatch, kHeight, kWidth, kChannels}};
  std::vector<float> value_;
  Plan plan_;
  MutableBuffer workspace_, cache_;
};

TEST(ImageLayersTest, EqualLoops) {
  DeepNetwork network;
  const std::vector<double> value(network.value().begin(), network.value().end());
  for (const bool keep : {false, true}) {
    const std::vector<float> out = network.Forward(keep);
    for (std::int64_t b = 0; b < kBatch; ++b) {
      const Row want = Reference(network.module(), value, network.rows(), b);
      for (std::size_t a = 0; a < std::size_t(kActions); ++a)
        EXPECT_NEAR(out[std::size_t(b * kActions) + a], want[a], 1e-5) << b << ", " << a;
    }
  }
  std::vector<float> dout(std::size_t(kBatch * kActions));
  for (std::size_t i = 0; i < dout.size(); ++i) dout[i] = test::LossWeight(i);
  const auto loss = [&](std::span<const double> at) {
    double sum = 0;
    for (std::int64_t b = 0; b < kBatch; ++b) {
      const Row row = Reference(network.module(), at, network.rows(), b);
      for (std::size_t a = 0; a < row.size(); ++a)
        sum += double(test::LossWeight(std::size_t(b * kActions) + a)) * row[a];
    }
    return sum;
  };
  test::ExpectSlopes(network.module(), network.value(), network.Backward(dout), loss, 1e-3);
}

TEST(ImageLayersTest, Bf16StaysWithinRoundingError) {
  DeepNetwork network;
  const std::vector<float> want = network.Forward(false);
  const auto packed = network.module().MakePacked(Precision::kBF16);
  network.module().Pack(network.value(), packed.get());
  const std::vector<float> got = network.Forward(false, packed.get());
  for (std::size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got[i], want[i], 0.05) << i;
}

// One window for the whole image; without padding; NaN is the maximum.
TEST(ImageLayersTest, PoolTakesLargestOfWindow) {
  const auto pool = MakeMaxPool({.height = 2, .width = 2, .channels = 1, .kernel = 2});
  const Tensor in(DType::kF32, {3, 2, 2, 1}), out(DType::kF32, {3, 1, 1, 1});
  const float nan = std::nanf("");
  std::ranges::copy(std::vector<float>{-4, -1, -2, -3, 5, 5, 1, 1, 1, nan, 2, 3},
                    in.as<float>().begin());
  MutableBuffer cache = MutableBuffer::Zeros(pool->MakePlan({{in.spec()}})->cache_bytes);
  const ConstTensor x(in);
  pool->Forward({}, {&x, 1}, {&out, 1}, cache.bytes());
  EXPECT_EQ(out.as<float>()[0], -1);
  EXPECT_EQ(out.as<float>()[1], 5);
  EXPECT_TRUE(std::isnan(out.as<float>()[2]));
  // The gradient goes to the first of equal elements.
  const Tensor dx(DType::kF32, in.shape());
  std::ranges::copy(std::vector<float>{7, 8, 9}, out.as<float>().begin());
  const ConstTensor dy(out);
  pool->Backward({}, {&x, 1}, {&dy, 1}, cache.bytes(), {&dx, 1});
  EXPECT_THAT(dx.as<float>(), testing::ElementsAre(0, 7, 0, 0, 8, 0, 0, 0, 0, 9, 0, 0));
}

TEST(ImageLayersTest, ErrorsNameTheLayer) {
  const auto says = [](std::vector<LayerConfig> layers, const EnvSpec& env = PictureEnv()) {
    ModelSetup setup;
    setup.network.layers = std::move(layers);
    return MakeNetwork(setup, env).status().message();
  };
  EXPECT_THAT(says({PoolLayer(7, 1, 0)}), HasSubstr("network.layers[0].kernel = 7 is larger"));
  EXPECT_THAT(says({PoolLayer(3, 1, 2)}), HasSubstr("a padding of at most half the kernel"));
  EXPECT_THAT(says({PoolLayer(2, 1, 0)}, DiscreteEnv({DType::kF32, {4}}, 2)),
              HasSubstr("network.layers[0]: max_pool needs [height, width, channels]"));
  LayerConfig even = ResidualLayer(Activation::kNone);
  even.kernel = 2;
  EXPECT_THAT(says({even}), HasSubstr("residual needs an odd kernel, not 2"));
  const auto network = MakeNetwork(DeepSetup(), PictureEnv());
  EXPECT_THAT(QNetworkSpecOf(DeepSetup(), PictureEnv(), **network).status().message(),
              HasSubstr("only supported on the CPU"));
}

}  // namespace
}  // namespace troop
