// Which inserts a table accepts or refuses, and which items it evicts.

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/replay/chi_square.h"
#include "tests/replay/table_world.h"

namespace troop {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

// ---- views --------------------------------------------------------------------------------------

TEST(TableInsertTest, ItemSpansInterleavedChunksOfItsStream) {
  Table table = MakeTable(TinyOptions());
  Put(&table, TinyChunk(1, 0, 5), {});
  Put(&table, TinyChunk(2, 0, 5), {});
  Put(&table, TinyChunk(1, 5, 5), TinyItems(1, 3, 1, 1, 3));
  const Read read(&table, 1);
  EXPECT_EQ(read.first_frame(0), 3u);
  EXPECT_EQ(read.last_frame(0), 6u);
  EXPECT_EQ(read.action(0), 13);
  EXPECT_EQ(read.drawn.reward, (std::vector<float>{3.5f, 4.5f, 5.5f}));
}

TEST(TableInsertTest, JoinsChunksOfStreamWithinOneCall) {
  Table table = MakeTable(TinyOptions());
  EncodedInsert call{{TinyChunk(1, 0, 3), TinyChunk(2, 0, 4), TinyChunk(1, 3, 3)}, {}};
  call.items = TinyItems(1, 0, 3, 1, 3);
  for (const Item& item : TinyItems(2, 0, 1, 1, 3)) call.items.push_back(item);
  EXPECT_EQ(Put(&table, call).inserted, 4);
  const Read read(&table, 4);
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(read.stream(i), i < 3 ? 1u : 2u);
    EXPECT_EQ(read.last_frame(i), read.first_frame(i) + 3);
  }
}

TEST(TableInsertTest, StoresEachFrameOnceForOverlappingItems) {
  Table::Options options = TinyOptions(1000);
  options.view = {.length_max = 5, .stack = 4};
  Table table = MakeTable(options);
  Put(&table, TinyChunk(1, 0, 100), TinyItems(1, 0, 95, 1, 5));
  const std::size_t before = table.usage().live_bytes;
  EXPECT_EQ(table.usage().frames, 100);
  Put(&table, TinyChunk(1, 100, 100), TinyItems(1, 95, 100, 1, 5));
  EXPECT_EQ(table.usage().frames, 200);
  EXPECT_EQ(table.usage().live_bytes - before, 100 * (8 + 4 + 9));  // observation, action, the rest
}

TEST(TableInsertTest, PadsShortItemAtEpisodeEnd) {
  for (const float last_discount : {0.0f, 1.0f}) {  // terminated, truncated
    Table table = MakeTable(TinyOptions());
    Put(&table, EncodeFrames(TinySpec(), Codec::kNone, 1, EpisodeEnd(0, 5, last_discount)),
        TinyItems(1, 2, 1, 1, 2));
    const Read read(&table, 1);
    EXPECT_EQ(read.drawn.length[0], 2);
    EXPECT_EQ(read.last_frame(0), 4u);  // the true last observation
    EXPECT_EQ(read.drawn.reward, (std::vector<float>{2.5f, 3.5f, 0}));
    EXPECT_EQ(read.drawn.discount, (std::vector<float>{1, last_discount, 1}));
  }
}

TEST(TableInsertTest, AgeOfSampledItemCountsLaterInserts) {
  Table table = MakeTable(TinyOptions());
  Put(&table, TinyChunk(1, 0, 11), TinyItems(1, 0, 10));
  const Read read(&table, 10);
  for (std::size_t i = 0; i < 10; ++i) EXPECT_EQ(table.drawn_age()[i], 9 - read.first_frame(i));
}

// ---- refusals -----------------------------------------------------------------------------------

