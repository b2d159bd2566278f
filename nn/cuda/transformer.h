#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "kernels/cuda/ops/attention.h"
#include "kernels/cuda/ops/embedding.h"
#include "kernels/cuda/ops/matmul.h"
#include "kernels/cuda/runtime/device.h"
#include "kernels/cuda/runtime/precision.h"
#include "kernels/transformer/layer_norm_gelu.h"
#include "nn/parallel/shard_placement.h"

// A transformer on a GPU, with the parameter layout of the CPU's (nn/transformer/transformer.h):
// both read the same flat value [P] and use the same dropout masks, and checkpoints are
// interchangeable. It may be one rank of a tensor-parallel model (nn/parallel/tensor_parallel.h),
// with the same slices as on the CPU.
namespace troop::cuda {

// The tensor-parallel group of a GPU transformer. All ranks call the same operations with the same
// sizes, in the order of one stream. A failure ends it for all: arrays are then undefined, and the
// owner has the error.
class TensorParallelComm {
 public:
  virtual ~TensorParallelComm() = default;
  // x [n] = the sum (kF32, kBF16, kF64) or the maximum over the ranks, bit-identical on all, for
  // later work on the stream.
  virtual void Sum(Stream& stream, void* x, DType dtype, std::int64_t n) = 0;
  virtual void Max(Stream& stream, float* x, std::int64_t n) = 0;
  // Completes or fails all operations; afterwards the host may wait for the stream.
  virtual void Settle() = 0;
};

// Description of the model, and its parameter layout.
struct TransformerSpec {
  // Sizes as in TransformerConfig (nn/transformer/transformer.h).
  bool albert = false;  // otherwise BERT
  std::int64_t vocabulary = 0, hidden = 0, embedding = 0, layers = 0, heads = 0, intermediate = 0;
  std::int64_t positions = 0, token_types = 2;
  GeluForm gelu = GeluForm::kErf;
  float epsilon = 1e-12f;
  float hidden_dropout = 0, attention_dropout = 0, classifier_dropout = 0;
  std::int64_t classes = 2;  // of the classifier head; 0: the masked-LM head
  bool masked() const { return classes == 0; }
  // Keep only the input of each layer in training; backward recomputes the rest.
  bool recompute = false;

  // Tensor-parallel place, and this rank's share of heads, intermediate size and vocabulary.
  TensorParallelRank place;
  bool cut() const { return place.ranks > 1; }
  Share head_share() const { return ShareOf(heads, place); }
  Share wide_share() const { return ShareOf(intermediate, place); }
  Share word_share() const { return ShareOf(vocabulary, place); }
  std::int64_t width() const { return hidden / heads; }  // of a head
  std::int64_t heads_wide() const { return head_share().count * width(); }

