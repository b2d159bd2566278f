#include "paramserver/codec/gradient_codec.h"
#include "core/config/enum_names.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>

#include "core/base/philox.h"
#include "net/wire/codec.h"

namespace troop {
namespace {

std::vector<CodecOptions> AllCodecs() {
  return {{.codec = GradientCodec::kNone},
          {.codec = GradientCodec::kFp16},
          {.codec = GradientCodec::kBf16},
          {.codec = GradientCodec::kTopK, .keep = 0.05},
          {.codec = GradientCodec::kTopK, .keep = 1},
          {.codec = GradientCodec::kStrom, .threshold = 1.5f}};
}

std::vector<float> Random(std::size_t n, std::uint64_t seed) {
  Rng rng({seed, Purpose::kTest});
  std::vector<float> x(n);
  for (float& v : x) v = float(rng.Normal());
  return x;
}

CodedGradient Encode(GradientEncoder* encoder, std::span<const float> gradient) {
  auto coded = encoder->Encode(gradient);
  EXPECT_TRUE(coded.ok()) << coded.status().ToString();
  return *coded;
}

// Decodes a gradient as it arrives over the wire.
Result<GradientPayload> Receive(const CodedGradient& coded, std::int64_t elements) {
  auto body = DecodeBody<CodedGradient>(EncodeBody(coded));
  if (!body.ok()) return body.status();
  body->payload = coded.payload;
  return GradientPayload::Parse(*body, elements);
}

std::vector<float> Decode(const CodedGradient& coded) {
  std::vector<float> out(std::size_t(coded.elements));
  const auto payload = Receive(coded, coded.elements);
  EXPECT_TRUE(payload.ok()) << payload.status().ToString();
  if (payload.ok()) payload->AddTo(1, out);
  return out;
}

// The promise of error feedback, after every step.
TEST(GradientCodecTest, SentPlusResidualEqualsSumOfGradients) {
  constexpr std::size_t kCount = 1000;
  for (const CodecOptions& options : AllCodecs()) {
    GradientEncoder encoder(options, kCount);
    std::vector<double> sent(kCount), sum(kCount);
    for (std::uint64_t step = 0; step < 50; ++step) {
      const std::vector<float> gradient = Random(kCount, step);
      const std::vector<float> out = Decode(Encode(&encoder, gradient));
      for (std::size_t i = 0; i < kCount; ++i) {
        sent[i] += double(out[i]);
        sum[i] += double(gradient[i]);
        const double kept = encoder.residual().empty() ? 0 : double(encoder.residual()[i]);
        // One f32 rounding a step of numbers below 16.
        ASSERT_NEAR(sent[i] + kept, sum[i], 1e-6 * double(step + 1))
            << EnumName(options.codec) << " at " << i;
      }
    }
  }
}

TEST(GradientCodecTest, EachCodecSendsExpectedValues) {
  const std::vector<float> gradient{0, -3, 0.25f, 1, -1, 3, 1e-9f, 1};
  const auto sent = [&](const CodecOptions& options) {
    GradientEncoder encoder(options, 8);
    return Decode(Encode(&encoder, gradient));
  };
  using Floats = std::vector<float>;
  EXPECT_EQ(sent({.codec = GradientCodec::kNone}), gradient);
  EXPECT_EQ(sent({.codec = GradientCodec::kFp16}), (Floats{0, -3, 0.25f, 1, -1, 3, 0, 1}));
  EXPECT_EQ(sent({.codec = GradientCodec::kBf16})[1], -3);
  // The first of several equal magnitudes is kept.
  EXPECT_EQ(sent({.codec = GradientCodec::kTopK, .keep = 3.0 / 8}),
            (Floats{0, -3, 0, 1, 0, 3, 0, 0}));
  EXPECT_EQ(sent({.codec = GradientCodec::kTopK, .keep = 1e-6}), (Floats{0, -3, 0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(sent({.codec = GradientCodec::kTopK, .keep = 1}), gradient);
  EXPECT_EQ(sent({.codec = GradientCodec::kStrom, .threshold = 1}),
            (Floats{0, -1, 0, 1, -1, 1, 0, 1}));
}

TEST(GradientCodecTest, EncodesEmptyAndZeroGradientsCompactly) {
  for (const CodecOptions& options : AllCodecs()) {
    GradientEncoder none(options, 0);
    EXPECT_EQ(Encode(&none, {}).payload.size(), 0u);
    GradientEncoder zeros(options, 100);
    const CodedGradient coded = Encode(&zeros, std::vector<float>(100));
    EXPECT_EQ(Decode(coded), std::vector<float>(100));
    if (options.codec == GradientCodec::kTopK || options.codec == GradientCodec::kStrom) {
      EXPECT_EQ(coded.entries, 0);
    }
  }
}

// Rows of a linear model: a ratio of 1 sends all that is not zero, exactly, in at most the 4 bytes
// of an index and 4 of a value each.
TEST(GradientCodecTest, TopKOfAllSendsNoZeros) {
  constexpr std::size_t kWide = 100000;
  std::vector<float> gradient(kWide);
  for (std::size_t i = 0; i < kWide; i += 97) gradient[i] = 0.1f * float(i + 1);
  GradientEncoder encoder({.codec = GradientCodec::kTopK, .keep = 1}, kWide);
  const CodedGradient coded = Encode(&encoder, gradient);
  EXPECT_EQ(coded.entries, 1031);
  EXPECT_LE(coded.payload.size(), 1031u * 8);
  EXPECT_GE(coded.payload.size(), 1031u * 4);
  EXPECT_EQ(Decode(coded), gradient);
  EXPECT_TRUE(std::ranges::all_of(encoder.residual(), [](float r) { return r == 0; }));
}

TEST(GradientCodecTest, KeepsOverflowOfHalvesInResidual) {
  GradientEncoder fp16({.codec = GradientCodec::kFp16}, 2);
  EXPECT_EQ(Decode(Encode(&fp16, std::vector<float>{1e5f, -1e6f}))[0], 65504);
  EXPECT_EQ(fp16.residual()[0], 1e5f - 65504);
  EXPECT_EQ(Decode(Encode(&fp16, std::vector<float>{0, 0}))[1], -65504);
  GradientEncoder bf16({.codec = GradientCodec::kBf16}, 1);
  const float most = std::numeric_limits<float>::max();
  EXPECT_TRUE(std::isfinite(Decode(Encode(&bf16, std::vector<float>{most}))[0]));
}

TEST(GradientCodecTest, RejectsNonFiniteGradientAndKeepsResidual) {
  for (const CodecOptions& options : AllCodecs()) {
    GradientEncoder encoder(options, 3);
    Encode(&encoder, std::vector<float>{0.1f, 0.3f, -0.7f});
    const std::vector<float> before(encoder.residual().begin(), encoder.residual().end());
    for (const float bad :
         {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
      const Status status = encoder.Encode(std::vector<float>{1, bad, 1}).status();
      EXPECT_EQ(status.code(), Code::kDataLoss);
      EXPECT_NE(status.message().find("element 1"), std::string::npos);
    }
    EXPECT_TRUE(std::ranges::equal(encoder.residual(), before));
  }
}

// 1 bit and a gap: 351 times smaller than f32 at a density of 1e-2 (8.11 + 1 bits an entry), 2,525
// at 1e-3.
TEST(GradientCodecTest, StromReachesDocumentedCompression) {
  for (const auto& [density, want] :
       std::vector<std::pair<double, double>>{{1e-2, 351}, {1e-3, 2525}}) {
    constexpr std::size_t kCount = 2000000;
    Rng rng({5, Purpose::kTest});
    std::vector<float> gradient(kCount);
    for (float& g : gradient) g = rng.UniformF32() < density ? 2.0f : 0.5f;
    GradientEncoder encoder({.codec = GradientCodec::kStrom, .threshold = 1}, kCount);
    const CodedGradient coded = Encode(&encoder, gradient);
    EXPECT_NEAR(4.0 * kCount / double(coded.payload.size()), want, 0.06 * want);
  }
}

TEST(GradientCodecTest, AddsWeightedSumsAndKeepsUnsentElements) {
  for (const CodecOptions& options : AllCodecs()) {
    GradientEncoder encoder(options, 300);
    const CodedGradient coded = Encode(&encoder, Random(300, 1));
    const std::vector<float> plain = Decode(coded);
    std::vector<float> sum = Random(300, 2);
    const std::vector<float> before = sum;
    GradientPayload::Parse(coded, 300).value().AddTo(0.5f, sum);
    for (std::size_t i = 0; i < 300; ++i) EXPECT_EQ(sum[i], before[i] + 0.5f * plain[i]);
  }
}

// A quadratic: every codec comes to where plain descent comes. What is not sent yet keeps Strom's
// weights a step of learning rate times threshold away, 0.05.
TEST(GradientCodecTest, DescentWithErrorFeedbackReachesMinimum) {
  constexpr std::size_t kCount = 40;
  const std::vector<float> target = Random(kCount, 9);
  for (CodecOptions options : AllCodecs()) {
    options.threshold = 5;
    GradientEncoder encoder(options, kCount);
    std::vector<float> w(kCount), gradient(kCount);
    for (int step = 0; step < 3000; ++step) {
      for (std::size_t i = 0; i < kCount; ++i) {
        gradient[i] = float(1 + i % 4) * (w[i] - target[i]);
      }
      const std::vector<float> sent = Decode(Encode(&encoder, gradient));
      for (std::size_t i = 0; i < kCount; ++i) w[i] -= 0.01f * sent[i];
    }
    for (std::size_t i = 0; i < kCount; ++i) {
      const double far = options.codec == GradientCodec::kStrom ? 0.051 : 0.01;
      EXPECT_NEAR(w[i], target[i], far) << EnumName(options.codec);
    }
  }
}

TEST(GradientCodecTest, RejectsDamageWithReason) {
  const auto refused = [](const CodedGradient& good, const char* want,
                          const std::function<void(CodedGradient&)>& damage) {
    CodedGradient coded = good;
    damage(coded);
    const Status status = Receive(coded, 64).status();
    EXPECT_EQ(status.code(), Code::kDataLoss);
    EXPECT_NE(status.message().find(want), std::string::npos) << status.ToString();
  };
  const auto set = [](CodedGradient& coded, std::size_t at, std::uint32_t bits) {
    MutableBuffer bytes(coded.payload.size());
    std::ranges::copy(coded.payload.bytes(), bytes.data());
    std::memcpy(bytes.data() + at, &bits, sizeof bits);
    coded.payload = std::move(bytes).Freeze();
  };
  for (const CodecOptions& options : AllCodecs()) {
    GradientEncoder encoder(options, 64);
    const CodedGradient good = Encode(&encoder, Random(64, 3));
    refused(good, "must have 64", [](auto& c) { c.elements = 65; });
    refused(good, "", [](auto& c) { c.payload = c.payload.Slice(0, c.payload.size() - 1); });
    refused(good, "", [](auto& c) { c.codec = GradientCodec(5); });
    refused(good, "", [](auto& c) { c.entries = -1; });
    refused(good, "", [](auto& c) { c.entries = std::int64_t{1} << 40; });
    refused(good, "", [](auto& c) { c.rice = 200; });
    refused(good, "threshold", [](auto& c) { c.threshold = -1; });
    refused(good, "threshold",
            [](auto& c) { c.threshold = std::numeric_limits<float>::quiet_NaN(); });
    if (options.codec == GradientCodec::kStrom) {
      refused(good, "threshold", [](auto& c) { c.threshold = 0; });
      continue;
    }
    const bool halves = options.codec == GradientCodec::kFp16;
    refused(good, options.codec == GradientCodec::kNone ? "element 0 is inf" : "is not finite",
            [&](auto& c) {
              set(c, 0, halves ? 0x7c007c00u : 0x7f807f80u);  // infinity: fp16 twice, bf16 twice
              if (c.codec != GradientCodec::kFp16 && c.codec != GradientCodec::kBf16) {
                set(c, 0, 0x7f800000u);
              }
            });
  }
}

TEST(GradientCodecTest, RejectsOptionsOutOfRange) {
  using C = GradientCodec;
  for (const CodecOptions& bad :
       {CodecOptions{.codec = C::kTopK, .keep = 0}, CodecOptions{.codec = C::kTopK, .keep = 1.5},
        CodecOptions{.codec = C::kTopK, .keep = std::nan("")},
        CodecOptions{.codec = C::kStrom, .threshold = 0},
        CodecOptions{.codec = C::kStrom, .threshold = INFINITY}}) {
    EXPECT_EQ(CheckCodecOptions(bad).code(), Code::kInvalidArgument);
  }
  for (int codec = 0; codec < 5; ++codec) {
    EXPECT_EQ(*ParseEnum<GradientCodec>(EnumName(C(codec))), C(codec));
  }
  EXPECT_FALSE(ParseEnum<GradientCodec>("zip").has_value());
}

}  // namespace
}  // namespace troop
