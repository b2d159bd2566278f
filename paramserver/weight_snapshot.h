#pragma once

#include <cstdint>

#include "core/base/buffer.h"

namespace troop {

// All parameters of a model at one version: [P] f32.
struct WeightSnapshot {
  std::uint64_t version = 0;  // from 1; grows with the learner's updates; 0: none
  Buffer value;
};

}  // namespace troop
