#pragma once

#include <span>

#include "core/base/status.h"
#include "learners/loss_report.h"
#include "replay/codec/sample_batch.h"

namespace troop {

// Both halves of an update in one launch, which overlaps the copy of the next batch: an optional
// interface of an Algorithm (Algorithm::fused_update). Owner thread: the algorithm's.
class FusedUpdate {
 public:
  virtual ~FusedUpdate() = default;
  // Announces the batch of the update after the next one; it must not change until then. nullptr:
  // not known.
  virtual void ExpectNext(const SampleBatch* batch) = 0;
  // Algorithm::Update, with the same errors.
  virtual Result<LossReport> RunUpdate(const SampleBatch& batch, double progress,
                                       std::span<float> priority) = 0;
};

}  // namespace troop
