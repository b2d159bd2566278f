#pragma once

#include <optional>

#include "core/base/time.h"

namespace troop {

// Requests for the whole state of a tensor-parallel model, which only an update can gather: for a
// checkpoint, and for the one at a stop. Owner: the node's thread.
class StateGathering {
 public:
  // needed: the state is in parts; otherwise it is always complete here. wait_max: limit of a
  // stop's wait for it.
  StateGathering(bool needed, Duration wait_max) : needed_(needed), wait_max_(wait_max) {}

  bool needed() const { return needed_; }
  // The following updates gather the state, until NoteGathered.
  void Request() { wanted_ = true; }
  bool wanted() const { return wanted_; }
  // An update has gathered the state.
  void NoteGathered();
  // True once after NoteGathered: the checkpoint may be written.
  bool TakeGathered();

  // State of the updater at a stop.
  struct Ranks {
    bool is_leader = true;
    bool in_step = true;  // the other ranks are present
  };
  // At a stop: true while its checkpoint must wait for the state. Requests it on the leader.
  bool StopAwaits(Time now, const Ranks& ranks);

 private:
  const bool needed_;
  const Duration wait_max_;
  bool wanted_ = false, gathered_ = false;
  std::optional<Time> stopped_;  // start of a stop's wait
  bool gathered_since_stop_ = false;
};

}  // namespace troop
