#include "replay/serving/table_dictionaries.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <vector>

#include "core/base/philox.h"

namespace troop {
namespace {

constexpr std::size_t kFrameBytes = 4096;

// Dictionary number n, trained on noisy frames of one picture.
std::shared_ptr<const FrameDictionary> MakeDictionary(std::uint64_t n) {
  Rng rng({.run_seed = n, .purpose = Purpose::kTest});
  std::vector<std::byte> picture(kFrameBytes), frames;
  for (std::byte& byte : picture) byte = std::byte(rng.Below(256));
  for (int i = 0; i < 100; ++i) {
    picture[rng.Below(kFrameBytes)] = std::byte(i);
    frames.insert(frames.end(), picture.begin(), picture.end());
  }
  return MakeFrameDictionary(*TrainFrameDictionary(frames, kFrameBytes));
}

// One frame, encoded with the dictionary.
EncodedInsert OneFrame(const std::shared_ptr<const FrameDictionary>& dictionary) {
  FrameCoder coder(Codec::kZstd, kFrameBytes);
  coder.AddDictionary(dictionary);
  std::vector<std::byte> frame(kFrameBytes), encoded(coder.encoded_bytes_max());
  const auto bytes = std::uint32_t(coder.Encode(frame.data(), encoded.data()));
  encoded.resize(bytes);
  MutableBuffer sizes(4);
  std::memcpy(sizes.data(), &bytes, 4);
  EncodedInsert call;
  call.chunks.push_back({.frames = 1,
                         .frame_bytes = std::move(sizes).Freeze(),
                         .observation = Buffer::Copy(std::span<const std::byte>(encoded))});
  return call;
}

TableDictionaries Empty(Codec codec = Codec::kZstd) {
  return TableDictionaries({.table = "main", .codec = codec, .frame_bytes = kFrameBytes});
}

TEST(TableDictionariesTest, KeepsTheNewest) {
  TableDictionaries dictionaries = Empty();
  EXPECT_EQ(dictionaries.newest(), 0u);
  std::vector<std::uint32_t> ids;
  for (std::uint64_t n = 0; n <= TableDictionaries::kCountMax; ++n) {
    const auto made = MakeDictionary(n);
    ASSERT_NE(made, nullptr);
    dictionaries.Add(*made);
    ids.push_back(DictionaryId(*made));
  }
  EXPECT_EQ(dictionaries.Find(ids[0]), nullptr);
  ASSERT_NE(dictionaries.Find(ids[1]), nullptr);
  EXPECT_EQ(dictionaries.newest(), ids.back());
  EXPECT_EQ(dictionaries.ids(), std::vector<std::uint32_t>(ids.begin() + 1, ids.end()));
}

TEST(TableDictionariesTest, RefusesFramesOfUnknownDictionary) {
  TableDictionaries dictionaries = Empty();
  const auto made = MakeDictionary(1);
  const EncodedInsert call = OneFrame(made);
  EXPECT_EQ(dictionaries.Check(call).code(), Code::kNotFound);
  EXPECT_TRUE(Empty(Codec::kNone).Check(call).ok());  // the table ignores encodings
  dictionaries.Add(*made);
  EXPECT_TRUE(dictionaries.Check(call).ok());
}

TEST(TableDictionariesTest, TrainsNoneWithoutExecutor) {
  TableDictionaries dictionaries = Empty();
  dictionaries.Offer(OneFrame(MakeDictionary(1)).chunks);
  EXPECT_EQ(dictionaries.PollTrained(), nullptr);
}

}  // namespace
}  // namespace troop
