#include "replay/table/insert_checker.h"

#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <vector>

#include "tests/replay/table_world.h"

namespace troop {
namespace {

constexpr float kInfinite = std::numeric_limits<float>::infinity();

TEST(InsertCheckerTest, ViewsPointIntoTheColumns) {
  InsertChecker checker(TinyOptions());
  const std::vector<EncodedChunk> chunks{TinyChunk(1, 4, 3), TinyChunk(2, 0, 5)};
  const auto views = checker.View(chunks);
  ASSERT_TRUE(views.ok());
  ASSERT_EQ(views->size(), 2u);
  EXPECT_EQ((*views)[0].first_frame, 4u);
  EXPECT_EQ((*views)[1].frames, 5u);
  EXPECT_EQ((*views)[1].columns.reward, chunks[1].reward.data());
  EXPECT_EQ((*views)[1].encoded_bytes, 5 * 8u);
  for (const auto& view : *views) EXPECT_TRUE(checker.CheckFrames(view).ok());
}

TEST(InsertCheckerTest, ColumnOfWrongSizeIsRefused) {
  InsertChecker checker(TinyOptions());
  const auto refused = [&checker](const std::function<void(EncodedChunk*)>& change) {
    EncodedChunk chunk = TinyChunk(1, 0, 3);
    change(&chunk);
    return !checker.View({&chunk, 1}).ok();
  };
  EXPECT_FALSE(refused([](auto*) {}));
  const Buffer short_column = Buffer::Copy(std::vector<std::byte>(2));
  EXPECT_TRUE(refused([&](auto* c) { c->action = short_column; }));
  EXPECT_TRUE(refused([&](auto* c) { c->reward = short_column; }));
  EXPECT_TRUE(refused([&](auto* c) { c->discount = short_column; }));
  EXPECT_TRUE(refused([&](auto* c) { c->final = short_column; }));
  EXPECT_TRUE(refused([&](auto* c) { c->frame_bytes = short_column; }));
  EXPECT_TRUE(refused([&](auto* c) { c->observation = short_column; }));
  EXPECT_TRUE(refused([](auto* c) { c->frames = 0; }));
  EXPECT_TRUE(refused([](auto* c) { c->first_frame = (std::uint64_t{1} << 62) + 1; }));
}

// The sum of the frame sizes exceeds 32 bits.
TEST(InsertCheckerTest, FrameSizesAreSummedWith64Bits) {
  TableOptions options = TinyOptions();
  options.codec = Codec::kLz4;
  InsertChecker checker(options);
  EncodedChunk chunk = EncodeFrames(options.trajectory, options.codec, 1, PlainFrames(0, 2));
  const std::uint32_t sizes[2] = {0x80000000u,
                                  0x80000000u + std::uint32_t(chunk.observation.size())};
  chunk.frame_bytes = Buffer::Copy(std::as_bytes(std::span(sizes)));
  EXPECT_FALSE(checker.View({&chunk, 1}).ok());
}

TEST(InsertCheckerTest, FrameValuesAreChecked) {
  InsertChecker checker(TinyOptions());
  const auto accepted = [&checker](PlainFrame frame) {
    const EncodedChunk chunk = EncodeFrames(TinySpec(), Codec::kNone, 1, {frame});
    const auto views = checker.View({&chunk, 1});
    return views.ok() && checker.CheckFrames(views->front()).ok();
  };
  EXPECT_TRUE(accepted({.reward = -3, .discount = 0}));
  EXPECT_FALSE(accepted({.reward = kInfinite}));
  EXPECT_FALSE(accepted({.discount = 1.5f}));
  EXPECT_FALSE(accepted({.discount = -0.1f}));
}

TEST(InsertCheckerTest, TruncatedFrameIsRefused) {
  TableOptions options = TinyOptions();
  options.codec = Codec::kLz4;
  InsertChecker checker(options);
  EncodedChunk chunk = EncodeFrames(options.trajectory, options.codec, 1, PlainFrames(0, 1));
  const auto whole = checker.View({&chunk, 1});
  ASSERT_TRUE(whole.ok());
  EXPECT_TRUE(checker.CheckFrames(whole->front()).ok());
  const auto size = std::uint32_t(chunk.observation.size() - 1);
  chunk.frame_bytes = Buffer::Copy(std::as_bytes(std::span(&size, 1)));
  chunk.observation = Buffer::Copy(std::span(chunk.observation.data(), size));
  const auto truncated = checker.View({&chunk, 1});
  ASSERT_TRUE(truncated.ok());
  EXPECT_FALSE(checker.CheckFrames(truncated->front()).ok());
}

TEST(InsertCheckerTest, ItemPropertiesAreChecked) {
  TableOptions options = TinyOptions();
  options.view = {.kind = ViewSpec::Kind::kSequence, .length_max = 3, .burn_in = 2};
  const InsertChecker checker(options);
  const auto accepted = [&checker](const std::function<void(Item*)>& change) {
    Item item = TinyItems(1, 0, 1)[0];
    change(&item);
    return checker.CheckItem(item).ok();
  };
  EXPECT_TRUE(accepted([](auto*) {}));
  EXPECT_TRUE(accepted([](auto* i) { i->length = 3; }));
  EXPECT_FALSE(accepted([](auto* i) { i->length = 0; }));
  EXPECT_FALSE(accepted([](auto* i) { i->length = 4; }));
  EXPECT_TRUE(accepted([](auto* i) { i->burn_in = 2; }));
  EXPECT_FALSE(accepted([](auto* i) { i->burn_in = 3; }));
  EXPECT_FALSE(accepted([](auto* i) { i->priority = -1; }));
  EXPECT_FALSE(accepted([](auto* i) { i->priority = kInfinite; }));
  EXPECT_FALSE(accepted([](auto* i) { i->policy_version = ~std::uint64_t{0}; }));
  EXPECT_FALSE(accepted([](auto* i) { i->state = Buffer::Copy(std::vector<std::byte>(4)); }));
}

}  // namespace
}  // namespace troop
