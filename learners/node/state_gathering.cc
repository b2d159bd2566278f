// Implements the requests for the whole state of a tensor-parallel model.

#include "learners/node/state_gathering.h"

#include <utility>

namespace troop {

void StateGathering::NoteGathered() {
  gathered_ = true;
  wanted_ = false;
  gathered_since_stop_ = stopped_.has_value();
}

bool StateGathering::TakeGathered() { return std::exchange(gathered_, false); }

// The wait is limited, because the other ranks may have stopped before.
bool StateGathering::StopAwaits(Time now, const Ranks& ranks) {
  if (!needed_) return false;
  if (!stopped_) stopped_ = now;
  wanted_ = ranks.is_leader && !gathered_since_stop_;
  return ranks.in_step && !gathered_since_stop_ && now - *stopped_ < wait_max_;
}

}  // namespace troop
