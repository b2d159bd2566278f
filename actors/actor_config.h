#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "core/config/enum_names.h"

namespace troop {

class ConfigVisitor;

// Place where the policy of the actors is evaluated.
enum class InferencePlace : std::uint8_t {
  kLocal,   // each actor evaluates its own copy of the policy
  kServer,  // inference servers, for many actors
};
constexpr auto EnumNames(InferencePlace) {
  return std::to_array<std::string_view>({"local", "server"});
}

// The actors ([actor]).
struct ActorConfig {
  std::int64_t envs = 8;  // environments per actor
  double epsilon_base = 0.4;
  double epsilon_alpha = 7;
  double epsilon_steps = 0;  // agent steps (fleet) of annealing; 0: ε_i per environment
  double epsilon_initial = 1;
  double epsilon_final = 0.1;
  double noise_sigma = 0.3;  // dpg, td3: in halves of the action range
  double noise_alpha = 0;    // dpg, td3; 0: same noise for all environments
  std::int64_t n_step = 3;
  std::int64_t unroll_length = 0;        // steps per item; 0: n-step transitions
  std::int64_t unroll_overlap = 0;       // r2d2: steps shared with the unroll before
  std::int64_t burn_in = 0;              // r2d2: steps before an unroll
  std::int64_t weight_sync_steps = 100;  // agent steps per environment between weight updates
  std::int64_t insert_batch_size = 50;
  std::int64_t max_inflight_inserts = 4;
  std::int64_t lease_steps = 1000;  // agent steps granted at a time
  double warmup_steps = 0;          // agent steps (fleet) of uniform random actions at the start
  std::int64_t insert_copies = 1;   // copies of each item in the replay
  double refill_after_s = 30;       // learner.synchronous: wait before a refill
  InferencePlace inference = InferencePlace::kLocal;
  bool record_episodes = false;   // into episodes/ of the run
  double record_bytes_max = 1e9;  // of one actor's episodes on disk
  bool operator==(const ActorConfig&) const = default;
};
// Declares the keys.
void VisitKeys(ActorConfig& config, ConfigVisitor& visitor);

}  // namespace troop
