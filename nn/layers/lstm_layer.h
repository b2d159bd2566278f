#pragma once

#include <span>
#include <string>

#include "nn/transformer/transformer_parts.h"

// Parts of an LSTM classifier. Immutable; usable on any thread with its own memory.
namespace troop {

// The tokens of a packed batch in time-major order (PyTorch's PackedSequence): all first tokens,
// then all second ones, and so on, of the sequences that reach the step, the longest first. So one
// product serves a step, and the sequences that adjacent steps share are their first rows, in
// either direction of time.
struct TimeSteps {
  std::span<std::int32_t> order;  // [B]: the sequences, longest first; ties in batch order
  std::span<std::int32_t> first;  // [T + 1]: row where step t begins; `steps` entries, then T
  std::span<std::int32_t> row;    // [T]: row of each token of the batch
  std::int64_t steps = 0;         // of the longest sequence

  std::int64_t begin(std::int64_t t) const { return first[std::size_t(t)]; }
  std::int64_t rows(std::int64_t t) const { return begin(t + 1) - begin(t); }
  std::int64_t tokens() const { return std::int64_t(row.size()); }
  std::int64_t sequences() const { return std::int64_t(order.size()); }
};
// Takes memory for the order of a batch.
TimeSteps TakeTimeSteps(Arena& arena, const TokenSizes& sizes);
// Computes the order in that memory. O(T + B log B).
void FillTimeSteps(const TokenBatch& batch, TimeSteps* steps);
// Applies dropout: x [T, width], rows as in `steps`, times the factors of `site`, counted from each
// sequence's first token.
void DropTimeSteps(const TokenBatch& batch, const TimeSteps& steps, std::uint32_t site, float rate,
                   std::int64_t width, float* x, float* scratch);

// One bidirectional layer: PyTorch's nn.LSTM(in, hidden, bidirectional=True), with its parameter
// names. x [T, in] → [T, 2 hidden], forward states and then backward states; rows as in TimeSteps.
class LstmLayer {
 public:
  // prefix: "lstm."; index: from 0.
  LstmLayer(std::int64_t in, std::int64_t hidden, const std::string& prefix, std::int64_t index,
            ParamLayout& layout);

  // Activations that Forward keeps for Backward.
  struct Kept {
    float *gates[2] = {}, *c[2] = {};  // per direction: [T, 4 hidden], [T, hidden]
    float* h = nullptr;                // [T, 2 hidden]
  };
  Kept TakeKept(Arena& arena, std::int64_t tokens) const;
  struct Scratch {
    float *bias = nullptr, *before = nullptr, *dc = nullptr, *ds = nullptr;
  };
  Scratch TakeScratch(Arena& arena, const TokenSizes& sizes) const;

  void Forward(const Params& params, const TimeSteps& steps, const float* x, const Kept& kept,
               const Scratch& scratch) const;
  // dh [T, 2 hidden] and dx [T, in] are overwritten. REQUIRES: params.gradient.
  void Backward(const Params& params, const TimeSteps& steps, const float* x, const Kept& kept,
                const Scratch& scratch, float* dh, float* dx) const;

 private:
  struct Direction {
    std::int64_t weight_ih = 0, weight_hh = 0, bias_ih = 0, bias_hh = 0;  // offsets
  };
  void Run(const Params& params, const TimeSteps& steps, int direction, const float* x,
           const Kept& kept, const Scratch& scratch) const;
  // Leaves the gradient of the gate pre-activations in scratch.ds.
  void RunBack(const Params& params, const TimeSteps& steps, int direction, const Kept& kept,
               const Scratch& scratch, float* dh) const;
  void AddGradient(const Params& params, const TimeSteps& steps, int direction, const float* x,
                   const Kept& kept, const Scratch& scratch) const;

  std::int64_t in_, hidden_;
  Direction directions_[2];
};

// Additive attention over each sequence (Bahdanau et al. 2015; Yang et al. 2016, eq. 5-7): the sum
// of h weighted by softmax(v · tanh(W h + b)). [T, width] → [B, width].
class AttentionPool {
 public:
  AttentionPool() = default;
  // width: of h; units: rows of W.
  AttentionPool(std::int64_t width, std::int64_t units, ParamLayout& layout);

  struct Kept {
    float* u = nullptr;                         // [T, units]: the tanh
    float *share = nullptr, *weight = nullptr;  // [T]: the softmax, in batch order and by rows
  };
  Kept TakeKept(Arena& arena, std::int64_t tokens) const;
  struct Scratch {
    float *du = nullptr, *dweight = nullptr, *dshare = nullptr, *dout = nullptr;
  };
  Scratch TakeScratch(Arena& arena, const TokenSizes& sizes) const;

  void Forward(const Params& params, const TokenBatch& batch, const TimeSteps& steps,
               const float* h, const Kept& kept, float* out) const;
  // dh is overwritten. REQUIRES: params.gradient.
  void Backward(const Params& params, const TokenBatch& batch, const TimeSteps& steps,
                const float* h, const Kept& kept, const float* dout, const Scratch& scratch,
                float* dh) const;

 private:
  LinearPart map_;
  std::int64_t vector_ = 0;  // offset of v
};

}  // namespace troop
