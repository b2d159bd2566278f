#include "replay/table.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <map>

#include "replay/wire.h"
#include "tests/replay/chi_square.h"
#include "tests/replay/replay_world.h"

namespace troop {
namespace {

Table MakeTable(const Table::Options& options) {
  auto table = Table::Make(options);
  TROOP_CHECK(table.ok(), "{}", table.status().ToString());
  return std::move(*table);
}

Table::Options Small(std::int64_t capacity = 100) {
  return {.trajectory = SmallSpec(), .capacity_items = capacity, .alpha = 1, .priority_epsilon = 0};
}

// Drawn rows, and who owns them.
struct Drawn {
  Drawn(Table* table, std::int64_t batch)
      : layout(SmallSpec(), batch, table->n_step_max()),
        block(layout.bytes),
        rows(layout.RowsAt(block.data())) {
    table->Draw(batch, rows);
  }
  float stream(std::size_t i) const { return Float(rows.observation, 2 * i); }
  float frame(std::size_t i) const { return Float(rows.observation, 2 * i + 1); }
  float next_frame(std::size_t i) const { return Float(rows.next_observation, 2 * i + 1); }
  static float Float(const std::byte* bytes, std::size_t index) {
    float value;
    std::memcpy(&value, bytes + index * 4, 4);
    return value;
  }
  SampleLayout layout;
  MutableBuffer block;
  Table::Rows rows;
};

std::int64_t Insert(Table* table, const Chunk& chunk, const std::vector<Item>& items) {
  const auto counts = table->Insert({&chunk, 1}, items);
  TROOP_CHECK(counts.ok(), "{}", counts.status().ToString());
  return counts->inserted;
}

// ---- n-step views -------------------------------------------------------------------------------

TEST(TableTest, AnItemSpansChunksOfItsStreamThatOthersLieBetween) {
  Table table = MakeTable(Small());
  Insert(&table, MakeChunk(1, 0, 5), {});
  Insert(&table, MakeChunk(2, 0, 5), {});
  Insert(&table, MakeChunk(1, 5, 5), MakeItems(1, 3, 1, 1, 3));
  const Drawn drawn(&table, 1);
  EXPECT_EQ(drawn.frame(0), 3);
  EXPECT_EQ(drawn.next_frame(0), 6);
  for (int j = 0; j < 3; ++j) EXPECT_EQ(drawn.rows.reward[j], 3.5f + float(j));
}

TEST(TableTest, ItemsShareTheFramesTheyLookAt) {
  Table table = MakeTable(Small());
  Insert(&table, MakeChunk(1, 0, 50), MakeItems(1, 0, 47, 1, 3));
  EXPECT_EQ(table.size(), 47);
  EXPECT_EQ(table.frames().frames(), 50);
}

TEST(TableTest, AShortItemAtAnEpisodesEndIsPaddedAndEndsAtTheFinalFrame) {
  for (const float last_discount : {0.0f, 1.0f}) {  // terminated, truncated
    Table table = MakeTable(Small());
    Insert(&table, MakeEpisodeEnd(1, 0, 5, last_discount), MakeItems(1, 2, 1, 1, 2));
    const Drawn drawn(&table, 1);
    EXPECT_EQ(drawn.rows.length[0], 2);
    EXPECT_EQ(drawn.next_frame(0), 4);  // the true last observation
    EXPECT_EQ((std::vector<float>(drawn.rows.reward, drawn.rows.reward + 3)),
              (std::vector<float>{2.5f, 3.5f, 0}));
    EXPECT_EQ((std::vector<float>(drawn.rows.discount, drawn.rows.discount + 3)),
              (std::vector<float>{1, last_discount, 1}));
  }
}

TEST(TableTest, AnItemAcrossAnEpisodesEndIsRefused) {
  Table table = MakeTable(Small());
  Insert(&table, MakeEpisodeEnd(1, 0, 5, 0), {});
  for (const std::uint64_t first : {2, 3, 4}) {
    const Chunk chunk = MakeChunk(1, 5 + 5 * (first - 2), 5);
    const auto counts = table.Insert({&chunk, 1}, MakeItems(1, first, 1, 1, 3));
    ASSERT_EQ(counts.status().code(), Code::kInvalidArgument);
    EXPECT_NE(counts.status().message().find("crosses the end of an episode"), std::string::npos);
  }
  EXPECT_EQ(table.size(), 0);
}

TEST(TableTest, ItemsBeyondTheFramesThatCameAreRefused) {
  Table table = MakeTable(Small());
  const Chunk chunk = MakeChunk(1, 0, 5);
  Insert(&table, chunk, {});
  const auto code = [&table](const Item& item) {
    return table.Insert({}, {&item, 1}).status().code();
  };
  EXPECT_EQ(code({.stream = 1, .first_frame = 3, .length = 2, .priority = 1}),
            Code::kInvalidArgument);
  EXPECT_EQ(code({.stream = 9, .first_frame = 0, .length = 1, .priority = 1}),
            Code::kInvalidArgument);
  EXPECT_EQ(code({.stream = 1, .first_frame = ~0ull, .length = 3, .priority = 1}),
            Code::kInvalidArgument);
  EXPECT_EQ(code({.stream = 1, .first_frame = 0, .length = 0, .priority = 1}),
            Code::kInvalidArgument);
  EXPECT_EQ(code({.stream = 1, .first_frame = 0, .length = 4, .priority = 1}),
            Code::kInvalidArgument);
  EXPECT_EQ(code({.stream = 1, .first_frame = 0, .length = 1, .burn_in = 1, .priority = 1}),
            Code::kInvalidArgument);
  EXPECT_EQ(code({.stream = 1, .first_frame = 3, .length = 1, .priority = 1}), Code::kOk);
}

TEST(TableTest, AnItemAcrossALostFrameIsRefused) {
  Table table = MakeTable(Small());
  Insert(&table, MakeChunk(1, 0, 5), {});
  const Chunk later = MakeChunk(1, 6, 5);
  const auto counts = table.Insert({&later, 1}, MakeItems(1, 3, 1, 1, 3));
  EXPECT_EQ(counts.status().code(), Code::kInvalidArgument);
}

TEST(TableTest, ACallThatCameBeforeIsRecognisedAndNotInsertedTwice) {
  Table table = MakeTable(Small());
  const Chunk chunk = MakeChunk(1, 0, 5);
  const auto items = MakeItems(1, 0, 4);
  Insert(&table, chunk, items);
  const auto again = table.Insert({&chunk, 1}, items);
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(again->inserted, 0);
  EXPECT_EQ(again->repeated, 4);
  EXPECT_EQ(table.size(), 4);
}

// ---- drawing ------------------------------------------------------------------------------------

// False-alarm rate 1e-6 (and the seed is fixed).
TEST(TableTest, DrawsAreInProportionToPriorityToTheAlpha) {
  Table::Options options = Small(200);
  options.alpha = 0.6;
  Table table = MakeTable(options);
  std::vector<Item> items = MakeItems(1, 0, 150);
  for (std::size_t i = 0; i < items.size(); ++i) items[i].priority = float(i % 7) * float(i);
  Insert(&table, MakeChunk(1, 0, 151), items);
  std::vector<double> share(150);
  double total = 0;
  for (std::size_t i = 0; i < 150; ++i) total += share[i] = std::pow(items[i].priority, 0.6);
  for (double& s : share) s /= total;
  std::vector<std::int64_t> counts(150);
  for (int draw = 0; draw < 3000; ++draw) {
    const Drawn drawn(&table, 64);
    for (std::size_t i = 0; i < 64; ++i) {
      const auto frame = std::size_t(drawn.frame(i));
      ++counts[frame];
      ASSERT_NEAR(drawn.rows.probability[i], share[frame], 1e-6);
    }
  }
  const ChiSquare test = TestCounts(counts, share);
  EXPECT_TRUE(test.ok()) << test.statistic << " > " << test.limit;
}

// openai/baselines 527: "stratified" draws were not.
TEST(TableTest, EachStratumGivesOneItem) {
  Table table = MakeTable(Small());
  Insert(&table, MakeChunk(1, 0, 65), MakeItems(1, 0, 64));
  const Drawn drawn(&table, 64);
  for (std::size_t i = 0; i < 64; ++i) EXPECT_EQ(drawn.frame(i), float(i));
}

TEST(TableTest, EqualSeedsAndCallsDrawTheSame) {
  Table a = MakeTable(Small()), b = MakeTable(Small());
  for (Table* table : {&a, &b}) Insert(table, MakeChunk(1, 0, 65), MakeItems(1, 0, 64));
  for (int draw = 0; draw < 10; ++draw) {
    const Drawn from_a(&a, 16), from_b(&b, 16);
    ASSERT_EQ(std::memcmp(from_a.block.data(), from_b.block.data(), from_a.layout.bytes), 0);
  }
  Table::Options other = Small();
  other.seed = 2;
  Table c = MakeTable(other);
  Insert(&c, MakeChunk(1, 0, 65), MakeItems(1, 0, 64));
  const Drawn from_a(&a, 16), from_c(&c, 16);
  EXPECT_NE(std::memcmp(from_a.rows.key, from_c.rows.key, 16 * 8), 0);
}

TEST(TableTest, AnItemOfPriorityZeroIsNeverDrawn) {
  Table table = MakeTable(Small());
  std::vector<Item> items = MakeItems(1, 0, 50, 0);
  items[31].priority = 1e-3f;
  Insert(&table, MakeChunk(1, 0, 51), items);
  const Drawn drawn(&table, 256);
  for (std::size_t i = 0; i < 256; ++i) ASSERT_EQ(drawn.frame(i), 31);
}

TEST(TableTest, NothingCanBeDrawnWhenAllPrioritiesAreZero) {
  Table table = MakeTable(Small());
  EXPECT_FALSE(table.can_draw());
  Insert(&table, MakeChunk(1, 0, 51), MakeItems(1, 0, 50, 0));
  EXPECT_FALSE(table.can_draw());
}

TEST(TableTest, TheEpsilonKeepsAnItemOfNoErrorDrawable) {
  Table::Options options = Small();
  options.priority_epsilon = 1e-6;
  Table table = MakeTable(options);
  Insert(&table, MakeChunk(1, 0, 2), MakeItems(1, 0, 1, 0));
  EXPECT_TRUE(table.can_draw());
}

TEST(TableTest, PrioritiesThatAreNoneAreRefusedAndCounted) {
  Table table = MakeTable(Small());
  Insert(&table, MakeChunk(1, 0, 6), MakeItems(1, 0, 5, 2));
  const Drawn drawn(&table, 1);
  const std::vector<std::uint64_t> key(4, drawn.rows.key[0]);
  constexpr float kInf = std::numeric_limits<float>::infinity();
  const auto counts = table.Update(key, std::vector<float>{std::nanf(""), kInf, -kInf, -1});
  EXPECT_EQ(counts.refused, 4);
  EXPECT_EQ(counts.applied, 0);
  EXPECT_EQ(table.total(), 10);
  for (const float bad : {std::nanf(""), kInf, -1.0f}) {
    const Chunk chunk = MakeChunk(std::uint64_t(2), 0, 2);
    Table other = MakeTable(Small());
    EXPECT_EQ(other.Insert({&chunk, 1}, MakeItems(2, 0, 1, bad)).status().code(),
              Code::kInvalidArgument);
  }
}

TEST(TableTest, HugeAndTinyPrioritiesStayFiniteAndDrawable) {
  Table::Options options = Small();
  options.alpha = 3;
  Table table = MakeTable(options);
  Insert(&table, MakeChunk(1, 0, 2), MakeItems(1, 0, 1, 1e-30f));
  EXPECT_TRUE(table.can_draw());
  Insert(&table, MakeChunk(1, 2, 3), MakeItems(1, 2, 2, 3e38f));
  EXPECT_TRUE(std::isfinite(table.total()));
}

// ---- keys, capacity -----------------------------------------------------------------------------

TEST(TableTest, ALateUpdateNeverHitsTheItemThatTookTheSlot) {
  Table table = MakeTable(Small(4));
  Insert(&table, MakeChunk(1, 0, 5), MakeItems(1, 0, 4));
  const Drawn old(&table, 4);
  Insert(&table, MakeChunk(1, 5, 5), MakeItems(1, 5, 4));
  const std::vector<std::uint64_t> key(old.rows.key, old.rows.key + 4);
  const auto counts = table.Update(key, std::vector<float>(4, 1000.0f));
  EXPECT_EQ(counts.stale, 4);
  EXPECT_EQ(table.total(), 4);
  EXPECT_EQ(table
                .Update(std::vector<std::uint64_t>{0, 99, 1ull << 32 | 4, ~0ull, 3ull << 32},
                        std::vector<float>(5, 7.0f))
                .stale,
            5);
}

// A map from key to priority is the model; the table must agree with it under random inserts,
// draws, updates of live, dead and invented keys, and trims.
TEST(TableTest, AgreesWithAMapUnderChurn) {
  for (const std::int64_t trim_every : {0, 40}) {
    Table::Options options = Small(37);
    options.trim_every_samples = trim_every;
    Table table = MakeTable(options);
    std::map<std::uint64_t, double> alive;             // by number of insertion
    std::map<std::uint64_t, std::uint64_t> number_of;  // by key
    Rng rng({.run_seed = 5, .index = std::uint64_t(trim_every)});
    std::uint64_t next_frame = 0, inserted = 0, stale = 0, stale_seen = 0;
    std::vector<std::uint64_t> keys = {12345};
    for (int round = 0; round < 3000; ++round) {
      const std::uint32_t count = rng.Below(6);
      std::vector<Item> items = MakeItems(1, next_frame, count);
      for (Item& item : items) {
        item.priority = float(1 + rng.Below(9));
        number_of[(inserted / std::uint64_t(table.slots()) + 1) << 32 |
                  inserted % std::uint64_t(table.slots())] = inserted;
        alive[inserted++] = item.priority;
      }
      Insert(&table, MakeChunk(1, next_frame, count + 1), items);
      next_frame += count + 1;
      if (table.can_draw() && rng.Below(2) == 0) {
        const Drawn drawn(&table, 8);
        for (int i = 0; i < 8; ++i) keys.push_back(drawn.rows.key[i]);
      }
      alive.erase(alive.begin(), alive.lower_bound(inserted - std::uint64_t(table.size())));
      for (int i = 0; i < 4; ++i) {
        const std::uint64_t key = keys[rng.Below(std::uint32_t(keys.size()))];
        const float priority = float(rng.Below(10));
        const auto known = number_of.find(key);
        const bool lives = known != number_of.end() && alive.contains(known->second);
        stale_seen += std::uint64_t(table.Update({&key, 1}, {&priority, 1}).stale);
        if (lives) alive[known->second] = priority;
        stale += lives ? 0 : 1;
      }
      double total = 0;
      for (const auto& [number, priority] : alive) total += priority;
      ASSERT_EQ(table.total(), total) << "round " << round;  // small integers: exact
      ASSERT_EQ(table.size(), std::int64_t(alive.size()));
    }
    EXPECT_EQ(stale_seen, stale);
    EXPECT_GT(stale, 1000u);
  }
}

TEST(TableTest, DrawnItemsAreAliveAndTheirFramesTheirOwnAfterManyTurnsOfTheRing) {
  Table::Options options = Small(200);
  options.frames = 400;
  Table table = MakeTable(options);
  Rng rng({.run_seed = 6});
  std::vector<std::uint64_t> next(5, 0);
  for (int round = 0; round < 2000; ++round) {
    const StreamId stream = rng.Below(round % 500 < 250 ? 5 : 4);  // the last one pauses
    std::uint64_t& t = next[stream];
    const std::uint64_t back = std::min<std::uint64_t>(t, 2);
    Insert(&table, MakeChunk(stream, t, 8), MakeItems(stream, t - back, 6 + back - 1, 1, 2));
    t += 8;
    const Drawn drawn(&table, 16);
    for (std::size_t i = 0; i < 16; ++i) {
      ASSERT_TRUE(table.Alive(drawn.rows.key[i]));
      ASSERT_EQ(drawn.frame(i), float(drawn.rows.policy_version[i]));
      ASSERT_EQ(drawn.next_frame(i), drawn.frame(i) + 2);
      ASSERT_EQ(drawn.rows.reward[3 * i + 1], drawn.frame(i) + 1.5f);
    }
  }
  EXPECT_GT(table.frames().carried(), 0);
  EXPECT_GT(table.size(), 150);
}

TEST(TableTest, InsertsBeyondTheSoftCapacityAreTakenAndTrimmedInBulkFirstInFirstOut) {
  Table::Options options = Small(80);
  options.trim_every_samples = 64;
  Table table = MakeTable(options);
  Insert(&table, MakeChunk(1, 0, 89), MakeItems(1, 0, 88));
  EXPECT_EQ(table.size(), 88);
  { const Drawn drawn(&table, 63); }
  EXPECT_EQ(table.size(), 88);
  { const Drawn drawn(&table, 1); }
  EXPECT_EQ(table.size(), 80);
  const Drawn drawn(&table, 80);
  EXPECT_EQ(drawn.frame(0), 8);  // the oldest 8 left
}

TEST(TableTest, TheHardLimitHoldsWithoutAnySample) {
  Table::Options options = Small(80);
  options.trim_every_samples = 64;
  Table table = MakeTable(options);
  for (std::uint64_t first = 0; first < 2000; first += 20) {
    Insert(&table, MakeChunk(1, first, 20), MakeItems(1, first, 19));
    ASSERT_LE(table.size(), 90);
  }
  EXPECT_EQ(table.size(), 90);
}

TEST(TableTest, EpisodesOfOneStepStillReachMinItems) {
  Table::Options options = Small(60000);
  options.min_items = 60000;
  Table table = MakeTable(options);
  for (std::uint64_t first = 0; first < 160000; first += 2) {
    Insert(&table, MakeEpisodeEnd(1, first, 2, 0), MakeItems(1, first, 1));
  }
  EXPECT_EQ(table.size(), 60000);
}

TEST(TableTest, ItemsOfAStreamThatWasSilentForAWholeTurnExpire) {
  Table::Options options = Small(100);
  options.frames = 400;
  Table table = MakeTable(options);
  Insert(&table, MakeChunk(1, 0, 10), {});
  for (std::uint64_t first = 0; first < 20000; first += 100) {
    Insert(&table, MakeChunk(2, first, 100), MakeItems(2, first, 90));
  }
  const Chunk chunk = MakeChunk(1, 10, 10);
  const auto counts = table.Insert({&chunk, 1}, MakeItems(1, 8, 5, 1, 3));
  ASSERT_TRUE(counts.ok()) << counts.status().ToString();
  EXPECT_EQ(counts->expired, 2);  // frames 8 and 9 are gone
  EXPECT_EQ(counts->inserted, 3);
}

// Only the 8 newest chunks of a stream were remembered: of longer items, whose frames came one by
// one between those of others, most expired. The small log makes each push carry its stream's tail.
TEST(TableTest, NoItemExpiresHoweverSmallTheChunksThatItSpans) {
  constexpr std::uint64_t kStreams = 64;
  for (const std::uint32_t n : {1, 3, 8, 20, 64}) {
    for (const bool small : {false, true}) {
      if (small && n > 20) continue;  // all tails don't fit
      Table::Options options = Small(1000);
      options.n_step_max = int(n);
      if (small) options.frames = 1900;  // less than 32 rounds of all streams
      Table table = MakeTable(options);
      for (std::uint64_t t = 0; t < 3 * n; ++t) {
        for (StreamId stream = 0; stream < kStreams; ++stream) {
          const Chunk chunk = MakeChunk(stream, t, 1);
          const auto items = t < n ? std::vector<Item>() : MakeItems(stream, t - n, 1, 1, n);
          const auto counts = table.Insert({&chunk, 1}, items);
          ASSERT_TRUE(counts.ok()) << counts.status().ToString();
          ASSERT_EQ(counts->expired, 0) << "n " << n << ", frame " << t;
        }
      }
      EXPECT_EQ(table.frames().carried() > 0, small) << "n " << n;
      const Drawn drawn(&table, 32);
      for (std::size_t i = 0; i < 32; ++i) {
        ASSERT_EQ(drawn.next_frame(i), drawn.frame(i) + float(n));
        ASSERT_EQ(drawn.rows.reward[i * n + n - 1], drawn.frame(i) + float(n) - 0.5f);
      }
    }
  }
}

TEST(TableTest, MoreThanItCanHoldAtOnceIsRefused) {
  Table table = MakeTable(Small(10));
  const Chunk chunk = MakeChunk(1, 0, 12);
  EXPECT_EQ(table.Insert({&chunk, 1}, MakeItems(1, 0, 11)).status().code(),
            Code::kResourceExhausted);
  const Chunk large = MakeChunk(1, 0, 100000);
  EXPECT_EQ(table.Insert({&large, 1}, {}).status().code(), Code::kResourceExhausted);
}

TEST(TableTest, MemoryIsWhatWasPredicted) {
  for (const std::int64_t capacity : {1, 100, 54321}) {
    const Table::Options options = Small(capacity);
    EXPECT_EQ(MakeTable(options).bytes(), Table::PredictBytes(options));
  }
}

TEST(TableTest, ImpossibleOptionsAreRefused) {
  const auto code = [](auto change) {
    Table::Options options = Small();
    change(&options);
    return Table::Make(options).status().code();
  };
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(code([](auto* o) { o->capacity_items = 0; }), Code::kInvalidArgument);
  EXPECT_EQ(code([](auto* o) { o->min_items = 101; }), Code::kInvalidArgument);
  EXPECT_EQ(code([](auto* o) { o->n_step_max = 0; }), Code::kInvalidArgument);
  EXPECT_EQ(code([](auto* o) { o->alpha = -1; }), Code::kInvalidArgument);
  EXPECT_EQ(code([=](auto* o) { o->alpha = kNan; }), Code::kInvalidArgument);
  EXPECT_EQ(code([=](auto* o) { o->priority_epsilon = kNan; }), Code::kInvalidArgument);
  EXPECT_EQ(code([](auto* o) { o->trim_every_samples = -1; }), Code::kInvalidArgument);
}

}  // namespace
}  // namespace troop
