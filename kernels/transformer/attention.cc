// Attention on the CPU: one head of one sequence at a time, 64 queries at a time. The scores of a
// block stay in the cache, and the products go through MatMul or MatMulBF16.
#include "kernels/transformer/attention.h"

#include <algorithm>
#include <cmath>

#include "core/base/check.h"
#include "kernels/linear/matmul.h"
#include "kernels/transformer/layer_norm_gelu.h"

namespace troop {
namespace {

// Queries per block: the scores of 64 x 512 tokens and their gradients stay in L2.
constexpr std::int64_t kQueries = 64;

// One head of one sequence. Scores are a [queries, length] block. The rows of q, of k and v, and of
// out have different strides, since one array holds all heads.
class Head {
 public:
  Head(const AttentionShape& shape, const AttentionBatch& batch, std::size_t sequence,
       std::int64_t head, float* scratch)
      : shape_(shape),
        head_(head),
        length_(batch.starts[sequence + 1] - batch.starts[sequence]),
        out_row_(shape.heads * shape.width),
        scale_(1 / std::sqrt(float(shape.width))),
        scores_(scratch),
        dscores_(scratch + kQueries * length_),
        factors_(scratch + 2 * kQueries * length_),
        multiply_(shape.compute == DType::kBF16 ? &MatMulBF16 : &MatMul) {
    // Offsets and strides. With `asking`, the queries follow the keys and values of all sequences;
    // otherwise q, k and v of a token are adjacent.
    const std::int64_t first = batch.starts[sequence], at = head * shape.width;
    if (batch.asking) {
      const auto end = batch.asking->end();
      const auto mine = std::lower_bound(batch.asking->begin(), end, batch.starts[sequence]);
      rows_ = std::lower_bound(mine, end, batch.starts[sequence + 1]) - mine;
      first_row_ = mine - batch.asking->begin();
      asking_ = batch.asking->subspan(std::size_t(first_row_), std::size_t(rows_));
      first_token_ = batch.starts[sequence];
      q_row_ = out_row_;
      kv_row_ = 2 * out_row_;
      q_ = batch.starts.back() * kv_row_ + first_row_ * q_row_ + at;
      k_ = first * kv_row_ + at;
    } else {
      rows_ = length_;
      first_row_ = first;
      q_row_ = kv_row_ = 3 * out_row_;
      q_ = first * q_row_ + at;
      k_ = q_ + out_row_;
    }
    // Without dropout the site stays unset.
    if (batch.dropout.empty() || shape.rate == 0) return;
    drops_ = true;
    site_ = {batch.dropout[sequence], batch.site};
  }

  // Per block of queries: scores, softmax, dropout, out = scores · V.
  void Forward(const float* qkv, float* out, float* lse) const {
    for (std::int64_t i = 0; i < rows_; i += kQueries) {
      const std::int64_t n = std::min(kQueries, rows_ - i);
      multiply_(Scores(n), Queries(qkv, i), Keys(qkv), 0, scores_);
      kernels_.softmax(n, length_, scale_, scores_, Lse(lse, i), shape_.heads);
      Drop(i, n, scores_);
      multiply_(Outputs(n), scores_, Values(qkv), 0, Out(out, i));
    }
  }

  // Per block of queries: recomputes the softmax, then adds up dV, dS, dQ and dK.
  void Backward(const float* qkv, const float* out, const float* lse, const float* dout,
                float* dqkv) const {
    // Otherwise the first block of queries overwrites the gradients.
    if (rows_ == 0) ClearKeysAndValues(dqkv);
    for (std::int64_t i = 0; i < rows_; i += kQueries) {
      const std::int64_t n = std::min(kQueries, rows_ - i);
      const float keep = i == 0 ? 0 : 1;  // beta: the first block overwrites dK and dV
      multiply_(Scores(n), Queries(qkv, i), Keys(qkv), 0, scores_);
      kernels_.softmax_again(n, length_, scale_, Lse(lse, i), shape_.heads, scores_);
      // Gradient of the softmax after dropout: dout · Vᵀ. Then the dropout factors are applied to
      // it and to the softmax.
      MatMulShape by_value = Scores(n);
      by_value.lda = out_row_;
      multiply_(by_value, Out(dout, i), Values(qkv), 0, dscores_);
      // The softmax with dropout applied, for the gradient of the values.
      const float* dropped = scores_;
      if (drops_) {
        MakeFactors(i, n);
        kernels_.multiply(n * length_, dscores_, factors_, dscores_);
        kernels_.multiply(n * length_, scores_, factors_, factors_);
        dropped = factors_;
      }
      multiply_(Sums(n, out_row_), dropped, Out(dout, i), keep, Values(dqkv));
      // Through the softmax, then to queries and keys.
      float delta[kQueries];
      Deltas(n, Out(out, i), Out(dout, i), delta);
      kernels_.softmax_backward(n, length_, scale_, scores_, dscores_, delta, dscores_);
      MatMulShape by_query = Outputs(n);
      by_query.ldc = q_row_;
      multiply_(by_query, dscores_, Keys(qkv), 0, Queries(dqkv, i));
      multiply_(Sums(n, q_row_), dscores_, Queries(qkv, i), keep, Keys(dqkv));
    }
  }

