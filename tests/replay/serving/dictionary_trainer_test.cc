#include "replay/serving/dictionary_trainer.h"

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <utility>
#include <vector>

namespace troop {
namespace {

constexpr std::size_t kFrameBytes = 4096;
constexpr std::size_t kFramesWanted = 2000;

// Jobs run when the test says.
class Later final : public Executor {
 public:
  Result<Job> Submit(std::string_view, std::function<void()> work) override {
    ++submitted;
    if (full) return ResourceExhausted("too much to do");
    work_ = std::move(work);
    return Job(submitted);
  }
  bool TakeDone(Job) override { return std::exchange(done_, false); }
  void Run() {
    std::exchange(work_, nullptr)();
    done_ = true;
  }
  bool full = false;
  int submitted = 0;

 private:
  std::function<void()> work_;
  bool done_ = false;
};

// Frames as an insert brings them, the first of number `first`.
EncodedChunk Frames(std::uint32_t first, std::uint32_t count, bool zeros = false) {
  FrameCoder coder(Codec::kZstd, kFrameBytes);
  std::vector<std::byte> frame(kFrameBytes), encoded(coder.encoded_bytes_max()), all;
  MutableBuffer sizes(count * 4);
  for (std::uint32_t i = 0; i < count; ++i) {
    const std::uint32_t n = first + i;
    for (std::size_t p = 0; p < kFrameBytes && !zeros; ++p) {
      frame[p] = std::byte((p * p / 97 + (p / 64 == n % 64 ? 1 + n % 5 : 0)) % 251);
    }
    const auto bytes = std::uint32_t(coder.Encode(frame.data(), encoded.data()));
    std::memcpy(sizes.data() + i * 4, &bytes, 4);
    all.insert(all.end(), encoded.begin(), encoded.begin() + bytes);
  }
  return {.frames = count,
          .frame_bytes = std::move(sizes).Freeze(),
          .observation = Buffer::Copy(std::span<const std::byte>(all))};
}

// It went on taking frames of the call, and of later calls while the executor was full.
TEST(DictionaryTrainerTest, TrainsOnceWithEnoughFrames) {
  Later executor;
  DictionaryTrainer trainer(Codec::kZstd, kFrameBytes, &executor);
  trainer.Offer({Frames(0, kFramesWanted - 1)});
  EXPECT_EQ(executor.submitted, 0);
  executor.full = true;
  trainer.Offer({Frames(0, 500), Frames(500, 500)});
  EXPECT_EQ(executor.submitted, 1);
  EXPECT_FALSE(trainer.busy());
  executor.full = false;
  trainer.Offer({Frames(0, 1)});
  EXPECT_TRUE(trainer.busy());
  EXPECT_TRUE(trainer.Poll().empty());
  executor.Run();
  EXPECT_FALSE(trainer.Poll().empty());
  EXPECT_FALSE(trainer.busy());
  trainer.Offer({Frames(0, kFramesWanted)});
  EXPECT_EQ(executor.submitted, 2);
}

TEST(DictionaryTrainerTest, RetriesWithGrowingSpacingThenGivesUp) {
  Later executor;
  DictionaryTrainer trainer(Codec::kZstd, kFrameBytes, &executor);
  const EncodedChunk zeros = Frames(0, 1000, true);
  int calls = 0;
  std::vector<int> at;
  for (; calls < 1000 && at.size() < 3; ++calls) {
    trainer.Offer({zeros});
    if (!trainer.busy()) continue;
    at.push_back(calls + 1);
    executor.Run();
    ASSERT_TRUE(trainer.Poll().empty()) << "frames with nothing in them train";
  }
  EXPECT_EQ(at, (std::vector<int>{2, 2 + 8, 2 + 8 + 32}));
}

TEST(DictionaryTrainerTest, LargeFramesStayWithinMemoryBound) {
  Later executor;
  DictionaryTrainer trainer(Codec::kZstd, std::size_t{2} << 20, &executor);  // 8 fit: too few
  trainer.Offer({});
  EXPECT_FALSE(trainer.busy());
}

}  // namespace
}  // namespace troop
