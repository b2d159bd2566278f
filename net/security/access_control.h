#pragma once

#include "core/base/status.h"
#include "net/message.h"

namespace troop {

// Returns the origin index of a process that registers for a role before the coordinator has
// assigned one. The indices of different roles are disjoint, so a newcomer can't fence one of a
// role whose key it does not have. Only the low 24 bits of `number` are used.
std::int32_t NewcomerIndex(Role role, std::int32_t number);

// Checks that a caller with a key of role `key` may send this message: it must act as that role and
// use only the message types of that role. An actor's key, for example, inserts experience and
// pulls weights, but neither samples nor pushes gradients. Errors: kFailedPrecondition, with a
// message for the caller.
Status CheckAccess(Role key, const Message& message);

}  // namespace troop
