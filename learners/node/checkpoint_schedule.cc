// Implements the times of checkpoints.

#include "learners/node/checkpoint_schedule.h"

namespace troop {
namespace {

// Durations from this (30 years) mean never; Time does not hold much more.
constexpr double kForeverSeconds = 1e9;

}  // namespace

Time CheckpointSchedule::After(Time now) const {
  return every_s_ > 0 && every_s_ < kForeverSeconds ? now + Seconds(every_s_) : kForever;
}

bool CheckpointSchedule::Poll(Time now) {
  if (!next_) Restart(now);
  return now >= *next_;
}

void CheckpointSchedule::EndFinal(const Status& status) {
  if (status.ok()) {
    final_failure_ = Status::Ok();
    final_done_ = true;
    return;
  }
  final_done_ = !final_failure_.ok();
  final_failure_ = status.WithContext("the final checkpoint could not be written");
}

}  // namespace troop
