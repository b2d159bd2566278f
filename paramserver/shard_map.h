#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/status.h"
#include "nn/module.h"

namespace troop {

// A piece of the flat arena, in elements: [begin, end).
struct ParamRange {
  std::int64_t begin = 0, end = 0;
  std::int64_t size() const { return end - begin; }
  bool operator==(const ParamRange&) const = default;
};

enum class Sharding : std::uint8_t {
  kMemory = 0,  // equal bytes, cut at cache lines: a tensor may lie on several shards
  kLayer = 1,   // whole layers, the largest first to whom has least
};
Result<Sharding> ParseSharding(std::string_view text);  // "memory", "layer"
std::string_view ShardingName(Sharding sharding);

// BytePS's size of a part: 4,096,000 bytes. Small enough that sending one and applying the one
// before overlap, large enough that a message's own cost is lost in it.
inline constexpr std::int64_t kPartFloatsMax = 1024000;
inline constexpr int kShardsMax = 1024;

// How a ShardMap travels. `owner` of [end before, end); ends grow up to `parameters`.
struct ShardMapBody {
  std::uint64_t epoch = 0;
  std::uint8_t sharding = 0;
  std::int64_t parameters = 0;
  std::vector<std::int32_t> shards;
  std::vector<std::int64_t> end;
  std::vector<std::int32_t> owner;
  template <class A>
  void serialize(A& a) {
    a(epoch, sharding, parameters, shards, end, owner);
  }
};

// Which shard owns which ranges of the flat arena in one epoch. A value; immutable but for
// assignment. Same inputs, same map.
// Invariants: the ranges are sorted, not empty, and cover [0, parameters) without gap or overlap,
// so every element has one owner; each range begins at a multiple of kParamAlignment; each owner is
// one of shards(). kLayer: one range a layer, never cut: neighbouring tensors whose names are the
// same up to the last dot, and the padding behind them. kMemory: neighbours have different owners.
class ShardMap {
 public:
  struct Range {
    std::int64_t begin = 0, end = 0;
    std::int32_t owner = 0;
    std::int64_t size() const { return end - begin; }
    bool operator==(const Range&) const = default;
  };
  // A range that has another owner than it had.
  struct Move {
    ParamRange range;
    std::int32_t from = 0, to = 0;
  };

  // Epoch 1, shards 0 to shards - 1. `params` as a model has them: sorted, aligned offsets, each
  // within `parameters`; kMemory does not look at them. Errors: kInvalidArgument: shards not in
  // [1, kShardsMax].
  static Result<ShardMap> Make(Sharding sharding, std::span<const ParamSpec> params,
                               std::int64_t parameters, int shards);
  // Errors: kDataLoss: a body that breaks an invariant, or of another model than `parameters`.
  static Result<ShardMap> FromBody(const ShardMapBody& body, std::int64_t parameters);
  ShardMapBody ToBody() const;

  // The next epoch with one more or one shard less. kMemory: exactly what the new shard owns, or
  // the old one owned, moves, and all end up with equal bytes. kLayer: layers go to the new one
  // from whom has most, while it has less than the mean and the two come nearer; or from the one
  // who left to whom has least. Errors: kInvalidArgument (below 0), kAlreadyExists, kNotFound,
  // kResourceExhausted (kShardsMax), kFailedPrecondition (the last one).
  Result<ShardMap> WithShard(std::int32_t shard) const;
  Result<ShardMap> WithoutShard(std::int32_t shard) const;
  // The next epoch with shards 0 to count - 1: as those, one by one, but one epoch. What an added
  // shard gets or a removed one had moves, and nothing else. REQUIRES: shards() are numbered from 0
  // without a gap. Errors: kInvalidArgument (not in [1, kShardsMax]), kAlreadyExists (as many).
  Result<ShardMap> WithShards(int count) const;
  // What moves between two maps of one model. REQUIRES: the same parameters(). O(ranges).
  static std::vector<Move> Moves(const ShardMap& from, const ShardMap& to);

  std::uint64_t epoch() const { return epoch_; }
  Sharding sharding() const { return sharding_; }
  std::int64_t parameters() const { return parameters_; }
  std::span<const std::int32_t> shards() const { return shards_; }  // sorted
  std::span<const Range> ranges() const { return ranges_; }
  std::int32_t OwnerOf(std::int64_t element) const;  // O(log ranges)
  // What `shard` owns, sorted, neighbours merged. Empty: nothing, or no such shard.
  std::vector<ParamRange> RangesOf(std::int32_t shard) const;
  std::int64_t LoadOf(std::int32_t shard) const;  // elements
  // Largest load / mean load; 1 when there are no parameters.
  double imbalance() const;
  // One line: "4 shards by layer: largest 411.06 MB, mean 138.36 MB, imbalance 2.9710".
  std::string ToString() const;
  bool operator==(const ShardMap&) const = default;

 private:
  ShardMap() = default;
  std::size_t IndexOf(std::int32_t shard) const;  // in shards_; its size: none
  std::vector<std::int64_t> Loads() const;        // as shards_
  void MergeNeighbours();
  void DealByMemory();
  void DealByLayer(std::span<const ParamSpec> params);
  void GiveElements(std::int32_t from, std::int32_t to, std::int64_t elements);
  void GiveLayers(std::int32_t to);
  void DealLayersOf(std::int32_t owner);
  bool GiveOneLayer(std::int32_t to);

  std::uint64_t epoch_ = 0;
  Sharding sharding_ = Sharding::kMemory;
  std::int64_t parameters_ = 0;
  std::vector<std::int32_t> shards_;
  std::vector<Range> ranges_;
};

// The ranges of one shard as messages of at most `part_floats_max` elements: small ranges share a
// part, large ones are cut at cache lines. In order; together they are the ranges. REQUIRES:
// part_floats_max is a positive multiple of kParamAlignment.
std::vector<std::vector<ParamRange>> CutIntoParts(std::span<const ParamRange> ranges,
                                                  std::int64_t part_floats_max = kPartFloatsMax);

}  // namespace troop
