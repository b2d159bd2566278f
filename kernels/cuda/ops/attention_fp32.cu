// Attention in f32 without tensor cores: one warp per row, with an online softmax.
#include <type_traits>

#include "kernels/cuda/ops/attention.h"
#include "kernels/cuda/ops/dropout_device.h"
#include "kernels/cuda/runtime/launch.h"

namespace troop::cuda {
namespace {

// A warp handles one query (or key) of one head. The other side is processed 32 rows at a time:
// each lane ends up with one of their scores.
constexpr int kWarps = 4, kThreads = 32 * kWarps;

// AttentionForm as a kernel argument.
struct Form {
  std::int64_t heads, width, first_head;
  float scale;  // 1 / √width
  DropoutArgs drop;
};

// Position of a warp: sequence blockIdx.z, head blockIdx.y, row `row`. starts: of PackedSequences.
struct Place {
  std::int64_t start, tokens, row, head;
  TROOP_DEVICE explicit Place(const std::int32_t* starts)
      : start(starts[blockIdx.z]),
        tokens(starts[blockIdx.z + 1] - start),
        row(std::int64_t(blockIdx.x) * kWarps + threadIdx.x / 32),
        head(blockIdx.y) {}
  // Offsets of a token in qkv (which: 0 queries, 1 keys, 2 values), in out and in lse.
  TROOP_DEVICE std::int64_t qkv(const Form& form, std::int64_t token, int which) const {
    return (((start + token) * 3 + which) * form.heads + head) * form.width;
  }
  TROOP_DEVICE std::int64_t out(const Form& form, std::int64_t token) const {
    return sum(form, token) * form.width;
  }
  TROOP_DEVICE std::int64_t sum(const Form& form, std::int64_t token) const {
    return (start + token) * form.heads + head;
  }
  // Dropout factor of a score: 0 or 1 / keep.
  TROOP_DEVICE float Factor(const Form& form, std::int64_t query, std::int64_t key) const {
    const DropoutArgs& drop = form.drop;
    const std::int64_t e = ((form.first_head + head) * tokens + query) * tokens + key;
    std::uint32_t word[4];
    DropoutBlock(drop.keys[blockIdx.z], drop.site, DropoutBlockOf(e), word);
    return Keeps(word, DropoutStepOf(e), drop.kept) ? drop.scale : 0;
  }
};

// A row of `width` elements, distributed over the lanes.
template <int kParts>
struct Row {
  float x[kParts];
  TROOP_DEVICE void Read(const float* from, std::int64_t width) {
    TROOP_UNROLL for (int p = 0; p < kParts; ++p) {
      const int column = 32 * p + int(threadIdx.x % 32);
      x[p] = column < width ? from[column] : 0;
    }
  }
  TROOP_DEVICE void Write(float* to, std::int64_t width) const {
    TROOP_UNROLL for (int p = 0; p < kParts; ++p) {
      const int column = 32 * p + int(threadIdx.x % 32);
      if (column < width) to[column] = x[p];
    }
  }
  TROOP_DEVICE void Add(float factor, const Row& other) {
    TROOP_UNROLL for (int p = 0; p < kParts; ++p) x[p] += factor * other.x[p];
  }
  TROOP_DEVICE void Scale(float factor) {
    TROOP_UNROLL for (int p = 0; p < kParts; ++p) x[p] *= factor;
  }
  // All lanes get the product.
  TROOP_DEVICE float Dot(const Row& other) const {
    float sum = 0;
    TROOP_UNROLL for (int p = 0; p < kParts; ++p) sum += x[p] * other.x[p];
    return WarpSum(sum);
  }
};

template <int kParts, bool kDrops>
TROOP_KERNEL void __launch_bounds__(kThreads)
    ForwardKernel(const std::int32_t* starts, Form form, const float* qkv, float* out, float* lse) {
  const Place place(starts);
  if (place.row >= place.tokens) return;  // the whole warp returns
  const int lane = int(threadIdx.x % 32);
  Row<kParts> q, o = {};
  q.Read(qkv + place.qkv(form, place.row, 0), form.width);
  float largest = -INFINITY, sum = 0;
  for (std::int64_t first = 0; first < place.tokens; first += 32) {
    const int there = int(min(std::int64_t(32), place.tokens - first));
    float score = -INFINITY;  // score of key first + lane
    // Scores of up to 32 keys; lane j keeps that of key j.
    for (int j = 0; j < there; ++j) {
      Row<kParts> k;
      k.Read(qkv + place.qkv(form, first + j, 1), form.width);
      const float s = form.scale * q.Dot(k);
      if (lane == j) score = s;
    }
    // Online softmax: a new maximum rescales the sum and the output so far.
    const float now = fmaxf(largest, WarpMax(score)), shrunk = expf(largest - now);
    largest = now;
    float p = expf(score - now);
    sum = sum * shrunk + WarpSum(p);
    if constexpr (kDrops) {
      if (lane < there) p *= place.Factor(form, place.row, first + lane);
    }
    o.Scale(shrunk);
    for (int j = 0; j < there; ++j) {
      // p of lane j is the weight of value j.
      Row<kParts> v;
      v.Read(qkv + place.qkv(form, first + j, 2), form.width);
      o.Add(__shfl_sync(kWholeWarp, p, j), v);
    }
  }
  o.Scale(1 / sum);
  o.Write(out + place.out(form, place.row), form.width);
  if (lane == 0) lse[place.sum(form, place.row)] = largest + logf(sum);
}

// Gradient of the queries, and delta. With P the softmax, M the dropout factors and dP = M dO Vᵀ:
// dS = P (dP - delta), dQ = dS K scale.
template <int kParts, bool kDrops>
TROOP_KERNEL void __launch_bounds__(kThreads)
    QueryGradientKernel(const std::int32_t* starts, Form form, const float* qkv, const float* out,
                        const float* lse, const float* dout, float* dqkv, float* delta) {
  const Place place(starts);
  if (place.row >= place.tokens) return;
  const int lane = int(threadIdx.x % 32);
  Row<kParts> q, d, o, dq = {};
  q.Read(qkv + place.qkv(form, place.row, 0), form.width);
  d.Read(dout + place.out(form, place.row), form.width);
  o.Read(out + place.out(form, place.row), form.width);
  // delta of this query; lse as the shift of the exponent.
  const float less = o.Dot(d), shift = lse[place.sum(form, place.row)];
  if (lane == 0) delta[place.sum(form, place.row)] = less;
  for (std::int64_t key = 0; key < place.tokens; ++key) {
    Row<kParts> k, v;
    k.Read(qkv + place.qkv(form, key, 1), form.width);
    v.Read(qkv + place.qkv(form, key, 2), form.width);
    const float p = expf(form.scale * q.Dot(k) - shift);
    float dp = d.Dot(v);
    if constexpr (kDrops) dp *= place.Factor(form, place.row, key);
    dq.Add(p * (dp - less), k);
  }
  dq.Scale(form.scale);
  dq.Write(dqkv + place.qkv(form, place.row, 0), form.width);
}

// Gradients of keys and values, one key per warp: dV = (M P)ᵀ dO, dK = dSᵀ Q scale.
template <int kParts, bool kDrops>
TROOP_KERNEL void __launch_bounds__(kThreads)
    KeyGradientKernel(const std::int32_t* starts, Form form, const float* qkv, const float* lse,
                      const float* dout, const float* delta, float* dqkv) {
  const Place place(starts);
  if (place.row >= place.tokens) return;
  Row<kParts> k, v, dk = {}, dv = {};
  k.Read(qkv + place.qkv(form, place.row, 1), form.width);
  v.Read(qkv + place.qkv(form, place.row, 2), form.width);
  for (std::int64_t query = 0; query < place.tokens; ++query) {
    Row<kParts> q, d;
    q.Read(qkv + place.qkv(form, query, 0), form.width);
    d.Read(dout + place.out(form, query), form.width);
    const std::int64_t at = place.sum(form, query);
    const float p = expf(form.scale * q.Dot(k) - lse[at]);
    float factor = 1;
    if constexpr (kDrops) factor = place.Factor(form, query, place.row);
    dk.Add(p * (factor * d.Dot(v) - delta[at]), q);
    dv.Add(p * factor, d);
  }
  dk.Scale(form.scale);
  dk.Write(dqkv + place.qkv(form, place.row, 1), form.width);
  dv.Write(dqkv + place.qkv(form, place.row, 2), form.width);
}

// Calls run(constant: 32-element parts of a row, std::true_type if dropout is active).
template <class Run>
void WithForm(const AttentionForm& form, const Run& run) {
  const auto with_parts = [&](auto parts) {
    if (form.dropout.drops()) return run(parts, std::true_type());
    run(parts, std::false_type());
  };
  // The width is rounded up to a supported number of registers per lane.
  if (form.width <= 32) return with_parts(std::integral_constant<int, 1>());
  if (form.width <= 64) return with_parts(std::integral_constant<int, 2>());
  if (form.width <= 128) return with_parts(std::integral_constant<int, 4>());
  with_parts(std::integral_constant<int, int(kAttentionWidthMax / 32)>());
}

Form FormOf(const AttentionForm& form) {
  return {form.heads, form.width, form.first_head, 1 / sqrtf(float(form.width)),
          ArgsOf(form.dropout)};
}
LaunchShape ShapeOf(const PackedSequences& batch, std::int64_t heads) {
  return {
      dim3(unsigned(CeilDivide(batch.longest, kWarps)), unsigned(heads), unsigned(batch.sequences)),
      dim3(kThreads)};
}

}  // namespace

void PlainAttentionForward(Stream& stream, const AttentionForwardArgs& args) {
  WithForm(args.form, [&](auto parts, auto drops) {
    Launch(stream, "PlainAttentionForward", ShapeOf(args.batch, args.form.heads),
           ForwardKernel<decltype(parts)::value, decltype(drops)::value>, args.batch.starts,
           FormOf(args.form), static_cast<const float*>(args.qkv), static_cast<float*>(args.out),
           args.lse);
  });
}

void PlainAttentionBackward(Stream& stream, const AttentionBackwardArgs& args) {
  const PackedSequences& batch = args.batch;
  const AttentionForm& form = args.form;
  const auto* const qkv = static_cast<const float*>(args.qkv);
  const auto* const dout = static_cast<const float*>(args.dout);
  auto* const dqkv = static_cast<float*>(args.dqkv);
  WithForm(form, [&](auto parts, auto drops) {
    // delta is written by the first kernel and read by the second.
    constexpr int kParts = decltype(parts)::value;
    constexpr bool kDrops = decltype(drops)::value;
    Launch(stream, "PlainAttentionBackward of queries", ShapeOf(batch, form.heads),
           QueryGradientKernel<kParts, kDrops>, batch.starts, FormOf(form), qkv,
           static_cast<const float*>(args.out), args.lse, dout, dqkv, args.delta);
    Launch(stream, "PlainAttentionBackward of keys", ShapeOf(batch, form.heads),
           KeyGradientKernel<kParts, kDrops>, batch.starts, FormOf(form), qkv, args.lse, dout,
           args.delta, dqkv);
  });
}

}  // namespace troop::cuda
