#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/status.h"
#include "nn/module.h"
#include "paramserver/paramserver_modes.h"

namespace troop {

// Range [begin, end) of the flat parameter arena, in elements.
struct ParamRange {
  std::int64_t begin = 0, end = 0;
  std::int64_t size() const { return end - begin; }
  bool operator==(const ParamRange&) const = default;
};

// Partition size of BytePS: 4,096,000 bytes. Small enough that sending one part overlaps applying
// the previous one, large enough to amortize the fixed cost of a message.
inline constexpr std::int64_t kPartFloatsMax = 1024000;
inline constexpr int kShardsMax = 1024;

// Wire form of a ShardMap. Range i is [end[i - 1], end[i]) and belongs to owner[i]; the ends grow
// up to `parameters`.
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

// Assignment of the flat arena's ranges to shards in one epoch. A value type, immutable except for
// assignment, and deterministic: the same inputs give the same map.
// Invariants: the ranges are sorted, non-empty, and cover [0, parameters) without gap or overlap,
// so every element has one owner; each range begins at a multiple of kParamAlignment; each owner is
// one of shards(). kLayer: one uncut range per layer, which is a run of tensors whose names are
// equal up to the last dot, with the padding after them. kMemory: neighboring ranges have different
// owners.
class ShardMap {
 public:
  struct Range {
    std::int64_t begin = 0, end = 0;
    std::int32_t owner = 0;
    std::int64_t size() const { return end - begin; }
    bool operator==(const Range&) const = default;
  };
  // A range that changes its owner between two maps.
  struct Move {
    ParamRange range;
    std::int32_t from = 0, to = 0;
  };

  // Builds the map of epoch 1 over shards 0 to shards - 1. `params` come from the model: sorted,
  // aligned offsets, each within `parameters`; kMemory ignores them. Errors: kInvalidArgument:
  // shards not in [1, kShardsMax].
  static Result<ShardMap> Make(Sharding sharding, std::span<const ParamSpec> params,
                               std::int64_t parameters, int shards);
  // Validates and decodes a received map. Errors: kDataLoss: the body breaks an invariant, or
  // belongs to a model of another size than `parameters`.
  static Result<ShardMap> FromBody(const ShardMapBody& body, std::int64_t parameters);
  ShardMapBody ToBody() const;

  // Returns the next epoch's map with one shard added or removed. kMemory: exactly what the new
  // shard owns, or the removed one owned, moves, and all shards end up with equal bytes. kLayer:
  // adding moves layers from the most loaded shard while the new one is below the mean and the two
  // loads converge; removing gives each layer to the least loaded shard. Errors: kInvalidArgument
  // (below 0), kAlreadyExists, kNotFound, kResourceExhausted (kShardsMax), kFailedPrecondition (the
  // last shard).
  Result<ShardMap> WithShard(std::int32_t shard) const;
  Result<ShardMap> WithoutShard(std::int32_t shard) const;
  // Returns the next epoch's map over shards 0 to count - 1: the result of adding or removing one
  // shard at a time, as a single epoch. Only ranges of added or removed shards move. REQUIRES:
  // shards() are numbered from 0 without a gap. Errors: kInvalidArgument (not in [1, kShardsMax]),
  // kAlreadyExists (count is unchanged).
  Result<ShardMap> WithShards(int count) const;
  // Ranges that move between two maps of one model. REQUIRES: equal parameters(). O(ranges).
  static std::vector<Move> Moves(const ShardMap& from, const ShardMap& to);

  std::uint64_t epoch() const { return epoch_; }
  Sharding sharding() const { return sharding_; }
  std::int64_t parameters() const { return parameters_; }
  std::span<const std::int32_t> shards() const { return shards_; }  // sorted
  std::span<const Range> ranges() const { return ranges_; }
  std::int32_t OwnerOf(std::int64_t element) const;  // O(log ranges)
  // Ranges of `shard`, sorted, with adjacent ones merged. Empty if it owns nothing or does not
  // exist.
  std::vector<ParamRange> RangesOf(std::int32_t shard) const;
  std::int64_t LoadOf(std::int32_t shard) const;  // elements
  // Largest load divided by the mean load; 1 if there are no parameters.
  double imbalance() const;
  // One-line summary: "4 shards by layer: largest 411.06 MB, mean 138.36 MB, imbalance 2.9710".
  std::string ToString() const;
  bool operator==(const ShardMap&) const = default;

 private:
  ShardMap() = default;
  std::size_t IndexOf(std::int32_t shard) const;  // index in shards_; its size if absent
  std::vector<std::int64_t> Loads() const;        // elements, in the order of shards_
  void MergeNeighbours();
  void AssignByMemory();
  void AssignByLayer(std::span<const ParamSpec> params);
  void MoveElements(std::int32_t from, std::int32_t to, std::int64_t elements);
  void MoveLayers(std::int32_t to);
  void ReassignLayersOf(std::int32_t owner);
  bool MoveOneLayer(std::int32_t to);

  std::uint64_t epoch_ = 0;
  Sharding sharding_ = Sharding::kMemory;
  std::int64_t parameters_ = 0;
  std::vector<std::int32_t> shards_;
  std::vector<Range> ranges_;
};

// Packs the ranges of one shard into message parts of at most `part_floats_max` elements: small
// ranges share a part, large ones are cut at cache lines. The parts in order are the ranges in
// order. REQUIRES: part_floats_max is a positive multiple of kParamAlignment.
std::vector<std::vector<ParamRange>> CutIntoParts(std::span<const ParamRange> ranges,
                                                  std::int64_t part_floats_max = kPartFloatsMax);

}  // namespace troop
