#include "replay/codec/batch_decoder.h"
#include "core/config/enum_names.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fmt/core.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "replay/codec/decode_pool.h"
#include "replay/storage/nontemporal_copy.h"
#include "tests/replay/drawn_maker.h"

namespace troop {
namespace {

using Bytes = std::vector<std::byte>;

const TrajectorySpec kSmall{.observation = {DType::kF32, {5}}, .action = {DType::kI32, {}}};
const TrajectorySpec kWithState{.observation = {DType::kU8, {6, 7}},
                                .action = {DType::kF32, {2}},
                                .state = TensorSpec{DType::kF32, {3}}};
const TrajectorySpec kLarge{.observation = {DType::kU8, {84, 84}}, .action = {DType::kI32, {}}};

std::vector<EncodedBatch> DrawnOf(const std::vector<MadeDrawn>& made) {
  std::vector<EncodedBatch> parts;
  for (const MadeDrawn& part : made) parts.push_back(part.drawn);
  return parts;
}

Bytes RowOf(const Tensor& tensor, std::size_t row, std::int64_t rows) {
  const std::size_t bytes = tensor.bytes().size() / std::size_t(rows);
  const std::byte* const begin = tensor.bytes().data() + row * bytes;
  return {begin, begin + bytes};
}

// `count` frames of an item that end in its position `last`, zeros where it has none.
Bytes FramesUpTo(const std::vector<Bytes>& frames, int last, int count) {
  Bytes row;
  for (int p = last - count + 1; p <= last; ++p) {
    const Bytes zeros(frames[0].size());
    const bool there = p >= 0 && p < int(frames.size());
    const Bytes& frame = there ? frames[std::size_t(p)] : zeros;
    row.insert(row.end(), frame.begin(), frame.end());
  }
  return row;
}

// Every value of the batch, one at a time, from what the items were made of.
void ExpectDecoded(const SampleBatch& batch, const std::vector<MadeDrawn>& made,
                   const TrajectorySpec& spec, const ViewSpec& view) {
  const bool sequence = view.kind == ViewSpec::Kind::kSequence;
  std::int64_t rows = 0;
  for (const MadeDrawn& part : made) rows += part.drawn.size();
  ASSERT_EQ(batch.size(), rows);
  const auto steps = std::size_t(view.steps());
  const std::size_t action_bytes = spec.action.bytes() * (sequence ? steps : 1);
  std::size_t row = 0;
  for (const MadeDrawn& part : made) {
    const EncodedBatch& drawn = part.drawn;
    for (std::size_t i = 0; i < drawn.key.size(); ++i, ++row) {
      EXPECT_EQ(std::uint64_t{batch.key[row].generation} << 32 | batch.key[row].slot, drawn.key[i]);
      EXPECT_EQ(batch.probability[row], drawn.probability[i]);
      EXPECT_EQ(batch.policy_version[row], drawn.policy_version[i]);
      EXPECT_EQ(batch.length[row], drawn.length[i]);
      EXPECT_EQ(batch.burn_in[row], std::min(drawn.lead[i], view.burn_in));
      for (std::size_t s = 0; s < steps; ++s) {
        EXPECT_EQ(batch.reward.as<float>()[row * steps + s], drawn.reward[i * steps + s]);
        EXPECT_EQ(batch.discount.as<float>()[row * steps + s], drawn.discount[i * steps + s]);
      }
      EXPECT_EQ(0, std::memcmp(&batch.action.bytes()[row * action_bytes],
                               &drawn.action[i * action_bytes], action_bytes));
      if (spec.state) {
        EXPECT_EQ(0, std::memcmp(&batch.state.bytes()[row * spec.state->bytes()],
                                 &drawn.state[i * spec.state->bytes()], spec.state->bytes()));
      }
      const int lead = drawn.lead[i];
      const std::vector<Bytes>& frames = part.frame[i];
      if (sequence) {
        EXPECT_EQ(RowOf(batch.observation, row, rows),
                  FramesUpTo(frames, lead + view.length_max, view.frames_max()))
            << "row " << row;
      } else {
        EXPECT_EQ(RowOf(batch.observation, row, rows), FramesUpTo(frames, lead, view.stack))
            << "row " << row;
        EXPECT_EQ(RowOf(batch.next_observation, row, rows),
                  FramesUpTo(frames, lead + drawn.length[i], view.stack))
            << "row " << row;
      }
    }
  }
}

struct Case {
  NamedView view;
  Codec codec;
  int threads;
  bool state;
};

class EveryViewTest : public testing::TestWithParam<Case> {
 protected:
  MadeDrawn Make(int items, std::uint64_t seed) {
    FrameCoder coder(options_.codec, options_.trajectory.observation.bytes());
    return MakeDrawn(options_.trajectory, options_.view, &coder, items, seed);
  }
  const BatchDecoder::Options options_{.trajectory = GetParam().state ? kWithState : kSmall,
                                       .view = GetParam().view.view,
                                       .codec = GetParam().codec,
                                       .threads = GetParam().threads};
};

TEST_P(EveryViewTest, DecodesEveryValueToItsPosition) {
  BatchDecoder decoder(options_);
  SampleBatch batch;
  for (const int items : {1, 7, 40}) {
    std::vector<MadeDrawn> made;
    made.push_back(Make(items, std::uint64_t(items)));
    const Status status = decoder.Decode(made[0].drawn, 0.4, &batch);
    ASSERT_TRUE(status.ok()) << status.ToString();
    ExpectDecoded(batch, made, options_.trajectory, options_.view);
    // Again, over what lies there: nothing stays.
    for (Tensor* tensor : {&batch.observation, &batch.next_observation, &batch.action,
                           &batch.reward, &batch.discount, &batch.state}) {
      if (!tensor->empty()) std::ranges::fill(tensor->bytes(), std::byte{0xA5});
    }
    ASSERT_TRUE(decoder.Decode(made[0].drawn, 0.4, &batch).ok());
    ExpectDecoded(batch, made, options_.trajectory, options_.view);
  }
}

TEST_P(EveryViewTest, ConcatenatesParts) {
  BatchDecoder decoder(options_);
  std::vector<MadeDrawn> made;
  for (const int items : {3, 0, 8, 1}) made.push_back(Make(items, std::uint64_t(items)));
  SampleBatch batch;
  ASSERT_TRUE(decoder.Decode(DrawnOf(made), 0.4, &batch).ok());
  ExpectDecoded(batch, made, options_.trajectory, options_.view);
}

TEST_P(EveryViewTest, ShapesMatchView) {
  BatchDecoder decoder(options_);
  SampleBatch batch;
  ASSERT_TRUE(decoder.Decode(Make(5, 1).drawn, 0.4, &batch).ok());
  const ViewSpec& view = options_.view;
  const TrajectorySpec& spec = options_.trajectory;
  const bool sequence = view.kind == ViewSpec::Kind::kSequence;
  Shape observation = spec.observation.shape;
  if (sequence || view.stack > 1) observation = observation.Prepend(view.row_frames());
  EXPECT_EQ(batch.observation.spec(), (TensorSpec{spec.observation.dtype, observation.Prepend(5)}));
  EXPECT_EQ(batch.next_observation.empty(), sequence);
  if (!sequence) {
    EXPECT_EQ(batch.next_observation.spec(), batch.observation.spec());
  }
  Shape action = spec.action.shape;
  if (sequence) action = action.Prepend(view.steps());
  EXPECT_EQ(batch.action.spec(), (TensorSpec{spec.action.dtype, action.Prepend(5)}));
  EXPECT_EQ(batch.reward.spec(), (TensorSpec{DType::kF32, {5, view.steps()}}));
  EXPECT_EQ(batch.discount.spec(), batch.reward.spec());
  EXPECT_EQ(batch.state.empty(), !spec.state);
  EXPECT_EQ(batch.weight.size(), 5u);
}

std::vector<Case> Cases() {
  std::vector<Case> cases;
  for (const NamedView& view : SomeViews()) {
    cases.push_back({view, Codec::kNone, 0, false});
    cases.push_back({view, Codec::kLz4, 2, true});
  }
  return cases;
}
INSTANTIATE_TEST_SUITE_P(Views, EveryViewTest, testing::ValuesIn(Cases()), [](const auto& info) {
  return std::string(info.param.view.name) + "_" + std::string(EnumName(info.param.codec));
});

// Large enough for threads to share it, and, at 150 items, to be written past the caches.
TEST(BatchDecoderTest, LargeBatchesMatchForAnyThreadCount) {
#ifdef __SANITIZE_THREAD__
  const std::vector<int> counts = {4};
#else
  const std::vector<int> counts = {0, 1, 4};
#endif
  const ViewSpec view{ViewSpec::Kind::kTransition, 3, 4, 0};
  for (const Codec codec : {Codec::kNone, Codec::kLz4, Codec::kZstd}) {
    FrameCoder coder(codec, kLarge.observation.bytes());
    for (const int items : {20, 150}) {
      std::vector<MadeDrawn> made;
      made.push_back(MakeDrawn(kLarge, view, &coder, items, 5));
      for (const int threads : counts) {
        BatchDecoder decoder({kLarge, view, codec, threads});
        SampleBatch batch;
        ASSERT_TRUE(decoder.Decode(made[0].drawn, 0.4, &batch).ok());
        ExpectDecoded(batch, made, kLarge, view);
      }
    }
  }
}

TEST(BatchDecoderTest, CopiesOddSizedFramesInLargeBatch) {
  const TrajectorySpec spec{.observation = {DType::kU8, {83, 83}}, .action = {DType::kU8, {1}}};
  const ViewSpec view{ViewSpec::Kind::kTransition, 1, 4, 0};
  FrameCoder coder(Codec::kNone, spec.observation.bytes());
  std::vector<MadeDrawn> made;
  made.push_back(MakeDrawn(spec, view, &coder, 160, 6));
  BatchDecoder decoder({spec, view, Codec::kNone, 1});
  SampleBatch batch;
  ASSERT_TRUE(decoder.Decode(made[0].drawn, 0.4, &batch).ok());
  ExpectDecoded(batch, made, spec, view);
}

TEST(BatchDecoderTest, WeightsMatchFormula) {
  const ViewSpec view{ViewSpec::Kind::kTransition, 1, 1, 0};
  FrameCoder coder(Codec::kNone, kSmall.observation.bytes());
  std::vector<MadeDrawn> made;
  for (const int items : {30, 20}) {
    made.push_back(MakeDrawn(kSmall, view, &coder, items, std::uint64_t(items)));
  }
  made[0].drawn.probability_min = 2e-5;
  made[1].drawn.probability_min = 1e-5;
  std::vector<double> probability;
  for (const MadeDrawn& part : made) {
    probability.insert(probability.end(), part.drawn.probability.begin(),
                       part.drawn.probability.end());
  }
  const double of_batch = *std::ranges::min_element(probability);
  for (const bool by_table : {false, true}) {
    for (const double beta : {0.0, 0.4, 1.0}) {
      BatchDecoder decoder({kSmall, view, Codec::kNone, 0, by_table});
      SampleBatch batch;
      ASSERT_TRUE(decoder.Decode(DrawnOf(made), beta, &batch).ok());
      for (std::size_t i = 0; i < probability.size(); ++i) {
        const double expected = std::pow((by_table ? 1e-5 : of_batch) / probability[i], beta);
        EXPECT_NEAR(batch.weight[i], expected, 1e-6 * (0.1 + expected)) << i;
      }
    }
  }
  // A part without the value of its table: that of the batch.
  made[1].drawn.probability_min = 0;
  BatchDecoder decoder({kSmall, view, Codec::kNone, 0, true});
  SampleBatch batch;
  ASSERT_TRUE(decoder.Decode(DrawnOf(made), 1.0, &batch).ok());
  EXPECT_EQ(*std::ranges::max_element(batch.weight), 1.0f);
}

TEST(BatchDecoderTest, ReusesMemoryOfGivenBatch) {
  const ViewSpec view{ViewSpec::Kind::kTransition, 3, 2, 0};
  FrameCoder coder(Codec::kNone, kWithState.observation.bytes());
  BatchDecoder decoder({kWithState, view, Codec::kNone, 0});
  SampleBatch batch;
  ASSERT_TRUE(decoder.Decode(MakeDrawn(kWithState, view, &coder, 9, 1).drawn, 0.4, &batch).ok());
  const std::byte* const observation = batch.observation.bytes().data();
  const std::byte* const reward = batch.reward.bytes().data();
  const std::byte* const state = batch.state.bytes().data();
  std::vector<MadeDrawn> made;
  made.push_back(MakeDrawn(kWithState, view, &coder, 9, 2));
  ASSERT_TRUE(decoder.Decode(made[0].drawn, 0.4, &batch).ok());
  EXPECT_EQ(batch.observation.bytes().data(), observation);
  EXPECT_EQ(batch.reward.bytes().data(), reward);
  EXPECT_EQ(batch.state.bytes().data(), state);
  ExpectDecoded(batch, made, kWithState, view);
  // A batch of another size gets new memory, with correct content.
  made[0] = MakeDrawn(kWithState, view, &coder, 30, 3);
  ASSERT_TRUE(decoder.Decode(made[0].drawn, 0.4, &batch).ok());
  ExpectDecoded(batch, made, kWithState, view);
}

TEST(BatchDecoderTest, KeepsMemoryOfHeldBatchesAndReusesReleased) {
  const ViewSpec view{ViewSpec::Kind::kTransition, 1, 1, 0};
  FrameCoder coder(Codec::kNone, kSmall.observation.bytes());
  std::vector<MadeDrawn> first, second;
  first.push_back(MakeDrawn(kSmall, view, &coder, 9, 1));
  second.push_back(MakeDrawn(kSmall, view, &coder, 9, 2));
  auto decoder =
      std::make_unique<BatchDecoder>(BatchDecoder::Options{kSmall, view, Codec::kNone, 0});
  SampleBatch held;
  ASSERT_TRUE(decoder->Decode(first[0].drawn, 0.4, &held).ok());
  const void* lent = nullptr;
  {
    SampleBatch gone;
    ASSERT_TRUE(decoder->Decode(second[0].drawn, 0.4, &gone).ok());
    lent = gone.observation.bytes().data();
  }
  SampleBatch next;
  ASSERT_TRUE(decoder->Decode(second[0].drawn, 0.4, &next).ok());
  EXPECT_EQ(next.observation.bytes().data(), lent);
  ExpectDecoded(held, first, kSmall, view);
  decoder.reset();  // batches outlive it
  ExpectDecoded(held, first, kSmall, view);
  ExpectDecoded(next, second, kSmall, view);
}

class HostileFrameTest : public testing::Test {
 protected:
  HostileFrameTest() { made_.push_back(MakeDrawn(kLarge, view_, &coder_, 60, 1)); }
  // Puts other bytes in place of an encoded frame.
  void Replace(std::size_t frame, Bytes bytes) {
    made_[0].encoded.push_back(Buffer::Copy(bytes));
    made_[0].drawn.frame[frame] = {made_[0].encoded.back().data(), std::uint32_t(bytes.size())};
  }
  std::size_t FirstFrameOf(std::size_t item) const {
    std::size_t first = 0;
    for (std::size_t i = 0; i < item; ++i) {
      first +=
          std::size_t(FramesOf(view_, made_[0].drawn.lead[i], made_[0].drawn.length[i]).count());
    }
    return first;
  }
  const ViewSpec view_{ViewSpec::Kind::kTransition, 3, 4, 0};
  FrameCoder coder_{Codec::kLz4, kLarge.observation.bytes()};
  std::vector<MadeDrawn> made_;
};

TEST_F(HostileFrameTest, ReportsFirstItemWithDamagedFrame) {
  Replace(FirstFrameOf(50), {std::byte{1}, std::byte{7}});
  Replace(FirstFrameOf(12), {});
  Replace(FirstFrameOf(31) + 1, Bytes(40, std::byte{9}));
  for (const int threads : {0, 3}) {
    BatchDecoder decoder({kLarge, view_, Codec::kLz4, threads});
    SampleBatch batch;
    const Status status = decoder.Decode(made_[0].drawn, 0.4, &batch);
    EXPECT_EQ(status.code(), Code::kDataLoss);
    EXPECT_THAT(status.message(), testing::HasSubstr("item 12 of"));
    // And the next one is good.
    std::vector<MadeDrawn> good;
    good.push_back(MakeDrawn(kLarge, view_, &coder_, 60, 2));
    ASSERT_TRUE(decoder.Decode(good[0].drawn, 0.4, &batch).ok());
    ExpectDecoded(batch, good, kLarge, view_);
  }
}

TEST_F(HostileFrameTest, RejectsRawFrameOfWrongSize) {
  FrameCoder raw(Codec::kNone, kLarge.observation.bytes());
  made_[0] = MakeDrawn(kLarge, view_, &raw, 3, 1);
  Replace(2, Bytes(7055));
  BatchDecoder decoder({kLarge, view_, Codec::kNone, 0});
  SampleBatch batch;
  EXPECT_EQ(decoder.Decode(made_[0].drawn, 0.4, &batch).code(), Code::kDataLoss);
}

TEST_F(HostileFrameTest, RejectsEmptyBatch) {
  BatchDecoder decoder({kLarge, view_, Codec::kLz4, 0});
  SampleBatch batch;
  EXPECT_EQ(decoder.Decode(EncodedBatch(), 0.4, &batch).code(), Code::kDataLoss);
  EXPECT_EQ(decoder.Decode(std::span<const EncodedBatch>(), 0.4, &batch).code(), Code::kDataLoss);
}

TEST_F(HostileFrameTest, ReportsUnknownDictionaryAndDecodesOnceItIsAdded) {
  const Bytes frames = GamePictures(400);
  const Result<Buffer> trained = TrainFrameDictionary(frames, kLarge.observation.bytes());
  ASSERT_TRUE(trained.ok());
  const auto dictionary = MakeFrameDictionary(*trained);
  FrameCoder zstd(Codec::kZstd, kLarge.observation.bytes());
  zstd.AddDictionary(dictionary);
  made_[0] = MakeDrawn(kLarge, view_, &zstd, 60, 1);
  Bytes encoded(zstd.encoded_bytes_max());
  encoded.resize(zstd.Encode(frames.data(), encoded.data()));
  // The maker's frames may be kept raw or with the dictionary; this one needs it.
  ASSERT_EQ(NeedsDictionary(encoded), DictionaryId(*dictionary));
  const Bytes frame(frames.begin(), frames.begin() + 84 * 84);
  const std::size_t item = 7;
  Replace(FirstFrameOf(item), encoded);
  made_[0].frame[item][0] = frame;
  for (const int threads : {0, 2}) {
    BatchDecoder decoder({kLarge, view_, Codec::kZstd, threads});
    SampleBatch batch;
    const Status status = decoder.Decode(made_[0].drawn, 0.4, &batch);
    EXPECT_EQ(status.code(), Code::kNotFound);
    EXPECT_THAT(status.message(),
                testing::HasSubstr(fmt::format("{:#x}", DictionaryId(*dictionary))));
    decoder.AddDictionary(dictionary);
    ASSERT_TRUE(decoder.Decode(made_[0].drawn, 0.4, &batch).ok());
    ExpectDecoded(batch, made_, kLarge, view_);
  }
}

TEST(DecodePoolTest, RunCompletesAllWorkExactlyOnce) {
  for (const int threads : {0, 1, 5}) {
    DecodePool pool(threads);
    EXPECT_EQ(pool.threads(), threads);
    for (int call = 0; call < 200; ++call) {
      std::vector<int> done(37);
      std::atomic<std::size_t> next{0};
      pool.Run([&](int worker) {
        EXPECT_GE(worker, 0);
        EXPECT_LE(worker, threads);
        for (std::size_t i = next++; i < done.size(); i = next++) ++done[i];
      });
      ASSERT_THAT(done, testing::Each(1));
    }
  }
}

TEST(StreamCopyTest, CopiesEverySizeAndAlignment) {
  const Bytes from = Noise(400);
  for (std::size_t size = 0; size <= 200; size += size < 70 ? 1 : 13) {
    for (const std::size_t at : {0, 1, 8, 16, 48}) {
      for (const bool two : {false, true}) {
        alignas(64) std::byte first[320] = {}, second[320] = {};
        NontemporalCopy(from.data() + 3, size, first + at, two ? second + 16 : nullptr);
        NontemporalFence();
        for (std::size_t i = 0; i < sizeof first; ++i) {
          const bool in_first = i >= at && i < at + size;
          ASSERT_EQ(first[i], in_first ? from[3 + i - at] : std::byte{0}) << size << " at " << at;
          const bool in_second = two && i >= 16 && i < 16 + size;
          ASSERT_EQ(second[i], in_second ? from[3 + i - 16] : std::byte{0});
        }
      }
    }
  }
}

}  // namespace
}  // namespace troop