// A refused call leaves the table as it was: the same call without its fault goes in afterwards.
void ExpectRefused(Table* table, const EncodedInsert& call, std::string_view why = "") {
  const std::int64_t size = table->size(), frames = table->usage().frames,
                     streams = table->usage().streams;
  const std::size_t live = table->usage().live_bytes;
  const auto counts = table->Insert(call);
  EXPECT_EQ(counts.status().code(), Code::kInvalidArgument) << counts.status().ToString();
  EXPECT_NE(counts.status().message().find(why), std::string::npos) << counts.status().ToString();
  EXPECT_EQ(counts.status().message().find('\n'), std::string::npos);
  EXPECT_EQ(table->size(), size);
  EXPECT_EQ(table->usage().frames, frames);
  EXPECT_EQ(table->usage().streams, streams);
  EXPECT_EQ(table->usage().live_bytes, live);
}

TEST(TableInsertTest, RejectsItemAcrossEpisodeEnd) {
  Table table = MakeTable(TinyOptions());
  Put(&table, EncodeFrames(TinySpec(), Codec::kNone, 1, EpisodeEnd(0, 5, 0)), {});
  for (const std::uint64_t first : {2, 3, 4}) {
    ExpectRefused(&table, {{TinyChunk(1, 5, 5)}, TinyItems(1, first, 1, 1, 3)},
                  "crosses the end of an episode");
  }
  EXPECT_EQ(Put(&table, TinyChunk(1, 5, 5), TinyItems(1, 5, 1, 1, 3)).inserted, 1);
}

// The writer has no report of it: acknowledged frames are lost when a server is killed.
TEST(TableInsertTest, ItemAcrossLostFrameExpires) {
  Table table = MakeTable(TinyOptions());
  Put(&table, TinyChunk(1, 0, 5), {});
  EXPECT_EQ(Put(&table, TinyChunk(1, 6, 5), TinyItems(1, 3, 1, 1, 2)).expired, 1);
  EXPECT_EQ(Put(&table, {{}, TinyItems(1, 7, 1, 1, 3)}).inserted, 1);
}

TEST(TableInsertTest, StackStopsAtLostFrame) {
  Table::Options options = TinyOptions();
  options.view = {.length_max = 1, .stack = 4};
  Table table = MakeTable(options);
  Put(&table, TinyChunk(1, 0, 5), {});
  Put(&table, TinyChunk(1, 6, 5), TinyItems(1, 7, 1));
  EXPECT_EQ(Read(&table, 1).drawn.lead[0], 1);
}

// Padding in the middle of an episode would be wrong: the table does not have the start of the
// episode.
TEST(TableInsertTest, UnknownLateStreamGetsNoShortStacks) {
  Table::Options options = TinyOptions();
  options.view = {.length_max = 1, .stack = 4};
  Table table = MakeTable(options);
  const auto counts = Put(&table, TinyChunk(1, 70, 9), TinyItems(1, 70, 8));
  EXPECT_EQ(counts.expired, 3);
  EXPECT_EQ(counts.inserted, 5);
  // An episode that begins here is whole.
  Put(&table, EncodeFrames(TinySpec(), Codec::kNone, 2, EpisodeEnd(40, 2, 0)), {});
  EXPECT_EQ(Put(&table, TinyChunk(2, 42, 3), TinyItems(2, 42, 2)).inserted, 2);
}

TEST(TableInsertTest, RejectsItemsBeyondReceivedFrames) {
  Table table = MakeTable(TinyOptions());
  Put(&table, TinyChunk(1, 0, 5), {});
  for (const Item& item : {Item{.stream = 1, .first_frame = 8, .length = 2, .priority = 1},
                           Item{.stream = 1, .first_frame = ~0ull, .length = 3, .priority = 1}}) {
    ExpectRefused(&table, {{TinyChunk(1, 5, 5)}, {item}}, "ends before frame 10");
    // For frames of earlier calls, the writer may have no report of their loss.
    EXPECT_EQ(Put(&table, {{}, {item}}).expired, 1);
  }
  EXPECT_EQ(Put(&table, {{}, TinyItems(9, 0, 1)}).expired, 1);
  for (const Item& item :
       {Item{.stream = 1, .first_frame = 0, .length = 0, .priority = 1},
        Item{.stream = 1, .first_frame = 0, .length = 4, .priority = 1},
        Item{.stream = 1, .first_frame = 0, .length = ~0u, .priority = 1},
        Item{.stream = 1, .first_frame = 1, .length = 1, .burn_in = 1, .priority = 1}}) {
    ExpectRefused(&table, {{}, {item}});
    ExpectRefused(&table, {{TinyChunk(7, 0, 3)}, {item}});
  }
  EXPECT_EQ(Put(&table, {{}, TinyItems(1, 3, 1)}).inserted, 1);
}

