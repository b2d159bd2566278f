#include "replay/codec/encoded_batch.h"
#include "core/config/enum_names.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tests/replay/drawn_maker.h"

namespace troop {
namespace {

constexpr std::size_t kHeaderBytes = 64;
const TrajectorySpec kSpec{.observation = {DType::kU8, {5, 7}}, .action = {DType::kI32, {}}};
const TrajectorySpec kSpecWithState{.observation = {DType::kF32, {3}},
                                    .action = {DType::kF32, {2}},
                                    .state = TensorSpec{DType::kF32, {4}}};

struct Case {
  NamedView view;
  Codec codec;
  bool state;
};

class DrawnBlockTest : public testing::TestWithParam<Case> {
 protected:
  MadeDrawn Make(int items, std::uint64_t seed = 1) {
    FrameCoder coder(codec_, spec_.observation.bytes());
    return MakeDrawn(spec_, view_, &coder, items, seed);
  }
  // Parses a copy of exactly the block's size, so that a sanitizer detects every out-of-bounds
  // read.
  Status Parse(std::span<const std::byte> block, EncodedBatch* drawn) {
    copy_ = std::make_unique<std::byte[]>(block.size());
    if (!block.empty()) std::memcpy(copy_.get(), block.data(), block.size());
    return ParseEncodedBatch(std::span<const std::byte>(copy_.get(), block.size()), spec_, view_,
                             codec_, drawn);
  }
  const ViewSpec view_ = GetParam().view.view;
  const Codec codec_ = GetParam().codec;
  const TrajectorySpec spec_ = GetParam().state ? kSpecWithState : kSpec;
  std::unique_ptr<std::byte[]> copy_;
};

void ExpectSame(const EncodedBatch& a, const EncodedBatch& b) {
  EXPECT_EQ(a.total, b.total);
  EXPECT_EQ(a.items, b.items);
  EXPECT_EQ(a.probability_min, b.probability_min);
  EXPECT_EQ(a.key, b.key);
  EXPECT_EQ(a.probability, b.probability);
  EXPECT_EQ(a.policy_version, b.policy_version);
  EXPECT_EQ(a.length, b.length);
  EXPECT_EQ(a.lead, b.lead);
  EXPECT_EQ(a.reward, b.reward);
  EXPECT_EQ(a.discount, b.discount);
  EXPECT_EQ(a.action, b.action);
  EXPECT_EQ(a.state, b.state);
  ASSERT_EQ(a.frame.size(), b.frame.size());
  for (std::size_t f = 0; f < a.frame.size(); ++f) {
    ASSERT_EQ(a.frame[f].bytes, b.frame[f].bytes) << f;
    EXPECT_EQ(std::memcmp(a.frame[f].data, b.frame[f].data, a.frame[f].bytes), 0) << f;
  }
}

TEST_P(DrawnBlockTest, RoundTripsPackedBlock) {
  for (const int items : {1, 2, 33}) {
    const MadeDrawn made = Make(items);
    const Buffer block = PackEncodedBatch(made.drawn, spec_, view_, codec_);
    EXPECT_EQ(block.size() % 64, 0u);
    EncodedBatch again;
    const Status status = Parse(block.bytes(), &again);
    ASSERT_TRUE(status.ok()) << status.ToString();
    ExpectSame(again, made.drawn);
    // And so is a smaller one into the same object.
    const MadeDrawn one = Make(1, 9);
    ASSERT_TRUE(Parse(PackEncodedBatch(one.drawn, spec_, view_, codec_).bytes(), &again).ok());
    ExpectSame(again, one.drawn);
  }
}

TEST_P(DrawnBlockTest, RoundTripsEmptyBlockWithTableTotals) {
  const MadeDrawn made = Make(0);
  const Buffer block = PackEncodedBatch(made.drawn, spec_, view_, codec_);
  EXPECT_EQ(block.size(), kHeaderBytes);
  EncodedBatch again;
  ASSERT_TRUE(Parse(block.bytes(), &again).ok());
  ExpectSame(again, made.drawn);
}

TEST_P(DrawnBlockTest, ParsesConsecutiveBlocks) {
  std::vector<MadeDrawn> made;
  std::vector<std::byte> message;
  for (int k = 0; k < 3; ++k) {
    made.push_back(Make(4 - k, std::uint64_t(k)));
    const std::size_t begin = message.size();
    message.resize(begin + PackedBytes(made.back().drawn, spec_, view_, codec_));
    PackEncodedBatch(made.back().drawn, spec_, view_, codec_, std::span(message).subspan(begin));
  }
  std::span<const std::byte> rest(message);
  for (const MadeDrawn& expected : made) {
    const Result<std::size_t> size = EncodedBatchBytes(rest);
    ASSERT_TRUE(size.ok());
    EncodedBatch drawn;
    ASSERT_TRUE(Parse(rest.first(*size), &drawn).ok());
    ExpectSame(drawn, expected.drawn);
    rest = rest.subspan(*size);
  }
  EXPECT_TRUE(rest.empty());
}

TEST_P(DrawnBlockTest, RejectsTruncatedOrExtendedBlock) {
  const MadeDrawn made = Make(3);
  const Buffer block = PackEncodedBatch(made.drawn, spec_, view_, codec_);
  std::vector<std::byte> longer(block.bytes().begin(), block.bytes().end());
  longer.resize(block.size() + 64);
  EncodedBatch drawn;
  EXPECT_EQ(Parse(longer, &drawn).code(), Code::kDataLoss);
  for (std::size_t size = 0; size < block.size(); ++size) {
    EXPECT_EQ(Parse(block.bytes().first(size), &drawn).code(), Code::kDataLoss) << size;
    // Cut, and the header agrees.
    std::vector<std::byte> cut(block.bytes().begin(), block.bytes().begin() + std::ptrdiff_t(size));
    const std::uint64_t said = size;
    if (size < kHeaderBytes) continue;
    std::memcpy(cut.data(), &said, sizeof said);
    EXPECT_EQ(Parse(cut, &drawn).code(), Code::kDataLoss) << size;
  }
}

// The fields of the header, each with every value that might overflow something.
TEST_P(DrawnBlockTest, RejectsInconsistentHeader) {
  const MadeDrawn made = Make(3);
  const Buffer block = PackEncodedBatch(made.drawn, spec_, view_, codec_);
  EncodedBatch drawn;
  const auto refused = [&](std::size_t at, auto value, const char* what) {
    std::vector<std::byte> bytes(block.bytes().begin(), block.bytes().end());
    auto there = value;
    std::memcpy(&there, bytes.data() + at, sizeof there);
    if (there == value) return;
    std::memcpy(bytes.data() + at, &value, sizeof value);
    EXPECT_EQ(Parse(bytes, &drawn).code(), Code::kDataLoss) << what << " " << value;
  };
  for (const std::uint64_t value :
       {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{4}, std::uint64_t{1} << 31,
        std::uint64_t{1} << 32, (std::uint64_t{1} << 32) - 1, ~std::uint64_t{0}, ~std::uint64_t{63},
        std::uint64_t{1} << 58}) {
    refused(0, value, "bytes");
    refused(16, value, "payload bytes");
    refused(8, std::uint32_t(value), "items");
    refused(12, std::uint32_t(value), "frames");
  }
  for (const double value :
       {-1.0, std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
    refused(24, value, "total");
    refused(40, value, "least probability");
  }
  refused(32, std::int64_t{-1}, "table's items");
}

TEST_P(DrawnBlockTest, RejectsItemsOutsideView) {
  const auto refused = [this](auto change) {
    MadeDrawn made = Make(3);
    change(&made.drawn);
    EncodedBatch drawn;
    return Parse(PackEncodedBatch(made.drawn, spec_, view_, codec_).bytes(), &drawn).code() ==
           Code::kDataLoss;
  };
  EXPECT_TRUE(refused([](EncodedBatch* drawn) { drawn->length[1] = 0; }));
  EXPECT_TRUE(refused([](EncodedBatch* drawn) { drawn->length[1] = -1; }));
  EXPECT_TRUE(refused([this](EncodedBatch* drawn) { drawn->length[2] = view_.length_max + 1; }));
  EXPECT_TRUE(refused([](EncodedBatch* drawn) { drawn->lead[0] = -1; }));
  EXPECT_TRUE(refused([this](EncodedBatch* drawn) { drawn->lead[0] = view_.lead_max() + 1; }));
  EXPECT_TRUE(
      refused([](EncodedBatch* drawn) { drawn->lead[0] = std::numeric_limits<int>::max(); }));
  EXPECT_TRUE(refused([](EncodedBatch* drawn) { drawn->probability[1] = 0; }));
  EXPECT_TRUE(refused([](EncodedBatch* drawn) { drawn->probability[1] = -0.5; }));
  EXPECT_TRUE(refused([](EncodedBatch* drawn) {
    drawn->probability[2] = std::numeric_limits<double>::quiet_NaN();
  }));
  EXPECT_TRUE(refused([](EncodedBatch* drawn) {
    drawn->probability[2] = std::numeric_limits<double>::infinity();
  }));
  EXPECT_TRUE(refused([](EncodedBatch* drawn) { drawn->probability[2] = 5e-324; }));
  EXPECT_TRUE(refused([](EncodedBatch* drawn) { drawn->frame.pop_back(); }));
  EXPECT_TRUE(refused([](EncodedBatch* drawn) { drawn->frame.push_back(drawn->frame[0]); }));
}

TEST_P(DrawnBlockTest, NeverReadsOutsideDamagedBlock) {
  const MadeDrawn made = Make(3);
  const Buffer block = PackEncodedBatch(made.drawn, spec_, view_, codec_);
  Rng rng({.run_seed = 3});
  EncodedBatch drawn;
  int accepted = 0;
  for (int i = 0; i < 3000; ++i) {
    std::vector<std::byte> bytes(block.bytes().begin(), block.bytes().end());
    const int hits = 1 + int(rng.Below(3));
    for (int hit = 0; hit < hits; ++hit) {
      bytes[rng.Below(std::uint32_t(bytes.size()))] ^= std::byte(1u << rng.Below(8));
    }
    if (!Parse(bytes, &drawn).ok()) continue;
    ++accepted;
    for (const EncodedBatch::Frame& frame : drawn.frame) {
      ASSERT_GE(frame.data, copy_.get());
      ASSERT_LE(frame.data + frame.bytes, copy_.get() + bytes.size());
    }
  }
  EXPECT_GT(accepted, 0);  // most bytes are values that may be anything
}

std::vector<Case> Cases() {
  std::vector<Case> cases;
  for (const NamedView& view : SomeViews()) {
    cases.push_back({view, Codec::kNone, false});
    cases.push_back({view, Codec::kLz4, true});
  }
  return cases;
}
INSTANTIATE_TEST_SUITE_P(Views, DrawnBlockTest, testing::ValuesIn(Cases()), [](const auto& info) {
  return std::string(info.param.view.name) + "_" + std::string(EnumName(info.param.codec));
});

}  // namespace
}  // namespace troop
