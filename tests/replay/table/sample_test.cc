// Which items are drawn, and what happens to them then.

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>

#include "tests/replay/chi_square.h"
#include "tests/replay/table_world.h"

namespace troop {
namespace {

// False-alarm rate 1e-6 (and the seed is fixed).
TEST(TableDrawTest, SamplesInProportionToPriorityToTheAlpha) {
  for (const double alpha : {0.6, 0.0}) {
    Table::Options options = TinyOptions(200);
    options.sampler.alpha = alpha;
    Table table = MakeTable(options);
    auto items = TinyItems(1, 0, 150);
    for (std::size_t i = 0; i < items.size(); ++i) {
      items[i].priority = alpha == 0 ? 1 : float(i % 7) * float(i);
    }
    Put(&table, TinyChunk(1, 0, 151), items);
    std::vector<double> share(150);
    double total = 0;
    for (std::size_t i = 0; i < 150; ++i) total += share[i] = std::pow(items[i].priority, alpha);
    for (double& s : share) s /= total;
    std::vector<std::int64_t> counts(150);
    for (int draw = 0; draw < 3000; ++draw) {
      const Read read(&table, 64);
      for (std::size_t i = 0; i < 64; ++i) {
        ++counts[read.first_frame(i)];
        ASSERT_NEAR(read.drawn.probability[i], share[read.first_frame(i)], 1e-6);
      }
    }
    const ChiSquare test = TestCounts(counts, share);
    EXPECT_TRUE(test.ok()) << test.statistic << " > " << test.limit;
  }
}

TEST(TableDrawTest, SamplesOneItemFromEachStratum) {
  Table table = MakeTable(TinyOptions());
  Put(&table, TinyChunk(1, 0, 65), TinyItems(1, 0, 64));
  const Read read(&table, 64);
  for (std::size_t i = 0; i < 64; ++i) EXPECT_EQ(read.first_frame(i), i);
}

TEST(TableDrawTest, EqualSeedsAndCallsSampleTheSame) {
  const auto draws = [](std::uint64_t seed, std::uint64_t incarnation) {
    Table::Options options = TinyOptions();
    options.seed = seed;
    options.incarnation = incarnation;
    Table table = MakeTable(options);
    auto items = TinyItems(1, 0, 64);
    for (std::size_t i = 0; i < 64; ++i) items[i].priority = float(1 + i % 5);
    Put(&table, TinyChunk(1, 0, 65), items);
    std::vector<std::uint64_t> keys;
    for (int i = 0; i < 10; ++i) {
      EncodedBatch drawn;
      table.Draw(7, &drawn);
      keys.insert(keys.end(), drawn.key.begin(), drawn.key.end());
    }
    return keys;
  };
  EXPECT_EQ(draws(1, 0), draws(1, 0));
  EXPECT_NE(draws(1, 0), draws(2, 0));
  EXPECT_NE(draws(1, 0), draws(1, 1));
}

TEST(TableDrawTest, NeverSamplesPriorityZero) {
  Table table = MakeTable(TinyOptions());
  auto items = TinyItems(1, 0, 64);
  for (std::size_t i = 0; i < 64; i += 2) items[i].priority = 0;
  Put(&table, TinyChunk(1, 0, 65), items);
  for (int i = 0; i < 200; ++i) {
    const Read read(&table, 32);
    for (std::size_t j = 0; j < 32; ++j) ASSERT_EQ(read.first_frame(j) % 2, 1u);
  }
}

TEST(TableDrawTest, CannotSampleWhenAllPrioritiesAreZero) {
  Table table = MakeTable(TinyOptions());
  EXPECT_FALSE(table.can_draw());
  Put(&table, TinyChunk(1, 0, 5), TinyItems(1, 0, 4, 0));
  EXPECT_FALSE(table.can_draw());
  EXPECT_EQ(table.size(), 4);
}

TEST(TableDrawTest, EpsilonKeepsZeroPriorityItemsSampleable) {
  Table::Options options = TinyOptions();
  options.priority_epsilon = 1e-3;
  Table table = MakeTable(options);
  Put(&table, TinyChunk(1, 0, 5), TinyItems(1, 0, 4, 0));
  ASSERT_TRUE(table.can_draw());
  EXPECT_NEAR(table.total(), 4e-3, 1e-8);
}

// With the epsilon an item that makes each update bad would come again, now and then.
TEST(TableDrawTest, MinusZeroUpdateExcludesItemPermanently) {
  Table::Options options = TinyOptions();
  options.priority_epsilon = 1;
  Table table = MakeTable(options);
  Put(&table, TinyChunk(1, 0, 3), TinyItems(1, 0, 2));
  const Read read(&table, 1);
  EXPECT_EQ(table.Update(read.drawn.key, std::vector<float>{-0.0F}).applied, 1);
  for (int i = 0; i < 100; ++i) EXPECT_NE(Read(&table, 1).first_frame(0), read.first_frame(0));
  EXPECT_EQ(table.size(), 2);
}

TEST(TableDrawTest, ExtremePrioritiesStayFiniteAndSampleable) {
  Table table = MakeTable(TinyOptions());
  auto items = TinyItems(1, 0, 4, std::numeric_limits<float>::max());
  items[3].priority = std::numeric_limits<float>::denorm_min();
  Put(&table, TinyChunk(1, 0, 5), items);
  EXPECT_TRUE(std::isfinite(table.total()));
  const Read read(&table, 3);
  EXPECT_EQ(read.first_frame(2), 2u);
}

TEST(TableDrawTest, RejectsAndCountsInvalidPriorities) {
  Table table = MakeTable(TinyOptions());
  Put(&table, TinyChunk(1, 0, 6), TinyItems(1, 0, 5));
  const Read read(&table, 5);
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const auto counts = table.Update(
      read.drawn.key,
      std::vector<float>{2, std::numeric_limits<float>::quiet_NaN(), kInfinity, -kInfinity, -1});
  EXPECT_EQ(counts.applied, 1);
  EXPECT_EQ(counts.refused, 4);
  EXPECT_EQ(table.total(), 6);
}

TEST(TableDrawTest, LastUpdateOfRepeatedKeyWins) {
  Table table = MakeTable(TinyOptions());
  Put(&table, TinyChunk(1, 0, 3), TinyItems(1, 0, 2));
  const std::uint64_t key = Read(&table, 1).drawn.key[0];
  table.Update(std::vector<std::uint64_t>{key, key}, std::vector<float>{9, 4});
  EXPECT_EQ(table.total(), 5);
}

// ---- keys ---------------------------------------------------------------------------------------

TEST(TableDrawTest, StaleUpdateNeverAffectsNewItemInSlot) {
  Table table = MakeTable(TinyOptions(4));
  Put(&table, TinyChunk(1, 0, 5), TinyItems(1, 0, 4));
  const Read old(&table, 4);
  Put(&table, TinyChunk(1, 5, 5), TinyItems(1, 5, 4));
  EXPECT_EQ(table.Update(old.drawn.key, std::vector<float>(4, 1000.0f)).stale, 4);
  EXPECT_EQ(table.total(), 4);
  EXPECT_EQ(table
                .Update(std::vector<std::uint64_t>{0, 99, 1ull << 32 | 4, ~0ull, 3ull << 32},
                        std::vector<float>(5, 7.0f))
                .stale,
            5);
}

// A map from key to priority is the model: random inserts, draws, updates of live, dead and
// invented keys under each remover. Priorities are small integers, so totals are exact.
TEST(TableDrawTest, MatchesReferenceMapUnderChurn) {
  for (const auto remover :
       {Selector::Kind::kFifo, Selector::Kind::kLifo, Selector::Kind::kUniform,
        Selector::Kind::kLowest, Selector::Kind::kHighest, Selector::Kind::kPrioritized}) {
    Table::Options options = TinyOptions(37);
    options.remover = {.kind = remover, .alpha = -0.4};
    options.segment_bytes = 4096;
    Table table = MakeTable(options);
    std::map<std::uint64_t, double> priority_of;  // of each key ever drawn
    std::vector<std::uint64_t> keys = {12345};
    Rng rng({.run_seed = 5, .index = std::uint64_t(remover)});
    std::uint64_t next = 0, stale = 0;
    for (int round = 0; round < 3000; ++round) {
      const std::uint32_t count = rng.Below(6);
      auto items = TinyItems(1, next, count);
      for (Item& item : items) item.priority = float(1 + item.first_frame % 9);
      Put(&table, TinyChunk(1, next, count + 1), items);
      next += count + 1;
      ASSERT_LE(table.size(), 37);
      if (!table.can_draw()) continue;
      const Read read(&table, 4);
      for (std::size_t i = 0; i < 4; ++i) {
        const std::uint64_t key = read.drawn.key[i];
        const auto [it, first] = priority_of.emplace(key, float(1 + read.first_frame(i) % 9));
        ASSERT_NEAR(read.drawn.probability[i] * table.total(), it->second, 1e-4);
        ASSERT_TRUE(table.Alive(key));
        keys.push_back(key);
      }
      for (int i = 0; i < 4; ++i) {
        const std::uint64_t key = keys[rng.Below(std::uint32_t(keys.size()))];
        const float priority = float(1 + rng.Below(9));
        const bool alive = table.Alive(key);
        const double before = table.total();
        const auto counts = table.Update({&key, 1}, {&priority, 1});
        ASSERT_EQ(counts.stale, alive ? 0 : 1);
        ASSERT_EQ(table.total() - before, alive ? priority - priority_of[key] : 0);
        if (alive) priority_of[key] = priority;
        stale += counts.stale;
      }
    }
    EXPECT_GT(stale, 1000u);
  }
}

// ---- limits -------------------------------------------------------------------------------------

TEST(TableDrawTest, EvictsItemAfterItsLastSample) {
  Table::Options options = TinyOptions(100);
  options.max_times_sampled = 3;
  options.segment_bytes = 4096;
  for (const auto sampler : {Selector::Kind::kPrioritized, Selector::Kind::kUniform,
                             Selector::Kind::kFifo, Selector::Kind::kLifo}) {
    options.sampler.kind = sampler;
    Table table = MakeTable(options);
    Put(&table, TinyChunk(1, 0, 101), TinyItems(1, 0, 100));
    std::map<std::uint64_t, int> times;
    std::int64_t drawn = 0;
    while (table.can_draw()) {
      const Read read(&table, 7);
      drawn += read.drawn.size();
      EXPECT_GT(read.drawn.size(), 0);
      for (std::size_t i = 0; i < read.begin.size(); ++i) {
        EXPECT_EQ(read.stream(i), 1u);
        EXPECT_LE(++times[read.drawn.key[i]], 3);
      }
      for (const std::uint64_t key : read.drawn.key) EXPECT_EQ(table.Alive(key), times[key] < 3);
    }
    EXPECT_EQ(drawn, 300);  // each of them three times: not one draw was lost
    EXPECT_EQ(table.size(), 0);
    Put(&table, TinyChunk(1, 101, 101), TinyItems(1, 101, 100));
    EXPECT_EQ(table.size(), 100);
  }
}

TEST(TableDrawTest, QueueReturnsEachItemOnceInOrder) {
  Table::Options options = TinyOptions(100);
  options.sampler.kind = Selector::Kind::kFifo;
  options.max_times_sampled = 1;
  Table table = MakeTable(options);
  std::uint64_t expected = 0;
  for (std::uint64_t t = 0; t < 500; t += 10) {
    Put(&table, TinyChunk(1, t, 10), TinyItems(1, t, 9));
    const Read read(&table, 9);
    for (std::size_t i = 0; i < 9; ++i) {
      EXPECT_EQ(read.first_frame(i), expected);
      expected += expected % 10 == 8 ? 2 : 1;
    }
    EXPECT_FALSE(table.can_draw());
  }
}

TEST(TableDrawTest, NeverSamplesItemsOfOldPolicies) {
  Table::Options options = TinyOptions(1000);
  options.max_policy_age = 50;
  Table table = MakeTable(options);
  Rng rng({.run_seed = 3});
  for (std::uint64_t t = 0; t < 3000; t += 10) {
    auto items = TinyItems(1, t, 9);
    for (Item& item : items) item.policy_version = t / 10 + rng.Below(30);
    Put(&table, TinyChunk(1, t, 10), items);
    if (!table.can_draw()) continue;
    EncodedBatch drawn;
    table.Draw(16, &drawn);
    for (const std::uint64_t version : drawn.policy_version) {
      ASSERT_LE(table.newest_policy_version() - version, 50u);
    }
  }
  EXPECT_LT(table.size(), 1000);
  EXPECT_GT(table.size(), 200);
  table.ObservePolicyVersion(100000);
  EncodedBatch drawn;
  table.Draw(16, &drawn);
  EXPECT_EQ(drawn.size(), 0);
  EXPECT_EQ(table.size(), 0);
}

// Items that say they are newer than anything made all others leave, at each restart again.
TEST(TableDrawTest, LearnerVersionOverridesItemVersions) {
  Table::Options options = TinyOptions();
  options.max_policy_age = 50;
  Table table = MakeTable(options);
  auto items = TinyItems(1, 0, 5);
  items[4].policy_version = 2000000000;
  Put(&table, TinyChunk(1, 0, 6), items);
  table.ObservePolicyVersion(30);
  EXPECT_EQ(table.newest_policy_version(), 30u);
  EncodedBatch drawn;
  table.Draw(16, &drawn);
  EXPECT_EQ(drawn.size(), 16);
  EXPECT_EQ(table.size(), 5);
  items = TinyItems(1, 6, 1);
  items[0].policy_version = 2000000000;
  Put(&table, TinyChunk(1, 6, 2), items);
  EXPECT_EQ(table.newest_policy_version(), 30u);
}

// Items sampled in place of exhausted ones have probabilities of a smaller total.
TEST(TableDrawTest, ProbabilitiesOfOneSampleShareItsTotal) {
  Table::Options options = TinyOptions();
  options.max_times_sampled = 1;
  Table table = MakeTable(options);
  auto items = TinyItems(1, 0, 8);
  items[0].priority = 93;
  Put(&table, TinyChunk(1, 0, 9), items);
  const Read read(&table, 8);
  ASSERT_EQ(read.drawn.size(), 8);
  EXPECT_EQ(read.drawn.total, 100);
  for (std::size_t i = 0; i < 8; ++i) {
    EXPECT_NEAR(read.drawn.probability[i], read.own_frame(i) == 0 ? 0.93 : 0.01, 1e-9);
  }
}

TEST(TableDrawTest, RestartedLearnerWithFewerUpdatesExpiresNothing) {
  Table::Options options = TinyOptions();
  options.max_policy_age = 50;
  Table table = MakeTable(options);
  auto items = TinyItems(1, 0, 4);
  for (Item& item : items) item.policy_version = WeightsVersion(1, 1000);
  Put(&table, TinyChunk(1, 0, 5), items);
  table.ObservePolicyVersion(WeightsVersion(2, 900));
  EncodedBatch drawn;
  table.Draw(16, &drawn);
  EXPECT_EQ(drawn.size(), 16);
}

// ---- memory under churn -------------------------------------------------------------------------

// Frames of what is drawn are compared all the way, so a frame that moved wrongly would show.
TEST(TableDrawTest, CompactionKeepsBytesOfEachItem) {
  for (const auto remover : {Selector::Kind::kLowest, Selector::Kind::kUniform}) {
    Table::Options options = TinyOptions(500);
    options.view = {.length_max = 3, .stack = 2};
    options.trajectory.observation = {DType::kF32, {50}};
    options.trajectory.action = {DType::kI32, {4}};
    options.codec = Codec::kLz4;
    options.remover.kind = remover;
    options.segment_bytes = 16384;
    Table table = MakeTable(options);
    Rng rng({.run_seed = 7});
    std::size_t most = 0;
    for (std::uint64_t t = 0; t < 10000; t += 20) {  // 20 capacities
      auto items = TinyItems(1, t, 17, 1, 3);
      for (Item& item : items) item.priority = 0.1f + rng.UniformF32();
      Put(&table,
          EncodedInsert{{EncodeFrames(options.trajectory, options.codec, 1, PlainFrames(t, 20))},
                        items});
      if (t < 2000) continue;
      most = std::max(most, table.usage().segment_bytes);
      const Read read(&table, 32);
      for (std::size_t i = 0; i < 32; ++i) {
        ASSERT_EQ(read.own_frame(i), read.drawn.policy_version[i]);
        ASSERT_EQ(read.last_frame(i), read.own_frame(i) + 3);
        std::int32_t action[4];
        std::memcpy(action, read.drawn.action.data() + 16 * i, 16);
        for (const std::int32_t a : action) ASSERT_EQ(a, 10 + std::int32_t(read.own_frame(i)));
        ASSERT_EQ(read.drawn.reward[3 * i], float(read.own_frame(i)) + 0.5f);
      }
    }
    EXPECT_EQ(table.size(), 500);
    EXPECT_GT(table.usage().compacted_bytes, 0u);
    // Flat: dead bytes are at most half of the living, and what is being moved.
    EXPECT_LT(most, 2 * table.usage().live_bytes + 6 * options.segment_bytes);
  }
}

TEST(TableDrawTest, FifoTableCompactsNothing) {
  Table::Options options = TinyOptions(2000);
  options.segment_bytes = 4096;
  Table table = MakeTable(options);
  for (std::uint64_t t = 0; t < 40000; t += 20) {
    for (StreamId stream = 0; stream < 3; ++stream) {
      Put(&table, TinyChunk(stream, t, 20), TinyItems(stream, t, 17, 1, 3));
    }
  }
  EXPECT_EQ(table.usage().compacted_bytes, 0u);
  EXPECT_LT(table.usage().segment_bytes, table.usage().live_bytes * 13 / 10 + 3 * 4096);
}

TEST(TableDrawTest, ChangedLinesAreDirtyOnceAndReadCurrentState) {
  Table::Options options = TinyOptions(100);
  options.checksums = true;
  Table table = MakeTable(options);
  EXPECT_EQ(table.journal_source().lines(), 7);
  EXPECT_EQ(table.journal_source().TakeDirtyLine(), -1);
  Put(&table, TinyChunk(1, 0, 41), TinyItems(1, 0, 40, 2));
  EXPECT_EQ(table.journal_source().dirty_lines(), 3);
  for (std::int64_t i = 0; i < 3; ++i) {
    const std::int64_t line = table.journal_source().TakeDirtyLine();
    EXPECT_EQ(line, i);
    SlotLine read;
    table.journal_source().ReadLine(line, &read);
    for (std::int64_t s = 0; s < 16; ++s) {
      const bool there = line * 16 + s < 40;
      EXPECT_EQ(read[std::size_t(s)].generation, there ? 1u : 0u);
      EXPECT_EQ(read[std::size_t(s)].priority, there ? 2 : 0);
    }
  }
  EXPECT_EQ(table.journal_source().TakeDirtyLine(), -1);
  const std::uint64_t key = 1ull << 32 | 20;
  const float priority = 5;
  table.Update({&key, 1}, {&priority, 1});
  EXPECT_EQ(table.journal_source().TakeDirtyLine(), 1);
  EXPECT_EQ(table.journal_source().TakeDirtyLine(), -1);
}

}  // namespace
}  // namespace troop
