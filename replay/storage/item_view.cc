// Range checks of ViewSpec.
#include "replay/storage/item_view.h"

namespace troop {

// The limits keep lengths and leads within 16 bits (StoredItem).
Status CheckView(const ViewSpec& view) {
  if (view.length_max < 1 || view.length_max > 1024) {
    return InvalidArgument("replay: length is {} steps, must be in [1, 1024]", view.length_max);
  }
  if (view.stack < 1 || view.stack > 64) {
    return InvalidArgument("replay: stack is {} frames, must be in [1, 64]", view.stack);
  }
  if (view.burn_in < 0 || view.burn_in > 1024) {
    return InvalidArgument("replay: burn_in is {} steps, must be in [0, 1024]", view.burn_in);
  }
  if (view.kind == ViewSpec::Kind::kTransition && view.burn_in != 0) {
    return InvalidArgument("replay: burn_in must be 0 for transitions; use view sequence");
  }
  return Status::Ok();
}

}  // namespace troop