TEST(TableInsertTest, RejectsInvalidPriorities) {
  Table table = MakeTable(TinyOptions());
  for (const float bad : {kNan, kInfinity, -kInfinity, -1.0f}) {
    ExpectRefused(&table, {{TinyChunk(1, 0, 5)}, TinyItems(1, 0, 1, bad)}, "priority");
  }
}

TEST(TableInsertTest, RejectsInvalidFrameValues) {
  Table table = MakeTable(TinyOptions());
  const auto refused = [&table](auto change, std::string_view why) {
    auto frames = PlainFrames(0, 5);
    change(&frames[3]);
    ExpectRefused(&table, {{EncodeFrames(TinySpec(), Codec::kNone, 1, frames)}, TinyItems(1, 0, 1)},
                  why);
  };
  refused([](PlainFrame* f) { f->reward = kNan; }, "reward");
  refused([](PlainFrame* f) { f->reward = -kInfinity; }, "reward");
  refused([](PlainFrame* f) { f->discount = 1.5f; }, "discount");
  refused([](PlainFrame* f) { f->discount = -0.5f; }, "discount");
  refused([](PlainFrame* f) { f->discount = kNan; }, "discount");
  EncodedChunk chunk = TinyChunk(1, 0, 5);
  chunk.final = Buffer::Copy(std::string_view("\0\0\2\0\0", 5));
  ExpectRefused(&table, {{chunk}, {}}, "final mark");
}

// One of them made all others too old, whatever came after it.
TEST(TableInsertTest, RejectsImpossiblePolicyVersion) {
  Table table = MakeTable(TinyOptions());
  auto items = TinyItems(1, 0, 1);
  for (const std::uint64_t version : {~0ull, 1ull << 31, 7ull << 32 | 0xFFFFFFFF}) {
    items[0].policy_version = version;
    ExpectRefused(&table, {{TinyChunk(1, 0, 3)}, items}, "policy version");
  }
  EXPECT_EQ(table.newest_policy_version(), 0u);
}

TEST(TableInsertTest, StackedItemsRequireBurnInOfView) {
  Table::Options options = TinyOptions();
  options.view = {.kind = ViewSpec::Kind::kSequence, .length_max = 3, .stack = 2, .burn_in = 2};
  Table table = MakeTable(options);
  auto items = TinyItems(1, 6, 1);
  items[0].burn_in = 1;
  ExpectRefused(&table, {{TinyChunk(1, 0, 9)}, items}, "must be 2 with stacked observations");
  items[0].burn_in = 2;
  EXPECT_EQ(Put(&table, TinyChunk(1, 0, 9), items).inserted, 1);
}

TEST(TableInsertTest, RejectsColumnsOfWrongSize) {
  for (const Codec codec : {Codec::kNone, Codec::kLz4}) {
    Table::Options options = TinyOptions();
    options.codec = codec;
    Table table = MakeTable(options);
    const EncodedChunk good = EncodeFrames(TinySpec(), codec, 1, PlainFrames(0, 5));
    for (Buffer EncodedChunk::*column :
         {&EncodedChunk::action, &EncodedChunk::reward, &EncodedChunk::discount,
          &EncodedChunk::final, &EncodedChunk::frame_bytes, &EncodedChunk::observation}) {
      EncodedChunk chunk = good;
      if ((chunk.*column).empty()) {
        chunk.*column = good.reward;
      } else {
        chunk.*column = (chunk.*column).Slice(0, (chunk.*column).size() - 1);
      }
      ExpectRefused(&table, {{chunk}, {}});
      chunk.*column = Buffer();
      if (!(good.*column).empty()) ExpectRefused(&table, {{chunk}, {}});
    }
    EncodedChunk empty = good;
    empty.frames = 0;
    ExpectRefused(&table, {{empty}, {}});
    EncodedChunk far = good;
    far.first_frame = ~std::uint64_t{0} - 2;
    ExpectRefused(&table, {{far}, {}});
    EXPECT_EQ(Put(&table, good, TinyItems(1, 0, 4)).inserted, 4);
  }
}

