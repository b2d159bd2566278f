#include "replay/view.h"

namespace troop {

Status CheckView(const ViewSpec& view) {
  if (view.length_max < 1 || view.length_max > 1024) {
    return InvalidArgument("replay: items of {} steps: 1 to 1024 are possible", view.length_max);
  }
  if (view.stack < 1 || view.stack > 64) {
    return InvalidArgument("replay: a stack of {} frames: 1 to 64 are possible", view.stack);
  }
  if (view.burn_in < 0 || view.burn_in > 1024) {
    return InvalidArgument("replay: a burn-in of {} steps: 0 to 1024 are possible", view.burn_in);
  }
  if (view.kind == ViewSpec::Kind::kTransition && view.burn_in != 0) {
    return InvalidArgument("replay: a transition has no burn-in; make it a sequence");
  }
  return Status::Ok();
}

}  // namespace troop
