#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "core/base/status.h"
#include "nn/export/policy_description.h"
#include "nn/io/safetensors.h"

namespace troop {

// The layers of a policy as C99, with the placeholders of c_policy_text.h.
struct CLayers {
  std::string constants;    // arrays of weights
  std::string functions;    // those that the calls need
  std::string calls;        // statements that read `in`, the stack of observations
  std::string result;       // the buffer with the outputs after them
  std::int64_t values = 0;  // elements of all constants
  // Elements of the state's buffers a, b, c and d; the last two, of the parts of an observation,
  // are 0 in policies without parts.
  std::array<std::int64_t, 4> sizes{};
  std::int64_t state = 0;  // elements of the recurrent state
};

// Translates all layers. Errors: kInvalidArgument: a parameter that is missing or has another
// shape; clipped observations of another type than f32.
Result<CLayers> TranslateToC(const PolicyDescription& policy, const TensorFile& file);

}  // namespace troop
