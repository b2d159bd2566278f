#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace troop {

// Synchronization of the learners that push to a parameter shard (SyncPolicy).
enum class SyncMode : std::uint8_t {
  kBsp = 0,    // one update from all learners: synchronous SGD
  kKOfN = 1,   // one update from the first k pushes
  kSsp = 2,    // a learner is at most `staleness` pushes ahead of the slowest (Ho et al. 2013)
  kAsync = 3,  // one update per push (Downpour: Dean et al. 2012)
  // All learners' values, averaged every H local steps (PSGD: Zinkevich et al. 2010).
  kLocalSgd = 4,
};
constexpr auto EnumNames(SyncMode) {
  return std::to_array<std::string_view>({"bsp", "k_of_n", "ssp", "async", "local_sgd"});
}

// Cut of the parameters into shards (ShardMap).
enum class Sharding : std::uint8_t {
  kMemory = 0,  // equal bytes, cut at cache lines: a tensor may span several shards
  kLayer = 1,   // whole layers, the largest first to the least loaded shard
};
constexpr auto EnumNames(Sharding) { return std::to_array<std::string_view>({"memory", "layer"}); }

// Compression of the gradients that are pushed to a parameter shard. All codecs except kNone keep
// what they do not send and add it to the next gradient (error feedback): sent + residual always
// equals the sum of all gradients.
enum class GradientCodec : std::uint8_t {
  kNone = 0,   // 32 bits per element
  kFp16 = 1,   // 16 bits; the excess over ±65504 stays in the residual
  kBf16 = 2,   // 16 bits
  kTopK = 3,   // the elements of largest magnitude, as f32
  kStrom = 4,  // elements of magnitude >= τ, as ±τ: 1 bit and a gap each (Strom 2015)
};
constexpr auto EnumNames(GradientCodec) {
  return std::to_array<std::string_view>({"none", "fp16", "bf16", "top_k", "strom"});
}

}  // namespace troop
