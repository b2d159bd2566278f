#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace troop {

class ConfigVisitor;

// One table of replay.tables: served by a stand-alone replay, or by the replay of a fleet in
// addition to its own.
struct ReplayTableConfig {
  std::string name;
  std::string observation = "f32[1]";  // type and shape of one frame, "u8[84, 84]"
  std::string action = "i32[]";
  std::string state;                // type and shape of the recurrent state of an item; empty: none
  std::string view = "transition";  // "transition" | "sequence"
  std::int64_t length = 1;
  std::int64_t stack = 1;
  std::int64_t burn_in = 0;
  std::string compression = "auto";
  std::int64_t capacity_items = 100000;
  std::int64_t min_items = 1;
  std::string sampler = "prioritized";
  std::string remover = "fifo";
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
      0.1;                           // error buffer as a fraction of samples_per_insert * min_items
  double memory_bytes_max = 0;       // 0: three quarters of this machine's memory
  std::int64_t shards = 1;           // replay processes
  std::string scope = "global";      // "global" | "local"
  std::string placement = "host";    // "host" | "gpu"
  std::string compression = "auto";  // "auto" | "none" | "lz4" | "zstd"
  std::string sampler = "prioritized";
  std::string remover = "fifo";
  double evict_alpha = -0.4;                    // remover = "prioritized": its exponent
  std::int64_t max_times_sampled = 0;           // 0: no limit
  std::int64_t max_policy_age = 0;              // updates; 0: no limit
  std::int64_t decode_threads = 0;              // additional threads of the learner
  bool persist = false;                         // store the replay on disk
  std::string durability = "memory";            // "memory" | "disk"
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
