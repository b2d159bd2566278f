#pragma once

#include "core/base/status.h"
#include "net/message.h"

namespace troop {

// Encodes a Status as a reply of type kError. REQUIRES: `status` is not ok.
Message MakeErrorMessage(const Status& status);
// Decodes the Status of a kError message; returns kDataLoss if it is malformed.
Status ErrorOf(const Message& message);

}  // namespace troop
