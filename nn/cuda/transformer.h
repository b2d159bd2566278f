#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "kernels/cuda/ops/attention.h"
#include "kernels/cuda/ops/bias.h"
#include "kernels/cuda/ops/embedding.h"
#include "kernels/cuda/ops/matmul.h"
#include "kernels/cuda/runtime/device.h"
#include "kernels/cuda/runtime/precision.h"
#include "nn/cuda/transformer_memory.h"
#include "nn/cuda/transformer_spec.h"

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

// A packed batch on the device. The host has checked that all values are within their bounds.
struct DeviceTokens {
  PackedSequences sequences;
  const std::int32_t* id = nullptr;    // [T]
  const std::int32_t* type = nullptr;  // [T], all below `types`; nullptr: all 0
  std::int64_t types = 0;
  const std::int32_t* place = nullptr;   // [T] positions; nullptr: index in the sequence
  WordTokens places;                     // the tokens grouped by `place`, if given
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
// Weights and batch of a pass.
struct TransformerPass {
  TransformerWeights weights;
  DeviceTokens batch;
};

// Forward and backward passes on one device. One stream at a time: the object owns the memory of a
// step, which grows to the largest batch.
class Transformer {
 public:
  // REQUIRES: CheckForm(spec, precision) is empty. Tensor-parallel steps need peers.
  Transformer(Device& device, MatMulPlans& plans, const TransformerSpec& spec, Precision precision);

  // Human-readable reason why this model is not supported on a GPU; empty if it is.
  static std::string CheckForm(const TransformerSpec& spec, Precision precision);
  // Sets the tensor-parallel group from the next Forward on; it must outlive its use.
  void SetTensorParallelComm(TensorParallelComm* peers) { peers_ = peers; }

  // Length of an output row, of output_dtype(): classes; or the rank's vocabulary rounded up to a
  // multiple of 8, of which the padding is not written.
  std::int64_t stride() const;
  std::int64_t outputs() const { return spec_.masked() ? spec_.word_share().count : spec_.classes; }
  DType output_dtype() const;  // kF32; kBF16 for vocabulary logits with Precision::kBF16

  // out [rows, stride()]. keep: keeps activations for Backward until the next Forward.
  void Forward(Stream& stream, const TransformerPass& pass, bool keep, void* out);
  // Backward of the last Forward, which must have kept. dout like out, with padding 0. gradient:
  // [P] f32, accumulated into. ready: called with the start of the range [from, P) that the work on
  // the stream completes; `from` decreases.
  using Ready = std::function<void(std::int64_t from)>;
  void Backward(Stream& stream, const TransformerPass& pass, const void* dout, float* gradient,
                const Ready& ready = {});

 private:
  // Arguments of a step.
  struct Step {
    Stream& stream;
    const TransformerWeights& weights;
    const DeviceTokens& batch;
    float* gradient = nullptr;
    std::int64_t tokens() const { return batch.sequences.tokens; }
  };
  // Arguments of Linear.
  struct LinearArgs {
    const TransformerSpec::Linear& linear;
    std::int64_t rows = 0;
    const void* x = nullptr;  // [rows, in]
    void* y = nullptr;        // [rows, out], overwritten
    DType y_dtype = DType::kF32;
  };
  // Arguments of LinearBackward.
  struct LinearBackwardArgs {
    const TransformerSpec::Linear& linear;
    std::int64_t rows = 0;
    const void* x = nullptr;   // [rows, in]
    const void* dz = nullptr;  // [rows, out]
    float beta = 0;            // 0 or 1: dx is added to
    void* dx = nullptr;        // [rows, in]; nullptr: not needed
  };
  // Arguments of DropAddOf. The arrays have the tokens or, in the last layer, the requested rows.
  struct DropAddOfArgs {
    std::int64_t use = 0;
    std::uint32_t which = 0;    // the branch: 1 attention, 2 feed-forward
    const void* x = nullptr;    // [tokens or rows, hidden]
    const void* add = nullptr;  // like x; nullptr: nothing is added
    void* y = nullptr;          // like x, overwritten; may be x or add
  };
  const TransformerSpec::Layer& LayerOf(std::int64_t use) const {
    return spec_.layer[spec_.shared ? 0 : std::size_t(use)];
  }
  const void* Weight(const TransformerWeights& weights, std::int64_t at) const;
  const void* Bias(const TransformerWeights& weights, std::int64_t at, DType dtype) const;
  Dropout DropoutAt(const DeviceTokens& batch, std::uint32_t site, float rate) const;
  AttentionForm FormOf(const DeviceTokens& batch, std::int64_t use) const;

  void SumOverParts(const Step& step, void* x, std::int64_t n) {
    if (spec_.cut()) peers_->Sum(step.stream, x, element_, n);
  }
  void Linear(const Step& step, const LinearArgs& args);
  // gradient[at + i] += Σ over rows of x [rows, n]. args: rows, n, stride and x.
  void AddRows(const Step& step, std::int64_t at, SumRowsArgs args);
  void LinearBackward(const Step& step, const LinearBackwardArgs& args);
  void Norm(const Step& step, const TransformerSpec::Norm& norm, std::int64_t rows,
            const TransformerMemory::KeptNorm& kept, void* y);
  // dy [rows, n] becomes the gradient of kept.x.
  void NormBackward(const Step& step, const TransformerSpec::Norm& norm, std::int64_t rows,
                    const TransformerMemory::KeptNorm& kept, void* dy);
  void DropAddOf(const Step& step, const DropAddOfArgs& args);
  void Spread(const Step& step, const void* rows, std::int64_t width, void* to);
  void ForwardLayer(const Step& step, std::int64_t use, const void* x);
  void BackwardLayer(const Step& step, std::int64_t use, const void* x);
  void ForwardHead(const Step& step, const void* x, void* out);
  void ForwardClassifier(const Step& step, const void* x, void* out);
  void DropHead(const Step& step, std::uint32_t site, const void* x, void* y);
  void BackwardHead(const Step& step, const void* dout);
  void BackwardWords(const Step& step, const void* dout, void* dmid);
  void BackwardClassifier(const Step& step, const void* dout, void* dmid);
  void BackwardEmbedding(const Step& step);

  MatMulPlans& plans_;
  const TransformerSpec spec_;
  const Precision precision_;
  const DType element_;
  TransformerMemory memory_;  // after spec_, which it reads
  TensorParallelComm* peers_ = nullptr;
};

}  // namespace troop::cuda
