#include "paramserver/shard/shard_map.h"
#include "core/config/enum_names.h"

#include <gtest/gtest.h>

#include <functional>
#include <set>

#include "core/base/philox.h"
#include "tests/paramserver/vgg16.h"

namespace troop {
namespace {

// `layers` of random sizes, each a weight and a bias.
std::vector<ParamSpec> RandomParams(Rng* rng, int layers, std::int64_t* parameters) {
  std::vector<ParamSpec> params;
  std::int64_t offset = 0;
  for (int i = 0; i < layers; ++i) {
    for (const char* kind : {".weight", ".bias"}) {
      params.push_back({.name = "layers." + std::to_string(i) + kind, .offset = offset});
      offset += AlignParams(1 + std::int64_t(rng->Below(kind[1] == 'w' ? 5000 : 100)));
    }
  }
  *parameters = offset;
  return params;
}

ShardMap Make(Sharding sharding, std::span<const ParamSpec> params, std::int64_t parameters,
              int shards) {
  auto map = ShardMap::Make(sharding, params, parameters, shards);
  EXPECT_TRUE(map.ok()) << map.status().ToString();
  return *map;
}
ShardMap ByMemory(std::int64_t parameters, int shards) {
  return Make(Sharding::kMemory, {}, parameters, shards);
}

// Every element once, borders at cache lines, and the views of one map agree.
void ExpectSound(const ShardMap& map) {
  std::int64_t at = 0, loads = 0;
  for (const ShardMap::Range& range : map.ranges()) {
    EXPECT_EQ(range.begin, at);
    EXPECT_GT(range.end, range.begin);
    EXPECT_EQ(range.begin % 16, 0);
    EXPECT_EQ(map.OwnerOf(range.begin), range.owner);
    EXPECT_EQ(map.OwnerOf(range.end - 1), range.owner);
    at = range.end;
  }
  EXPECT_EQ(at, map.parameters());
  for (const std::int32_t shard : map.shards()) {
    std::int64_t own = 0;
    for (const ParamRange& range : map.RangesOf(shard)) own += range.size();
    EXPECT_EQ(own, map.LoadOf(shard));
    loads += own;
  }
  EXPECT_EQ(loads, map.parameters());
  const auto read = ShardMap::FromBody(map.ToBody(), map.parameters());
  ASSERT_TRUE(read.ok()) << read.status().ToString();
  EXPECT_EQ(*read, map);
}

TEST(ShardMapTest, Vgg16MatchesPublishedImbalance) {
  std::int64_t parameters = 0;
  const std::vector<ParamSpec> params = Vgg16Params(&parameters);
  EXPECT_EQ(parameters, 138357544 + 8);  // 8 of padding, behind the last bias
  const auto text = [&](Sharding sharding, int shards) {
    const ShardMap map = Make(sharding, params, parameters, shards);
    ExpectSound(map);
    return map.ToString();
  };
  EXPECT_NE(text(Sharding::kLayer, 2).find("imbalance 1.4855"), std::string::npos);
  EXPECT_NE(text(Sharding::kLayer, 4).find("imbalance 2.9710"), std::string::npos);
  EXPECT_NE(text(Sharding::kMemory, 2).find("imbalance 1.0000"), std::string::npos);
  EXPECT_NE(text(Sharding::kMemory, 4).find("imbalance 1.0000"), std::string::npos);
  EXPECT_EQ(text(Sharding::kLayer, 4),
            "4 shards by layer: largest 411.06 MB, mean 138.36 MB, imbalance 2.9710");
}

TEST(ShardMapTest, ByMemorySharesDifferByAtMostOneCacheLine) {
  for (const std::int64_t parameters : {0, 1, 15, 16, 17, 100, 1000, 12345}) {
    for (int shards = 1; shards <= 9; ++shards) {
      const ShardMap map = ByMemory(parameters, shards);
      ExpectSound(map);
      std::int64_t least = parameters, most = 0;
      for (int s = 0; s < shards; ++s) {
        least = std::min(least, map.LoadOf(s));
        most = std::max(most, map.LoadOf(s));
      }
      EXPECT_LE(most - least, 16 + 15) << parameters << " on " << shards;
    }
  }
}

TEST(ShardMapTest, ByLayerKeepsWeightAndBiasTogether) {
  Rng rng({7, Purpose::kTest});
  for (int round = 0; round < 50; ++round) {
    std::int64_t parameters = 0;
    const auto params = RandomParams(&rng, 1 + int(rng.Below(20)), &parameters);
    ShardMap map = Make(Sharding::kLayer, params, parameters, 1 + int(rng.Below(6)));
    if (round % 2 == 1) map = *map.WithShard(77);
    ExpectSound(map);
    ASSERT_EQ(map.ranges().size(), params.size() / 2);
    for (std::size_t i = 0; i < params.size(); i += 2) {
      EXPECT_EQ(map.ranges()[i / 2].begin, params[i].offset);
    }
  }
}

// Graham 1969: longest first is never beyond 4/3 - 1/(3 K) of the best, which is at least the mean
// and at least the largest layer; and beyond the sum of two layers nothing is known here.
TEST(ShardMapTest, ByLayerBoundsLargestShard) {
  Rng rng({8, Purpose::kTest});
  for (int round = 0; round < 200; ++round) {
    std::int64_t parameters = 0;
    const auto params = RandomParams(&rng, 1 + int(rng.Below(30)), &parameters);
    const int shards = 1 + int(rng.Below(6));
    const ShardMap map = Make(Sharding::kLayer, params, parameters, shards);
    std::int64_t largest = 0, most = 0;
    for (const auto& range : map.ranges()) largest = std::max(largest, range.size());
    for (int s = 0; s < shards; ++s) most = std::max(most, map.LoadOf(s));
    EXPECT_LE(double(most), double(parameters) / shards + double(largest) * (1 - 1.0 / shards));
  }
}

TEST(ShardMapTest, AddingShardMovesOnlyItsShare) {
  std::int64_t parameters = 0;
  Vgg16Params(&parameters);
  ShardMap map = ByMemory(parameters, 1);
  for (const std::int32_t shard : {4, 1, 9, 2, 3, 12, 6}) {
    const ShardMap next = *map.WithShard(shard);
    ExpectSound(next);
    EXPECT_EQ(next.epoch(), map.epoch() + 1);
    std::int64_t moved = 0;
    for (const ShardMap::Move& move : ShardMap::Moves(map, next)) {
      EXPECT_EQ(move.to, shard);
      moved += move.range.size();
    }
    const double share = double(parameters) / double(next.shards().size());
    EXPECT_NEAR(double(moved), share, 0.05 * share);
    EXPECT_LT(next.imbalance(), 1.0001);
    map = next;
  }
}

TEST(ShardMapTest, RemovingShardMovesOnlyItsShare) {
  ShardMap map = ByMemory(100000, 8);
  for (const std::int32_t shard : {3, 0, 7, 5, 1, 6, 4}) {
    const std::int64_t share = map.LoadOf(shard);
    const ShardMap next = *map.WithoutShard(shard);
    ExpectSound(next);
    std::int64_t moved = 0;
    for (const ShardMap::Move& move : ShardMap::Moves(map, next)) {
      EXPECT_EQ(move.from, shard);
      moved += move.range.size();
    }
    EXPECT_EQ(moved, share);
    EXPECT_LT(next.imbalance(), 1.002);
    EXPECT_TRUE(next.RangesOf(shard).empty());
    map = next;
  }
  EXPECT_EQ(map.WithoutShard(2).status().code(), Code::kFailedPrecondition);
}

TEST(ShardMapTest, ByLayerAddingShardNeverGrowsLargest) {
  Rng rng({9, Purpose::kTest});
  for (int round = 0; round < 200; ++round) {
    std::int64_t parameters = 0;
    const auto params = RandomParams(&rng, 5 + int(rng.Below(20)), &parameters);
    const ShardMap map = Make(Sharding::kLayer, params, parameters, 1 + int(rng.Below(4)));
    const ShardMap next = *map.WithShard(10);
    std::int64_t before = 0, after = 0;
    for (const std::int32_t s : map.shards()) before = std::max(before, map.LoadOf(s));
    for (const std::int32_t s : next.shards()) after = std::max(after, next.LoadOf(s));
    EXPECT_LE(after, before);
    for (const ShardMap::Move& move : ShardMap::Moves(map, next)) EXPECT_EQ(move.to, 10);
    const ShardMap back = *next.WithoutShard(10);
    ExpectSound(back);
    for (const ShardMap::Move& move : ShardMap::Moves(next, back)) EXPECT_EQ(move.from, 10);
  }
}

// Each element has one owner in every epoch (ExpectSound), and what moves is what an added shard
// gets or a removed one had.
TEST(ShardMapTest, ResizingMovesOnlySharesOfAddedOrRemovedShards) {
  Rng rng({10, Purpose::kTest});
  for (int round = 0; round < 100; ++round) {
    std::int64_t parameters = 0;
    const auto params = RandomParams(&rng, 1 + int(rng.Below(30)), &parameters);
    const Sharding sharding = round % 2 == 0 ? Sharding::kMemory : Sharding::kLayer;
    ShardMap map = Make(sharding, params, parameters, 1 + int(rng.Below(6)));
    for (int change = 0; change < 6; ++change) {
      const int before = int(map.shards().size()), count = 1 + int(rng.Below(8));
      if (count == before) continue;
      const ShardMap next = *map.WithShards(count);
      ExpectSound(next);
      EXPECT_EQ(next.epoch(), map.epoch() + 1);
      EXPECT_EQ(next.shards().size(), std::size_t(count));
      std::int64_t moved = 0, share = 0;
      for (const ShardMap::Move& move : ShardMap::Moves(map, next)) {
        EXPECT_GE(std::max(move.from, move.to), std::min(before, count));
        moved += move.range.size();
      }
      for (int k = std::min(before, count); k < std::max(before, count); ++k) {
        share += (count > before ? next : map).LoadOf(k);
      }
      EXPECT_EQ(moved, share);
      if (sharding == Sharding::kMemory) {
        const auto loads = [&](const auto& pick) {
          std::vector<std::int64_t> all;
          for (const std::int32_t k : next.shards()) all.push_back(next.LoadOf(k));
          return pick(all);
        };
        EXPECT_LE(loads(std::ranges::max) - loads(std::ranges::min), 2 * kParamAlignment);
      }
      map = next;
    }
  }
}

TEST(ShardMapTest, RejectsInvalidAdditionsAndRemovals) {
  const ShardMap map = ByMemory(1000, 2);
  EXPECT_EQ(map.WithShard(1).status().code(), Code::kAlreadyExists);
  EXPECT_EQ(map.WithShard(-1).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(map.WithoutShard(2).status().code(), Code::kNotFound);
  EXPECT_EQ(ByMemory(10, kShardsMax).WithShard(5000).status().code(), Code::kResourceExhausted);
  EXPECT_EQ(map.WithShards(2).status().code(), Code::kAlreadyExists);
  EXPECT_EQ(map.WithShards(0).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(map.WithShards(kShardsMax + 1).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(ShardMap::Make(Sharding::kMemory, {}, 10, 0).status().code(), Code::kInvalidArgument);
  EXPECT_FALSE(ParseEnum<Sharding>("bytes").has_value());
  EXPECT_EQ(*ParseEnum<Sharding>(EnumName(Sharding::kLayer)), Sharding::kLayer);
}

TEST(ShardMapTest, RejectsDamagedBodyWithReason) {
  const ShardMapBody good = ByMemory(1000, 3).ToBody();
  const auto fault = [&](const std::function<void(ShardMapBody&)>& damage) {
    ShardMapBody body = good;
    damage(body);
    const Status status = ShardMap::FromBody(body, 1000).status();
    EXPECT_EQ(status.code(), Code::kDataLoss);
    return status.message();
  };
  const auto expect = [&](const char* want, const std::function<void(ShardMapBody&)>& damage) {
    EXPECT_NE(fault(damage).find(want), std::string::npos) << want;
  };
  expect("epoch is 0", [](auto& b) { b.epoch = 0; });
  expect("sharding", [](auto& b) { b.sharding = 2; });
  expect("1001 parameters, the model has 1000", [](auto& b) { b.parameters = 1001; });
  expect("number of shards", [](auto& b) { b.shards.clear(); });
  expect("not in order", [](auto& b) { b.shards = {0, 2, 1}; });
  expect("negative number", [](auto& b) { b.shards = {-1, 0, 1, 2}; });
  expect("an owner is not a shard", [](auto& b) { b.owner[1] = 3; });
  expect("ends and owners differ", [](auto& b) { b.owner.pop_back(); });
  expect("cache line", [](auto& b) { ++b.end[0]; });
  expect("empty or not in order", [](auto& b) { b.end[1] = b.end[0]; });
  expect("do not reach", [](auto& b) { b.end[2] = 992; });
  expect("do not reach", [](auto& b) { b.end[2] = 1008; });
  expect("one owner", [](auto& b) { b.owner[1] = 0; });
}

TEST(ShardMapTest, PartsHoldRangesInOrderWithinSizeLimit) {
  Rng rng({10, Purpose::kTest});
  for (int round = 0; round < 100; ++round) {
    std::vector<ParamRange> ranges;
    std::int64_t at = 0;
    for (std::uint32_t i = rng.Below(40); i > 0; --i) {
      const std::int64_t begin = at + 16 * std::int64_t(1 + rng.Below(3));
      at = AlignParams(begin + 1 + std::int64_t(rng.Below(i % 5 == 0 ? 9000 : 60)));
      ranges.push_back({begin, at - std::int64_t(rng.Below(16))});
    }
    const std::int64_t most = 16 * std::int64_t(1 + rng.Below(100));
    std::vector<ParamRange> joined;
    std::int64_t total = 0, count = 0;
    for (const auto& part : CutIntoParts(ranges, most)) {
      std::int64_t size = 0;
      for (const ParamRange& range : part) {
        EXPECT_EQ(range.begin % 16, 0);
        size += range.size();
        if (!joined.empty() && joined.back().end == range.begin) {
          joined.back().end = range.end;
        } else {
          joined.push_back(range);
        }
      }
      EXPECT_GT(size, 0);
      EXPECT_LE(size, most);
      total += size;
      ++count;
    }
    EXPECT_EQ(joined, ranges);
    // A new part is begun only where the one before had less than a cache line left.
    EXPECT_LE((count - 1) * (most - 15), total);
  }
  EXPECT_LE(kPartFloatsMax * 4, 4 << 20);
}

}  // namespace
}  // namespace troop
