#pragma once

#include <cstdint>

#include "replay/replay_config.h"

namespace troop {

// All settings of a run on which its replay depends. Members have the names of their keys; those of
// other sections are single values.
struct ReplaySetup {
  std::int64_t seed = 1;
  ReplayConfig replay;
  std::int64_t n_step = 3;            // actor.n_step
  std::int64_t unroll_length = 0;     // actor.unroll_length; 0: items are transitions
  std::int64_t numbers_per_step = 0;  // in items of unrolls: nn/models/algorithm_kind.h
  std::int64_t state_columns = 0;     // recurrent state, in front of those numbers
  std::int64_t burn_in = 0;           // actor.burn_in
  std::int64_t frame_stack = 1;       // env.frame_stack
  std::int64_t batch_size = 64;       // learner.batch_size
};

}  // namespace troop
