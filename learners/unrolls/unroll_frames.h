#pragma once

#include <cstdint>
#include <span>

#include "core/tensor/spec.h"
#include "core/tensor/tensor.h"
#include "replay/codec/sample_batch.h"

namespace troop {

// Window of frames of an unroll: `stack` per observation, and at most `burn_in` steps before its
// first (ViewSpec).
struct UnrollWindow {
  std::int64_t stack = 1, burn_in = 0;
};

// The frames of a batch of unrolls as rows for a network: those of the first unroll, then those of
// the second, …; `length` + 1 of each, or those of its burn-in. Padding is left out, so that short
// episodes cost no arithmetic. Each row has the `stack` newest frames of its step, zeros before the
// episode's start. Owner: one thread. Allocates only while the largest batch grows.
class UnrollFrames {
 public:
  // env: observation as the network's input, [stack, ...] with stacked frames.
  UnrollFrames(const EnvSpec& env, const UnrollWindow& window) : env_(env), window_(window) {}
  // Copies the frames of the steps of a batch. REQUIRES: CheckUnrolls.
  void Fill(const SampleBatch& batch);
  // Copies the frames of the burn-ins of a batch; none where an unroll begins its episode.
  void FillBurnIn(const SampleBatch& batch);
  // [F, ...observation]; valid until the next Fill.
  ConstTensor rows() const { return rows_; }
  std::int64_t size() const { return size_; }  // F

 private:
  // Copies `count(i)` frames of each unroll i from column `first(i)` of its window on.
  template <class First, class Count>
  void Copy(const SampleBatch& batch, First first, Count count);

  const EnvSpec env_;
  const UnrollWindow window_;
  Tensor storage_;
  ConstTensor rows_;
  std::int64_t size_ = 0;
};

// Validates a batch of unrolls against the environment and the window: shapes, lengths, and actions
// that the action masks allow.
// priorities: number of outputs. Errors: kInvalidArgument.
Status CheckUnrolls(const SampleBatch& batch, const EnvSpec& env, const UnrollWindow& window,
                    std::size_t priorities);

}  // namespace troop
