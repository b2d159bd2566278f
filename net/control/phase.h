#pragma once

#include <cstdint>

namespace troop {

// The phase of a run; it only advances.
enum class Phase : std::uint8_t {
  kRunning = 0,     // actors produce experience
  kDraining = 1,    // the budget is spent: the learner finishes and writes a checkpoint
  kEvaluating = 2,  // the evaluator runs the final evaluation
  kDone = 3,        // all roles exit
};

}  // namespace troop
