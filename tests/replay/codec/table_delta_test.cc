#include "replay/codec/table_delta.h"
#include "core/config/enum_names.h"

#include <gtest/gtest.h>

#include <cmath>
#include <deque>

#include "tests/replay/feed_copy.h"

namespace troop {
namespace {

constexpr int kSteps = 3;

Table::Options FedOptions(Codec codec, int stack) {
  Table::Options options = TinyOptions(60);
  options.view = {.length_max = kSteps, .stack = stack};
  options.codec = codec;
  options.frames = 160;  // so that places are given out again
  options.segment_bytes = 4096;
  options.checksums = true;
  options.feed = true;
  return options;
}

// Streams of short episodes with all their items, some of them twice; and which of them a table
// that loses its oldest has.
class Play {
 public:
  struct Expected {
    StreamId stream = 0;
    std::uint64_t first = 0;
    std::int32_t lead = 0, length = 0;
    float priority = 0;
  };
  Play(Table* table, std::uint64_t seed) : table_(table), rng_({.run_seed = seed}) {}

  void Insert() {
    const StreamId stream = rng_.Below(4);
    Stream& s = streams_[stream];
    const bool ends = rng_.Below(3) == 0;
    const auto n = std::uint32_t(1 + ends + rng_.Below(6));
    const std::uint64_t begin = s.next;
    EncodedInsert call;
    const Table::Options& options = table_->options();
    call.chunks.push_back(EncodeFrames(options.trajectory, options.codec, stream,
                                       ends ? EpisodeEnd(begin, n, 0.5f) : PlainFrames(begin, n)));
    for (std::uint64_t t = begin; t < begin + n; ++t) {
      const bool final = ends && t + 1 == begin + n;
      for (std::uint64_t length = kSteps; length >= 1; --length) {
        if (t < s.episode + length || (length < kSteps && !final)) continue;
        for (std::uint64_t copy = 0; copy <= rng_.Below(5) / 4; ++copy)
          AddItem(stream, t - length, std::int32_t(length), &call.items);
      }
    }
    s.next += n;
    if (ends) s.episode = s.next;
    Put(table_, call);
    while (std::int64_t(expected_.size()) > table_->size()) expected_.pop_front();
  }
  const std::deque<Expected>& expected() const { return expected_; }
  Rng& rng() { return rng_; }
  void Use(Table* table) { table_ = table; }
  void LoseOldest() {
    while (std::int64_t(expected_.size()) > table_->size()) expected_.pop_front();
  }
  // Changes priorities in the table; the replica gets priorities by another path.
  void Update() {
    EncodedBatch drawn;
    table_->Draw(4, &drawn);
    for (const std::uint64_t key : drawn.key) {
      const float p = 0.25f + rng_.UniformF32();
      table_->Update({&key, 1}, {&p, 1});
    }
  }