TEST(TableInsertTest, RejectsUndecodableFrames) {
  Table::Options options = TinyOptions();
  options.trajectory.observation = {DType::kF32, {64}};
  options.codec = Codec::kLz4;
  Table table = MakeTable(options);
  const EncodedChunk good = EncodeFrames(options.trajectory, Codec::kLz4, 1, PlainFrames(0, 3));
  int refused = 0;
  for (std::size_t at = 0; at < good.observation.size(); ++at) {
    MutableBuffer bytes(good.observation.size());
    std::memcpy(bytes.data(), good.observation.data(), bytes.size());
    bytes.data()[at] ^= std::byte{0xFF};
    EncodedChunk chunk = good;
    chunk.observation = std::move(bytes).Freeze();
    const auto counts = MakeTable(options).Insert({{chunk}, {}});
    refused += !counts.ok();
  }
  EXPECT_GT(refused, 5);
  // Sizes that add up and lie about each frame.
  EncodedChunk chunk = good;
  MutableBuffer sizes(12);
  sizes.as<std::uint32_t>()[0] = std::uint32_t(good.observation.size());
  sizes.as<std::uint32_t>()[1] = sizes.as<std::uint32_t>()[2] = 0;
  chunk.frame_bytes = std::move(sizes).Freeze();
  ExpectRefused(&table, {{chunk}, {}});
}

TEST(TableInsertTest, RejectsStateOfWrongSize) {
  Table::Options options = TinyOptions();
  options.trajectory.state = TensorSpec{DType::kF32, {2}};
  Table table = MakeTable(options);
  auto items = TinyItems(1, 0, 1);
  ExpectRefused(&table, {{TinyChunk(1, 0, 5)}, items}, "state");
  items[0].state = Buffer::Copy("12345678");
  EXPECT_EQ(Put(&table, {{TinyChunk(1, 0, 5)}, items}).inserted, 1);
  EncodedBatch drawn;
  table.Draw(1, &drawn);
  EXPECT_EQ(std::memcmp(drawn.state.data(), "12345678", 8), 0);
}

TEST(TableInsertTest, RejectsRepeatedFramesMixedWithNewOnes) {
  Table table = MakeTable(TinyOptions());
  Put(&table, TinyChunk(1, 0, 5), {});
  ExpectRefused(&table, {{TinyChunk(1, 4, 5)}, {}}, "come again");
  ExpectRefused(&table, {{TinyChunk(1, 5, 2), TinyChunk(1, 6, 2)}, {}}, "come again");
  ExpectRefused(&table, {{TinyChunk(3, 0, 2), TinyChunk(1, 0, 5)}, {}}, "come again");
  EXPECT_EQ(Put(&table, TinyChunk(1, 5, 5), {}).repeated, 0);
}

TEST(TableInsertTest, DeduplicatesRepeatedCall) {
  Table table = MakeTable(TinyOptions());
  Put(&table, TinyChunk(1, 0, 5), TinyItems(1, 0, 4));
  const auto again = Put(&table, TinyChunk(1, 0, 5), TinyItems(1, 0, 4));
  EXPECT_EQ(again.inserted, 0);
  EXPECT_EQ(again.repeated, 4);
  EXPECT_EQ(table.size(), 4);
}

