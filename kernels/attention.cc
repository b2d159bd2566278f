#include "kernels/attention.h"

#include <algorithm>
#include <cmath>

#include "core/check.h"
#include "kernels/matmul.h"
#include "kernels/transformer.h"

namespace troop {
namespace {

// Queries at a time: scores of 64 x 512 tokens and their gradients stay in the second-level cache.
constexpr std::int64_t kQueries = 64;

// One head of one sequence, some of its queries at a time. The scores are a [queries, length]
// block; rows of q, k, v are `row` apart, rows of out `out_row`.
class Head {
 public:
  Head(const AttentionShape& shape, const AttentionBatch& batch, std::size_t sequence,
       std::int64_t head, float* scratch)
      : shape_(shape),
        first_(batch.starts[sequence]),
        length_(batch.starts[sequence + 1] - first_),
        head_(head),
        row_(3 * shape.heads * shape.width),
        out_row_(shape.heads * shape.width),
        scale_(1 / std::sqrt(float(shape.width))),
        scores_(scratch),
        dscores_(scratch + kQueries * length_),
        factors_(scratch + 2 * kQueries * length_),
        multiply_(shape.compute == DType::kBF16 ? &MatMulBF16 : &MatMul) {
    if (batch.dropout.empty() || shape.rate == 0) return;
    drops_ = true;
    site_ = {batch.dropout[sequence], batch.site};
  }

  void Forward(const float* qkv, float* out, float* lse) const {
    const float* const q = At(qkv, 0);
    for (std::int64_t i = 0; i < length_; i += kQueries) {
      const std::int64_t n = std::min(kQueries, length_ - i);
      multiply_(Scores(n), q + i * row_, At(qkv, 1), 0, scores_);
      kernels_.softmax(n, length_, scale_, scores_, Lse(lse, i), shape_.heads);
      Drop(i, n, scores_);
      multiply_(Values(n), scores_, At(qkv, 2), 0, Out(out, i));
    }
  }

  void Backward(const float* qkv, const float* out, const float* lse, const float* dout,
                float* dqkv) const {
    for (std::int64_t i = 0; i < length_; i += kQueries) {
      const std::int64_t n = std::min(kQueries, length_ - i);
      const float keep = i == 0 ? 0 : 1;  // sums over the queries begin with the first
      multiply_(Scores(n), At(qkv, 0) + i * row_, At(qkv, 1), 0, scores_);
      kernels_.softmax_again(n, length_, scale_, Lse(lse, i), shape_.heads, scores_);
      // Gradient of the dropped softmax, then of the softmax.
      MatMulShape by_value = Scores(n);
      by_value.lda = out_row_;
      multiply_(by_value, Out(dout, i), At(qkv, 2), 0, dscores_);
      const float* dropped = scores_;
      if (drops_) {
        MakeFactors(i, n);
        kernels_.multiply(n * length_, dscores_, factors_, dscores_);
        kernels_.multiply(n * length_, scores_, factors_, factors_);
        dropped = factors_;
      }
      multiply_(Sums(n, out_row_), dropped, Out(dout, i), keep, At(dqkv, 2));
      float delta[kQueries];
      Deltas(n, Out(out, i), Out(dout, i), delta);
      kernels_.softmax_backward(n, length_, scale_, scores_, dscores_, delta, dscores_);
      MatMulShape by_query = Values(n);
      by_query.ldc = row_;
      multiply_(by_query, dscores_, At(qkv, 1), 0, At(dqkv, 0) + i * row_);
      multiply_(Sums(n, row_), dscores_, At(qkv, 0) + i * row_, keep, At(dqkv, 1));
    }
  }

 private:
  // [n, width] · [length, width]ᵀ
  MatMulShape Scores(std::int64_t n) const {
    return {.m = n, .n = length_, .k = shape_.width, .transpose_b = true, .lda = row_, .ldb = row_};
  }
  // [n, length] · [length, width]
  MatMulShape Values(std::int64_t n) const {
    return {.m = n, .n = shape_.width, .k = length_, .ldb = row_, .ldc = out_row_};
  }
  // [n, length]ᵀ · [n, width]
  MatMulShape Sums(std::int64_t n, std::int64_t ldb) const {
    return {.m = length_, .n = shape_.width, .k = n, .transpose_a = true, .ldb = ldb, .ldc = row_};
  }
  // Queries (0), keys (1) or values (2) of this head.
  template <class T>
  T* At(T* qkv, std::int64_t which) const {
    return qkv + first_ * row_ + which * out_row_ + head_ * shape_.width;
  }
  template <class T>
  T* Out(T* out, std::int64_t query) const {
    return out + (first_ + query) * out_row_ + head_ * shape_.width;
  }
  template <class T>
  T* Lse(T* lse, std::int64_t query) const {
    return lse + (first_ + query) * shape_.heads + head_;
  }
  void MakeFactors(std::int64_t query, std::int64_t n) const {
    const std::int64_t row = (shape_.first_head + head_) * length_ + query;
    DropoutFactors(site_, shape_.rate, row * length_, n * length_, factors_);
  }
  void Drop(std::int64_t query, std::int64_t n, float* p) const {
    if (!drops_) return;
    MakeFactors(query, n);
    kernels_.multiply(n * length_, p, factors_, p);
  }
  // Σ p dp of a row of the softmax is out · dout, for out = p V and dp = dout Vᵀ.
  void Deltas(std::int64_t n, const float* out, const float* dout, float* delta) const {
    for (std::int64_t i = 0; i < n; ++i, out += out_row_, dout += out_row_) {
      delta[i] = 0;
      for (std::int64_t j = 0; j < shape_.width; ++j) delta[i] += out[j] * dout[j];
    }
  }

  const AttentionShape& shape_;
  const std::int64_t first_, length_, head_, row_, out_row_;
  const float scale_;
  float *const scores_, *const dscores_, *const factors_;
  bool drops_ = false;
  DropoutSite site_;
  const TransformerKernels& kernels_ = TransformerKernelsFor(BestCpuLevel());
  const MatMulFunction multiply_;
};

template <class F>
void ForEachHead(const AttentionShape& shape, const AttentionBatch& batch, float* scratch, F f) {
  TROOP_CHECK(batch.dropout.empty() || batch.dropout.size() + 1 == batch.starts.size(),
              "{} dropout keys for {} sequences", batch.dropout.size(), batch.starts.size() - 1);
  for (std::size_t s = 0; s + 1 < batch.starts.size(); ++s) {
    for (std::int64_t head = 0; head < shape.heads; ++head) f(Head(shape, batch, s, head, scratch));
  }
}

}  // namespace

std::int64_t AttentionScratch(std::int64_t length) { return 3 * kQueries * length; }

std::int64_t LongestSequence(std::span<const std::int32_t> starts) {
  std::int64_t longest = 0;
  for (std::size_t s = 0; s + 1 < starts.size(); ++s)
    longest = std::max<std::int64_t>(longest, starts[s + 1] - starts[s]);
  return longest;
}

void AttentionForward(const AttentionShape& shape, const AttentionBatch& batch, const float* qkv,
                      float* out, float* lse, float* scratch) {
  ForEachHead(shape, batch, scratch, [&](const Head& head) { head.Forward(qkv, out, lse); });
}

void AttentionBackward(const AttentionShape& shape, const AttentionBatch& batch, const float* qkv,
                       const float* out, const float* lse, const float* dout, float* dqkv,
                       float* scratch) {
  ForEachHead(shape, batch, scratch,
              [&](const Head& head) { head.Backward(qkv, out, lse, dout, dqkv); });
}

}  // namespace troop