  // Parameter offsets, computed by LayOut. A linear layer has all inputs and outputs, or the rank's
  // share of the outputs ("column parallel"), or of the inputs: then its result is the sum over the
  // ranks, and the bias is whole.
  struct Linear {
    std::int64_t in = 0, out = 0, weight = 0, bias = 0;
    enum class Cut { kNone, kOut, kIn } cut = Cut::kNone;
  };
  struct Norm {
    std::int64_t n = 0, gamma = 0, beta = 0;
  };
  struct Layer {
    Linear qkv, attention_out, ffn, ffn_out;
    Norm norm1, norm2;
    std::int64_t begin = 0;
  };
  std::int64_t word_table = 0, position_table = 0, type_table = 0;
  Norm embedding_norm;
  Linear map;                // ALBERT: embedding to hidden
  std::vector<Layer> layer;  // ALBERT: one for all
  std::int64_t head_begin = 0;
  Linear first, classifier;     // the pooler, or the masked-LM head's transform
  Norm head_norm;               // of the masked-LM head, as is:
  std::int64_t word_bias = 0;   // [share of the vocabulary]
  std::int64_t parameters = 0;  // P
  // Flags per kParameterBlock parameters. spared: 1 if excluded from weight decay (biases, norms
  // and padding). whole: 1 if all ranks hold the same parameters.
  std::vector<std::uint8_t> spared, whole;
};
// Computes the offsets, in the order and with the padding of nn/transformer/transformer_parts.h.
void LayOut(TransformerSpec* spec);

// A packed batch on the device. The host has checked that all values are within their bounds.
struct DeviceTokens {
  PackedSequences sequences;
  const std::int32_t* id = nullptr;      // [T]
  WordTokens words;                      // the tokens grouped by the rank's vocabulary rows
  const DropoutKey* dropout = nullptr;   // [sequences]; nullptr: no dropout
  std::int64_t rows = 0;                 // output rows; the last layer computes no others
  const std::int32_t* chosen = nullptr;  // [rows]: token of each row
  std::int64_t scattered = 0;  // number of leading rows that count; their tokens are distinct
};

// Weights: f32, and with Precision::kBF16 a rounded copy.
struct TransformerWeights {
  const float* value = nullptr;
  const BF16* bf16 = nullptr;
};

// Forward and backward passes on one device. One stream at a time: the object owns the memory of a
// step, which grows to the largest batch.
class Transformer {
 public:
  // REQUIRES: CheckForm(spec, precision) is empty. Tensor-parallel steps need peers.
  Transformer(Device& device, MatMulPlans& plans, const TransformerSpec& spec, Precision precision);

  // Human-readable reason why this model is not supported on a GPU; empty if it is.
  static std::string CheckForm(const TransformerSpec& spec, Precision precision);
  // GPU memory for training with this many tokens and output rows at a time.
  static std::int64_t StepBytes(const TransformerSpec& spec, Precision precision,
                                std::int64_t tokens, std::int64_t rows);
  // Sets the tensor-parallel group from the next Forward on; it must outlive its use.
  void SetTensorParallelComm(TensorParallelComm* peers) { peers_ = peers; }

  // Length of an output row, of output_dtype(): classes; or the rank's vocabulary rounded up to a
  // multiple of 8, of which the padding is not written.
  std::int64_t stride() const;
  std::int64_t outputs() const { return spec_.masked() ? spec_.word_share().count : spec_.classes; }
  DType output_dtype() const;  // kF32; kBF16 for vocabulary logits with Precision::kBF16

  // out [rows, stride()]. keep: keeps activations for Backward until the next Forward.
  void Forward(Stream& stream, const TransformerWeights& weights, const DeviceTokens& batch,
               bool keep, void* out);
  // Backward of the last Forward, which must have kept. dout like out, with padding 0. gradient:
  // [P] f32, accumulated into. ready: called with the start of the range [from, P) that the work on
  // the stream completes; `from` decreases.
  using Ready = std::function<void(std::int64_t from)>;
  void Backward(Stream& stream, const TransformerWeights& weights, const DeviceTokens& batch,
                const void* dout, float* gradient, const Ready& ready = {});

