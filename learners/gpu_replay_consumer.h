#pragma once

#include <cstdint>
#include <span>

#include "core/base/status.h"
#include "replay/codec/sample_batch.h"

namespace troop {

// A replay replica in GPU memory (replay.placement = "gpu"), from which the algorithm samples its
// own batches: an optional interface of an Algorithm (Algorithm::gpu_replay). Owner thread: the
// algorithm's.
class GpuReplayConsumer {
 public:
  virtual ~GpuReplayConsumer() = default;
  // Stores the experience that a batch carries. Algorithm::Update does this too. Errors: the first
  // one is kept, and returned until a batch replaces the replica.
  virtual Status ApplyTableDelta(const SampleBatch& batch) = 0;
  // [B], the items that the last update sampled; valid until the next one.
  struct SampledItem {
    ItemKey key;
    std::uint64_t policy_version = 0;
  };
  virtual std::span<const SampledItem> sampled() const = 0;
};

}  // namespace troop