TEST(TableInsertTest, RejectsCallLargerThanCapacity) {
  Table::Options options = TinyOptions(10);
  Table table = MakeTable(options);
  EXPECT_EQ(table.Insert({{TinyChunk(1, 0, 12)}, TinyItems(1, 0, 11)}).status().code(),
            Code::kResourceExhausted);
  EXPECT_EQ(table.Insert({{TinyChunk(1, 0, 100000)}, {}}).status().code(),
            Code::kResourceExhausted);
  options.bytes_max = 64 << 10;
  Table narrow = MakeTable(options);
  EXPECT_EQ(narrow.Insert({{TinyChunk(1, 0, 1800)}, {}}).status().code(), Code::kResourceExhausted);
  EXPECT_EQ(table.usage().streams + narrow.usage().streams, 0);
}

// Items alone keep their streams' newest frames too: the table emptied itself, and gave up then.
TEST(TableInsertTest, RejectsCallLargerThanLogWithoutEvicting) {
  Table::Options options = TinyOptions(2000);
  options.frames = 4096;
  options.view = {.length_max = 3, .stack = 4};
  Table table = MakeTable(options);
  for (StreamId s = 1; s <= 360; ++s) Put(&table, TinyChunk(s, 0, 8), TinyItems(s, 0, 5));
  EncodedInsert call{{TinyChunk(1000, 0, 2000)}, {}};
  for (StreamId s = 1; s <= 360; ++s) {
    call.items.push_back({.stream = s, .first_frame = 4, .length = 1, .priority = 1});
  }
  const std::int64_t before = table.size();
  EXPECT_EQ(table.Insert(call).status().code(), Code::kResourceExhausted);
  EXPECT_EQ(table.size(), before);
  call.items.resize(100);
  EXPECT_EQ(Put(&table, call).inserted, 100);
}

// Each limit that no eviction can satisfy is checked before the first eviction.
TEST(TableInsertTest, RejectsRecordAboveBytesMaxWithoutEvicting) {
  Table::Options options = TinyOptions(5000);
  options.bytes_max = 64 << 10;
  Table table = MakeTable(options);
  for (std::uint64_t t = 0; t < 4000; t += 10) Put(&table, TinyChunk(1, t, 10), TinyItems(1, t, 9));
  const std::int64_t before = table.size(), evicted = table.usage().evicted;
  EXPECT_GT(evicted, 0);  // bytes_max is reached
  EXPECT_EQ(table.Insert({{TinyChunk(2, 0, 1800)}, {}}).status().code(), Code::kResourceExhausted);
  EXPECT_EQ(table.size(), before);
  EXPECT_EQ(table.usage().evicted, evicted);
  EXPECT_EQ(Put(&table, TinyChunk(1, 4000, 10), TinyItems(1, 4000, 9)).inserted, 9);
}

TEST(TableInsertTest, MemoryStaysBoundedWithoutSampling) {
  Table::Options options = TinyOptions(100);
  options.max_policy_age = 1;
  options.segment_bytes = 4096;
  Table table = MakeTable(options);
  const auto insert = [&table](std::uint64_t t) {
    EncodedInsert call{{TinyChunk(1, t, 10)}, TinyItems(1, t, 9)};
    for (Item& item : call.items) item.policy_version = 7;
    Put(&table, call);
  };
  std::uint64_t t = 0;
  for (; t < 10000; t += 10) insert(t);
  const std::size_t before = table.usage().bytes;
  for (; t < 100000; t += 10) insert(t);
  EXPECT_LT(table.usage().bytes, before + 16384);
  EXPECT_TRUE(
      table.journal_source().TakeFreed().empty());  // of segments, where no journal asks for them
}

