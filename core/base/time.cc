// Implements WallSeconds.
#include "core/base/time.h"

namespace troop {

double WallSeconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace troop