 private:
  // Shapes of the products. Scores: [n, width] · [length, width]ᵀ.
  MatMulShape Scores(std::int64_t n) const {
    return {.m = n,
            .n = length_,
            .k = shape_.width,
            .transpose_b = true,
            .lda = q_row_,
            .ldb = kv_row_};
  }
  // Outputs: [n, length] · [length, width].
  MatMulShape Outputs(std::int64_t n) const {
    return {.m = n, .n = shape_.width, .k = length_, .ldb = kv_row_, .ldc = out_row_};
  }
  // Sums over the queries: [n, length]ᵀ · [n, width].
  MatMulShape Sums(std::int64_t n, std::int64_t ldb) const {
    return {
        .m = length_, .n = shape_.width, .k = n, .transpose_a = true, .ldb = ldb, .ldc = kv_row_};
  }
  // Addresses of this head in arrays of all heads. `row`: index among the queries of the sequence.
  template <class T>
  T* Queries(T* qkv, std::int64_t row) const {
    return qkv + q_ + row * q_row_;
  }
  template <class T>
  T* Keys(T* qkv) const {
    return qkv + k_;
  }
  template <class T>
  T* Values(T* qkv) const {
    return qkv + k_ + out_row_;
  }
  template <class T>
  T* Out(T* out, std::int64_t row) const {
    return out + (first_row_ + row) * out_row_ + head_ * shape_.width;
  }
  template <class T>
  T* Lse(T* lse, std::int64_t row) const {
    return lse + (first_row_ + row) * shape_.heads + head_;
  }
  // A sequence without queries has zero gradients of keys and values.
  void ClearKeysAndValues(float* dqkv) const {
    for (std::int64_t i = 0; i < length_; ++i) {
      std::fill_n(Keys(dqkv) + i * kv_row_, shape_.width, 0.0f);
      std::fill_n(Values(dqkv) + i * kv_row_, shape_.width, 0.0f);
    }
  }
  void MakeFactors(std::int64_t row, std::int64_t n) const {
    // Elements are numbered by token, so the mask of a query does not depend on `asking`.
    const auto make = [this](std::int64_t token, std::int64_t count, float* factors) {
      const std::int64_t first = (shape_.first_head + head_) * length_ + token;
      DropoutFactors(site_, shape_.rate, first * length_, count * length_, factors);
    };
    if (asking_.empty()) return make(row, n, factors_);
    for (std::int64_t i = 0; i < n; ++i)
      make(asking_[std::size_t(row + i)] - first_token_, 1, factors_ + i * length_);
  }
  void Drop(std::int64_t row, std::int64_t n, float* p) const {
    if (!drops_) return;
    MakeFactors(row, n);
    kernels_.multiply(n * length_, p, factors_, p);
  }
  // Σ p dp over a row of the softmax is out · dout, since out = p V and dp = dout Vᵀ. This works
  // with dropout too.
  void Deltas(std::int64_t n, const float* out, const float* dout, float* delta) const {
    for (std::int64_t i = 0; i < n; ++i, out += out_row_, dout += out_row_) {
      delta[i] = 0;
      for (std::int64_t j = 0; j < shape_.width; ++j) delta[i] += out[j] * dout[j];
    }
  }

  const AttentionShape& shape_;
  const std::int64_t head_, length_, out_row_;
  const float scale_;
  float *const scores_, *const dscores_, *const factors_;
  // Number of queries of this sequence and index of the first; offsets of its queries and keys;
  // strides of rows.
  std::int64_t rows_ = 0, first_row_ = 0, q_ = 0, k_ = 0, q_row_ = 0, kv_row_ = 0;
  std::span<const std::int32_t> asking_;  // empty: all tokens have queries
  std::int32_t first_token_ = 0;
  bool drops_ = false;
  DropoutSite site_;
  const TransformerKernels& kernels_ = TransformerKernelsFor(BestCpuLevel());
  const MatMulFunction multiply_;
};

// Calls f for each head of each sequence.
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

void AttentionForward(const AttentionForwardArgs& args) {
  ForEachHead(args.shape, args.batch, args.scratch,
              [&](const Head& head) { head.Forward(args.qkv, args.out, args.lse); });
}

void AttentionBackward(const AttentionBackwardArgs& args) {
  ForEachHead(args.shape, args.batch, args.scratch, [&](const Head& head) {
    head.Backward(args.qkv, args.out, args.lse, args.dout, args.dqkv);
  });
}

}  // namespace troop
