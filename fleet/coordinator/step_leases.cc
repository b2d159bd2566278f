// Implements the leases of agent steps.
#include "fleet/coordinator/step_leases.h"

#include <algorithm>

namespace troop {

void StepLeases::Set(StepLease* lease, StepLease next) {
  members_leased_ += (next.granted - next.done) - (lease->granted - lease->done);
  members_done_ += next.done - lease->done;
  *lease = next;
}

void StepLeases::Report(StepLease* lease, std::int64_t done) {
  const std::int64_t granted = lease->granted;
  Set(lease, {.granted = granted, .done = std::clamp(done, lease->done, granted)});
}

void StepLeases::Grant(StepLease* lease, std::int64_t wanted) {
  const std::int64_t left = total_ - leased();
  const std::int64_t asked = std::max(wanted, lease->granted) - lease->granted;
  const std::int64_t more = std::min(asked, std::max<std::int64_t>(left, 0));
  Set(lease, {.granted = lease->granted + more, .done = lease->done});
}

void StepLeases::Return(StepLease* lease) {
  const std::int64_t done = lease->done;
  Set(lease, {.granted = done, .done = done});
}

void StepLeases::Retire(StepLease* lease) {
  retired_ += lease->done;
  Set(lease, {});
}

}  // namespace troop
