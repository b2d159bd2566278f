#pragma once

#include <cstdint>

#include "actors/actor_config.h"

namespace troop {

// Bounds of an actor's insert requests. An actor sends what it has buffered at the first vector
// step after which it holds `items_due` items or `frames_due` frames.
struct InsertBounds {
  std::int64_t items_due = 0, frames_due = 0;
  // The largest insert. The last vector step before it completes up to n_step + 1 items in each
  // environment (the oldest pending one, then all at the end of the episode), or 2 unrolls (a full
  // one, then a step that ends the episode), and appends 2 frames (the step, and the final
  // observation).
  std::int64_t items_max = 0, frames_max = 0;
};

// Complete episodes have at most two frames per item (unrolls: one more than steps), and at most
// n_step (unroll_length) frames of an environment belong to incomplete items, so `frames_due` is
// reached only if environments fail again and again before any item is complete.
constexpr InsertBounds InsertBoundsOf(const ActorConfig& config) {
  const std::int64_t items = config.insert_batch_size;
  const bool unrolls = config.unroll_length > 0;
  const std::int64_t steps = unrolls ? config.unroll_length : config.n_step;
  const std::int64_t frames = (unrolls ? steps + 1 : 2) * items + config.envs * steps;
  const std::int64_t completed = unrolls ? 2 : steps + 1;  // by one step of an environment
  return {.items_due = items,
          .frames_due = frames,
          .items_max = items - 1 + config.envs * completed * config.insert_copies,
          .frames_max = frames - 1 + 2 * config.envs};
}

}  // namespace troop