TEST(TableInsertTest, RejectsInvalidOptions) {
  const auto code = [](auto change) {
    Table::Options options = TinyOptions();
    change(&options);
    return Table::Make(options).status().code();
  };
  EXPECT_EQ(code([](auto* o) { o->capacity_items = 0; }), Code::kInvalidArgument);
  EXPECT_EQ(code([](auto* o) { o->capacity_items = std::int64_t{1} << 40; }),
            Code::kInvalidArgument);
  EXPECT_EQ(code([](auto* o) { o->min_items = 101; }), Code::kInvalidArgument);
  EXPECT_EQ(code([](auto* o) { o->segment_bytes = std::size_t{1} << 32; }), Code::kInvalidArgument);
  EXPECT_EQ(code([](auto* o) { o->view.length_max = 0; }), Code::kInvalidArgument);
  EXPECT_EQ(code([](auto* o) { o->view.stack = 65; }), Code::kInvalidArgument);
  EXPECT_EQ(code([](auto* o) { o->view.burn_in = 1; }), Code::kInvalidArgument);
  EXPECT_EQ(code([](auto* o) { o->sampler.alpha = double(kNan); }), Code::kInvalidArgument);
  EXPECT_EQ(code([](auto* o) { o->priority_epsilon = -1; }), Code::kInvalidArgument);
  EXPECT_EQ(code([](auto* o) { o->priority_epsilon = double(kNan); }), Code::kInvalidArgument);
  EXPECT_EQ(code([](auto* o) { o->first_generation = 0; }), Code::kInvalidArgument);
  EXPECT_EQ(code([](auto* o) { o->trim_every_samples = -1; }), Code::kInvalidArgument);
  EXPECT_EQ(code([](auto* o) { o->max_times_sampled = -1; }), Code::kInvalidArgument);
  EXPECT_EQ(code([](auto* o) { o->frames = -1; }), Code::kInvalidArgument);
  EXPECT_EQ(code([](auto* o) {
              o->reservoir = true;
              o->trim_every_samples = 10;
            }),
            Code::kInvalidArgument);
}

// ---- evictions ----------------------------------------------------------------------------------

TEST(TableInsertTest, TrimsInsertsBeyondSoftCapacityInBulkFifo) {
  Table::Options options = TinyOptions(80);
  options.trim_every_samples = 64;
  Table table = MakeTable(options);
  Put(&table, TinyChunk(1, 0, 89), TinyItems(1, 0, 88));
  EncodedBatch drawn;
  table.Draw(63, &drawn);
  EXPECT_EQ(table.size(), 88);
  table.Draw(1, &drawn);
  EXPECT_EQ(table.size(), 80);
  EXPECT_EQ(Read(&table, 80).first_frame(0), 8u);  // the oldest 8 left
}

TEST(TableInsertTest, HardLimitHoldsWithoutSampling) {
  Table::Options options = TinyOptions(80);
  options.trim_every_samples = 64;
  Table table = MakeTable(options);
  for (std::uint64_t first = 0; first < 2000; first += 20) {
    Put(&table, TinyChunk(1, first, 20), TinyItems(1, first, 19));
    ASSERT_LE(table.size(), 90);
  }
  EXPECT_EQ(table.size(), 90);
}

TEST(TableInsertTest, EpisodesOfOneStepStillReachMinItems) {
  Table::Options options = TinyOptions(60000);
  options.min_items = 60000;
  Table table = MakeTable(options);
  for (std::uint64_t first = 0; first < 160000; first += 2) {
    Put(&table, EncodeFrames(TinySpec(), Codec::kNone, 1, EpisodeEnd(first, 2, 0)),
        TinyItems(1, first, 1));
  }
  EXPECT_EQ(table.size(), 60000);
}

// Regression: items without shared frames need more frames, and sampling never began.
TEST(TableInsertTest, SparseItemsStillReachMinItems) {
  Table::Options options = TinyOptions(20000);
  options.min_items = 20000;
  options.view = {.length_max = 3, .stack = 4};
  Table table = MakeTable(options);
  for (std::uint64_t t = 0; t < 200000; t += 80) {
    EncodedInsert call{{TinyChunk(t / 80 % 50, t / 80 / 50 * 80, 80)}, {}};
    for (std::uint64_t i = 0; i < 9; ++i) {
      call.items.push_back({.stream = t / 80 % 50,
                            .first_frame = t / 80 / 50 * 80 + 8 * i + 3,
                            .length = 3,
                            .priority = 1});
    }
    Put(&table, call);
  }
  EXPECT_EQ(table.size(), 20000);
  options.frames = 7 * 20000 - 1;
  EXPECT_EQ(Table::Make(options).status().code(), Code::kInvalidArgument);
}