 private:
  using Bytes = DeviceArray<std::byte>;
  using Floats = DeviceArray<float>;
  struct KeptNorm {
    Bytes x;
    Floats mean, rstd;
  };
  // Activations of a layer: for all tokens, and for those whose outputs are computed; in the last
  // layer these are the rows that the head reads.
  struct KeptAttention {
    Bytes qkv, context;
    Floats lse;
    DeviceArray<std::uint32_t> scores;  // mask of the scores that are not dropped
  };
  struct KeptRows {
    Bytes hidden, z, g, out;
    KeptNorm sum1, sum2;
  };
  // Arguments of a step.
  struct Step {
    Stream& stream;
    const TransformerWeights& weights;
    const DeviceTokens& batch;
    float* gradient = nullptr;
    std::int64_t tokens() const { return batch.sequences.tokens; }
  };
  void Reserve(const DeviceTokens& batch, bool keep);
  Bytes Elements(std::int64_t n, const char* what);
  KeptNorm MakeKeptNorm(std::int64_t rows, std::int64_t n);
  KeptAttention MakeKeptAttention(std::int64_t tokens);
  KeptRows MakeKeptRows(std::int64_t rows);
  const TransformerSpec::Layer& LayerOf(std::int64_t use) const {
    return spec_.layer[spec_.albert ? 0 : std::size_t(use)];
  }
  bool IsLast(std::int64_t use) const { return use + 1 == spec_.layers; }
  bool recomputes() const { return spec_.recompute && trains_; }
  KeptAttention& AttentionOf(std::int64_t use) {
    return attention_[std::size_t(use) % attention_.size()];
  }
  KeptRows& RowsOf(std::int64_t use) {
    return IsLast(use) ? last_ : between_[std::size_t(use) % between_.size()];
  }
  void* OutOf(std::int64_t use) {
    return (recomputes() && !IsLast(use) ? outs_[std::size_t(use)] : RowsOf(use).out).data();
  }
  const void* InOf(std::int64_t use) {
    return use > 0 ? OutOf(use - 1) : (spec_.albert ? mapped_ : embedded_).data();
  }
  const void* Weight(const TransformerWeights& weights, std::int64_t at) const;
  const void* Bias(const TransformerWeights& weights, std::int64_t at, DType dtype) const;
  Dropout DropoutAt(const DeviceTokens& batch, std::uint32_t site, float rate) const;
  AttentionForm FormOf(const DeviceTokens& batch, std::int64_t use) const;

  void SumOverParts(const Step& step, void* x, std::int64_t n) {
    if (spec_.cut()) peers_->Sum(step.stream, x, element_, n);
  }
  void Linear(const Step& step, const TransformerSpec::Linear& linear, std::int64_t rows,
              const void* x, void* y, DType y_dtype);
  // gradient[at + i] += Σ over rows of x [rows, n].
  void AddRows(const Step& step, std::int64_t rows, std::int64_t n, const void* x,
               std::int64_t stride, std::int64_t at);
  void LinearBackward(const Step& step, const TransformerSpec::Linear& linear, std::int64_t rows,
                      const void* x, const void* dz, float beta, void* dx);
  void Norm(const Step& step, const TransformerSpec::Norm& norm, std::int64_t rows,
            const KeptNorm& kept, void* y);
  void NormBackward(const Step& step, const TransformerSpec::Norm& norm, std::int64_t rows,
                    const KeptNorm& kept, const void* dy, void* dx);
  void DropAddOf(const Step& step, std::int64_t use, std::uint32_t which, float rate, const void* x,
                 const void* add, void* y);
  void Spread(const Step& step, const void* rows, std::int64_t width, void* to);
  void ForwardLayer(const Step& step, std::int64_t use, const void* x);
  void BackwardLayer(const Step& step, std::int64_t use, const void* x);
  void ForwardHead(const Step& step, const void* x, void* out);
  void BackwardHead(const Step& step, const void* dout);
  void BackwardEmbedding(const Step& step);

  Device& device_;
  MatMulPlans& plans_;
  const TransformerSpec spec_;
  const Precision precision_;
  const DType element_;
  TensorParallelComm* peers_ = nullptr;
  std::int64_t tokens_ = 0, rows_ = 0;  // allocated capacity
  bool trains_ = false;
  KeptNorm embedding_sum_;
  Bytes embedded_, mapped_;  // mapped_: ALBERT only
  std::vector<KeptAttention> attention_;
  std::vector<KeptRows> between_;
  std::vector<Bytes> outs_;  // of recomputed layers
  KeptRows last_;
  Bytes asked_x_, asked_context_, head_mid_, head_top_;
  KeptNorm head_sum_;
  // Memory of backward.
  Bytes dy_, dsum_, dwide_, dcontext_, dhead_[2], dout_;
  Floats delta_, norm_workspace_, sum_workspace_;
};

}  // namespace troop::cuda
