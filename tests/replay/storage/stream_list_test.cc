#include "replay/storage/stream_list.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <span>

#include "tests/replay/frame_log_world.h"

namespace troop {
namespace {

using FrameId = FrameLog::FrameId;
using Index = StreamList::Index;

// A stream list that receives frames without insert calls; frames are referenced by tails alone.
struct Streams {
  explicit Streams(std::int64_t capacity, int history = 3)
      : log(MakeFrameLog(capacity)), list(&log, history) {}

  // A stream sends `count` frames in a separate call.
  void Send(StreamId id, std::uint32_t count) {
    list.BeginCall();
    Index index = list.Find(id);
    if (index == StreamList::kNone) index = list.Add(id);
    list.Pin(index);
    const std::uint64_t next = list.NextFrame(id);
    const auto ids = AppendFrames(&log, TinyChunk(id, next, count));
    list.CountReceived(count);
    list.Advance(index, next + count,
                 std::span(ids).last(std::min(ids.size(), std::size_t(list.history()))));
    for (const FrameId frame : ids) log.Release(frame);
  }
  bool knows(StreamId id) const { return list.Find(id) != StreamList::kNone; }

  FrameLog log;
  StreamList list;
};

TEST(StreamListTest, NewStreamHasNoFrames) {
  Streams streams(100);
  EXPECT_EQ(streams.list.Find(7), StreamList::kNone);
  EXPECT_EQ(streams.list.NextFrame(7), 0u);
  const Index index = streams.list.Add(7);
  EXPECT_EQ(streams.list.Find(7), index);
  EXPECT_EQ(streams.list[index].id, 7u);
  EXPECT_TRUE(streams.list[index].tail.empty());
  EXPECT_EQ(streams.list.NextFrame(7), 0u);
  EXPECT_EQ(streams.list.size(), 1);
}

TEST(StreamListTest, TailKeepsItsFramesInTheLog) {
  Streams streams(100);
  streams.Send(1, 10);
  EXPECT_EQ(streams.log.frames(), 3);
  EXPECT_EQ(streams.list.NextFrame(1), 10u);
  streams.Send(1, 2);  // replaces the tail
  const auto& tail = streams.list[streams.list.Find(1)].tail;
  EXPECT_EQ(streams.log.frames(), 2);
  EXPECT_EQ(NumberOf(streams.log, tail.back()), 11u);
  streams.list.Remove(streams.list.Find(1));
  EXPECT_EQ(streams.log.frames(), 0);
  EXPECT_EQ(streams.list.size(), 0);
}

TEST(StreamListTest, OverlappingTailKeepsSharedFrames) {
  Streams streams(100, 4);
  const auto ids = AppendFrames(&streams.log, TinyChunk(1, 0, 6));
  const Index index = streams.list.Add(1);
  streams.list.Advance(index, 4, std::span(ids).first(4));
  for (const FrameId id : ids) streams.log.Release(id);
  EXPECT_EQ(streams.log.frames(), 4);
  streams.list.Advance(index, 4, std::span(ids).subspan(2, 2));
  EXPECT_EQ(streams.log.frames(), 2);
  EXPECT_EQ(NumberOf(streams.log, ids[2]), 2u);
}

TEST(StreamListTest, EvictsStreamThatWasSilentLongest) {
  Streams streams(100);
  for (const StreamId id : {1, 2, 3}) streams.Send(id, 1);
  streams.Send(1, 1);
  streams.list.BeginCall();
  EXPECT_TRUE(streams.list.EvictSilent());
  EXPECT_FALSE(streams.knows(2));
  EXPECT_TRUE(streams.list.EvictSilent());
  EXPECT_FALSE(streams.knows(3));
  EXPECT_TRUE(streams.knows(1));
  EXPECT_EQ(streams.log.frames(), 1);
}

TEST(StreamListTest, PinnedStreamsStay) {
  Streams streams(100);
  for (const StreamId id : {1, 2, 3}) streams.Send(id, 1);
  streams.list.BeginCall();
  EXPECT_TRUE(streams.list.Pin(streams.list.Find(1)));
  EXPECT_FALSE(streams.list.Pin(streams.list.Find(1)));
  EXPECT_TRUE(streams.list.Pin(streams.list.Find(3)));
  EXPECT_TRUE(streams.list.EvictSilent());
  EXPECT_FALSE(streams.knows(2));
  EXPECT_FALSE(streams.list.EvictSilent());
  EXPECT_EQ(streams.list.size(), 2);
  streams.list.BeginCall();
  EXPECT_TRUE(streams.list.EvictSilent());
  EXPECT_FALSE(streams.knows(1));
}

TEST(StreamListTest, EvictsStreamsThatWereSilentForWholeLog) {
  Streams streams(20);
  streams.Send(1, 1);
  streams.Send(2, 1);
  for (int i = 0; i < 4; ++i) streams.Send(3, 5);
  streams.list.EvictStale();
  EXPECT_FALSE(streams.knows(1));  // 21 frames since
  EXPECT_TRUE(streams.knows(2));   // 20
  EXPECT_TRUE(streams.knows(3));
}

TEST(StreamListTest, StaleStreamStaysWhilePinned) {
  Streams streams(20);
  streams.Send(1, 1);
  streams.Send(2, 1);
  for (int i = 0; i < 5; ++i) streams.Send(3, 5);
  streams.list.BeginCall();
  streams.list.Pin(streams.list.Find(1));
  streams.list.EvictStale();
  EXPECT_EQ(streams.list.size(), 3);
  streams.list.BeginCall();
  streams.list.EvictStale();
  EXPECT_EQ(streams.list.size(), 1);
}

TEST(StreamListTest, TailsHoldMuchAboveThreeQuartersOfTheLog) {
  Streams streams(40, 10);
  for (const StreamId id : {1, 2, 3}) streams.Send(id, 10);
  EXPECT_FALSE(streams.list.tails_hold_much());
  streams.Send(4, 1);
  EXPECT_TRUE(streams.list.tails_hold_much());
  streams.list.Remove(streams.list.Find(1));
  EXPECT_FALSE(streams.list.tails_hold_much());
}

TEST(StreamListTest, AdoptedStreamsKeepTheirOrderAndTails) {
  Streams streams(100);
  const auto first = AppendFrames(&streams.log, TinyChunk(1, 4, 2));
  const auto second = AppendFrames(&streams.log, TinyChunk(2, 8, 3));
  streams.list.Adopt(1, 6, first);
  streams.list.Adopt(2, 11, second);
  streams.list.Adopt(1, 90, second);  // known: ignored
  for (const FrameId id : first) streams.log.Release(id);
  for (const FrameId id : second) streams.log.Release(id);
  EXPECT_EQ(streams.log.frames(), 5);
  EXPECT_EQ(streams.list.NextFrame(1), 6u);
  EXPECT_EQ(streams.list.NextFrame(2), 11u);
  EXPECT_TRUE(streams.list.EvictSilent());
  EXPECT_FALSE(streams.knows(1));
  EXPECT_EQ(streams.log.frames(), 3);
}

// A model: the time of the last frames of each stream, and the number of its next frame.
TEST(StreamListTest, MatchesModelUnderChurn) {
  struct Known {
    int sent = 0;
    std::uint64_t next = 0;
  };
  Streams streams(400, 3);
  std::map<StreamId, Known> model;
  Rng rng({.run_seed = 2});
  for (int i = 0; i < 3000; ++i) {
    const StreamId id = rng.Below(12);
    if (rng.Below(8) > 0) {
      const std::uint32_t count = 1 + rng.Below(4);
      streams.Send(id, count);
      model[id] = {i, model[id].next + count};
    } else {
      streams.list.BeginCall();
      const auto oldest =
          std::ranges::min_element(model, {}, [](const auto& known) { return known.second.sent; });
      ASSERT_EQ(streams.list.EvictSilent(), oldest != model.end());
      if (oldest != model.end()) model.erase(oldest);
    }
    std::size_t frames = 0;
    for (const auto& [stream, known] : model) {
      ASSERT_TRUE(streams.knows(stream));
      ASSERT_EQ(streams.list.NextFrame(stream), known.next);
      frames += streams.list[streams.list.Find(stream)].tail.size();
    }
    ASSERT_EQ(streams.list.size(), std::int64_t(model.size()));
    ASSERT_EQ(streams.log.frames(), std::int64_t(frames));
  }
}

}  // namespace
}  // namespace troop
