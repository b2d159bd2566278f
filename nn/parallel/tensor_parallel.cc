// Implements tensor parallelism: all-reduces of a step, cross-entropy over a divided vocabulary,
// and conversion between whole models and slices.
#include "nn/parallel/tensor_parallel.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

#include "core/storage/crc32c.h"
#include "kernels/optim/optimizer_step.h"
#include "kernels/transformer/layer_norm_gelu.h"

namespace troop {
namespace {

// A tensor over memory that outlives the operation.
template <class T>
Tensor Borrow(std::span<T> x, DType dtype = DTypeOf<T>::value) {
  return Tensor::View(nullptr, std::as_writable_bytes(x), {dtype, {std::int64_t(x.size())}});
}

std::span<float> Of(std::span<float> buffer, const ParamSpec& spec) {
  return buffer.subspan(std::size_t(spec.offset), std::size_t(spec.shape.elements()));
}
std::span<const float> Of(std::span<const float> buffer, const ParamSpec& spec) {
  return buffer.subspan(std::size_t(spec.offset), std::size_t(spec.shape.elements()));
}

// Calls f(whole, part, n) for each contiguous run of n elements, with its offsets in both buffers.
void ForRuns(const Module& whole, const Module& part,
             const std::function<void(std::int64_t, std::int64_t, std::int64_t)>& f) {
  const auto wholes = whole.params(), parts = part.params();
  TROOP_CHECK(wholes.size() == parts.size(), "{} parameters, and {} of a part", wholes.size(),
              parts.size());
  for (std::size_t p = 0; p < parts.size(); ++p) {
    const ParamSpec &all = wholes[p], &mine = parts[p];
    const auto [length, first, run] = RunsOf(mine);
    // Number of runs: the product of the axes before the sliced one.
    const std::int64_t count = mine.shape.elements() / run;
    TROOP_CHECK(all.name == mine.name && all.shape.elements() == count * length,
                "{} {} and a part of it: {} {}", all.name, all.shape.ToString(), mine.name,
                mine.shape.ToString());
    for (std::int64_t i = 0; i < count; ++i)
      f(all.offset + i * length + first, mine.offset + i * run, run);
  }
}

}  // namespace

void TensorGroup::AllReduce(Reduction reduction, std::span<float> x) {
  if (collective_->size() == 1 || x.empty() || !status_.ok()) return;
  // Waiting and transfer are measured together.
  const Time from = clock_ == nullptr ? Time() : clock_->Now();
  const Tensor tensor = Borrow(x);
  status_ =
      RunOp(*collective_, {.kind = OpKind::kAllReduce, .reduction = reduction}, tensor, tensor);
  // A local failure must end the group, because the other ranks wait for this one.
  if (!status_.ok() && collective_->status().ok()) collective_->Abort(status_);
  if (clock_ != nullptr) waited_ += clock_->Now() - from;
  ++traffic_.operations;
  traffic_.bytes += x.size_bytes();
}

// Steps: 1. the largest logit of each row, over the ranks; 2. the local softmax and its sum; 3. the
// sums over the ranks; 4. loss and gradient.
void SlicedCrossEntropy(TensorGroup* group, const SlicedCrossEntropyArgs& args) {
  const std::int64_t vocabulary = args.vocabulary;
  const std::span<const std::int32_t> labels = args.labels;
  const std::span<float> logits = args.logits, loss = args.loss;
  static const TransformerKernels& kernels = TransformerKernelsFor(BestCpuLevel());
  const TensorParallelRank place = group == nullptr ? TensorParallelRank() : group->place();
  const Share share = ShareOf(vocabulary, place);
  const auto rows = std::int64_t(labels.size());
  TROOP_CHECK(std::int64_t(logits.size()) == rows * share.count && loss.size() == labels.size(),
              "{} logits and {} losses of {} labels", logits.size(), loss.size(), rows);
  // Labels become memory offsets.
  for (const std::int32_t label : labels) {
    TROOP_CHECK(label == kIgnoredLabel || (label >= 0 && label < vocabulary),
                "label {} of a vocabulary of {}", label, vocabulary);
  }
  if (place.ranks == 1) {
    kernels.cross_entropy(rows, vocabulary, logits.data(), labels.data(), args.scale, loss.data(),
                          logits.data());
    return;
  }
  const auto n = std::size_t(share.count);
  const auto slice_of = [&](std::size_t row) { return logits.subspan(row * n, n); };
  const auto at_label = [&](std::size_t row) -> float* {
    const std::int64_t i = labels[row] - share.first;
    return i < 0 || i >= share.count ? nullptr : &slice_of(row)[std::size_t(i)];
  };
  // Per row of the slice: its largest logit, its position, and Σ exp(logit - largest); per
  // whole row: the largest, then that sum and the label's logit. Only differences of logits are
  // computed, so large ones lose no precision.
  std::vector<float> own(labels.size()), own_sum(labels.size()), largest, sums(2 * labels.size());
  std::vector<std::ptrdiff_t> at(labels.size());
  for (std::size_t row = 0; row < labels.size(); ++row) {
    const auto slice = slice_of(row);
    at[row] = std::ranges::max_element(slice) - slice.begin();
    own[row] = slice[std::size_t(at[row])];
    const float* const target = at_label(row);
    sums[labels.size() + row] = target == nullptr ? 0 : *target;
  }
  // 1. The maximum over all ranks.
  largest = own;
  group->Max(largest);
  // 2. The softmax of the slice, and its Σ exp relative to the row's maximum.
  kernels.softmax(rows, share.count, 1, logits.data(), own_sum.data(), 1);
  for (std::size_t row = 0; row < labels.size(); ++row) {
    own_sum[row] = 1 / slice_of(row)[std::size_t(at[row])];  // the largest's softmax is 1 / Σ
    own_sum[row] *= std::exp(own[row] - largest[row]);
    sums[row] = own_sum[row];
  }
  // 3. Sums, and the label's logit, which one rank contributes.
  group->Sum(sums);
  for (std::size_t row = 0; row < labels.size(); ++row) {
    // 4. loss = log Σ + largest - logit of the label.
    const bool counts = labels[row] != kIgnoredLabel;
    loss[row] = counts ? std::log(sums[row]) + (largest[row] - sums[labels.size() + row]) : 0;
    // Rescale the softmax of the slice to that of the whole row.
    const float factor = counts ? args.scale * (own_sum[row] / sums[row]) : 0;
    for (float& x : slice_of(row)) x *= factor;
    if (float* const target = at_label(row)) *target -= args.scale;
  }
}

// A slice along an axis consists of one run per index of the axes before it.
SliceRuns RunsOf(const ParamSpec& spec) {
  if (IsWhole(spec)) return {spec.shape.elements(), 0, spec.shape.elements()};
  const auto [axis, first, whole] = spec.slice;
  std::int64_t inner = 1;  // elements per index of the axis
  for (int i = axis + 1; i < spec.shape.rank(); ++i) inner *= spec.shape[i];
  return {whole * inner, first * inner, spec.shape[axis] * inner};
}

void TakeSlice(const Module& whole, const Module& part, std::span<const float> from,
               std::span<float> to) {
  ForRuns(whole, part, [&](std::int64_t all, std::int64_t mine, std::int64_t n) {
    std::ranges::copy(from.subspan(std::size_t(all), std::size_t(n)), to.begin() + mine);
  });
}

void PutSlice(const Module& whole, const Module& part, std::span<const float> from,
              std::span<float> to) {
  ForRuns(whole, part, [&](std::int64_t all, std::int64_t mine, std::int64_t n) {
    std::ranges::copy(from.subspan(std::size_t(mine), std::size_t(n)), to.begin() + all);
  });
}

// Rank 0 contributes the whole tensors; their checksums are compared over the ranks.
Status GatherSlices(Collective& group, const Module& whole, const Module& part,
                    std::span<const float> from, std::span<float> to) {
  // 1. This rank's slices; whole tensors only on rank 0.
  std::ranges::fill(to, 0.0f);
  PutSlice(whole, part, from, to);
  std::uint32_t check = 0;
  for (std::size_t p = 0; p < part.params().size(); ++p) {
    if (!IsWhole(part.params()[p])) continue;
    check = Crc32c(std::as_bytes(Of(from, part.params()[p])), check);
    if (group.rank() > 0) std::ranges::fill(Of(to, whole.params()[p]), 0.0f);
  }
  // Each element comes from one rank and is 0 on the others: the bits are added as integers,
  // because a sum of floats would turn -0 into 0.
  const Tensor bits = Borrow(to, DType::kU32);
  TROOP_RETURN_IF_ERROR(RunOp(group, {.kind = OpKind::kAllReduce}, bits, bits));
  // 2. Compare the checksums of the whole tensors.
  std::vector<std::uint32_t> checks(std::size_t(group.size()));
  TROOP_RETURN_IF_ERROR(RunOp(group, {.kind = OpKind::kAllGather}, Borrow(std::span(&check, 1)),
                              Borrow(std::span(checks))));
  const auto other = std::ranges::find_if(checks, [&](std::uint32_t c) { return c != checks[0]; });
  if (other == checks.end()) return Status::Ok();
  return Internal(
      "norms and biases differ between tensor-parallel ranks 0 and {}; use the same "
      "instruction set and the same number of kernel threads on all ranks",
      other - checks.begin());
}

double SliceNormSquared(const Module& part, const TensorParallelRank& place,
                        std::span<const float> gradient) {
  static const OptimizerKernels& kernels = OptimizerKernelsFor(BestCpuLevel());
  double sum = 0;
  for (const ParamSpec& spec : part.params()) {
    if (IsWhole(spec) && place.rank > 0) continue;
    sum += kernels.sum_squares(spec.shape.elements(), gradient.data() + spec.offset);
  }
  return sum;
}

}  // namespace troop
