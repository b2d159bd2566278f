#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "core/base/status.h"
#include "nn/export/policy_description.h"
#include "nn/io/safetensors.h"

namespace troop {

// Parameter values that a C file may have: 4 MiB of f32, more than the flash memory of most
// microcontrollers. Larger policies are data for libtroop_policy, not source text.
inline constexpr std::int64_t kCPolicyValuesMax = std::int64_t{1} << 20;

// Encodes a policy as one C99 file without dependencies: no heap, no libm, no stdio, no static
// constructors; all weights are constants. The caller owns the state, so that several may run at
// the same time. Its functions, with `name` as prefix:
//   NAME_reset(state)        the next observation begins an episode; must precede the first act
//   NAME_act(state, observation[, mask], action)
//                            0, or a result code as in troop_policy.h; the arguments are structs
//                            with one member for the observation and each action head
//   NAME_q_values(state)     of the last act; discrete actions only
// The comment at the top of the file describes shapes, names and memory. Values are written with 9
// digits, which identify an f32 exactly. file: the parameters by name, and metadata about the
// origin for that comment. Errors: kInvalidArgument: more than kCPolicyValuesMax values, a
// parameter that is missing or has another shape, a `name` that is not an identifier.
Result<std::string> EncodeCPolicy(const PolicyDescription& policy, const TensorFile& file,
                                  std::string_view name);

// An identifier for EncodeCPolicy from a file name such as "cart-pole.c": "cart_pole".
std::string CPolicyName(std::string_view file_name);

}  // namespace troop
