// Implements the leases of agent steps.
#include "fleet/coordinator/step_leases.h"

#include <algorithm>

namespace troop {

// The only function that changes a lease, so that the sums over all members stay exact.
void StepLeases::Set(StepLease* lease, StepLease next) {
  members_leased_ += (next.granted - next.done) - (lease->granted - lease->done);
  members_done_ += next.done - lease->done;
  *lease = next;
}

// A late report never lowers the count; a faulty one cannot exceed what was granted.
void StepLeases::Report(StepLease* lease, std::int64_t done) {
  const std::int64_t granted = lease->granted;
  Set(lease, {.granted = granted, .done = std::clamp(done, lease->done, granted)});
}

// Grants what the budget still has; a grant is never taken back here.
void StepLeases::Grant(StepLease* lease, std::int64_t wanted) {
  const std::int64_t left = total_ - leased();
  const std::int64_t asked = std::max(wanted, lease->granted) - lease->granted;
  const std::int64_t more = std::min(asked, std::max<std::int64_t>(left, 0));
  Set(lease, {.granted = lease->granted + more, .done = lease->done});
}

// Steps that were granted but not done become available to other members.
void StepLeases::Return(StepLease* lease) {
  const std::int64_t done = lease->done;
  Set(lease, {.granted = done, .done = done});
}

// The steps of a member that has left stay counted.
void StepLeases::Retire(StepLease* lease) {
  retired_ += lease->done;
  Set(lease, {});
}

}  // namespace troop
