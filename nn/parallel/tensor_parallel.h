#pragma once

#include <cstdint>
#include <span>

#include "collective/collective.h"
#include "core/base/time.h"
#include "nn/module.h"
#include "nn/parallel/shard_placement.h"

// Tensor parallelism: one model on several ranks (Shoeybi et al. 2019, "Megatron-LM", sec. 3). Each
// rank has a module with only its slices of the parameters, and runs the same step of the same
// batch as the others:
//   options.tensor = {rank, ranks};  module = MakeTransformer(options)
//   (nn/transformer/transformer.h) TensorGroup group(collective);   context.tensor = &group at
//   every step Forward, a loss, Backward; then group.status() is ok if the step was valid.
// Heads, the intermediate size and the vocabulary are divided by ShareOf, evenly or not; norms,
// position and type embeddings, pooler and classifier are whole on each rank, and so are their
// gradients. No gradient is summed between these ranks: data parallelism sums those of ranks with
// the same slices. Whole tensors stay bit-identical on all ranks if these use the same instruction
// set (kernels/simd/cpu_features.h) and number of kernel threads; GatherSlices verifies it.
namespace troop {

// Traffic of a tensor-parallel group.
struct TensorTraffic {
  std::uint64_t operations = 0;  // all-reduces
  std::uint64_t bytes = 0;       // of their tensors; a ring sends 2 (N - 1) / N of it per rank
  bool operator==(const TensorTraffic&) const = default;
};

// A rank's endpoint of the tensor-parallel group during steps. Rank and size are those of the
// module's TensorParallelRank. A failure ends the group for all ranks; afterwards nothing waits or
// is sent: steps continue with meaningless values, and their caller must check `status`. A rebuilt
// group is a new object. Owner: the thread of the steps; references the collective, which others
// may use between the operations.
class TensorGroup {
 public:
  // clock: measures `waited`; nullptr: no measurement.
  explicit TensorGroup(Collective* collective, const Clock* clock = nullptr)
      : collective_(collective), clock_(clock) {}
  TensorParallelRank place() const { return {collective_->rank(), collective_->size()}; }

  // x = the sum or maximum over the ranks, bit-identical on all. Blocks, at most for the
  // collective's timeout. No operation if x is empty or there is only one rank.
  void Sum(std::span<float> x) { AllReduce(Reduction::kSum, x); }
  void Max(std::span<float> x) { AllReduce(Reduction::kMax, x); }

  // First failure of an operation; ok if there is none.
  const Status& status() const { return status_; }
  // Totals since construction.
  const TensorTraffic& traffic() const { return traffic_; }
  Duration waited() const { return waited_; }

 private:
  void AllReduce(Reduction reduction, std::span<float> x);

  Collective* const collective_;
  const Clock* const clock_;
  Status status_;
  TensorTraffic traffic_;
  Duration waited_{};
};

// Arguments of SlicedCrossEntropy.
struct SlicedCrossEntropyArgs {
  std::int64_t vocabulary = 0;           // of all ranks
  std::span<const std::int32_t> labels;  // [rows], ids of the whole vocabulary, or kIgnoredLabel
  float scale = 1;                       // of the gradient
  std::span<float> logits;               // [rows, share], overwritten by the gradient
  std::span<float> loss;                 // [rows], overwritten; equal on all ranks
};
// TransformerKernels::cross_entropy for logits whose vocabulary is divided among the ranks. Only
// maxima, sums and the labels' logits are exchanged, 3 floats per row, never the logits. These
// become scale (softmax - one-hot label), this rank's slice of the gradient. group: nullptr for one
// rank. REQUIRES: labels within the vocabulary, equal on all ranks.
void SlicedCrossEntropy(TensorGroup* group, const SlicedCrossEntropyArgs& args);

// Copies this rank's slices from the flat buffer of the whole model [P of `whole`] to that of its
// part [P of `part`]: values, gradients, or optimizer slots. Padding is unchanged. REQUIRES:
// modules with equal options except for the place. O(P of `part`).
void TakeSlice(const Module& whole, const Module& part, std::span<const float> from,
               std::span<float> to);
// The inverse: writes this rank's slices into the whole buffer. All ranks together fill it.
void PutSlice(const Module& whole, const Module& part, std::span<const float> from,
              std::span<float> to);
// PutSlice of all ranks, on all ranks: bit for bit, padding 0. All ranks call it. Errors: the
// failure of the group; kInternal: a tensor that is whole on each rank differs between them.
Status GatherSlices(Collective& group, const Module& whole, const Module& part,
                    std::span<const float> from, std::span<float> to);

// True if each rank holds the whole tensor.
inline bool IsWhole(const ParamSpec& spec) { return spec.slice.axis < 0; }
// Memory layout of a slice: of every `length` elements of the whole tensor it has `run`, beginning
// at `first`.
struct SliceRuns {
  std::int64_t length = 0, first = 0, run = 0;
};
SliceRuns RunsOf(const ParamSpec& spec);
// This rank's contribution to Σ gradient²: its slices, and on rank 0 the whole tensors. The sum
// over the ranks is the norm² of the whole model's gradient. O(P).
double SliceNormSquared(const Module& part, const TensorParallelRank& place,
                        std::span<const float> gradient);

}  // namespace troop
