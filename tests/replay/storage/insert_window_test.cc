#include "replay/storage/insert_window.h"

#include <gtest/gtest.h>

#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "tests/replay/frame_log_world.h"

namespace troop {
namespace {

using FrameId = FrameLog::FrameId;
using ChunkView = InsertWindow::ChunkView;

// A log with its streams and its window; calls have no items in the record.
struct Frames {
  Frames(std::int64_t capacity, int history)
      : log(MakeFrameLog(capacity)), streams(&log, history), window(&log, &streams) {}

  Status Plan(std::vector<EncodedChunk> chunks) {
    message = std::move(chunks);
    std::vector<ChunkView> views;
    for (const EncodedChunk& chunk : message) {
      views.push_back({chunk.stream, chunk.first_frame, chunk.frames,
                       std::uint32_t(chunk.observation.size()), ColumnsOf(chunk)});
    }
    return window.Plan(views);
  }
  // Window position of an item; nullopt: expired.
  std::optional<InsertWindow::Located> Locate(StreamId stream, std::uint64_t first,
                                              std::uint32_t length, int lead = 0) {
    const auto located =
        window.Locate({.stream = stream, .first_frame = first, .length = length}, lead);
    TROOP_CHECK(located.ok(), "{}", located.status().ToString());
    return *located;
  }
  // Writes a planned call, in which nothing but streams refers to the frames.
  void Write() {
    TROOP_CHECK(log.store().Prepare(window.RecordBytes(0)).ok(), "no memory");
    while (!window.has_room()) TROOP_CHECK(streams.EvictSilent(), "no room");
    SegmentStore::Place place;
    window.Write(0, &place).Finish(false);
  }
  // Appends frames of one stream in a separate call. Returns their ids.
  std::vector<FrameId> Append(StreamId stream, std::uint64_t first, std::uint32_t count) {
    return Append(TinyChunk(stream, first, count));
  }
  std::vector<FrameId> Append(const EncodedChunk& chunk) {
    const Status status = Plan({chunk});
    TROOP_CHECK(status.ok(), "{}", status.ToString());
    const auto last = Locate(chunk.stream, chunk.first_frame + chunk.frames - 1, 0);
    TROOP_CHECK(last.has_value(), "not located");
    Write();
    std::vector<FrameId> ids;
    for (std::uint32_t i = 0; i < chunk.frames; ++i) {
      ids.push_back(window.Id(last->begin + 1 - chunk.frames + i));
    }
    window.End();
    return ids;
  }

