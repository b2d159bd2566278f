#include "kernels/elementwise/cast.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "core/base/philox.h"
#include "kernels/elementwise/cast_table.h"

namespace troop {
namespace {

// Odd sizes leave a tail on every instruction set.
constexpr std::int64_t kSize = 263;

std::vector<float> Floats() {
  Rng rng({1, Purpose::kTest});
  std::vector<float> x(kSize);
  for (float& v : x) v = float(rng.Normal());
  x[1] = 0;
  x[2] = -0.0f;
  x[3] = std::numeric_limits<float>::infinity();
  x[4] = std::numeric_limits<float>::quiet_NaN();
  x[5] = 3.4e38f;      // rounds to infinity in bf16
  x[6] = 1e-40f;       // denormal
  x[7] = 1.00390625f;  // halfway between two bf16: to even
  return x;
}

std::vector<BF16> Halves() {
  std::vector<BF16> x;
  for (const float v : Floats()) x.push_back(ToBF16(v));
  return x;
}

template <class T>
std::vector<std::byte> BytesOf(const std::vector<T>& x) {
  std::vector<std::byte> bytes(x.size() * sizeof(T));
  std::memcpy(bytes.data(), x.data(), bytes.size());
  return bytes;
}

TEST(BF16Test, RoundsToNearestEvenAndKeepsNaN) {
  EXPECT_EQ(ToBF16(1.0f).bits, 0x3f80);
  EXPECT_EQ(ToBF16(1.00390625f).bits, 0x3f80);  // halfway: the even one is below
  EXPECT_EQ(ToBF16(1.01171875f).bits, 0x3f82);  // halfway: the even one is above
  EXPECT_EQ(ToBF16(1.004f).bits, 0x3f81);
  EXPECT_EQ(ToBF16(3.4e38f).bits, 0x7f80);
  EXPECT_TRUE(std::isnan(ToF32(ToBF16(std::numeric_limits<float>::quiet_NaN()))));
  float late_nan;  // whose payload is only in the bits that are cut off
  const std::uint32_t bits = 0x7f800001;
  std::memcpy(&late_nan, &bits, 4);
  EXPECT_TRUE(std::isnan(ToF32(ToBF16(late_nan))));
}

TEST(ConvertTest, ScalesBytesExactly) {
  std::vector<std::uint8_t> x(256);
  for (int i = 0; i < 256; ++i) x[std::size_t(i)] = std::uint8_t(i);
  std::vector<float> y(256);
  ConvertScaled(
      {.n = 256, .x = x.data(), .x_dtype = DType::kU8, .scale = 1.0f / 255, .y = y.data()});
  for (int i = 0; i < 256; ++i) EXPECT_EQ(y[std::size_t(i)], float(i) * (1.0f / 255));
}

TEST(ConvertTest, EveryInstructionSetMatchesBitwise) {
  const auto f = Floats();
  const auto h = Halves();
  std::vector<std::uint8_t> u(kSize);
  for (std::int64_t i = 0; i < kSize; ++i) u[std::size_t(i)] = std::uint8_t(i * 37);
  const auto& plain = ConvertKernelsFor(CpuLevel::kPlain);
  for (const CpuLevel level : SupportedCpuLevels()) {
    SCOPED_TRACE(CpuLevelName(level));
    const auto& fast = ConvertKernelsFor(level);
    const std::pair<const void*, DType> sources[] = {
        {f.data(), DType::kF32}, {h.data(), DType::kBF16}, {u.data(), DType::kU8}};
    for (const auto& [x, dtype] : sources) {
      for (const DType to : {DType::kF32, DType::kBF16}) {
        std::vector<float> a(kSize), b(kSize);
        ConvertScaledArgs args{
            .n = kSize, .x = x, .x_dtype = dtype, .scale = 0.37f, .y = a.data(), .y_dtype = to};
        plain.convert_scaled(args);
        args.y = b.data();
        fast.convert_scaled(args);
        EXPECT_EQ(BytesOf(a), BytesOf(b));
      }
    }
    for (const auto activation : {Activation::kNone, Activation::kRelu, Activation::kTanh}) {
      for (const DType to : {DType::kF32, DType::kBF16}) {
        std::vector<float> a(kSize), b(kSize);
        ActivationBackwardArgs args{
            .activation = activation, .n = kSize, .y = f.data(), .dy = f.data(), .dz_dtype = to};
        args.dz = a.data();
        plain.activation_backward(args);
        args.dz = b.data();
        fast.activation_backward(args);
        EXPECT_EQ(BytesOf(a), BytesOf(b));
        args.dtype = DType::kBF16;
        args.y = args.dy = h.data();
        args.dz = a.data();
        plain.activation_backward(args);
        args.dz = b.data();
        fast.activation_backward(args);
        EXPECT_EQ(BytesOf(a), BytesOf(b));
      }
    }
    std::vector<float> a(kSize), b(kSize);
    plain.relu_forward(kSize, f.data(), a.data(), DType::kF32);
    fast.relu_forward(kSize, f.data(), b.data(), DType::kF32);
    EXPECT_EQ(BytesOf(a), BytesOf(b));
  }
}

TEST(ConvertTest, ActivationsAndDerivativesMatchDefinitions) {
  const std::vector<float> z = {-2, -0.5f, 0, 0.5f, 2};
  std::vector<float> y(5), d(5), ones(5, 1.0f);
  ActivationForward(Activation::kRelu, 5, z.data(), y.data(), DType::kF32);
  EXPECT_EQ(y, (std::vector<float>{0, 0, 0, 0.5f, 2}));
  ActivationBackwardArgs args{
      .activation = Activation::kRelu, .n = 5, .y = y.data(), .dy = ones.data(), .dz = d.data()};
  ActivationBackward(args);
  EXPECT_EQ(d, (std::vector<float>{0, 0, 0, 1, 1}));
  ActivationForward(Activation::kTanh, 5, z.data(), y.data(), DType::kF32);
  args.activation = Activation::kTanh;
  ActivationBackward(args);
  for (std::size_t i = 0; i < 5; ++i) {
    EXPECT_FLOAT_EQ(y[i], std::tanh(z[i]));
    EXPECT_NEAR(d[i], 1 / (std::cosh(z[i]) * std::cosh(z[i])), 1e-6);
  }
}

}  // namespace
}  // namespace troop
