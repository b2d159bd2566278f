#include "replay/frame_log.h"

#include <gtest/gtest.h>

#include <cstring>

#include "tests/replay/replay_world.h"

namespace troop {
namespace {

FrameLog MakeLog(std::int64_t frames, int history = 3) {
  auto log = FrameLog::Make({.trajectory = SmallSpec(), .frames = frames, .history = history});
  TROOP_CHECK(log.ok(), "{}", log.status().ToString());
  return std::move(*log);
}

void Append(FrameLog* log, const Chunk& chunk) {
  ASSERT_TRUE(log->MakeRoom(chunk.frames + 3));
  ASSERT_TRUE(log->Check(chunk).ok());
  log->Append(chunk);
}

// (stream, frame) as the observation at `p` says.
std::pair<float, float> Content(const FrameLog& log, FrameLog::Position p) {
  float values[2];
  std::memcpy(values, log.observation(p), sizeof values);
  return {values[0], values[1]};
}

TEST(FrameLogTest, FindsEachFrameOfEachStream) {
  FrameLog log = MakeLog(1000);
  for (std::uint64_t first = 0; first < 40; first += 10) {
    for (const StreamId stream : {1, 2, 3}) Append(&log, MakeChunk(stream, first, 10));
  }
  for (const StreamId stream : {1, 2, 3}) {
    for (std::uint64_t t = 0; t < 40; ++t) {
      const auto p = log.Locate(stream, t);
      ASSERT_TRUE(p.has_value());
      EXPECT_EQ(Content(log, *p), std::pair(float(stream), float(t)));
      EXPECT_EQ(log.step(*p).reward, float(t) + 0.5f);
    }
    EXPECT_FALSE(log.Locate(stream, 40).has_value());
  }
  EXPECT_FALSE(log.Locate(4, 0).has_value());
  EXPECT_EQ(log.frames(), 120);
}

TEST(FrameLogTest, LinksLeadThroughAStreamAcrossChunksOfOthers) {
  FrameLog log = MakeLog(1000);
  Append(&log, MakeChunk(1, 0, 5));
  Append(&log, MakeChunk(2, 0, 5));
  Append(&log, MakeChunk(1, 5, 5));
  FrameLog::Position p = *log.Locate(1, 0);
  for (int t = 0; t < 9; ++t) {
    EXPECT_EQ(Content(log, p), std::pair(1.0f, float(t)));
    p += log.step(p).next;
  }
  EXPECT_EQ(log.step(p).next, 0u);
}

TEST(FrameLogTest, AGapInAStreamHasNoLink) {
  FrameLog log = MakeLog(1000);
  Append(&log, MakeChunk(1, 0, 5));
  Append(&log, MakeChunk(1, 7, 5));
  EXPECT_EQ(log.step(*log.Locate(1, 4)).next, 0u);
  EXPECT_FALSE(log.Locate(1, 5).has_value());
}

TEST(FrameLogTest, FramesThatComeAgainAreRefusedOrRecognised) {
  FrameLog log = MakeLog(1000);
  Append(&log, MakeChunk(1, 0, 10));
  EXPECT_EQ(log.Check(MakeChunk(1, 9, 5)).code(), Code::kInvalidArgument);
  EXPECT_FALSE(log.Has(MakeChunk(1, 9, 5)));
  EXPECT_TRUE(log.Has(MakeChunk(1, 5, 5)));
  EXPECT_TRUE(log.Check(MakeChunk(1, 10, 5)).ok());
}

TEST(FrameLogTest, PinnedFramesStayUntilUnpinned) {
  FrameLog log = MakeLog(100);
  Append(&log, MakeChunk(1, 0, 20));
  const FrameLog::Position p = *log.Locate(1, 15);
  log.Pin(p);
  std::uint64_t next = 20;
  while (next < 1000 && log.MakeRoom(23)) {
    log.Append(MakeChunk(1, next, 20));
    next += 20;
  }
  EXPECT_GE(next, 80u);
  EXPECT_LT(next, 1000u);
  EXPECT_EQ(Content(log, p), std::pair(1.0f, 15.0f));
  log.Unpin(p);
  EXPECT_TRUE(log.MakeRoom(23));
}

TEST(FrameLogTest, TheRingWrapsForEver) {
  FrameLog log = MakeLog(50);
  for (std::uint64_t first = 0; first < 3000; first += 7) {
    ASSERT_NO_FATAL_FAILURE(Append(&log, MakeChunk(1, first, 7)));
    const auto p = log.Locate(1, first + 6);
    ASSERT_TRUE(p.has_value());
    ASSERT_EQ(Content(log, *p), std::pair(1.0f, float(first + 6)));
    ASSERT_LE(log.frames(), log.capacity());
  }
}

// A stream that pauses must not pin old frames with its next items.
TEST(FrameLogTest, TheTailOfASilentStreamIsCarriedAlong) {
  FrameLog log = MakeLog(640);
  Append(&log, MakeChunk(1, 0, 10));
  const FrameLog::Position before = *log.Locate(1, 8);
  for (std::uint64_t first = 0; first < 200; first += 20) Append(&log, MakeChunk(2, first, 20));
  Append(&log, MakeChunk(1, 10, 10));
  EXPECT_EQ(log.carried(), 3);
  FrameLog::Position p = *log.Locate(1, 7);
  EXPECT_GT(p, before + 100);
  for (int t = 7; t < 19; ++t) {
    EXPECT_EQ(Content(log, p), std::pair(1.0f, float(t)));
    p += log.step(p).next;
  }
}

TEST(FrameLogTest, NothingIsCarriedAcrossAnEpisodesEnd) {
  FrameLog log = MakeLog(640);
  Append(&log, MakeEpisodeEnd(1, 0, 10, 0));
  for (std::uint64_t first = 0; first < 200; first += 20) Append(&log, MakeChunk(2, first, 20));
  Append(&log, MakeChunk(1, 10, 10));
  EXPECT_EQ(log.carried(), 0);
}

// Restarted actors bring new streams: the map must not grow with them.
TEST(FrameLogTest, StreamsWhoseFramesAreGoneAreForgotten) {
  FrameLog log = MakeLog(100);
  for (StreamId stream = 1; stream <= 20000; ++stream) Append(&log, MakeChunk(stream, 0, 2));
  EXPECT_LE(log.streams(), 2048u);
}

TEST(FrameLogTest, MemoryIsWhatWasPredicted) {
  const FrameLog::Options options{.trajectory = SmallSpec(), .frames = 12345, .history = 3};
  auto log = FrameLog::Make(options);
  ASSERT_TRUE(log.ok());
  EXPECT_EQ(log->bytes(), FrameLog::Bytes(options));
}

}  // namespace
}  // namespace troop