TEST(TableInsertTest, ItemsOfLongSilentStreamExpire) {
  Table::Options options = TinyOptions();
  options.frames = 400;
  Table table = MakeTable(options);
  Put(&table, TinyChunk(1, 0, 10), {});
  for (std::uint64_t first = 0; first < 20000; first += 100) {
    Put(&table, TinyChunk(2, first, 100), TinyItems(2, first, 90));
  }
  EXPECT_EQ(table.usage().streams, 1);
  const auto counts = Put(&table, TinyChunk(1, 10, 10), TinyItems(1, 8, 5, 1, 3));
  EXPECT_EQ(counts.expired, 2);  // frames 8 and 9 are gone
  EXPECT_EQ(counts.inserted, 3);
}

TEST(TableInsertTest, BrieflySilentStreamKeepsItsTail) {
  Table::Options options = TinyOptions(300);
  options.frames = 400;
  Table table = MakeTable(options);
  Put(&table, TinyChunk(1, 0, 10), {});
  for (std::uint64_t first = 0; first < 300; first += 100) {
    Put(&table, TinyChunk(2, first, 100), TinyItems(2, first, 90));
  }
  EXPECT_EQ(Put(&table, TinyChunk(1, 10, 10), TinyItems(1, 8, 5, 1, 3)).inserted, 5);
}

TEST(TableInsertTest, NoItemExpiresWithSmallChunks) {
  constexpr std::uint64_t kStreams = 64;
  for (const std::uint32_t n : {1, 3, 8, 20, 64}) {
    for (const bool small : {false, true}) {
      if (small && n > 20) continue;  // all tails don't fit
      Table::Options options = TinyOptions(1000);
      options.view.length_max = int(n);
      if (small) options.frames = 1900;
      Table table = MakeTable(options);
      for (std::uint64_t t = 0; t < 3 * n; ++t) {
        for (StreamId stream = 0; stream < kStreams; ++stream) {
          const auto items = t < n ? std::vector<Item>() : TinyItems(stream, t - n, 1, 1, n);
          ASSERT_EQ(Put(&table, TinyChunk(stream, t, 1), items).expired, 0) << n << ", " << t;
        }
      }
      const Read read(&table, 32);
      for (std::size_t i = 0; i < 32; ++i) {
        ASSERT_EQ(read.last_frame(i), read.first_frame(i) + n);
        ASSERT_EQ(read.drawn.reward[i * n + n - 1], float(read.first_frame(i) + n) - 0.5f);
      }
    }
  }
}

// One frame each of ever new streams: what they keep is bounded, and items of others still come in.
TEST(TableInsertTest, EndlessNewStreamsDoNotFillLog) {
  Table::Options options = TinyOptions(50);
  options.frames = 200;
  Table table = MakeTable(options);
  for (StreamId stream = 1; stream < 5000; ++stream) {
    Put(&table, TinyChunk(stream, 0, 2), TinyItems(stream, 0, 1));
    ASSERT_LE(table.usage().streams, 201);
    ASSERT_LE(table.usage().frames, 200);
  }
  EXPECT_GT(table.size(), 0);
}

