#include <gtest/gtest.h>

#include <map>
#include <set>

#include "tests/replay/table_world.h"

namespace troop {
namespace {

Table::Options Durable(std::int64_t capacity = 200) {
  Table::Options options = TinyOptions(capacity);
  options.segment_bytes = 4096;
  options.checksums = true;
  return options;
}

// Returns the segments as they would be on disk now.
std::vector<std::shared_ptr<Segment>> CopySegments(const Table& table) {
  std::vector<std::shared_ptr<Segment>> copies;
  for (const auto& segment : table.journal_source().segments()) {
    copies.push_back(Segment::Adopt(
        segment->id(), Buffer::Copy(std::span<const std::byte>(segment->data(), segment->used()))));
  }
  return copies;
}

Snapshot TakeSnapshot(const Table& table) {
  Snapshot snapshot{.counters = table.journal_source().counters()};
  for (std::int64_t i = 0; i < table.journal_source().lines(); ++i) {
    snapshot.lines.push_back({.read_at = table.journal_source().position()});
    table.journal_source().ReadLine(i, &snapshot.lines.back().slot);
  }
  return snapshot;
}

Table RestartAs(const Table::Options& options, const Table& table, const Snapshot& snapshot,
                Table::RecoverCounts* counts = nullptr) {
  Table::RecoverCounts own;
  auto made =
      Table::Recover(options, CopySegments(table), snapshot, counts != nullptr ? counts : &own);
  TROOP_CHECK(made.ok(), "{}", made.status().ToString());
  return std::move(*made);
}
Table Restart(const Table& table, const Snapshot& snapshot,
              Table::RecoverCounts* counts = nullptr) {
  return RestartAs(table.options(), table, snapshot, counts);
}

// Some calls of three streams, one item a frame, priorities changed now and then.
class Traffic {
 public:
  explicit Traffic(std::uint64_t seed, StreamId first_stream = 0)
      : rng_({.run_seed = seed}), first_stream_(first_stream) {}
  void Insert(Table* table) {
    const StreamId stream = first_stream_ + rng_.Below(3);
    const std::uint32_t n = 4 + rng_.Below(8);
    std::uint64_t& next = next_[stream];
    const TrajectorySpec& spec = table->options().trajectory;
    EncodedInsert call;
    call.chunks.push_back(EncodeFrames(spec, table->options().codec, stream, PlainFrames(next, n)));
    const std::uint64_t first = next >= 3 ? next - 3 : 0;
    call.items = TinyItems(stream, first, n - (next >= 3 ? 0 : 3), 1, 3);
    for (Item& item : call.items) {
      item.priority = 0.5f + rng_.UniformF32();
      if (spec.state) item.state = State(item);
    }
    next += n;
    Put(table, call);
  }
  void Update(Table* table) {
    if (!table->can_draw()) return;
    EncodedBatch drawn;
    table->Draw(8, &drawn);
    std::vector<float> priority;
    for (std::size_t i = 0; i < drawn.key.size(); ++i) priority.push_back(rng_.UniformF32() + 0.1f);
    table->Update(drawn.key, priority);
  }
  static Buffer State(const Item& item) {
    const std::uint64_t numbers[2] = {item.stream, item.first_frame};
    return Buffer::Copy(std::as_bytes(std::span(numbers)));
  }

