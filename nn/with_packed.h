#pragma once

#include "nn/module.h"

namespace troop {

// Calls run(context) with the module's weights packed in f32, for this call only: a module that
// needs a packed form accepts calls without one. Allocates; callers that compute repeatedly keep
// their own Packed.
template <class F>
void WithPacked(const Module& module, StepContext context, F&& run) {
  const auto packed = module.MakePacked(Precision::kF32);
  module.Pack(context.value, packed.get());
  context.packed = packed.get();
  run(context);
}

}  // namespace troop
