#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/cuda/runtime/device.h"
#include "kernels/cuda/runtime/precision.h"
#include "nn/cuda/transformer_spec.h"

namespace troop::cuda {

// Memory of the steps of a Transformer, which owns it: activations, their gradients and workspaces.
// It grows to the largest batch; growing discards the contents. One stream at a time. Arrays have
// ElementType(precision) unless they are Floats; `tokens` and `rows` in shapes are capacities.
class TransformerMemory {
 public:
  using Bytes = DeviceArray<std::byte>;
  using Floats = DeviceArray<float>;
  // Input and statistics of a layer norm over n elements.
  struct KeptNorm {
    Bytes x;            // [rows, n]
    Floats mean, rstd;  // [rows]; rstd: 1 / standard deviation
  };
  // Activations of a layer for all tokens.
  struct KeptAttention {
    Bytes qkv;                          // [tokens, 3, heads, width]
    Bytes context;                      // [tokens, heads, width]
    Floats lse;                         // [tokens, heads]
    DeviceArray<std::uint32_t> scores;  // mask of the scores that are not dropped
  };
  // Activations of a layer for the tokens whose outputs are computed; in the last layer these are
  // the rows that the head reads.
  struct KeptRows {
    Bytes hidden, out;  // [rows, hidden]
    Bytes z, g;         // [rows, intermediate], before and after GELU
    KeptNorm sum1, sum2;
  };

  // Allocates only the norms' workspace. The spec must outlive the object.
  TransformerMemory(Device& device, const TransformerSpec& spec, Precision precision);
  TransformerMemory(const TransformerMemory&) = delete;
  TransformerMemory& operator=(const TransformerMemory&) = delete;

  // GPU memory for training with this many tokens and output rows at a time.
  static std::int64_t StepBytes(const TransformerSpec& spec, Precision precision,
                                std::int64_t tokens, std::int64_t rows);
  // True if Reserve with these arguments allocates; it then waits for the device.
  bool Grows(std::int64_t tokens, std::int64_t rows, bool keep) const {
    return tokens > tokens_ || rows > rows_ || (keep && !trains_);
  }
  // Grows for a batch. keep: activations of all layers are kept, and there is memory for backward.
  void Reserve(std::int64_t tokens, std::int64_t rows, bool keep);

  bool IsLast(std::int64_t use) const { return use + 1 == spec_.layers; }
  // True if backward computes the activations of all layers except the last again.
  bool recomputes() const { return spec_.recompute && trains_; }
  // Activations of the use-th application of a layer. Without training or when recomputing, layers
  // share them.
  KeptAttention& AttentionOf(std::int64_t use) {
    return attention_[std::size_t(use) % attention_.size()];
  }
  const KeptAttention& AttentionOf(std::int64_t use) const {
    return attention_[std::size_t(use) % attention_.size()];
  }
  KeptRows& RowsOf(std::int64_t use) {
    return IsLast(use) ? last : between_[std::size_t(use) % between_.size()];
  }
  void* OutOf(std::int64_t use) {
    return (recomputes() && !IsLast(use) ? outs_[std::size_t(use)] : RowsOf(use).out).data();
  }
  const void* InOf(std::int64_t use) {
    return use > 0 ? OutOf(use - 1) : (spec_.has_map ? mapped : embedded).data();
  }

  // Embeddings.
  KeptNorm embedding_sum;  // sum of the tables, over `embedding` elements
  Bytes embedded;          // [tokens, embedding]
  Bytes mapped;            // [tokens, hidden]; only with a map
  // The last layer and the head. widest: the larger of `hidden` and `embedding`.
  Bytes asked_x, asked_context;  // [rows, widest]: input and context of the last layer at the rows
  KeptRows last;
  Bytes head_mid, head_top;  // [rows, widest]: result of the head's first layer, input of its last
  Bytes head_in;             // [rows, hidden]: dropped input of the head; only if it drops there
  KeptNorm head_sum;         // of the masked-LM head
  // Gradients of activations.
  Bytes dy, dsum;  // [tokens, widest]: of a layer's output, of a branch with dropout
  Bytes dwide;     // [tokens, the larger of a rank's 3 heads width and intermediate]
  Bytes dcontext;  // [tokens, heads, width]
  Bytes dhead[2];  // [rows, widest]
  Bytes dout;      // [rows, classes]; not with the masked-LM head
  Floats delta;    // [tokens, heads], scratch of AttentionBackward
  // LayerNormWorkspace, and SumRowsWorkspace for all sums.
  Floats norm_workspace, sum_workspace;

 private:
  Bytes Elements(std::int64_t n, const char* what);
  KeptNorm MakeKeptNorm(std::int64_t rows, std::int64_t n);
  KeptAttention MakeKeptAttention(std::int64_t tokens);
  KeptRows MakeKeptRows(std::int64_t rows);
  void ReserveTokens(std::int64_t tokens, bool keep);
  void ReserveRows(std::int64_t rows);

  Device& device_;
  const TransformerSpec& spec_;
  const Precision precision_;
  std::int64_t tokens_ = 0, rows_ = 0;  // capacity
  bool trains_ = false;
  std::vector<KeptAttention> attention_;
  std::vector<KeptRows> between_;
  std::vector<Bytes> outs_;  // of recomputed layers
};

}  // namespace troop::cuda
