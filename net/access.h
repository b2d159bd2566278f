#pragma once

#include "core/status.h"
#include "net/message.h"

namespace troop {

// Whether a caller whose key stands for the role `key` may send this message: it speaks as that
// role and says only what that role says, so that an actor's key inserts experience and pulls
// weights, and neither samples nor pushes gradients. Errors: kFailedPrecondition, written for the
// caller.
Status CheckAccess(Role key, const Message& message);

}  // namespace troop
