// Implements the optimizer step on a device, and synchronous copies of parameters.

#include "learners/gpu/cuda/optimizer_step.h"

#include <algorithm>

namespace troop::cuda {

// One kernel per optimizer; `go` lets it skip a rejected update.
void ApplyOptimizer(Stream& stream, const OptimizerRule& rule, OptimizerState* state,
                    OptimizerArrays arrays) {
  arrays.go = &state->go;
  if (rule.kind == OptimizerRule::Kind::kAdam) {
    Adam(stream, &state->adam, arrays);
  } else if (rule.kind == OptimizerRule::Kind::kRmsProp) {
    RmsProp(stream, &state->rmsprop, arrays);
  } else {
    Sgd(stream, &state->sgd, arrays);
  }
}

// Pinned memory, because copies from pageable memory are slower.
void CopyIn(Stream& stream, std::span<const float> from, float* to) {
  const PinnedArray<float> host(stream.device(), std::int64_t(from.size()), "a copy of parameters");
  if (host.data() == nullptr) return;
  std::ranges::copy(from, host.data());
  stream.CopyToDevice(to, host.data(), host.bytes());
  stream.Synchronize();
}

void CopyOut(Stream& stream, const float* from, std::span<float> to) {
  const PinnedArray<float> host(stream.device(), std::int64_t(to.size()), "a copy of parameters");
  if (host.data() == nullptr) return;
  stream.CopyToHost(host.data(), from, host.bytes());
  stream.Synchronize();
  if (stream.device().ok()) std::copy_n(host.data(), to.size(), to.data());
}

}  // namespace troop::cuda
