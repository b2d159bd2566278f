// Implements normalized additive attention between two sequences, block by block.

#include "nn/translation/sequence_attention.h"

#include <algorithm>
#include <cmath>

#include "kernels/elementwise/cast.h"
#include "kernels/transformer/layer_norm_gelu.h"

namespace troop {
namespace {

// Rows of a block, so that its tanh stays in the cache: 512 rows of 256 units are 512 KiB.
constexpr std::int64_t kBlockRows = 512;
// Initial weights are U(±0.1) (Wu et al. 2016, sec. 5.4 and the reference of MLPerf).
constexpr std::int64_t kFanIn = 100;

const TransformerKernels& Softmaxes() {
  static const TransformerKernels& kernels = TransformerKernelsFor(BestCpuLevel());
  return kernels;
}

}  // namespace

// The scale starts at 1/√units, which gives scores of order 1.
SequenceAttention::SequenceAttention(std::int64_t width, std::int64_t units, ParamLayout& layout)
    : width_(width), units_(units) {
  query_ = layout.Uniform("attention.query.weight", {units, width}, kFanIn);
  key_ = layout.Uniform("attention.key.weight", {units, width}, kFanIn);
  vector_ = layout.Uniform("attention.vector", {units}, units);
  scale_ = layout.Bias("attention.scale", 1);
  layout.StartWith(float(1 / std::sqrt(double(units))));
  bias_ = layout.Bias("attention.bias", units);
}

SequenceAttention::Kept SequenceAttention::TakeKept(Arena& arena, const Sizes& sizes) const {
  Kept kept;
  kept.keys = TakeFloats(arena, sizes.source * width_);
  kept.queries = TakeFloats(arena, sizes.target * width_);
  kept.mapped_keys = TakeFloats(arena, sizes.source * units_);
  kept.mapped_queries = TakeFloats(arena, sizes.target * units_);
  kept.share = TakeFloats(arena, sizes.pairs);
  kept.vector = TakeFloats(arena, units_);
  return kept;
}

SequenceAttention::Scratch SequenceAttention::TakeScratch(Arena& arena, const Sizes& sizes,
                                                          std::int64_t longest) const {
  const std::int64_t rows = std::max(kBlockRows, longest);
  Scratch scratch;
  scratch.tanh = TakeFloats(arena, rows * units_);
  scratch.dtanh = TakeFloats(arena, rows * units_);
  scratch.dshare = TakeFloats(arena, sizes.pairs);
  scratch.dkeys = TakeFloats(arena, sizes.source * units_);
  scratch.dqueries = TakeFloats(arena, sizes.target * units_);
  scratch.dvector = TakeFloats(arena, units_);
  return scratch;
}

// Calls f(block) for all blocks in order; a block has whole rows of targets.
template <class F>
void SequenceAttention::ForEachBlock(const Use& use, F f) const {
  std::int64_t pair = 0;
  for (std::size_t s = 0; s + 1 < use.source_starts.size(); ++s) {
    Block block{.source = use.source_starts[s],
                .sources = use.source_starts[s + 1] - use.source_starts[s]};
    const std::int64_t end = use.target_starts[s + 1];
    const std::int64_t step = std::max<std::int64_t>(1, kBlockRows / block.sources);
    for (std::int64_t t = use.target_starts[s]; t < end; t += step) {
      block.target = t;
      block.targets = std::min(step, end - t);
      block.pair = pair;
      f(block);
      pair += block.targets * block.sources;
    }
  }
}

// scratch.tanh = tanh(Wq q + Wk k + b) of all rows of a block.
void SequenceAttention::Tanh(const Use& use, const Block& block) const {
  float* row = use.scratch.tanh;
  for (std::int64_t t = block.target; t < block.target + block.targets; ++t) {
    for (std::int64_t s = block.source; s < block.source + block.sources; ++s, row += units_) {
      const float *const q = use.kept.mapped_queries + t * units_, *const k = use.kept.mapped_keys +
                                                                              s * units_;
      for (std::int64_t i = 0; i < units_; ++i) row[i] = q[i] + k[i];
    }
  }
  ActivationForward(Activation::kTanh, block.targets * block.sources * units_, use.scratch.tanh,
                    use.scratch.tanh, DType::kF32);
}

// The bias is a part of the mapped keys.
void SequenceAttention::MapKeys(const Params& params, std::int64_t tokens, const Kept& kept) const {
  params.MatMul({.m = tokens, .n = units_, .k = width_, .transpose_b = true}, kept.keys,
                params.value + key_, 0, kept.mapped_keys);
  AddToRows(tokens, units_, params.value + bias_, kept.mapped_keys);
  double square = 0;
  const float* const v = params.value + vector_;
  for (std::int64_t i = 0; i < units_; ++i) square += double(v[i]) * double(v[i]);
  const double factor = double(params.value[scale_]) / std::sqrt(square);
  for (std::int64_t i = 0; i < units_; ++i) kept.vector[i] = float(factor * double(v[i]));
}

void SequenceAttention::Forward(const Use& use, float* context) const {
  MapKeys(use.params, use.source_starts.back(), use.kept);
  Attend(use, context);
}

// Per block: scores, softmax over the source, weighted sum of the keys.
void SequenceAttention::Attend(const Use& use, float* context) const {
  const Kept& kept = use.kept;
  use.params.MatMul({.m = use.target_starts.back(), .n = units_, .k = width_, .transpose_b = true},
                    kept.queries, use.params.value + query_, 0, kept.mapped_queries);
  ForEachBlock(use, [&](const Block& block) {
    Tanh(use, block);
    float* const share = kept.share + block.pair;
    // Sums of the softmax stay in f32, like every sum outside of the large products.
    MatMul({.m = block.targets * block.sources, .n = 1, .k = units_}, use.scratch.tanh, kept.vector,
           0, share);
    for (std::int64_t t = 0; t < block.targets; ++t) {
      float lse = 0;
      Softmaxes().softmax(1, block.sources, 1, share + t * block.sources, &lse, 1);
    }
    MatMul({.m = block.targets, .n = width_, .k = block.sources}, share,
           kept.keys + block.source * width_, 0, context + block.target * width_);
  });
}

// Steps: 1. through the weighted sum; 2. through softmax and tanh, block by block; 3. through the
// maps of keys and queries.
void SequenceAttention::Backward(const Use& use, const float* dcontext, float* dkeys,
                                 float* dqueries) const {
  const Kept& kept = use.kept;
  const Scratch& scratch = use.scratch;
  const std::int64_t sources = use.source_starts.back(), targets = use.target_starts.back();
  std::fill_n(dkeys, sources * width_, 0.0f);
  std::fill_n(scratch.dkeys, sources * units_, 0.0f);
  std::fill_n(scratch.dqueries, targets * units_, 0.0f);
  std::fill_n(scratch.dvector, units_, 0.0f);
  ForEachBlock(use, [&](const Block& block) {
    const float* const d = dcontext + block.target * width_;
    MatMul({.m = block.targets, .n = block.sources, .k = width_, .transpose_b = true}, d,
           kept.keys + block.source * width_, 0, scratch.dshare + block.pair);
    MatMul({.m = block.sources, .n = width_, .k = block.targets, .transpose_a = true},
           kept.share + block.pair, d, 1, dkeys + block.source * width_);
    BackwardBlock(use, block);
  });
  BackwardVector(use);
  // The bias is added to the keys.
  SumOfRows(sources, units_, scratch.dkeys, use.params.gradient + bias_);
  const auto map = [&](std::int64_t tokens, const float* x, const float* dy, std::int64_t weight) {
    use.params.MatMul({.m = units_, .n = width_, .k = tokens, .transpose_a = true}, dy, x, 1,
                      use.params.gradient + weight);
  };
  map(sources, kept.keys, scratch.dkeys, key_);
  map(targets, kept.queries, scratch.dqueries, query_);
  use.params.MatMul({.m = sources, .n = width_, .k = units_}, scratch.dkeys,
                    use.params.value + key_, 1, dkeys);
  use.params.MatMul({.m = targets, .n = width_, .k = units_}, scratch.dqueries,
                    use.params.value + query_, 0, dqueries);
}

// The tanh is recomputed: keeping it would take `pairs` times `units` floats.
void SequenceAttention::BackwardBlock(const Use& use, const Block& block) const {
  const Scratch& scratch = use.scratch;
  const float* const share = use.kept.share + block.pair;
  float* const dscore = scratch.dshare + block.pair;
  for (std::int64_t t = 0; t < block.targets; ++t) {
    const std::int64_t at = t * block.sources;
    float delta = 0;
    for (std::int64_t s = 0; s < block.sources; ++s) delta += share[at + s] * dscore[at + s];
    Softmaxes().softmax_backward(1, block.sources, 1, share + at, dscore + at, &delta, dscore + at);
  }
  Tanh(use, block);
  const std::int64_t rows = block.targets * block.sources;
  MatMul({.m = 1, .n = units_, .k = rows}, dscore, scratch.tanh, 1, scratch.dvector);
  MatMul({.m = rows, .n = units_, .k = 1}, dscore, use.kept.vector, 0, scratch.dtanh);
  ActivationBackward({.activation = Activation::kTanh,
                      .n = rows * units_,
                      .y = scratch.tanh,
                      .dy = scratch.dtanh,
                      .dz = scratch.dtanh});
  // Each row belongs to one key and one query.
  const float* row = scratch.dtanh;
  for (std::int64_t t = block.target; t < block.target + block.targets; ++t) {
    for (std::int64_t s = block.source; s < block.source + block.sources; ++s, row += units_) {
      AddInto(units_, row, scratch.dqueries + t * units_);
      AddInto(units_, row, scratch.dkeys + s * units_);
    }
  }
}

// w = g v/|v|: dg = dw · v/|v|, and dv = g/|v| (dw - (dw · v/|v|) v/|v|).
void SequenceAttention::BackwardVector(const Use& use) const {
  const float *const v = use.params.value + vector_, *const dw = use.scratch.dvector;
  double square = 0, along = 0;
  for (std::int64_t i = 0; i < units_; ++i) {
    square += double(v[i]) * double(v[i]);
    along += double(dw[i]) * double(v[i]);
  }
  const double norm = std::sqrt(square), scale = double(use.params.value[scale_]);
  use.params.gradient[scale_] += float(along / norm);
  for (std::int64_t i = 0; i < units_; ++i) {
    const double rest = double(dw[i]) - along / square * double(v[i]);
    use.params.gradient[vector_ + i] += float(scale / norm * rest);
  }
}

}  // namespace troop