 private:
  Rng rng_;
  StreamId first_stream_;
  std::map<StreamId, std::uint64_t> next_;
};

void ExpectSameDraws(Table* a, Table* b, int rounds = 20) {
  for (int round = 0; round < rounds; ++round) {
    const Read left(a, 32), right(b, 32);
    EXPECT_EQ(left.frames, right.frames);
    EXPECT_EQ(left.drawn.probability, right.drawn.probability);
    EXPECT_EQ(left.drawn.reward, right.drawn.reward);
    EXPECT_EQ(left.drawn.discount, right.drawn.discount);
    EXPECT_EQ(left.drawn.action, right.drawn.action);
    EXPECT_EQ(left.drawn.state, right.drawn.state);
    EXPECT_EQ(left.drawn.policy_version, right.drawn.policy_version);
  }
}

TEST(TableRecoverTest, SamplesContinueIdenticallyAfterRestart) {
  for (const auto remover :
       {Selector::Kind::kFifo, Selector::Kind::kLowest, Selector::Kind::kPrioritized}) {
    for (const Codec codec : {Codec::kNone, Codec::kLz4}) {
      Table::Options options = Durable();
      options.remover = {.kind = remover, .alpha = -0.4};
      options.codec = codec;
      options.view.stack = 2;
      options.trajectory.state = TensorSpec{DType::kU8, {16}};
      Table table = MakeTable(options);
      Traffic traffic(3);
      for (int round = 0; round < 300; ++round) {
        traffic.Insert(&table);
        if (round % 3 == 0) traffic.Update(&table);
      }
      Table::RecoverCounts counts;
      Table again = Restart(table, TakeSnapshot(table), &counts);
      EXPECT_EQ(counts.items, table.size());
      EXPECT_EQ(counts.items_lost, 0);
      EXPECT_EQ(counts.segments_damaged, 0);
      EXPECT_EQ(again.usage().frames, table.usage().frames);
      EXPECT_EQ(again.usage().live_bytes, table.usage().live_bytes);
      EXPECT_EQ(again.total(), table.total());
      ExpectSameDraws(&table, &again);
      // Both tables take the same inserts from here on, with the same evictions.
      Traffic left = traffic, right = traffic;
      for (int round = 0; round < 100; ++round) {
        left.Insert(&table);
        right.Insert(&again);
      }
      if (remover != Selector::Kind::kPrioritized) {  // slots differ, and so do evictions
        ExpectSameDraws(&table, &again, remover == Selector::Kind::kFifo ? 5 : 0);
      }
      EXPECT_EQ(table.size(), again.size());
      if (remover == Selector::Kind::kLowest) {  // the same ones, by their weights
        EXPECT_NEAR(table.total(), again.total(), 1e-9 * table.total());
      }
    }
  }
}

TEST(TableRecoverTest, RestoresStatesWithTheirItems) {
  Table::Options options = Durable(64);
  options.trajectory.state = TensorSpec{DType::kU8, {16}};
  options.remover.kind = Selector::Kind::kLowest;
  Table table = MakeTable(options);
  Traffic traffic(5);
  for (int round = 0; round < 400; ++round) traffic.Insert(&table);
  EXPECT_GT(table.usage().compacted_bytes, 0u);
  Table again = Restart(table, TakeSnapshot(table));
  for (Table* t : {&table, &again}) {
    const Read read(t, 64);
    for (std::size_t i = 0; i < 64; ++i) {
      const Buffer expected =
          Traffic::State({.stream = read.stream(i), .first_frame = read.own_frame(i)});
      EXPECT_EQ(std::memcmp(read.drawn.state.data() + 16 * i, expected.data(), 16), 0);
    }
  }
}

TEST(TableRecoverTest, ItemsHaveInitialPriorityWithoutSnapshot) {
  Table table = MakeTable(Durable());
  Put(&table, TinyChunk(1, 0, 50), TinyItems(1, 0, 40, 2));
  Table again = Restart(table, {});
  EXPECT_EQ(again.size(), 40);
  EXPECT_EQ(again.total(), 80);
}

TEST(TableRecoverTest, RestoresItemsInsertedAfterSnapshot) {
  Table table = MakeTable(Durable());
  Put(&table, TinyChunk(1, 0, 20), TinyItems(1, 0, 10, 2));
  const Snapshot snapshot = TakeSnapshot(table);
  Put(&table, TinyChunk(1, 20, 20), TinyItems(1, 20, 10, 3));
  EXPECT_EQ(Restart(table, snapshot).total(), 50);
}

TEST(TableRecoverTest, DropsItemsEvictedBeforeSnapshot) {
  Table::Options options = Durable();
  options.max_times_sampled = 1;
  Table table = MakeTable(options);
  Put(&table, TinyChunk(1, 0, 20), TinyItems(1, 0, 10));
  const Read read(&table, 4);
  EXPECT_EQ(table.size(), 6);
  Table again = Restart(table, TakeSnapshot(table));
  EXPECT_EQ(again.size(), 6);
  for (const std::uint64_t key : read.drawn.key) EXPECT_FALSE(again.Alive(key));
}

TEST(TableRecoverTest, NeverReusesKeysAcrossRestarts) {
  Table::Options options = Durable(16);
  Table table = MakeTable(options);
  std::set<std::uint64_t> keys;
  std::uint64_t next = 0;
  for (int life = 0; life < 5; ++life) {
    for (int i = 0; i < 20; ++i, next += 8) {
      Put(&table, TinyChunk(1, next, 8), TinyItems(1, next, 7));
      EncodedBatch drawn;
      table.Draw(64, &drawn);
      keys.insert(drawn.key.begin(), drawn.key.end());
    }
    std::set<std::uint64_t> before = keys;
    const Snapshot snapshot = TakeSnapshot(table);
    table = Restart(table, snapshot);
    for (int i = 0; i < 20; ++i, next += 8) {
      Put(&table, TinyChunk(1, next, 8), TinyItems(1, next, 7));
    }
    for (const std::uint64_t key : before) EXPECT_FALSE(table.Alive(key));
  }
}

TEST(TableRecoverTest, DeduplicatesCallRepeatedAfterRestart) {
  Table table = MakeTable(Durable());
  Put(&table, TinyChunk(1, 0, 20), TinyItems(1, 0, 10));
  Table again = Restart(table, TakeSnapshot(table));
  EXPECT_EQ(Put(&again, TinyChunk(1, 0, 20), TinyItems(1, 0, 10)).repeated, 10);
  EXPECT_EQ(Put(&again, TinyChunk(1, 20, 5), TinyItems(1, 18, 5, 1, 2)).inserted, 5);
}

// A snapshot that is older than the move says nothing of a moved item any more.
TEST(TableRecoverTest, CompactedItemKeepsItsStateWithOlderSnapshot) {
  Table::Options options = Durable(64);
  options.segment_bytes = 1024;
  options.remover.kind = Selector::Kind::kUniform;
  options.max_times_sampled = 1000;
  Table table = MakeTable(options);
  Traffic traffic(5);
  for (int round = 0; round < 30; ++round) traffic.Insert(&table);
  for (int round = 0; round < 30; ++round) traffic.Update(&table);
  const Snapshot snapshot = TakeSnapshot(table);
  const std::uint64_t before = table.usage().compacted_bytes;
  for (int round = 0; round < 8; ++round) traffic.Insert(&table);
  ASSERT_GT(table.usage().compacted_bytes, before);
  Table again = Restart(table, snapshot);
  int changed = 0, drawn = 0;
  for (std::int64_t line = 0; line < table.journal_source().lines(); ++line) {
    SlotLine want, got;
    table.journal_source().ReadLine(line, &want);
    again.journal_source().ReadLine(line, &got);
    for (std::size_t i = 0; i < want.size(); ++i) {
      if (want[i].generation == 0 || got[i].generation != want[i].generation) continue;
      EXPECT_EQ(got[i].priority, want[i].priority) << "line " << line << ", slot " << i;
      EXPECT_EQ(got[i].times_sampled, want[i].times_sampled) << "line " << line << ", slot " << i;
      changed += want[i].priority < 0.5f;  // only updates give so little
      drawn += want[i].times_sampled > 0;
    }
  }
  EXPECT_GT(changed, 0);
  EXPECT_GT(drawn, 0);
}

// Where an episode began behind frames that were left out was not in the log.
TEST(TableRecoverTest, KeepsEpisodeStartAfterGap) {
  Table::Options options = Durable();
  options.view = {.length_max = 2, .stack = 4};
  Table table = MakeTable(options);
  Put(&table, TinyChunk(1, 0, 5), {});
  Put(&table, TinyChunk(1, 6, 3), {});
  Put(&table, TinyChunk(2, 9, 3), {});  // episode start unknown
  for (int life = 0; life < 2; ++life) {
    table = Restart(table, TakeSnapshot(table));
    EXPECT_EQ(Put(&table, {{}, TinyItems(1, 6, 1, 1, 2)}).inserted, 1);
    EXPECT_EQ(Put(&table, {{}, TinyItems(2, 9, 1, 1, 2)}).expired, 1);
  }
  EXPECT_EQ(Read(&table, 1).drawn.lead[0], 0);
}

TEST(TableRecoverTest, MemoryStaysBoundedOverRestarts) {
  Table::Options options = Durable(100);
  options.remover.kind = Selector::Kind::kUniform;
  options.codec = Codec::kLz4;
  Table table = MakeTable(options);
  Traffic traffic(9);
  std::size_t most = 0;
  for (int life = 0; life < 8; ++life) {
    for (int round = 0; round < 100; ++round) traffic.Insert(&table);
    EXPECT_EQ(table.size(), 100);
    most = std::max(most, table.usage().segment_bytes);
    table = Restart(table, TakeSnapshot(table));
    EXPECT_EQ(table.size(), 100);
  }
  EXPECT_LT(most, 40 * 4096u);
}

// Tails of streams that are forgotten here lie in the segments yet: they took the items' places.
TEST(TableRecoverTest, ManyShortStreamsLoseNoItems) {
  for (const auto remover : {Selector::Kind::kFifo, Selector::Kind::kUniform}) {
    Table::Options options = Durable(50);
    options.frames = 200;
    options.remover.kind = remover;
    Table table = MakeTable(options);
    for (StreamId stream = 1; stream <= 400; ++stream) {
      Put(&table, TinyChunk(stream, 0, 4), TinyItems(stream, 0, 1, 1, 3));
    }
    Table::RecoverCounts counts;
    Table again = Restart(table, TakeSnapshot(table), &counts);
    EXPECT_EQ(counts.items_lost, 0);
    EXPECT_EQ(again.size(), table.size());
    EXPECT_EQ(again.total(), table.total());
    for (StreamId stream = 401; stream <= 800; ++stream) {
      EXPECT_EQ(Put(&again, TinyChunk(stream, 0, 4), TinyItems(stream, 0, 1, 1, 3)).inserted, 1);
    }
  }
}

// Items that left after the snapshot are alive again: with those that live they may need more
// frames than the log has.
TEST(TableRecoverTest, ItemsEvictedSinceSnapshotDisplaceNoLiveItems) {
  Table::Options options = Durable(100);
  options.frames = 400;
  options.remover.kind = Selector::Kind::kUniform;
  Table table = MakeTable(options);
  Snapshot snapshot;
  for (StreamId stream = 1; stream <= 300; ++stream) {
    if (stream == 290) snapshot = TakeSnapshot(table);
    Put(&table, TinyChunk(stream, 0, 4), TinyItems(stream, 0, 1, 1, 3));
  }
  EncodedBatch drawn;
  table.Draw(1000, &drawn);
  Table::RecoverCounts counts;
  Table again = Restart(table, snapshot, &counts);
  EXPECT_EQ(counts.items_lost, 0);
  for (const std::uint64_t key : drawn.key) EXPECT_TRUE(again.Alive(key));
}

TEST(TableRecoverTest, SmallerLogKeepsItemsAndBoundsFrames) {
  Table::Options options = Durable(2000);
  options.view.length_max = 8;
  options.remover.kind = Selector::Kind::kUniform;
  Table table = MakeTable(options);
  for (std::uint64_t i = 0; i < 60; ++i) {
    Put(&table, TinyChunk(i % 3, i / 3 * 32, 32), TinyItems(i % 3, i / 3 * 32, 24, 1, 8));
  }
  options.frames = 1000;
  Table::RecoverCounts counts;
  Table again = RestartAs(options, table, TakeSnapshot(table), &counts);
  EXPECT_EQ(counts.items, table.size());
  for (std::uint64_t t = 0; t < 600; ++t) {
    Put(&again, TinyChunk(9, 32 * t, 32), TinyItems(9, 32 * t, 24, 1, 8));
    EXPECT_LE(again.usage().frames, 1000);
  }
  EXPECT_GT(again.usage().compacted_bytes, 0u);
}

TEST(TableRecoverTest, CountsItemsLostToSmallerCapacity) {
  Table table = MakeTable(Durable(200));
  Put(&table, TinyChunk(1, 0, 120), TinyItems(1, 0, 110));
  Table::RecoverCounts counts;
  Table again = RestartAs(Durable(64), table, TakeSnapshot(table), &counts);
  EXPECT_EQ(counts.items, 64);
  EXPECT_EQ(counts.items_lost, 46);
}

// A draw looked for items below the limit, and there were none.
TEST(TableRecoverTest, DropsItemsSampledUpToLoweredLimit) {
  Table::Options options = Durable(100);
  options.max_times_sampled = 5;
  Table table = MakeTable(options);
  Put(&table, TinyChunk(1, 0, 11), TinyItems(1, 0, 10));
  EncodedBatch drawn;
  table.Draw(30, &drawn);  // of 30 strata three each
  options.max_times_sampled = 3;
  Table::RecoverCounts counts;
  EXPECT_FALSE(RestartAs(options, table, TakeSnapshot(table), &counts).can_draw());
  EXPECT_EQ(counts.items_lost, 0);
  options.max_times_sampled = 4;
  Table again = RestartAs(options, table, TakeSnapshot(table), &counts);
  ASSERT_EQ(again.size(), 10);
  again.Draw(30, &drawn);
  EXPECT_EQ(drawn.size(), 10);
}

// ---- damage -------------------------------------------------------------------------------------

TEST(TableRecoverTest, TornLastSegmentLosesOnlyItsLastRecords) {
  Table table = MakeTable(Durable());
  for (std::uint64_t t = 0; t < 40; t += 8) {
    Put(&table, TinyChunk(1, t, 8), TinyItems(1, t, 7));
  }
  ASSERT_EQ(table.journal_source().segments().size(), 1u);
  const std::size_t used = table.journal_source().segments()[0]->used(), record = used / 5;
  for (std::size_t cut = 0; cut <= used; ++cut) {
    auto segment = Segment::Adopt(1, CopySegments(table)[0]->used() == used
                                         ? Buffer::Copy(std::span<const std::byte>(
                                               table.journal_source().segments()[0]->data(), cut))
                                         : Buffer());
    Table::RecoverCounts counts;
    auto again = Table::Recover(table.options(), {segment}, {}, &counts);
    ASSERT_TRUE(again.ok());
    EXPECT_EQ(again->size(), 7 * std::int64_t(cut / record)) << cut;
    EXPECT_EQ(counts.segments_damaged, cut % record != 0);
    EXPECT_EQ(counts.bytes_dropped, cut % record);
  }
}

// Records behind a damaged one are found again, and move with their segment.
TEST(TableRecoverTest, DamagedRecordLosesOnlyItsContents) {
  Table::Options options = Durable(60);
  options.segment_bytes = std::size_t{1} << 16;
  Table table = MakeTable(options);
  for (std::uint64_t t = 0; t < 40; t += 8) {
    Put(&table, TinyChunk(1, t, 8), TinyItems(1, t, 7));
  }
  ASSERT_EQ(table.journal_source().segments().size(), 1u);
  const Segment& whole = *table.journal_source().segments()[0];
  const std::size_t record = whole.used() / 5;
  for (std::size_t at = 0; at < whole.used(); at += 7) {
    std::vector<std::byte> bytes(whole.data(), whole.data() + whole.used());
    bytes[at] ^= std::byte{1};
    Table::RecoverCounts counts;
    const Buffer copy = Buffer::Copy(std::span<const std::byte>(bytes));
    auto again = Table::Recover(options, {Segment::Adopt(1, copy)}, {}, &counts);
    ASSERT_TRUE(again.ok());
    ASSERT_EQ(again->size(), 28) << at;
    EXPECT_EQ(counts.segments_damaged, 1);
    EXPECT_EQ(counts.bytes_dropped, at < 4 * record ? record : whole.used() - 4 * record);
    if (at % 70 != 0) continue;
    // Enough comes to push the segment out, with what it has left compacted on the way.
    for (std::uint64_t t = 40; t < 1000; t += 8) {
      Put(&*again, TinyChunk(1, t, 8), TinyItems(1, t, 7));
      const Read read(&*again, again->size());
      for (std::size_t i = 0; i < read.begin.size(); ++i) {
        ASSERT_EQ(read.action(i), std::int32_t(10 + read.own_frame(i)));
      }
    }
  }
}

TEST(TableRecoverTest, FlippedByteInOldSegmentLeavesOthersIntact) {
  Table table = MakeTable(Durable(1000));
  Traffic traffic(11);
  for (int round = 0; round < 60; ++round) traffic.Insert(&table);
  auto segments = CopySegments(table);
  ASSERT_GT(segments.size(), 4u);
  MutableBuffer damaged(segments[1]->used());
  std::memcpy(damaged.data(), segments[1]->data(), damaged.size());
  damaged.data()[damaged.size() / 2] ^= std::byte{1};
  segments[1] = Segment::Adopt(segments[1]->id(), std::move(damaged).Freeze());
  Table::RecoverCounts counts;
  auto again = Table::Recover(table.options(), segments, TakeSnapshot(table), &counts);
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(counts.segments_damaged, 1);
  EXPECT_GT(counts.bytes_dropped, 0u);
  EXPECT_LT(again->size(), table.size());
  EXPECT_GT(again->size(), table.size() / 2);
  Traffic more(12, 77);
  for (int round = 0; round < 300; ++round) more.Insert(&*again);
  EXPECT_EQ(again->size(), 1000);
}

// Compaction reads without checksums: it walked into the damage, where frames have no names.
TEST(TableRecoverTest, CompactsAroundDamageInSegment) {
  Table::Options options = Durable(400);
  options.remover.kind = Selector::Kind::kUniform;
  Table table = MakeTable(options);
  for (std::uint64_t t = 0; t < 320; t += 8) {
    Put(&table, TinyChunk(1, t, 8), TinyItems(1, t, 7));
  }
  auto segments = CopySegments(table);
  for (auto& segment : segments) {
    MutableBuffer damaged(segment->used());
    std::memcpy(damaged.data(), segment->data(), damaged.size());
    RecordHeader header;  // of the first record, which is whole; the next one's last frame is not
    std::memcpy(&header, damaged.data(), sizeof(header));
    damaged.data()[2 * header.bytes - 9] ^= std::byte{1};
    segment = Segment::Adopt(segment->id(), std::move(damaged).Freeze());
  }
  const auto damaged = std::int64_t(segments.size());
  Table::RecoverCounts counts;
  auto again = Table::Recover(options, std::move(segments), TakeSnapshot(table), &counts);
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(counts.segments_damaged, damaged);
  EXPECT_EQ(counts.items, 7 * (40 - damaged));
  for (std::uint64_t t = 0; t < 3200; t += 8) {
    Put(&*again, TinyChunk(2, t, 8), TinyItems(2, t, 7));
  }
  EXPECT_GT(again->usage().compacted_bytes, 0u);
  EXPECT_EQ(again->size(), 400);
}

// Without checksums any byte may reach the reader: nothing crashes, and the table still works.
TEST(TableRecoverTest, SurvivesArbitraryBytes) {
  for (const Codec codec : {Codec::kNone, Codec::kLz4}) {
    Table::Options options = Durable(64);
    options.checksums = false;
    options.trajectory.state = TensorSpec{DType::kU8, {16}};  // so that items are written
    options.remover.kind = Selector::Kind::kUniform;
    options.segment_bytes = 1024;
    options.codec = codec;
    int compacted = 0;
    Table table = MakeTable(options);
    Traffic traffic(13);
    for (int round = 0; round < 30; ++round) traffic.Insert(&table);
    Rng rng({.run_seed = 17});
    for (int trial = 0; trial < 400; ++trial) {
      std::vector<std::shared_ptr<Segment>> segments;
      for (const auto& segment : CopySegments(table)) {
        MutableBuffer bytes(segment->used());
        std::memcpy(bytes.data(), segment->data(), bytes.size());
        for (std::uint32_t i = 0, n = 1 + rng.Below(6); i < n; ++i) {
          const std::uint32_t at = rng.Below(std::uint32_t(bytes.size()));
          bytes.data()[at] = std::byte(rng.NextU32());
        }
        segments.push_back(Segment::Adopt(segment->id(), std::move(bytes).Freeze()));
      }
      Snapshot snapshot = TakeSnapshot(table);
      snapshot.lines[0].slot[rng.Below(16)].priority = -1;
      Table::RecoverCounts counts;
      auto again = Table::Recover(options, std::move(segments), snapshot, &counts);
      ASSERT_TRUE(again.ok());
      EncodedBatch drawn;
      if (again->can_draw()) again->Draw(32, &drawn);
      // Enough that what is damaged is compacted.
      Traffic more(19, 0x4d4d4d);
      for (int round = 0; round < 30; ++round) more.Insert(&*again);
      compacted += again->usage().compacted_bytes > 0;
    }
    EXPECT_GT(compacted, 300);
  }
}

}  // namespace
}  // namespace troop
