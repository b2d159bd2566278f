#pragma once

#include <cstdint>
#include <span>

#include "collective/collective.h"
#include "core/time.h"
#include "nn/module.h"
#include "nn/tensor_place.h"

// One model on several ranks (Shoeybi et al. 2019, "Megatron-LM", sec. 3). Each rank has a module
// of its own, with only its slices of the parameters in its layout, and runs the same step of the
// same batch as the others:
//   options.tensor = {rank, ranks};  module = MakeTransformer(options)      (nn/transformer.h)
//   TensorGroup group(collective);   context.tensor = &group                at every step
//   Forward, a loss, Backward; then group.status() tells whether they were one.
// Heads, the intermediate size and the vocabulary are shared out by ShareOf, evenly or not; norms,
// position and type embeddings, pooler and classifier are whole on each rank. Their gradients are
// too, so no gradient is added up between these ranks: data parallelism adds up those of ranks with
// the same slices. What is whole stays the same bytes on all ranks where they run the same
// instruction set (kernels/cpu.h) with the same number of kernel threads: GatherSlices sees to it.
namespace troop {

struct TensorTraffic {
  std::uint64_t operations = 0;  // all-reduces
  std::uint64_t bytes = 0;  // of their tensors: a ring moves 2 (N - 1) / N of it from each rank
  bool operator==(const TensorTraffic&) const = default;
};

// A rank's end of the group whose ranks hold the slices, for steps. Rank and size are those of the
// module's TensorPlace. A failure ends the group for all ranks; then nothing waits or is sent any
// more: steps go on with numbers that mean nothing, and whoever runs them asks `status`. A rebuilt
// group is another object. Owner: the thread of the steps; borrows the collective, which others may
// use between the operations.
class TensorGroup {
 public:
  // clock: for `waited`; nullptr: it is not measured.
  explicit TensorGroup(Collective* collective, const Clock* clock = nullptr)
      : collective_(collective), clock_(clock) {}
  TensorPlace place() const { return {collective_->rank(), collective_->size()}; }

  // x = the sum or maximum over the ranks, the same bytes on all. Blocks, at most for the
  // collective's timeout. Nothing to do for nobody: no operation.
  void Sum(std::span<float> x) { AllReduce(Reduction::kSum, x); }
  void Max(std::span<float> x) { AllReduce(Reduction::kMax, x); }

  // The first failure of an operation; ok: all were done.
  const Status& status() const { return status_; }
  // Since it was made.
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

// TransformerKernels::cross_entropy of logits of which each rank has its share of the vocabulary:
// maxima, sums and the labels' logits are exchanged, 3 numbers a row, never the logits.
//   labels: [rows], of the whole vocabulary, or kIgnoredLabel. logits: [rows, share], and become
//   scale (softmax - one at the label), the gradient of the rank's. loss: [rows], equal on all.
// group: nullptr: of one rank. REQUIRES: labels within the vocabulary, the same on all ranks.
void SlicedCrossEntropy(TensorGroup* group, std::int64_t vocabulary,
                        std::span<const std::int32_t> labels, float scale, std::span<float> logits,
                        std::span<float> loss);

// Between the flat buffer of a whole model [P of `whole`] and of a rank's part of it [P of `part`]:
// values, gradients, or slots of optimizers. Padding is left as it is. REQUIRES: modules of the
// same options but for the place. O(P of `part`).
void TakeSlice(const Module& whole, const Module& part, std::span<const float> from,
               std::span<float> to);
// The inverse: writes what the rank has into the whole. All ranks' together fill it.
void PutSlice(const Module& whole, const Module& part, std::span<const float> from,
              std::span<float> to);
// PutSlice of all ranks, on all ranks: bit for bit, padding 0. All ranks call it. Errors: what
// ended the group; kInternal: what is whole on each rank differs between them.
Status GatherSlices(Collective& group, const Module& whole, const Module& part,
                    std::span<const float> from, std::span<float> to);

// Whether all of the tensor is on this rank, and so on each.
inline bool IsWhole(const ParamSpec& spec) { return spec.slice.axis < 0; }
// A slice in memory: of each `length` numbers of the whole tensor it has `run`, from `first` on.
struct SliceRuns {
  std::int64_t length = 0, first = 0, run = 0;
};
SliceRuns RunsOf(const ParamSpec& spec);
// Σ gradient² of what the rank answers for: its slices, and on rank 0 what is whole. Added up over
// the ranks it is what the whole model's gradient has. O(P).
double SliceNormSquared(const Module& part, const TensorPlace& place,
                        std::span<const float> gradient);

}  // namespace troop