TEST(TableInsertTest, EvictsLowestPriorityFirstWithLowestRemover) {
  Table::Options options = TinyOptions(10);
  options.remover.kind = Selector::Kind::kLowest;
  Table table = MakeTable(options);
  for (std::uint64_t t = 0; t < 40; ++t) {
    Put(&table, TinyChunk(1, 2 * t, 2), TinyItems(1, 2 * t, 1, float(1 + t * 7 % 40)));
  }
  const Read read(&table, 200);
  double total = 0;
  for (int p = 31; p <= 40; ++p) total += p;
  // The newest is there whatever its priority, until the next comes.
  EXPECT_NEAR(table.total(), total, 35);
  for (std::size_t i = 0; i + 1 < 200; ++i) {
    const std::uint64_t t = read.first_frame(i) / 2;
    EXPECT_TRUE(1 + t * 7 % 40 >= 30 || t == 39) << t;
  }
}

// Each of 400 newcomers to a reservoir of 40 is in it at the end with chance 1/10. False-alarm rate
// 1e-6 (and seeds are fixed).
TEST(TableInsertTest, ReservoirKeepsInsertsWithEqualProbability) {
  std::vector<std::int64_t> kept(20);
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    Table::Options options = TinyOptions(40);
    options.remover.kind = Selector::Kind::kUniform;
    options.sampler.kind = Selector::Kind::kFifo;
    options.reservoir = true;
    options.seed = seed;
    Table table = MakeTable(options);
    std::int64_t inserted = 0, rejected = 0;
    for (std::uint64_t t = 0; t < 400; t += 20) {
      const auto counts =
          Put(&table, TinyChunk(2, t, 20), t == 0 ? TinyItems(2, 0, 19) : TinyItems(2, t - 1, 20));
      inserted += counts.inserted;
      rejected += counts.rejected;
    }
    EXPECT_EQ(inserted + rejected, 399);
    ASSERT_EQ(table.size(), 40);
    const Read read(&table, 40);
    for (std::size_t i = 0; i < 40; ++i) ++kept[std::size_t(read.first_frame(i) / 20)];
  }
  std::vector<double> share(20, 20.0 / 399);
  share[19] = 19.0 / 399;
  const ChiSquare test = TestCounts(kept, share);
  EXPECT_TRUE(test.ok()) << test.statistic << " > " << test.limit;
}

TEST(TableInsertTest, MemoryStaysWithinPrediction) {
  for (const std::int64_t capacity : {1, 100, 54321}) {
    Table::Options options = TinyOptions(capacity);
    Table table = MakeTable(options);
    for (std::uint64_t t = 0; t < std::uint64_t(3 * capacity); t += 64) {
      Put(&table, TinyChunk(1, t, 64), capacity < 64 ? TinyItems(1, t, 1) : TinyItems(1, t, 63));
    }
    EXPECT_LE(table.usage().bytes, Table::PredictBytes(options));
    if (capacity < 50000) continue;
    EXPECT_GT(table.usage().bytes, Table::PredictBytes(options) * 3 / 4);
  }
}

// It is kept while segments are opened for calls and for what is moved, and is made use of.
TEST(TableInsertTest, SegmentsStayWithinByteLimit) {
  for (const auto remover : {Selector::Kind::kFifo, Selector::Kind::kLowest,
                             Selector::Kind::kUniform, Selector::Kind::kLifo}) {
    for (const std::uint32_t largest : {50, 400, 1500}) {
      Table::Options options = TinyOptions(100000);
      options.remover.kind = remover;
      options.bytes_max = 2 << 20;
      options.trajectory.observation = {DType::kF32, {40}};
      Table table = MakeTable(options);
      Rng rng({.run_seed = 3});
      for (std::uint64_t t = 0, n = 0; t < 40000; t += n) {
        n = largest == 400 ? 20 + rng.Below(380) : largest;
        auto items = TinyItems(1, t, n - 1);
        for (Item& item : items) item.priority = rng.UniformF32();
        Put(&table,
            EncodeFrames(options.trajectory, Codec::kNone, 1, PlainFrames(t, std::uint32_t(n))),
            items);
        ASSERT_LE(table.usage().segment_bytes, options.bytes_max) << "frame " << t;
      }
      EXPECT_GT(double(table.usage().live_bytes), 0.6 * double(options.bytes_max));
    }
  }
}

}  // namespace
}  // namespace troop
