#include "nn/io/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "core/base/philox.h"

namespace troop {
namespace {

using ::testing::HasSubstr;

Tensor Numbers(DType dtype, const Shape& shape) {
  Tensor tensor(dtype, shape);
  Rng rng({1, Purpose::kTest, std::uint64_t(dtype)});
  for (auto& b : tensor.bytes()) b = std::byte(rng.Below(256));
  return tensor;
}

TensorFile Example() {
  TensorFile file;
  file.tensors["layers.0.weight"] = Numbers(DType::kF32, {3, 4});
  file.tensors["bytes"] = Numbers(DType::kU8, {7});
  file.tensors["counts"] = Numbers(DType::kI64, {2, 1, 2});
  file.tensors["half"] = Numbers(DType::kBF16, {5});
  file.tensors["scalar"] = Numbers(DType::kF64, {});
  file.tensors["nothing"] = Numbers(DType::kF32, {0, 4});
  file.metadata["config"] = "name = \"run\"\nseed = 1\t\\ ü \x01";
  return file;
}

Buffer FileOf(const std::string& header, const std::string& data) {
  std::string bytes(8, '\0');
  const std::uint64_t length = header.size();
  std::memcpy(bytes.data(), &length, 8);
  return Buffer::Copy(bytes + header + data);
}

std::string ErrorOf(const std::string& header, const std::string& data) {
  const auto file = DecodeSafetensors(FileOf(header, data));
  if (file.ok()) return "ok";
  EXPECT_EQ(file.status().code(), Code::kDataLoss);
  return file.status().message();
}

TEST(SafetensorsTest, RoundTripsTensorsAndMetadata) {
  const TensorFile file = Example();
  const auto decoded = DecodeSafetensors(EncodeSafetensors(file));
  ASSERT_TRUE(decoded.ok()) << decoded.status().ToString();
  EXPECT_EQ(decoded->metadata, file.metadata);
  ASSERT_EQ(decoded->tensors.size(), file.tensors.size());
  for (const auto& [name, tensor] : file.tensors) {
    const ConstTensor& got = decoded->tensors.at(name);
    EXPECT_EQ(got.spec(), tensor.spec()) << name;
    EXPECT_TRUE(std::ranges::equal(got.bytes(), tensor.bytes())) << name;
  }
}

TEST(SafetensorsTest, RoundTripsEmptyFile) {
  const auto decoded = DecodeSafetensors(EncodeSafetensors({}));
  ASSERT_TRUE(decoded.ok());
  EXPECT_TRUE(decoded->tensors.empty());
}

TEST(SafetensorsTest, TensorsShareBuffer) {
  const Buffer bytes = EncodeSafetensors(Example());
  const auto decoded = DecodeSafetensors(bytes);
  ASSERT_TRUE(decoded.ok());
  for (const auto& [name, tensor] : decoded->tensors) {
    if (tensor.elements() == 0) continue;
    EXPECT_GE(tensor.bytes().data(), bytes.data()) << name;
    EXPECT_LT(tensor.bytes().data(), bytes.data() + bytes.size()) << name;
  }
}

TEST(SafetensorsTest, CopiesMisalignedTensors) {
  // One byte, then an f32 at offset 1.
  const auto file =
      DecodeSafetensors(FileOf(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                               R"("b":{"dtype":"F32","shape":[1],"data_offsets":[1,5]}})",
                               std::string("\x07\0\0\x80\x3f", 5)));
  ASSERT_TRUE(file.ok()) << file.status().ToString();
  EXPECT_EQ(file->tensors.at("a").data<std::uint8_t>()[0], 7);
  EXPECT_EQ(file->tensors.at("b").data<float>()[0], 1.0f);
}

// Written by the Python package: save({"w": float32 [[1, 2]], "n": int64 [3]}, {"k": "v"}).
TEST(SafetensorsTest, ReadsFilesOfPythonPackage) {
  const std::string header =
      R"({"__metadata__":{"k":"v"},"n":{"dtype":"I64","shape":[1],"data_offsets":[0,8]},)"
      R"("w":{"dtype":"F32","shape":[1,2],"data_offsets":[8,16]}}  )";
  const auto file = DecodeSafetensors(
      FileOf(header, std::string("\x03\0\0\0\0\0\0\0\0\0\x80\x3f\0\0\0\x40", 16)));
  ASSERT_TRUE(file.ok()) << file.status().ToString();
  EXPECT_EQ(file->metadata.at("k"), "v");
  EXPECT_EQ(file->tensors.at("n").data<std::int64_t>()[0], 3);
  EXPECT_EQ(file->tensors.at("w").data<float>()[1], 2.0f);
}

// All numbers of half precision, at an odd address, against the definition of IEEE 754.
TEST(SafetensorsTest, WidensHalfPrecisionExactly) {
  std::string data = "b";
  for (int half = 0; half < 1 << 16; ++half) {
    data += char(half & 255);
    data += char(half >> 8);
  }
  const auto file = DecodeSafetensors(
      FileOf(R"({"b":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
             R"("h":{"dtype":"F16","shape":[256,256],"data_offsets":[1,131073]}})",
             data));
  ASSERT_TRUE(file.ok()) << file.status().ToString();
  const ConstTensor& wide = file->tensors.at("h");
  EXPECT_EQ(wide.spec(), (TensorSpec{DType::kF32, {256, 256}}));
  for (int half = 0; half < 1 << 16; ++half) {
    const float got = wide.data<float>()[half];
    const int exponent = half >> 10 & 31, fraction = half & 1023;
    EXPECT_EQ(std::signbit(got), half >= 1 << 15) << half;
    if (exponent == 31) {
      EXPECT_TRUE(fraction == 0 ? std::isinf(got) : std::isnan(got)) << half;
      continue;
    }
    const double size =
        exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
    EXPECT_EQ(double(std::abs(got)), size) << half;
  }
}

TEST(SafetensorsTest, DecodesEscapesInNames) {
  const auto file = DecodeSafetensors(FileOf(
      R"({"a\"\\\/\n\u00fc\ud83d\ude00":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", "x"));
  ASSERT_TRUE(file.ok()) << file.status().ToString();
  EXPECT_EQ(file->tensors.begin()->first, "a\"\\/\nü😀");
}

TEST(SafetensorsTest, RejectsDamageWithReason) {
  EXPECT_THAT(ErrorOf("", ""), HasSubstr("unexpected end of input"));
  EXPECT_THAT(ErrorOf("[]", ""), HasSubstr("not a JSON object"));
  EXPECT_THAT(ErrorOf("{} x", ""), HasSubstr("byte 3: syntax error"));
  EXPECT_THAT(ErrorOf(R"({"a":1})", ""), HasSubstr("\"dtype\" is missing or not a string"));
  EXPECT_THAT(ErrorOf(R"({"a":{"dtype":"F32","shape":[1]}})", ""),
              HasSubstr("\"data_offsets\" is not an array"));
  EXPECT_THAT(ErrorOf(R"({"a":{"dtype":"F8_E4M3","shape":[2],"data_offsets":[0,2]}})", "xx"),
              HasSubstr("dtype \"F8_E4M3\""));
  EXPECT_THAT(ErrorOf(R"({"a":{"dtype":"F16","shape":[1],"data_offsets":[0,4]}})", "xxxx"),
              HasSubstr("needs 2 bytes but has 4"));
  EXPECT_THAT(ErrorOf(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", "xxxx"),
              HasSubstr("needs 8 bytes but has 4"));
  EXPECT_THAT(ErrorOf(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", "xx"),
              HasSubstr("describes 1 bytes"));
  EXPECT_THAT(ErrorOf(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})", "xx"),
              HasSubstr("expected to begin at 0"));
  EXPECT_THAT(ErrorOf(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[5,1]}})", "x"),
              HasSubstr("expected to begin at 0"));
  EXPECT_THAT(
      ErrorOf(R"({"a":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,0]}})", ""),
      HasSubstr("overflows"));
  EXPECT_THAT(ErrorOf(R"({"a":{"dtype":"U8","shape":[1,1,1,1,1,1,1],"data_offsets":[0,1]}})", "x"),
              HasSubstr("7 dimensions"));
  EXPECT_THAT(
      ErrorOf(R"({"a":{"dtype":"U8","shape":[99999999999999999999],"data_offsets":[0,1]}})", "x"),
      HasSubstr("not a non-negative integer"));
  EXPECT_THAT(ErrorOf(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                      R"("a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})",
                      "x"),
              HasSubstr("duplicate key"));
}

TEST(SafetensorsTest, RejectsInvalidHeaderLength) {
  for (const std::uint64_t length : {std::uint64_t{9}, std::uint64_t{1} << 40, ~std::uint64_t{0}}) {
    std::string bytes(8 + 8, '{');
    std::memcpy(bytes.data(), &length, 8);
    const auto file = DecodeSafetensors(Buffer::Copy(bytes));
    ASSERT_FALSE(file.ok());
    EXPECT_EQ(file.status().code(), Code::kDataLoss);
  }
  EXPECT_FALSE(DecodeSafetensors(Buffer::Copy("1234567")).ok());
}

// Any single wrong byte gives an error or a file, never a crash or a read outside (asan).
TEST(SafetensorsTest, SurvivesTruncationAndFlippedBytes) {
  const Buffer whole = EncodeSafetensors(Example());
  for (std::size_t size = 0; size < whole.size(); ++size) {
    const auto file = DecodeSafetensors(Buffer::Copy(whole.bytes().first(size)));
    EXPECT_FALSE(file.ok()) << size;
  }
  Rng rng({3, Purpose::kTest});
  for (int i = 0; i < 2000; ++i) {
    MutableBuffer copy(whole.size());
    std::memcpy(copy.data(), whole.data(), whole.size());
    copy.data()[rng.Below(std::uint32_t(whole.size()))] ^= std::byte(1 + rng.Below(255));
    const auto file = DecodeSafetensors(std::move(copy).Freeze());
    if (!file.ok()) {
      EXPECT_EQ(file.status().code(), Code::kDataLoss);
    }
  }
}

}  // namespace
}  // namespace troop
