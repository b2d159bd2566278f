#include "replay/storage/frame_store.h"

#include <gtest/gtest.h>

#include "tests/replay/table_world.h"

namespace troop {
namespace {

FrameStore MakeLog(std::int64_t frames, int history, std::size_t segment_bytes = 4096) {
  auto log = FrameStore::Make({.layout = RecordLayout(TinySpec(), false),
                               .frames = frames,
                               .history = history,
                               .segment_bytes = segment_bytes,
                               .checksums = true});
  TROOP_CHECK(log.ok(), "{}", log.status().ToString());
  return std::move(*log);
}

FrameStore::ChunkView ViewOf(const EncodedChunk& chunk) {
  return {chunk.stream,
          chunk.first_frame,
          chunk.frames,
          std::uint32_t(chunk.observation.size()),
          {chunk.action.data(), chunk.reward.data(), chunk.discount.data(), chunk.final.data(),
           nullptr, chunk.observation.data()}};
}

// Appends frames that nothing but their stream refers to. Their ids.
std::vector<FrameStore::FrameId> Append(FrameStore* log, StreamId stream, std::uint64_t first,
                                        std::uint32_t count) {
  const EncodedChunk chunk = TinyChunk(stream, first, count);
  const FrameStore::ChunkView view = ViewOf(chunk);
  TROOP_CHECK(log->Plan({&view, 1}).ok(), "no plan");
  const auto last = log->Locate({.stream = stream, .first_frame = first, .length = count - 1}, 0);
  TROOP_CHECK(last.ok() && last->has_value(), "not located");
  TROOP_CHECK(log->store().Prepare(log->RecordBytes(0)).ok(), "no memory");
  while (!log->has_room()) TROOP_CHECK(log->ForgetSilentStream(), "no room");
  SegmentStore::Place place;
  log->Write(0, &place).Finish(false);
  std::vector<FrameStore::FrameId> ids;
  for (std::uint32_t i = 0; i < count; ++i) ids.push_back(log->Id((*last)->begin + i));
  log->End();
  return ids;
}

TEST(FrameLogTest, KeepsOnlyNewestUnreferencedFramesOfStream) {
  FrameStore log = MakeLog(100, 3);
  Append(&log, 1, 0, 20);
  EXPECT_EQ(log.frames(), 3);
  Append(&log, 1, 20, 2);
  EXPECT_EQ(log.frames(), 3);
  Append(&log, 2, 0, 2);
  EXPECT_EQ(log.frames(), 5);
  EXPECT_EQ(log.streams(), 2);
}

TEST(FrameLogTest, KeepsAndLinksReferencedFrames) {
  FrameStore log = MakeLog(100, 4);
  const auto ids = Append(&log, 1, 0, 4);
  log.Refer(ids[0], 4);
  Append(&log, 1, 4, 4);
  EXPECT_EQ(log.frames(), 8);
  FrameStore::FrameId id = ids[0];
  for (std::uint64_t t = 0; t < 8; ++t) {
    float pair[2];
    std::memcpy(pair, log.observation(log.entry(id)), 8);
    EXPECT_EQ(pair[1], float(t));
    EXPECT_EQ(log.entry(id).reward, float(t) + 0.5f);
    EXPECT_EQ(log.entry(id).first, t == 0);
    id = log.entry(id).next;
  }
  log.Release(ids[0], 4);
  EXPECT_EQ(log.frames(), 4);
}

TEST(FrameLogTest, AbandonedPlanChangesNothing) {
  FrameStore log = MakeLog(100, 3);
  Append(&log, 1, 0, 5);
  const std::size_t used = log.store().used();
  const EncodedChunk chunk = TinyChunk(7, 0, 5);
  const FrameStore::ChunkView view = ViewOf(chunk);
  ASSERT_TRUE(log.Plan({&view, 1}).ok());
  log.Abandon();
  EXPECT_EQ(log.streams(), 1);
  EXPECT_EQ(log.frames(), 3);
  EXPECT_EQ(log.store().used(), used);
  EXPECT_EQ(log.NextFrame(7), 0u);
}

TEST(FrameLogTest, ChunkEntriesStayContiguousAfterManyAppends) {
  FrameStore log = MakeLog(200, 10);
  for (std::uint64_t t = 0; t < 100; ++t) {
    for (StreamId stream = 1; stream <= 10; ++stream) {
      const auto ids = Append(&log, stream, 10 * t, 10);
      std::size_t apart = 0;
      for (std::size_t i = 1; i < ids.size(); ++i) apart += ids[i] != ids[i - 1] + 1;
      EXPECT_LE(apart, 1u);
    }
  }
  EXPECT_EQ(log.frames(), 100);
}

TEST(FrameLogTest, FreesSegmentsWithoutLiveFrames) {
  FrameStore log = MakeLog(1000, 2);
  for (std::uint64_t t = 0; t < 100000; t += 100) Append(&log, 1, t, 100);
  EXPECT_LE(log.store().memory(), 2 * 4096u);
  const auto freed = log.store().TakeFreed();
  EXPECT_GT(freed.size(), 100u);
  for (std::size_t i = 0; i < freed.size(); ++i) EXPECT_EQ(freed[i], i + 1);
  EXPECT_TRUE(log.store().TakeFreed().empty());
}

TEST(FrameLogTest, DroppedStreamContinuesWithoutItsHistory) {
  FrameStore log = MakeLog(50, 2);
  Append(&log, 1, 0, 10);
  for (std::uint64_t t = 0; t < 100; t += 10) Append(&log, 2, t, 10);
  EXPECT_EQ(log.streams(), 1);
  const auto ids = Append(&log, 1, 10, 10);
  EXPECT_EQ(log.entry(ids[0]).first, 0u);  // of an episode of which the rest is gone
  EXPECT_EQ(log.entry(ids[8]).first, 0u);
  EXPECT_EQ(log.NextFrame(1), 20u);
}

}  // namespace
}  // namespace troop