 private:
  struct Stream {
    std::uint64_t next = 0, episode = 0;
  };
  void AddItem(StreamId stream, std::uint64_t first, std::int32_t length,
               std::vector<Item>* items) {
    const float priority = 0.5f + rng_.UniformF32();
    const int stack = table_->options().view.stack;
    items->push_back({.stream = stream,
                      .first_frame = first,
                      .length = std::uint32_t(length),
                      .priority = priority,
                      .policy_version = first});
    const auto lead = std::int32_t(
        std::min<std::uint64_t>(std::uint64_t(stack - 1), first - streams_[stream].episode));
    expected_.push_back({stream, first, lead, length, priority});
  }
  Table* table_;
  Rng rng_;
  std::map<StreamId, Stream> streams_;
  std::deque<Expected> expected_;
};

class Follower {
 public:
  // One feed; whether it was all.
  bool Take(Table* table, std::int64_t items_max, std::size_t bytes_max) {
    const Table::Options& options = table->options();
    TableDelta read;
    const DeltaCursor before = at_;
    at_ = table->ReadDelta(at_, items_max, bytes_max, &read);
    EXPECT_LE(read.items(), items_max);
    EXPECT_GE(at_.next, before.next);
    const Buffer block = PackTableDelta(read, options.trajectory, options.codec);
    TableDelta feed;
    const Status parsed = ParseTableDelta(block.bytes(), options.trajectory, options.view,
                                          options.codec, table->replica_sizes(), &feed);
    EXPECT_TRUE(parsed.ok()) << parsed.ToString();
    std::vector<std::pair<float, float>> observation;
    FrameCoder coder(options.codec, options.trajectory.observation.bytes());
    std::vector<std::byte> decoded(options.trajectory.observation.bytes());
    for (const EncodedBatch::Frame& frame : feed.observation) {
      EXPECT_TRUE(coder.Decode({frame.data, frame.bytes}, decoded.data()).ok());
      float pair[2];
      std::memcpy(pair, decoded.data(), 8);
      observation.emplace_back(pair[0], pair[1]);
    }
    copy.Take(feed, table->oldest_number(), observation);
    return at_.next == table->journal_source().counters().inserted;
  }
  void StartAnew() {
    copy.Clear();
    at_ = {};
  }
  FeedCopy copy;

 private:
  DeltaCursor at_;
};

void ExpectSame(const FeedCopy& copy, const std::deque<Play::Expected>& expected) {
  const std::vector<FeedCopy::Item> items = copy.items();
  ASSERT_EQ(items.size(), expected.size());
  for (std::size_t i = 0; i < items.size(); ++i) {
    const Play::Expected& want = expected[i];
    ASSERT_EQ(items[i].lead, want.lead) << i;
    ASSERT_EQ(items[i].policy_version, want.first);
    const std::vector<FeedCopy::Frame> frames = copy.FramesOf(items[i]);
    ASSERT_EQ(frames.size(), std::size_t(want.lead + want.length + 1));
    for (std::size_t k = 0; k < frames.size(); ++k) {
      const std::uint64_t t = want.first - std::uint64_t(want.lead) + k;
      ASSERT_EQ(frames[k].stream, want.stream) << "item " << i << ", frame " << k;
      ASSERT_EQ(frames[k].number, t);
      ASSERT_EQ(frames[k].action, std::int32_t(10 * want.stream + t));
      const bool final = frames[k].discount == 0;
      ASSERT_EQ(frames[k].reward, final ? 0 : float(t) + 0.5f);
    }
  }
}

struct Variant {
  Codec codec;
  int stack;
};
class FeedTest : public testing::TestWithParam<Variant> {
 protected:
  Table::Options options() const { return FedOptions(GetParam().codec, GetParam().stack); }
};

// Items and frames are evicted and their slots reused many times; the replica takes small deltas
// often, or misses evicted items, or restarts.
TEST_P(FeedTest, ReplicaOfAllFeedsMatchesTable) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    Table table = MakeTable(options());
    Play play(&table, seed);
    Follower follower;
    for (int round = 0; round < 120; ++round) {
      for (std::uint64_t n = play.rng().Below(12); n > 0; --n) play.Insert();
      if (play.rng().Below(8) == 0) continue;  // it is late
      if (play.rng().Below(30) == 0) follower.StartAnew();
      const auto items_max = std::int64_t(1 + play.rng().Below(20));
      const std::size_t bytes_max = 1 + play.rng().Below(2000);
      if (play.rng().Below(2) == 0) {
        follower.Take(&table, items_max, bytes_max);
        continue;
      }
      while (!follower.Take(&table, items_max, bytes_max)) {
      }
      ASSERT_NO_FATAL_FAILURE(ExpectSame(follower.copy, play.expected()))
          << "seed " << seed << ", round " << round;
    }
  }
}

