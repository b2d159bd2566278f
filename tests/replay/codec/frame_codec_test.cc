#include "replay/codec/frame_codec.h"
#include "core/config/enum_names.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "replay/service/options_from_config.h"
#include "tests/replay/pictures.h"

namespace troop {
namespace {

constexpr std::size_t kFrame = 84 * 84;
constexpr std::size_t kEdge = 32;  // guard bytes round whatever is written

using Bytes = std::vector<std::byte>;

Buffer Trained(std::uint64_t seed) {
  const Bytes frames = GamePictures(400, 84, 84, seed);
  const Result<Buffer> dictionary = TrainFrameDictionary(frames, kFrame);
  EXPECT_TRUE(dictionary.ok()) << dictionary.status().ToString();
  return *dictionary;
}

Bytes Encoded(FrameCoder* coder, const std::byte* frame) {
  Bytes out(coder->encoded_bytes_max() + kEdge, std::byte{0xA5});
  const std::size_t size = coder->Encode(frame, out.data());
  EXPECT_LE(size, coder->encoded_bytes_max());
  for (std::size_t i = coder->encoded_bytes_max(); i < out.size(); ++i) {
    EXPECT_EQ(out[i], std::byte{0xA5}) << "written behind the end";
  }
  out.resize(size);
  return out;
}

// Decodes a copy of exactly its size, so that a sanitizer sees every read outside.
Status DecodeCopy(FrameCoder* coder, std::span<const std::byte> encoded, Bytes* frame) {
  const auto copy = std::make_unique<std::byte[]>(encoded.size());
  if (!encoded.empty()) std::memcpy(copy.get(), encoded.data(), encoded.size());
  Bytes out(coder->frame_bytes() + kEdge, std::byte{0x5A});
  const Status status = coder->Decode({copy.get(), encoded.size()}, out.data());
  for (std::size_t i = coder->frame_bytes(); i < out.size(); ++i) {
    EXPECT_EQ(out[i], std::byte{0x5A}) << "written behind the end";
  }
  out.resize(coder->frame_bytes());
  *frame = std::move(out);
  return status;
}

struct Way {
  std::string name;
  Codec codec;
  bool trained;
};
class EveryWayTest : public testing::TestWithParam<Way> {
 protected:
  FrameCoder Make(std::size_t frame_bytes = kFrame) {
    FrameCoder coder(GetParam().codec, frame_bytes);
    if (GetParam().trained) coder.AddDictionary(dictionary_);
    return coder;
  }
  std::shared_ptr<const FrameDictionary> dictionary_ = MakeFrameDictionary(Trained(1));
};

TEST_P(EveryWayTest, RoundTripsFrames) {
  FrameCoder encoder = Make(), decoder = Make();
  const Bytes frames = GamePictures(20, 84, 84, 7);
  for (std::size_t f = 0; f < 20; ++f) {
    Bytes frame;
    const Bytes encoded = Encoded(&encoder, &frames[f * kFrame]);
    ASSERT_TRUE(DecodeCopy(&decoder, encoded, &frame).ok());
    EXPECT_EQ(std::memcmp(frame.data(), &frames[f * kFrame], kFrame), 0) << "frame " << f;
  }
}

TEST_P(EveryWayTest, RoundTripsFramesOfAnySize) {
  const Bytes noise = Noise(70'000);
  for (const std::size_t size : {0, 1, 2, 5, 13, 64, 1000, 70'000}) {
    FrameCoder coder = Make(size);
    for (const Bytes& frame :
         {Bytes(noise.begin(), noise.begin() + std::ptrdiff_t(size)), Bytes(size, std::byte{3})}) {
      Bytes back;
      ASSERT_TRUE(DecodeCopy(&coder, Encoded(&coder, frame.data()), &back).ok()) << size;
      EXPECT_EQ(back, frame) << size;
    }
  }
}

TEST_P(EveryWayTest, NoiseGrowsByAtMostTheTag) {
  FrameCoder coder = Make();
  const Bytes noise = Noise(kFrame);
  const Bytes encoded = Encoded(&coder, noise.data());
  EXPECT_EQ(encoded.size(), kFrame + (GetParam().codec == Codec::kNone ? 0 : 1));
}

TEST_P(EveryWayTest, RejectsTruncatedOrExtendedFrame) {
  FrameCoder coder = Make();
  const Bytes frames = GamePictures(1);
  const Bytes encoded = Encoded(&coder, frames.data());
  Bytes frame;
  for (std::size_t size = 0; size < encoded.size(); size += 1 + encoded.size() / 300) {
    const Status status = DecodeCopy(&coder, std::span(encoded).first(size), &frame);
    EXPECT_EQ(status.code(), Code::kDataLoss) << size << " of " << encoded.size() << " bytes";
  }
  Bytes longer = encoded;
  longer.push_back(std::byte{0});
  EXPECT_EQ(DecodeCopy(&coder, longer, &frame).code(), Code::kDataLoss);
  longer.insert(longer.end() - 1, encoded.begin() + 1, encoded.end());
  longer.pop_back();  // the frame twice
  EXPECT_EQ(DecodeCopy(&coder, longer, &frame).code(), Code::kDataLoss);
}

TEST_P(EveryWayTest, RejectsFrameOfWrongSize) {
  FrameCoder larger = Make(kFrame + 1), smaller = Make(kFrame - 1), coder = Make();
  const Bytes frames = GamePictures(2);
  const Bytes encoded = Encoded(&coder, frames.data());
  Bytes frame;
  EXPECT_EQ(DecodeCopy(&larger, encoded, &frame).code(), Code::kDataLoss);
  EXPECT_EQ(DecodeCopy(&smaller, encoded, &frame).code(), Code::kDataLoss);
}

// Damaged bytes may decode to another picture (nothing checks it here: the log and the wire do);
// they may not be read or written past, which the guards and the sanitizers watch.
TEST_P(EveryWayTest, DamagedFrameNeverOverrunsBuffer) {
  FrameCoder coder = Make();
  const Bytes frames = GamePictures(1);
  const Bytes encoded = Encoded(&coder, frames.data());
  Rng rng({.run_seed = 5});
  Bytes frame;
  for (int i = 0; i < 2000; ++i) {
    Bytes damaged = encoded;
    const int hits = 1 + int(rng.Below(4));
    for (int hit = 0; hit < hits; ++hit) {
      damaged[rng.Below(std::uint32_t(damaged.size()))] = std::byte(rng.Below(256));
    }
    if (rng.Below(2) == 0) damaged.resize(1 + rng.Below(std::uint32_t(damaged.size())));
    const Code code = DecodeCopy(&coder, damaged, &frame).code();
    EXPECT_THAT(code, testing::AnyOf(Code::kOk, Code::kDataLoss, Code::kNotFound));
  }
  // The coder still works.
  ASSERT_TRUE(DecodeCopy(&coder, encoded, &frame).ok());
  EXPECT_EQ(std::memcmp(frame.data(), frames.data(), kFrame), 0);
}

TEST_P(EveryWayTest, MovedCoderKeepsWorking) {
  FrameCoder first = Make();
  const Bytes frames = GamePictures(1);
  const Bytes encoded = Encoded(&first, frames.data());
  FrameCoder second = std::move(first);
  EXPECT_EQ(Encoded(&second, frames.data()), encoded);
  EXPECT_EQ(second.codec(), GetParam().codec);
}

INSTANTIATE_TEST_SUITE_P(FrameCoder, EveryWayTest,
                         testing::Values(Way{"none", Codec::kNone, false},
                                         Way{"lz4", Codec::kLz4, false},
                                         Way{"lz4_trained", Codec::kLz4, true},
                                         Way{"zstd", Codec::kZstd, false},
                                         Way{"zstd_trained", Codec::kZstd, true}),
                         [](const auto& info) { return info.param.name; });

TEST(FrameCoderTest, CompressesImagesEightfoldAndMoreWithDictionary) {
  const Bytes frames = GamePictures(500);
  const std::byte* const frame = &frames[450 * kFrame];
  FrameCoder lz4(Codec::kLz4, kFrame), zstd(Codec::kZstd, kFrame), trained(Codec::kZstd, kFrame);
  trained.AddDictionary(MakeFrameDictionary(Trained(1)));
  EXPECT_LT(Encoded(&lz4, frame).size(), kFrame / 8);
  EXPECT_LT(Encoded(&zstd, frame).size(), kFrame / 16);
  EXPECT_LT(Encoded(&trained, frame).size(), kFrame / 24);
}

TEST(FrameCoderTest, AnyCodecDecodesFramesOfTheOthers) {
  const auto dictionary = MakeFrameDictionary(Trained(1));
  const Bytes frames = GamePictures(1);
  for (const Codec from : {Codec::kLz4, Codec::kZstd}) {
    for (const Codec to : {Codec::kLz4, Codec::kZstd}) {
      for (const bool trained : {false, true}) {
        FrameCoder encoder(from, kFrame), decoder(to, kFrame);
        if (trained) encoder.AddDictionary(dictionary);
        decoder.AddDictionary(dictionary);
        Bytes frame;
        ASSERT_TRUE(DecodeCopy(&decoder, Encoded(&encoder, frames.data()), &frame).ok());
        EXPECT_EQ(std::memcmp(frame.data(), frames.data(), kFrame), 0);
      }
    }
  }
}

TEST(FrameCoderTest, FrameIdentifiesRequiredDictionary) {
  const auto dictionary = MakeFrameDictionary(Trained(1));
  ASSERT_NE(DictionaryId(*dictionary), 0u);
  const Bytes frames = GamePictures(1);
  for (const Codec codec : {Codec::kLz4, Codec::kZstd}) {
    FrameCoder encoder(codec, kFrame), ignorant(codec, kFrame);
    EXPECT_EQ(NeedsDictionary(Encoded(&encoder, frames.data())), 0u);
    encoder.AddDictionary(dictionary);
    const Bytes encoded = Encoded(&encoder, frames.data());
    EXPECT_EQ(NeedsDictionary(encoded), DictionaryId(*dictionary));
    Bytes frame;
    EXPECT_EQ(DecodeCopy(&ignorant, encoded, &frame).code(), Code::kNotFound);
    ignorant.AddDictionary(dictionary);
    EXPECT_TRUE(DecodeCopy(&ignorant, encoded, &frame).ok());
  }
  EXPECT_EQ(NeedsDictionary({}), 0u);
  EXPECT_EQ(NeedsDictionary(Bytes(3, std::byte{3})), 0u);
  EXPECT_EQ(NeedsDictionary(Bytes(30, std::byte{3})), 0u);
}

// Another one by its id alone, which the four bytes behind the magic say.
std::shared_ptr<const FrameDictionary> WithId(const Buffer& trained, std::uint32_t id) {
  Bytes bytes(trained.bytes().begin(), trained.bytes().end());
  std::memcpy(bytes.data() + 4, &id, sizeof id);
  return MakeFrameDictionary(Buffer::Copy(bytes));
}

TEST(FrameCoderTest, EncodesWithNewestDictionaryAndKeepsBoundedNumber) {
  std::vector<std::shared_ptr<const FrameDictionary>> dictionaries;
  std::vector<Bytes> encoded;
  const Bytes frames = GamePictures(1);
  const Buffer trained = Trained(1);
  FrameCoder coder(Codec::kZstd, kFrame);
  for (std::uint32_t i = 0; i <= FrameCoder::kDictionariesMax; ++i) {
    dictionaries.push_back(WithId(trained, 1000 + i));
    coder.AddDictionary(dictionaries.back());
    encoded.push_back(Encoded(&coder, frames.data()));
    EXPECT_EQ(NeedsDictionary(encoded.back()), DictionaryId(*dictionaries.back()));
  }
  Bytes frame;
  EXPECT_EQ(DecodeCopy(&coder, encoded[0], &frame).code(), Code::kNotFound);
  for (std::size_t i = 1; i < encoded.size(); ++i) {
    EXPECT_TRUE(DecodeCopy(&coder, encoded[i], &frame).ok()) << i;
  }
  // Again: the newest once more, and nothing is forgotten for it.
  coder.AddDictionary(dictionaries[1]);
  EXPECT_EQ(NeedsDictionary(Encoded(&coder, frames.data())), DictionaryId(*dictionaries[1]));
  EXPECT_TRUE(DecodeCopy(&coder, encoded[2], &frame).ok());
}

// Small frames and noise are incompressible and are stored as they are; the encoder still works
// afterwards.
TEST(FrameCoderTest, AcceptsDictionaryAfterIncompressibleFrame) {
  const auto dictionary = MakeFrameDictionary(Trained(1));
  std::mt19937 random(3);
  for (const Codec codec : {Codec::kLz4, Codec::kZstd}) {
    for (const std::size_t size : {std::size_t{4}, std::size_t{16}, kFrame}) {
      FrameCoder coder(codec, size);
      Bytes noise(size), frame;
      for (std::byte& byte : noise) byte = std::byte(random());
      EXPECT_EQ(Encoded(&coder, noise.data()).size(), size + 1);
      coder.AddDictionary(dictionary);
      const Bytes encoded = Encoded(&coder, noise.data());
      EXPECT_TRUE(DecodeCopy(&coder, encoded, &frame).ok());
      EXPECT_EQ(frame, noise);
    }
  }
}

TEST(FrameCoderTest, SharesDictionaryBetweenThreads) {
  const auto dictionary = MakeFrameDictionary(Trained(1));
  const Bytes frames = GamePictures(50);
  std::vector<int> wrong(4);
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < wrong.size(); ++t) {
    threads.emplace_back([&, t] {
      FrameCoder coder(t % 2 == 0 ? Codec::kZstd : Codec::kLz4, kFrame);
      coder.AddDictionary(dictionary);
      Bytes encoded(coder.encoded_bytes_max()), frame(kFrame);
      for (std::size_t f = 0; f < 50; ++f) {
        const std::size_t size = coder.Encode(&frames[f * kFrame], encoded.data());
        const bool ok = coder.Decode(std::span(encoded).first(size), frame.data()).ok();
        if (!ok || std::memcmp(frame.data(), &frames[f * kFrame], kFrame) != 0) ++wrong[t];
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(wrong, testing::Each(0));
}

TEST(FrameDictionaryTest, RoundTripsThroughBytes) {
  const auto first = MakeFrameDictionary(Trained(1));
  const auto second = MakeFrameDictionary(Buffer::Copy(DictionaryBytes(*first).bytes()));
  ASSERT_NE(second, nullptr);
  EXPECT_EQ(DictionaryId(*second), DictionaryId(*first));
}

TEST(FrameDictionaryTest, RejectsInvalidBytes) {
  EXPECT_EQ(MakeFrameDictionary(Buffer()), nullptr);
  EXPECT_EQ(MakeFrameDictionary(Buffer::Copy(Noise(5000))), nullptr);
  const Buffer trained = Trained(1);
  EXPECT_EQ(MakeFrameDictionary(trained.Slice(0, 40)), nullptr);
  EXPECT_EQ(MakeFrameDictionary(Buffer::Copy(Bytes((1 << 20) + 1))), nullptr);
}

TEST(FrameDictionaryTest, TrainingRejectsTooFewFrames) {
  EXPECT_EQ(TrainFrameDictionary(GamePictures(3), kFrame).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(TrainFrameDictionary({}, kFrame).status().code(), Code::kInvalidArgument);
}

TEST(CodecTest, RoundTripsNames) {
  for (const Codec codec : {Codec::kNone, Codec::kLz4, Codec::kZstd}) {
    const Result<Codec> again = ParseCodec(EnumName(codec));
    ASSERT_TRUE(again.ok());
    EXPECT_EQ(*again, codec);
  }
  EXPECT_EQ(ParseCodec("snappy").status().code(), Code::kInvalidArgument);
}

// A context of a library was used again after a frame that had not shrunk: a failed check.
TEST(FrameCodecTest, EveryCodecRoundTripsMixedFramesInAnyOrder) {
  const auto dictionary = MakeFrameDictionary(Trained(3));
  std::mt19937 random(7);
  for (const FrameCompression choice : {FrameCompression::kAuto, FrameCompression::kNone,
                                        FrameCompression::kLz4, FrameCompression::kZstd}) {
    for (const std::size_t size : {std::size_t{1}, std::size_t{16}, kFrame, std::size_t{200'000}}) {
      SCOPED_TRACE(fmt::format("{} {}", EnumName(choice), size));
      FrameCoder coder(CodecFor(choice, {DType::kU8, {std::int64_t(size)}}), size);
      for (int turn = 0; turn < 12; ++turn) {
        if (turn == 6 && coder.codec() != Codec::kNone) coder.AddDictionary(dictionary);
        // Zeros, noise, a pattern, or half of each.
        Bytes frame(size);
        const int kind = turn < 4 ? turn : int(random() % 4);
        for (std::size_t i = 0; i < size; ++i) {
          const bool noise = kind == 1 || (kind == 3 && i < size / 2);
          frame[i] = noise ? std::byte(random()) : std::byte(kind == 2 ? i % 7 : 0);
        }
        const Bytes encoded = Encoded(&coder, frame.data());
        Bytes decoded;
        if (encoded.size() > 1) {
          (void)DecodeCopy(&coder, std::span(encoded).first(encoded.size() / 2), &decoded);
        }
        const Status status = DecodeCopy(&coder, encoded, &decoded);
        ASSERT_TRUE(status.ok()) << status.ToString();
        ASSERT_EQ(decoded, frame);
      }
    }
  }
}

}  // namespace
}  // namespace troop
