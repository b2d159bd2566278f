#pragma once

#include "core/status.h"
#include "net/message.h"

namespace troop {

// A Status as a reply of type kError, and back. REQUIRES: not ok.
Message MakeErrorMessage(const Status& status);
// The Status that a kError message holds; kDataLoss when it holds none.
Status ErrorOf(const Message& message);

}  // namespace troop
