#pragma once

#include <cstdint>
#include <span>

#include "core/tensor/spec.h"
#include "core/tensor/tensor.h"
#include "replay/codec/sample_batch.h"

namespace troop {

// The frames of a batch of unrolls as rows for a network: those of the first unroll, then those of
// the second, …; `length` + 1 of each. Padding is left out, so that short episodes cost no
// arithmetic. Each row has the `stack` newest frames of its step, zeros before the episode's start.
// Owner: one thread. Allocates only while the largest batch grows.
class UnrollFrames {
 public:
  // env: observation as the network's input, [stack, ...] with stacked frames.
  UnrollFrames(const EnvSpec& env, std::int64_t stack) : env_(env), stack_(stack) {}
  // Copies the frames of a batch. REQUIRES: CheckUnrolls.
  void Fill(const SampleBatch& batch);
  // [F, ...observation]; valid until the next Fill.
  ConstTensor rows() const { return rows_; }
  std::int64_t size() const { return size_; }  // F

 private:
  const EnvSpec env_;
  const std::int64_t stack_;
  Tensor storage_;
  ConstTensor rows_;
  std::int64_t size_ = 0;
};

// Validates a batch of unrolls against the environment and the window of `stack` frames per
// observation: shapes, lengths and actions. priorities: number of outputs. Errors:
// kInvalidArgument.
Status CheckUnrolls(const SampleBatch& batch, const EnvSpec& env, std::int64_t stack,
                    std::size_t priorities);

}  // namespace troop
