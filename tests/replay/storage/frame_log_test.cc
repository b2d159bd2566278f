#include "replay/storage/frame_log.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "tests/replay/frame_log_world.h"

namespace troop {
namespace {

using FrameId = FrameLog::FrameId;

constexpr std::size_t kFrameBytes = 8 + 4 + 9;  // observation, action, other columns

TEST(FrameLogTest, DescribesFramesOfChunk) {
  FrameLog log = MakeFrameLog(100);
  EncodedChunk chunk = EncodeFrames(TinySpec(), Codec::kNone, 3, EpisodeEnd(5, 3, 0.5f));
  const auto ids = AppendFrames(&log, chunk);
  for (std::size_t i = 0; i < 3; ++i) {
    const FrameLog::Entry& entry = log.entry(ids[i]);
    EXPECT_EQ(NumberOf(log, ids[i]), 5 + i);
    EXPECT_EQ(entry.reward, i == 2 ? 0 : 5.5f + float(i));
    EXPECT_EQ(entry.discount, i == 0 ? 1 : i == 1 ? 0.5f : 0);
    EXPECT_EQ(entry.final, i == 2);
    EXPECT_EQ(entry.first, 0u);
    EXPECT_EQ(Load<std::int32_t>(log.action(entry)), std::int32_t(30 + 5 + i));
  }
  EXPECT_TRUE(log.inline_action());
}

TEST(FrameLogTest, LargeActionsStayInTheSegment) {
  const TrajectorySpec spec{.observation = {DType::kF32, {2}}, .action = {DType::kI32, {3}}};
  FrameLog log = MakeFrameLog(100, 4096, spec);
  EXPECT_FALSE(log.inline_action());
  const auto ids = AppendFrames(&log, EncodeFrames(spec, Codec::kNone, 2, PlainFrames(7, 2)));
  for (std::size_t i = 0; i < 2; ++i) {
    const std::byte* const action = log.action(log.entry(ids[i]));
    EXPECT_GE(action, log.store().base(log.entry(ids[i]).segment));
    for (std::size_t a = 0; a < 3; ++a) {
      EXPECT_EQ(Load<std::int32_t>(action, a), std::int32_t(27 + i));
    }
  }
}

TEST(FrameLogTest, ReadsFirstMarkOfRecord) {
  const FrameLog log = MakeFrameLog(100);
  const EncodedChunk chunk = TinyChunk(1, 0, 2);
  ChunkColumns columns = ColumnsOf(chunk);
  const std::byte marks[] = {kFirstMark, kFirstMark | kFinalMark};
  columns.final = marks;
  std::uint32_t offset = 40;
  const FrameLog::Entry begin = log.Describe(columns, 0, 0, &offset);
  EXPECT_EQ(begin.offset, 40u);
  EXPECT_TRUE(begin.first && !begin.final);
  const FrameLog::Entry alone = log.Describe(columns, 1, 0, &offset);
  EXPECT_EQ(alone.offset, 48u);
  EXPECT_TRUE(alone.first && alone.final);
  EXPECT_EQ(offset, 56u);
}

TEST(FrameLogTest, LastReferenceFreesFrame) {
  FrameLog log = MakeFrameLog(100);
  const auto ids = AppendFrames(&log, TinyChunk(1, 0, 4));
  EXPECT_EQ(log.frames(), 4);
  EXPECT_EQ(log.store().live(), 4 * kFrameBytes);
  log.Refer(ids[1]);
  for (const FrameId id : ids) log.Release(id);
  EXPECT_EQ(log.frames(), 1);
  EXPECT_EQ(log.store().live(), kFrameBytes);
  EXPECT_EQ(NumberOf(log, ids[1]), 1u);
  log.Release(ids[1]);
  EXPECT_EQ(log.frames(), 0);
  EXPECT_EQ(log.store().live(), 0u);
}

TEST(FrameLogTest, ReferencesFollowLinksAcrossChunks) {
  FrameLog log = MakeFrameLog(100);
  const auto begin = AppendFrames(&log, TinyChunk(1, 0, 3));
  AppendFrames(&log, TinyChunk(2, 0, 5));
  const auto rest = AppendFrames(&log, TinyChunk(1, 3, 3));
  log.Link(begin.back(), rest.front());
  log.Refer(begin[1], 4);
  for (const FrameId id : begin) log.Release(id);
  for (const FrameId id : rest) log.Release(id);
  EXPECT_EQ(log.frames(), 5 + 4);
  FrameId id = begin[1];
  for (std::uint64_t t = 1; t < 5; ++t, id = log.entry(id).next) EXPECT_EQ(NumberOf(log, id), t);
  log.Release(begin[1], 4);
  EXPECT_EQ(log.frames(), 5);
}

TEST(FrameLogTest, FreesSegmentWithItsLastFrame) {
  FrameLog log = MakeFrameLog(1000);
  const auto oldest = AppendFrames(&log, TinyChunk(1, 0, 100));
  AppendFrames(&log, TinyChunk(1, 100, 100));  // seals the first segment
  EXPECT_EQ(log.store().All().size(), 2u);
  for (std::size_t i = 1; i < oldest.size(); ++i) log.Release(oldest[i]);
  EXPECT_EQ(log.store().All().size(), 2u);
  log.Release(oldest[0]);
  EXPECT_EQ(log.store().All().size(), 1u);
  EXPECT_EQ(log.store().TakeFreed(), std::vector<std::uint64_t>{1});
}

TEST(FrameLogTest, RelocatedFrameKeepsItsIdAndItsLink) {
  FrameLog log = MakeFrameLog(1000);
  const auto ids = AppendFrames(&log, TinyChunk(1, 0, 100));
  // Copies frame 7 to a new segment, as compaction does.
  const ChunkRecord header{1, 7, 1, 8};
  const std::size_t bytes = log.layout().RecordBytes(1, 0, 1, 8);
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (i != 7 && i != 8) log.Release(ids[i]);
  }
  ASSERT_TRUE(log.store().Prepare(4096).ok());
  const SegmentStore::Place place = log.store().Append(bytes);
  RecordWriter writer(log.layout(), place.at, RecordHeader::kMoved, {&header, 1}, 0, bytes);
  const ChunkColumns at = writer.AddChunk(header, ColumnsOf(TinyChunk(1, 7, 1)));
  log.Relocate(ids[7], place, at.observation, at.action);
  EXPECT_EQ(log.entry(ids[7]).segment, place.segment);
  EXPECT_NE(log.entry(ids[8]).segment, place.segment);
  EXPECT_EQ(NumberOf(log, ids[7]), 7u);
  EXPECT_EQ(log.entry(ids[7]).next, ids[8]);
  EXPECT_EQ(log.store().live(), 2 * kFrameBytes);
  log.Release(ids[8]);
  EXPECT_EQ(log.store().All().size(), 1u);  // the moved frame is no longer in the old segment
  EXPECT_EQ(NumberOf(log, ids[7]), 7u);
}

TEST(FrameLogTest, AdoptsMoreFramesThanItsCapacity) {
  FrameLog source = MakeFrameLog(100);
  const auto ids = AppendFrames(&source, TinyChunk(1, 0, 20));
  const std::shared_ptr<Segment> segment = source.store().segment(source.entry(ids[0]).segment);
  segment->Seal();
  FrameLog log = MakeFrameLog(10);
  const SegmentStore::Index index = log.store().Adopt(segment);
  ASSERT_TRUE(log.Reserve(20).ok());
  EXPECT_EQ(log.capacity(), 10);
  EXPECT_EQ(log.last_id(), 20u);
  log.store().frames(index).resize(20);
  log.store().AddFull(index, 20 * kFrameBytes);
  for (std::size_t i = 0; i < 20; ++i) {
    FrameLog::Entry entry = source.entry(ids[i]);
    entry.segment = index;
    entry.references = 0;
    const FrameId id = log.Adopt(entry, i);
    EXPECT_EQ(log.store().frames(index)[i], id);
    EXPECT_EQ(NumberOf(log, id), i);
    log.Refer(id);
  }
  EXPECT_EQ(log.frames(), 20);
  EXPECT_EQ(log.store().live(), 20 * kFrameBytes);
  EXPECT_EQ(log.store().garbage(), 0u);
}

TEST(FrameLogTest, ReserveBelowCapacityChangesNothing) {
  FrameLog log = MakeFrameLog(100);
  const std::size_t bytes = log.array_bytes();
  ASSERT_TRUE(log.Reserve(50).ok());
  EXPECT_EQ(log.last_id(), 100u);
  EXPECT_EQ(log.array_bytes(), bytes);
  EXPECT_EQ(bytes, FrameLog::Bytes(100));
}

}  // namespace
}  // namespace troop
