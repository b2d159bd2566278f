#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/config/enum_names.h"
#include "replay/replay_modes.h"

namespace troop {

class ConfigVisitor;

// Compression of stored and sent observations.
enum class FrameCompression : std::uint8_t {
  kAuto,  // LZ4 for images, else none
  kNone,
  kLz4,
  kZstd,
};
constexpr auto EnumNames(FrameCompression) {
  return std::to_array<std::string_view>({"auto", "none", "lz4", "zstd"});
}

// Choice of the items to evict from a full table (SelectorKind).
enum class RemoverKind : std::uint8_t {
  kFifo,
  kLifo,
  kUniform,
  kReservoir,  // keeps a uniform sample of all items inserted so far
  kLowest,
  kHighest,
  kPrioritized,
};
constexpr auto EnumNames(RemoverKind) {
  return std::to_array<std::string_view>(
      {"fifo", "lifo", "uniform", "reservoir", "lowest", "highest", "prioritized"});
}

// Shards from which a learner samples.
enum class ReplayScope : std::uint8_t {
  kGlobal,  // every learner samples from all shards
  kLocal,   // learner i samples from shard i (the bundles of Gorila)
};
constexpr auto EnumNames(ReplayScope) {
  return std::to_array<std::string_view>({"global", "local"});
}

// Place where batches are sampled.
enum class ReplayPlacement : std::uint8_t {
  kHost,  // the replay
  kGpu,   // the learner's replica of the table in GPU memory
};
constexpr auto EnumNames(ReplayPlacement) {
  return std::to_array<std::string_view>({"host", "gpu"});
}

// Durability of an acknowledged insert.
enum class Durability : std::uint8_t { kMemory, kDisk };
constexpr auto EnumNames(Durability) { return std::to_array<std::string_view>({"memory", "disk"}); }

// One table of replay.tables: served by a stand-alone replay, or by the replay of a fleet in
// addition to its own.
struct ReplayTableConfig {
  std::string name;
  std::string observation = "f32[1]";  // type and shape of one frame, "u8[84, 84]"
  std::string action = "i32[]";
  std::string state;  // type and shape of the recurrent state of an item; empty: none
  ViewKind view = ViewKind::kTransition;
  std::int64_t length = 1;
  std::int64_t stack = 1;
  std::int64_t burn_in = 0;
  FrameCompression compression = FrameCompression::kAuto;
  std::int64_t capacity_items = 100000;
  std::int64_t min_items = 1;
  SelectorKind sampler = SelectorKind::kPrioritized;
  RemoverKind remover = RemoverKind::kFifo;
  double alpha = 0.6;
  double evict_alpha = -0.4;
  double priority_epsilon = 1e-6;
  std::int64_t max_times_sampled = 0;
  std::int64_t max_policy_age = 0;
  double samples_per_insert = 0;
  double samples_per_insert_tolerance_rate = 0.1;
  bool operator==(const ReplayTableConfig&) const = default;
};

// The replay of a run, and a stand-alone replay ([replay]).
struct ReplayConfig {
  std::int64_t capacity_items = 100000;
  std::int64_t min_items = 1000;  // items before sampling starts
  double alpha = 0.6;
  double beta = 0.4;
  double final_beta = 0;           // value at the last update, reached linearly; 0: constant
  double priority_epsilon = 1e-6;  // added to |TD|
  std::int64_t trim_every_updates = 100;
  double samples_per_insert = 8;  // 0: no limit
  double samples_per_insert_tolerance_rate =
      0.1;                      // error buffer as a fraction of samples_per_insert * min_items
  double memory_bytes_max = 0;  // 0: three quarters of this machine's memory
  std::int64_t shards = 1;      // replay processes
  ReplayScope scope = ReplayScope::kGlobal;
  ReplayPlacement placement = ReplayPlacement::kHost;
  FrameCompression compression = FrameCompression::kAuto;
  SelectorKind sampler = SelectorKind::kPrioritized;
  RemoverKind remover = RemoverKind::kFifo;
  double evict_alpha = -0.4;           // remover = "prioritized": its exponent
  std::int64_t max_times_sampled = 0;  // 0: no limit
  std::int64_t max_policy_age = 0;     // updates; 0: no limit
  std::int64_t decode_threads = 0;     // additional threads of the learner
  bool persist = false;                // store the replay on disk
  Durability durability = Durability::kMemory;
  bool spill_to_disk = false;                   // free the memory of old segments
  std::string listen = "tcp://127.0.0.1:7700";  // listen address of a stand-alone replay
  std::string dir = "replay";                   // folder of a stand-alone replay
  std::vector<ReplayTableConfig> tables;
  bool operator==(const ReplayConfig&) const = default;
};
// Declares the keys.
void VisitKeys(ReplayTableConfig& table, ConfigVisitor& visitor);
void VisitKeys(ReplayConfig& config, ConfigVisitor& visitor);

}  // namespace troop
