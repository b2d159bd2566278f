#include "replay/table/item_sampler.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

#include "tests/replay/parts_world.h"

namespace troop {
namespace {

// A table with ten items of policy versions 0 to 9, and a separate sampler.
struct SampledParts {
  explicit SampledParts(const TableOptions& options)
      : parts(MakeParts(options)),
        sampler(options, {.log = &parts->log,
                          .slots = &parts->slots,
                          .selectors = &parts->selectors,
                          .ages = &parts->ages,
                          .evictor = &parts->evictor}) {
    PutInto(parts.get(), TinyChunk(1, 0, 11), TinyItems(1, 0, 10));
  }
  std::vector<std::uint64_t> Draw(std::int64_t batch) {
    sampler.Draw(batch, &drawn);
    return drawn.key;
  }
  std::unique_ptr<TableParts> parts;
  ItemSampler sampler;
  EncodedBatch drawn;
};

TEST(ItemSamplerTest, DrawNumberKeysTheRandomNumbers) {
  SampledParts world(TinyOptions());
  const auto first = world.Draw(64), second = world.Draw(64);
  EXPECT_NE(first, second);
  EXPECT_EQ(world.sampler.draws(), 2u);
  world.sampler.RestoreDraws(0);
  EXPECT_EQ(world.Draw(64), first);
  EXPECT_EQ(world.Draw(64), second);
}

TEST(ItemSamplerTest, BatchDescribesTableBeforeTheDraw) {
  TableOptions options = TinyOptions();
  options.max_times_sampled = 1;
  SampledParts world(options);
  world.Draw(4);
  EXPECT_EQ(world.drawn.items, 10);
  EXPECT_EQ(world.drawn.total, 10);
  EXPECT_EQ(world.parts->slots.size(), 6);
}

TEST(ItemSamplerTest, ItemsRunOutAtTheirLastSamples) {
  TableOptions options = TinyOptions();
  options.max_times_sampled = 2;
  SampledParts world(options);
  std::multiset<std::uint64_t> drawn;
  for (const std::uint64_t key : world.Draw(100)) drawn.insert(key);
  EXPECT_EQ(drawn.size(), 20u);
  for (const std::uint64_t key : drawn) EXPECT_EQ(drawn.count(key), 2u);
  EXPECT_EQ(world.parts->slots.size(), 0);
  // The frames stay until the next call, since the batch points to them.
  EXPECT_EQ(world.parts->log.frames(), 11);
}

TEST(ItemSamplerTest, StaleItemIsEvictedInsteadOfSampled) {
  TableOptions options = TinyOptions();
  options.max_policy_age = 3;
  SampledParts world(options);
  world.parts->ages.Observe(11);
  for (const std::uint64_t key : world.Draw(200)) EXPECT_GE(ItemSlots::Slot(key), 8u);
  EXPECT_EQ(world.parts->slots.size(), 2);
}

TEST(ItemSamplerTest, DrawIsEmptyIfAllItemsAreStale) {
  TableOptions options = TinyOptions();
  options.max_policy_age = 3;
  SampledParts world(options);
  world.parts->ages.Observe(100);
  EXPECT_TRUE(world.Draw(5).empty());
  EXPECT_TRUE(world.drawn.probability.empty());
  EXPECT_EQ(world.sampler.draws(), 1u);
}

}  // namespace
}  // namespace troop