TEST_P(FeedTest, FeedsEachFrameOnce) {
  Table table = MakeTable(options());
  Play play(&table, 5);
  Follower follower;
  for (int round = 0; round < 300; ++round) {
    play.Insert();
    while (!follower.Take(&table, 3, 100)) {
    }
  }
  // Each frame that an item has looked at, and none twice: fewer than items, as some are double.
  EXPECT_LT(follower.copy.frames_fed(), 1.35 * double(table.journal_source().counters().inserted));
  Follower late;
  while (!late.Take(&table, 1000, 1 << 20)) {
  }
  EXPECT_LE(late.copy.frames_fed(), table.usage().frames);
  EXPECT_NO_FATAL_FAILURE(ExpectSame(late.copy, play.expected()));
}

// Items restored from disk are sent like new ones, with their latest priorities.
TEST_P(FeedTest, RestoredTableFeedsItsItems) {
  Table table = MakeTable(options());
  Play play(&table, 9);
  for (int i = 0; i < 60; ++i) play.Insert();
  for (int i = 0; i < 30; ++i) play.Update();
  Snapshot snapshot{.counters = table.journal_source().counters()};
  for (std::int64_t i = 0; i < table.journal_source().lines(); ++i) {
    snapshot.lines.push_back({.read_at = table.journal_source().position()});
    table.journal_source().ReadLine(i, &snapshot.lines.back().slot);
  }
  std::vector<std::shared_ptr<Segment>> copies;
  for (const auto& segment : table.journal_source().segments()) {
    copies.push_back(Segment::Adopt(
        segment->id(), Buffer::Copy(std::span<const std::byte>(segment->data(), segment->used()))));
  }
  Table::RecoverCounts counts;
  auto restored = Table::Recover(table.options(), copies, snapshot, &counts);
  ASSERT_TRUE(restored.ok()) << restored.status().ToString();
  Follower before, after;
  while (!before.Take(&table, 7, 500)) {
  }
  while (!after.Take(&*restored, 7, 500)) {
  }
  ASSERT_NO_FATAL_FAILURE(ExpectSame(after.copy, play.expected()));
  const auto had = before.copy.items(), has = after.copy.items();
  bool changed = false;
  for (std::size_t i = 0; i < has.size(); ++i) {
    ASSERT_EQ(has[i].priority, had[i].priority) << i;
    changed = changed || std::abs(has[i].priority - play.expected()[i].priority) > 1e-6;
  }
  EXPECT_TRUE(changed);
  play.Use(&*restored);
  for (int i = 0; i < 100; ++i) {
    play.Insert();
    while (!after.Take(&*restored, 7, 500)) {
    }
    ASSERT_NO_FATAL_FAILURE(ExpectSame(after.copy, play.expected())) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Views, FeedTest,
                         testing::Values(Variant{Codec::kNone, 1}, Variant{Codec::kNone, 4},
                                         Variant{Codec::kLz4, 3}),
                         [](const auto& i) {
                           return std::string(EnumName(i.param.codec)) +
                                  std::to_string(i.param.stack);
                         });

// Draws elsewhere count for the soft capacity as those here.
TEST(FeedCapacityTest, RemoteSamplesTriggerTrimming) {
  Table::Options options = FedOptions(Codec::kNone, 1);
  options.trim_every_samples = 100;
  Table table = MakeTable(options);
  Play play(&table, 2);
  while (table.size() < 66) play.Insert();
  table.CountReplicaSamples(99);
  EXPECT_GE(table.size(), 66);
  table.CountReplicaSamples(1);
  EXPECT_EQ(table.size(), 60);
  play.LoseOldest();
  Follower follower;
  while (!follower.Take(&table, 1000, 1 << 20)) {
  }
  EXPECT_NO_FATAL_FAILURE(ExpectSame(follower.copy, play.expected()));
}

TEST(FeedCapacityTest, RejectsEvictionOtherThanFifo) {
  for (int what = 0; what < 4; ++what) {
    Table::Options options = FedOptions(Codec::kNone, 1);
    if (what == 0) options.remover.kind = Selector::Kind::kLowest;
    if (what == 1) options.reservoir = true;
    if (what == 2) options.max_times_sampled = 1;
    if (what == 3) options.max_policy_age = 1;
    EXPECT_EQ(Table::Make(options).status().code(), Code::kInvalidArgument) << what;
  }
}

// ---- Bytes from outside -------------------------------------------------------------------------

struct Block {
  TrajectorySpec spec = TinySpec();
  ViewSpec view{.length_max = kSteps, .stack = 2};
  ReplicaSizes sizes{10, 20};
  TableDelta feed;
  std::vector<std::byte> bytes;

  Block() {
    static const float pixels[8] = {};
    feed.place = {3, 4, 5, 19};
    feed.reward = {0, 1, 2, 3};
    feed.discount = {1, 1, 1, 0};
    feed.action.resize(16);
    for (int i = 0; i < 4; ++i)
      feed.observation.push_back({reinterpret_cast<const std::byte*>(pixels), 8});
    feed.number = {7, 8};
    feed.key = {std::uint64_t{1} << 32 | 9, std::uint64_t{1} << 32};
    feed.policy_version = {0, 0};
    feed.priority = {1, 2};
    feed.length = {1, 2};
    feed.lead = {0, 1};
    feed.window = {3, 4, 3, 4, 5, 19};
  }
  Status Parse() {
    const Buffer block = PackTableDelta(feed, spec, Codec::kNone);
    TableDelta parsed;
    return ParseTableDelta(block.bytes(), spec, view, Codec::kNone, sizes, &parsed);
  }
};

TEST(FeedBytesTest, RejectsInvalidFeed) {
  EXPECT_TRUE(Block().Parse().ok());
  const auto refused = [](const char* what, auto change) {
    Block block;
    change(&block.feed);
    EXPECT_EQ(block.Parse().code(), Code::kDataLoss) << what;
  };
  refused("a place", [](TableDelta* f) { f->place[3] = 20; });
  refused("a reward", [](TableDelta* f) { f->reward[1] = NAN; });
  refused("a discount", [](TableDelta* f) { f->discount[1] = 1.5f; });
  refused("a slot", [](TableDelta* f) { f->key[0] += 1; });
  refused("an order", [](TableDelta* f) { f->number[1] = 7; });
  refused("a priority", [](TableDelta* f) { f->priority[0] = -1; });
  refused("an infinite priority", [](TableDelta* f) { f->priority[0] = INFINITY; });
  refused("no steps", [](TableDelta* f) { f->length[0] = 0; });
  refused("many steps", [](TableDelta* f) { f->length[0] = kSteps + 1; });
  refused("a lead", [](TableDelta* f) { f->lead[0] = 2; });
  refused("a window", [](TableDelta* f) { f->window.pop_back(); });
  refused("a place in a window", [](TableDelta* f) { f->window[5] = 20; });
}

// Every byte of a block is another one, one after the other; and every block is cut everywhere.
TEST(FeedBytesTest, SurvivesArbitraryBytes) {
  for (const Codec codec : {Codec::kNone, Codec::kLz4}) {
    const Block good;
    const Buffer packed = PackTableDelta(good.feed, good.spec, codec);
    std::vector<std::byte> bytes(packed.bytes().begin(), packed.bytes().end());
    TableDelta parsed;
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      for (const int other : {0x00, 0x7f, 0x80, 0xff}) {
        const std::byte was = std::exchange(bytes[i], std::byte(other));
        (void)ParseTableDelta(bytes, good.spec, good.view, codec, good.sizes, &parsed);
        bytes[i] = was;
      }
      EXPECT_FALSE(ParseTableDelta(std::span(bytes).first(i), good.spec, good.view, codec,
                                   good.sizes, &parsed)
                       .ok());
    }
  }
}

}  // namespace
}  // namespace troop
