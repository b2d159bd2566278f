#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "kernels/cuda/attention.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/embedding.h"
#include "kernels/cuda/matmul.h"
#include "kernels/cuda/precision.h"
#include "kernels/transformer.h"

// A transformer on a GPU (nn/transformer.h), with the parameters where the CPU's has them: both
// read the same flat value [P], drop the same elements, and a checkpoint of one is the other's.
namespace troop::cuda {

struct TransformerSpec {
  // As TransformerConfig (nn/transformer.h) has them.
  bool albert = false;  // else BERT
  std::int64_t vocabulary = 0, hidden = 0, embedding = 0, layers = 0, heads = 0, intermediate = 0;
  std::int64_t positions = 0, token_types = 2;
  GeluForm gelu = GeluForm::kErf;
  float epsilon = 1e-12f;
  float hidden_dropout = 0, attention_dropout = 0, classifier_dropout = 0;
  std::int64_t classes = 2;  // of the classifier behind it; 0: the masked-LM head
  bool masked() const { return classes == 0; }

  // Where parameters begin; LayOut finds them.
  struct Linear {
    std::int64_t in = 0, out = 0, weight = 0, bias = 0;
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
  Linear map;                // of ALBERT: embedding to hidden
  std::vector<Layer> layer;  // ALBERT: one for all
  std::int64_t head_begin = 0;
  Linear first, classifier;     // the pooler, or the masked-LM head's transform
  Norm head_norm;               // of the masked-LM head, as is:
  std::int64_t word_bias = 0;   // [vocabulary]
  std::int64_t parameters = 0;  // P
  // By 16 parameters: 1 where weight decay leaves them alone (biases and norms), as are gaps.
  std::vector<std::uint8_t> spared;
};
// In the order and with the gaps of nn/transformer_parts.h.
void LayOut(TransformerSpec* spec);

// A packed batch, on the device. The host has seen to it that all numbers are within their bounds.
struct DeviceTokens {
  PackedSequences sequences;
  const std::int32_t* id = nullptr;     // [T]
  WordTokens words;                     // the same by word; of training alone
  const DropoutKey* dropout = nullptr;  // [sequences]; nullptr: nothing is dropped
  std::int64_t rows = 0;  // that have an output: of the last layer nothing else is made
  const std::int32_t* chosen = nullptr;  // [rows]: which token each is of
  std::int64_t scattered = 0;            // of the rows, the first that count: their tokens differ
};

// The weights: f32, and with Precision::kBF16 the same rounded.
struct TransformerWeights {
  const float* value = nullptr;
  const BF16* bf16 = nullptr;
};

// One stream at a time: it has the memory that a step works in, which grows to what the largest
// batch takes.
class Transformer {
 public:
  // REQUIRES: CheckForm(spec, precision) is empty.
  Transformer(Device& device, MatMulPlans& plans, const TransformerSpec& spec, Precision precision);

  // What of it can't be computed here, for people; empty: nothing.
  static std::string CheckForm(const TransformerSpec& spec, Precision precision);

  // Of an output's row: classes; or words, rounded up to a multiple of 8, of which what is behind
  // the vocabulary is not written. Of type output_dtype().
  std::int64_t stride() const;
  std::int64_t outputs() const { return spec_.masked() ? spec_.vocabulary : spec_.classes; }
  DType output_dtype() const;  // kF32; words of Precision::kBF16: that

  // out [rows, stride()]. keep: what Backward needs of it is kept until the next Forward.
  void Forward(Stream& stream, const TransformerWeights& weights, const DeviceTokens& batch,
               bool keep, void* out);
  // Of the last Forward, which kept. dout as out, and the same bytes behind the vocabulary: 0.
  // gradient: [P] f32, added into. ready: hears which part of it, [from, P), is made by what the
  // stream has by then; from falls.
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
  // Of a layer: what is kept of all tokens, and of those whose outputs are made: the last layer's
  // are the rows that the head reads.
  struct KeptAttention {
    Bytes qkv, context;
    Floats lse;
  };
  struct KeptRows {
    Bytes hidden, z, g, out;
    KeptNorm sum1, sum2;
  };
  // What a step with these weights runs on.
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
  KeptAttention& AttentionOf(std::int64_t use) {
    return attention_[std::size_t(use) % attention_.size()];
  }
  KeptRows& RowsOf(std::int64_t use) {
    return IsLast(use) ? last_ : between_[std::size_t(use) % between_.size()];
  }
  const void* Weight(const TransformerWeights& weights, std::int64_t at) const;
  const void* Bias(const TransformerWeights& weights, std::int64_t at, DType dtype) const;
  Dropout DropoutAt(const DeviceTokens& batch, std::uint32_t site, float rate) const;
  AttentionForm FormOf(const DeviceTokens& batch, std::int64_t use) const;

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
  void Spread(const Step& step, const void* rows, void* to);
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
  std::int64_t tokens_ = 0, rows_ = 0;  // that there is memory for
  bool trains_ = false;
  KeptNorm embedding_sum_;
  Bytes embedded_, mapped_;  // mapped_: of ALBERT
  std::vector<KeptAttention> attention_;
  std::vector<KeptRows> between_;
  KeptRows last_;
  Bytes asked_x_, asked_context_, head_mid_, head_top_;
  KeptNorm head_sum_;
  // Of backward.
  Bytes dy_, dsum_, dwide_, dcontext_, dhead_[2], dout_;
  Floats delta_, norm_workspace_, sum_workspace_;
};

}  // namespace troop::cuda