  FrameLog log;
  StreamList streams;
  InsertWindow window;
  std::vector<EncodedChunk> message;  // chunks of the call, to which the window points
};

TEST(InsertWindowTest, KeepsOnlyNewestUnreferencedFramesOfStream) {
  Frames frames(100, 3);
  frames.Append(1, 0, 20);
  EXPECT_EQ(frames.log.frames(), 3);
  frames.Append(1, 20, 2);
  EXPECT_EQ(frames.log.frames(), 3);
  frames.Append(2, 0, 2);
  EXPECT_EQ(frames.log.frames(), 5);
  EXPECT_EQ(frames.streams.size(), 2);
}

TEST(InsertWindowTest, KeepsAndLinksReferencedFrames) {
  Frames frames(100, 4);
  const auto ids = frames.Append(1, 0, 4);
  frames.log.Refer(ids[0], 4);
  frames.Append(1, 4, 4);
  EXPECT_EQ(frames.log.frames(), 8);
  FrameId id = ids[0];
  for (std::uint64_t t = 0; t < 8; ++t) {
    EXPECT_EQ(NumberOf(frames.log, id), t);
    EXPECT_EQ(frames.log.entry(id).reward, float(t) + 0.5f);
    EXPECT_EQ(frames.log.entry(id).first, t == 0);
    id = frames.log.entry(id).next;
  }
  frames.log.Release(ids[0], 4);
  EXPECT_EQ(frames.log.frames(), 4);
}

TEST(InsertWindowTest, AbandonedPlanChangesNothing) {
  Frames frames(100, 3);
  frames.Append(1, 0, 5);
  const std::size_t used = frames.log.store().used();
  const EncodedChunk chunk = TinyChunk(7, 0, 5), more = TinyChunk(1, 5, 5);
  ASSERT_TRUE(frames.Plan({chunk, more}).ok());
  frames.window.Abandon();
  EXPECT_EQ(frames.streams.size(), 1);
  EXPECT_EQ(frames.log.frames(), 3);
  EXPECT_EQ(frames.log.store().used(), used);
  EXPECT_EQ(frames.streams.NextFrame(7), 0u);
  EXPECT_EQ(frames.streams.NextFrame(1), 5u);
}

TEST(InsertWindowTest, ChunkEntriesStayContiguousAfterManyAppends) {
  Frames frames(200, 10);
  for (std::uint64_t t = 0; t < 100; ++t) {
    for (StreamId stream = 1; stream <= 10; ++stream) {
      const auto ids = frames.Append(stream, 10 * t, 10);
      std::size_t apart = 0;
      for (std::size_t i = 1; i < ids.size(); ++i) apart += ids[i] != ids[i - 1] + 1;
      EXPECT_LE(apart, 1u);
    }
  }
  EXPECT_EQ(frames.log.frames(), 100);
}

TEST(InsertWindowTest, FreesSegmentsWithoutLiveFrames) {
  Frames frames(1000, 2);
  for (std::uint64_t t = 0; t < 100000; t += 100) frames.Append(1, t, 100);
  EXPECT_LE(frames.log.store().memory(), 2 * 4096u);
  const auto freed = frames.log.store().TakeFreed();
  EXPECT_GT(freed.size(), 100u);
  for (std::size_t i = 0; i < freed.size(); ++i) EXPECT_EQ(freed[i], i + 1);
  EXPECT_TRUE(frames.log.store().TakeFreed().empty());
}

TEST(InsertWindowTest, DroppedStreamContinuesWithoutItsHistory) {
  Frames frames(50, 2);
  frames.Append(1, 0, 10);
  for (std::uint64_t t = 0; t < 100; t += 10) frames.Append(2, t, 10);
  EXPECT_EQ(frames.streams.size(), 1);
  const auto ids = frames.Append(1, 10, 10);
  EXPECT_EQ(frames.log.entry(ids[0]).first, 0u);  // of an episode of which the rest is gone
  EXPECT_EQ(frames.log.entry(ids[8]).first, 0u);
  EXPECT_EQ(frames.streams.NextFrame(1), 20u);
}

TEST(InsertWindowTest, RefusesFramesReceivedBefore) {
  Frames frames(100, 3);
  frames.Append(1, 0, 10);
  const EncodedChunk again = TinyChunk(1, 8, 2), partly = TinyChunk(1, 9, 2);
  const auto has_all = [&frames](const EncodedChunk& chunk) {
    const ChunkView view{.stream = chunk.stream,
                         .first_frame = chunk.first_frame,
                         .frames = chunk.frames,
                         .columns = ColumnsOf(chunk)};
    return frames.window.HasAll({&view, 1});
  };
  EXPECT_TRUE(has_all(again));
  EXPECT_FALSE(has_all(partly));
  EXPECT_FALSE(frames.window.HasAll({}));
  EXPECT_EQ(frames.Plan({partly}).code(), Code::kInvalidArgument);
  frames.window.Abandon();
  EXPECT_EQ(frames.Plan({TinyChunk(2, 0, 3), TinyChunk(2, 2, 3)}).code(), Code::kInvalidArgument);
  frames.window.Abandon();
  EXPECT_EQ(frames.streams.size(), 1);
}

TEST(InsertWindowTest, RefusesCallOfMoreThanHalfALog) {
  Frames frames(40, 3);
  EXPECT_TRUE(frames.Plan({TinyChunk(1, 0, 17)}).ok());
  frames.window.Abandon();
  EXPECT_EQ(frames.Plan({TinyChunk(1, 0, 18)}).code(), Code::kResourceExhausted);
  frames.window.Abandon();
}

TEST(InsertWindowTest, FindsItemAcrossTailAndNewFrames) {
  Frames frames(100, 4);
  const auto ids = frames.Append(1, 0, 10);
  ASSERT_TRUE(frames.Plan({TinyChunk(1, 10, 5), TinyChunk(2, 0, 5)}).ok());
  const auto item = frames.Locate(1, 8, 3, 1);
  ASSERT_TRUE(item.has_value());
  EXPECT_EQ(item->lead, 1u);
  frames.Write();
  EXPECT_EQ(frames.window.Id(item->begin), ids[7]);
  for (std::uint32_t w = 0; w < 5; ++w) {
    EXPECT_EQ(NumberOf(frames.log, frames.window.Id(item->begin + w)), 7 + w);
  }
  frames.window.End();
}

TEST(InsertWindowTest, ItemOfEvictedFramesExpires) {
  Frames frames(100, 4);
  frames.Append(1, 0, 10);
  ASSERT_TRUE(frames.Plan({TinyChunk(1, 10, 5)}).ok());
  EXPECT_TRUE(frames.Locate(1, 6, 3).has_value());
  EXPECT_FALSE(frames.Locate(1, 5, 3).has_value());     // before the tail
  EXPECT_FALSE(frames.Locate(1, 6, 3, 1).has_value());  // its lead is before the tail
  EXPECT_FALSE(frames.Locate(2, 0, 1).has_value());     // an unknown stream
  frames.window.Abandon();
}

TEST(InsertWindowTest, ItemOfFramesThatWereNotSentIsAnError) {
  Frames frames(100, 4);
  ASSERT_TRUE(frames.Plan({TinyChunk(1, 0, 5)}).ok());
  const Item item{.stream = 1, .first_frame = 2, .length = 3};
  EXPECT_EQ(frames.window.Locate(item, 0).status().code(), Code::kInvalidArgument);
  frames.window.Abandon();
}

TEST(InsertWindowTest, ItemsStayWithinOneEpisode) {
  Frames frames(100, 4);
  const EncodedChunk ends = EncodeFrames(TinySpec(), Codec::kNone, 1, EpisodeEnd(0, 5, 0));
  ASSERT_TRUE(frames.Plan({ends, TinyChunk(1, 5, 5)}).ok());
  const auto last = frames.Locate(1, 3, 1, 9), first = frames.Locate(1, 6, 2, 9);
  ASSERT_TRUE(last.has_value() && first.has_value());
  EXPECT_EQ(last->lead, 3u);   // all of the episode's frames before it
  EXPECT_EQ(first->lead, 1u);  // none of the episode before
  const Item across{.stream = 1, .first_frame = 3, .length = 2};
  EXPECT_EQ(frames.window.Locate(across, 0).status().code(), Code::kInvalidArgument);
  frames.Write();
  const FrameLog::Entry& end = frames.log.entry(frames.window.Id(last->begin + 4));
  EXPECT_TRUE(end.final);
  EXPECT_EQ(end.next, 0u);
  EXPECT_TRUE(frames.log.entry(frames.window.Id(first->begin)).first);
  frames.window.End();
}

TEST(InsertWindowTest, GapBeginsAnEpisode) {
  Frames frames(100, 4);
  frames.Append(1, 0, 10);
  ASSERT_TRUE(frames.Plan({TinyChunk(1, 20, 5)}).ok());
  EXPECT_FALSE(frames.Locate(1, 8, 2).has_value());  // spans the gap
  EXPECT_TRUE(frames.Locate(1, 8, 1).has_value());   // before it
  const auto item = frames.Locate(1, 21, 2, 3);
  ASSERT_TRUE(item.has_value());
  EXPECT_EQ(item->lead, 1u);
  frames.Write();
  EXPECT_TRUE(frames.log.entry(frames.window.Id(item->begin)).first);
  frames.window.End();
  EXPECT_EQ(frames.streams.NextFrame(1), 25u);
}

TEST(InsertWindowTest, StreamsOfTheCallStay) {
  Frames frames(40, 10);
  frames.Append(1, 0, 10);
  frames.Append(2, 0, 10);
  ASSERT_TRUE(frames.Plan({TinyChunk(3, 0, 10)}).ok());
  EXPECT_TRUE(frames.Locate(1, 0, 3).has_value());
  EXPECT_TRUE(frames.window.fits_alone());
  EXPECT_TRUE(frames.streams.EvictSilent());
  EXPECT_EQ(frames.streams.NextFrame(2), 0u);
  EXPECT_FALSE(frames.streams.EvictSilent());
  EXPECT_EQ(frames.log.frames(), 10);
  frames.Write();
  frames.window.End();
  EXPECT_EQ(frames.streams.size(), 2);
}

TEST(InsertWindowTest, TailsOfTheCallCanExceedTheLog) {
  Frames frames(40, 10);
  for (const StreamId stream : {1, 2, 3, 4}) frames.Append(stream, 0, 10);
  ASSERT_TRUE(frames.Plan({TinyChunk(5, 0, 1)}).ok());
  for (const StreamId stream : {1, 2, 3}) EXPECT_TRUE(frames.Locate(stream, 0, 3).has_value());
  EXPECT_TRUE(frames.window.fits_alone());
  EXPECT_FALSE(frames.window.has_room());
  EXPECT_TRUE(frames.Locate(4, 0, 3).has_value());
  EXPECT_FALSE(frames.window.fits_alone());
  frames.window.Abandon();
  EXPECT_EQ(frames.streams.size(), 4);
}

// The record repeats the marks of the entries, from which a restart restores them.
TEST(InsertWindowTest, RecordMarksFirstFrames) {
  Frames frames(100, 4);
  const EncodedChunk ends = EncodeFrames(TinySpec(), Codec::kNone, 1, EpisodeEnd(0, 3, 0));
  const EncodedChunk next = TinyChunk(1, 3, 2);
  frames.Append(ends);
  frames.Append(next);
  const auto segment = frames.log.store().All().front();
  std::span<const std::byte> bytes(segment->data(), segment->used());
  std::vector<int> marks;
  while (!bytes.empty()) {
    Record record;
    ASSERT_TRUE(ReadRecord(bytes, frames.log.layout(), false, &record).ok());
    for (std::uint32_t i = 0; i < record.chunks[0].header.frames; ++i) {
      marks.push_back(int(record.chunks[0].columns.final[i]));
    }
    bytes = bytes.subspan(record.bytes);
  }
  EXPECT_EQ(marks, (std::vector{2, 0, 1, 2, 0}));
}

}  // namespace
}  // namespace troop
