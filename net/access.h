#pragma once

#include "core/status.h"
#include "net/message.h"

namespace troop {

// The index of a tool that will be a role, or asks for one, before the coordinator has said which
// it is: names of one role's newcomers are not those of another's, so nobody can be taken for a
// newer self of somebody whose key it has not. `number`: 24 bits of it count.
std::int32_t NewcomerIndex(Role role, std::int32_t number);

// Whether a caller whose key stands for the role `key` may send this message: it speaks as that
// role and says only what that role says, so that an actor's key inserts experience and pulls
// weights, and neither samples nor pushes gradients. Errors: kFailedPrecondition, written for the
// caller.
Status CheckAccess(Role key, const Message& message);

}  // namespace troop
