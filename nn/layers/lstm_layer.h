#pragma once

#include <span>
#include <string>

#include "nn/layers/time_steps.h"
#include "nn/transformer/transformer_parts.h"

// Parts of an LSTM classifier. They are immutable: several threads may use one part at the same
// time, each with separate memory.
namespace troop {

// Applies dropout to the rows of all tokens, in the order of `steps`. Elements are counted from
// each sequence's first token, as in batch order.
void DropTimeSteps(const TokenBatch& batch, const TimeSteps& steps, const DropRowsArgs& args);

// One layer: PyTorch's nn.LSTM(in, hidden, bidirectional), with its parameter names. Maps x [T, in]
// to [T, width]: the states of the forward direction, then those of the backward direction, if it
// has one. Rows are in the order of TimeSteps.
class LstmLayer {
 public:
  struct Sizes {
    std::int64_t in = 0, hidden = 0;
    int directions = 2;  // 1: forward in time only
  };
  // prefix: "lstm."; index: from 0.
  LstmLayer(const Sizes& sizes, const std::string& prefix, std::int64_t index, ParamLayout& layout);
  std::int64_t in() const { return sizes_.in; }
  std::int64_t width() const { return sizes_.directions * sizes_.hidden; }

  // Activations that Forward keeps for Backward; h is also its result.
  struct Kept {
    float *gates[2] = {}, *c[2] = {};  // per direction: [T, 4 hidden], [T, hidden]
    float* h = nullptr;                // [T, width]
  };
  Kept TakeKept(Arena& arena, std::int64_t tokens) const;
  // [4 hidden], [T, hidden], [B, hidden], [T, 4 hidden].
  struct Scratch {
    float *bias = nullptr, *before = nullptr, *dc = nullptr, *ds = nullptr;
  };
  Scratch TakeScratch(Arena& arena, const TokenSizes& sizes) const;

  // Arguments of one application to a batch of T tokens; borrowed for a call.
  struct Use {
    const Params& params;
    const TimeSteps& steps;
    const float* x = nullptr;  // [T, in]
    const Kept& kept;
    const Scratch& scratch;
  };
  // Computes the states h of `kept`.
  void Forward(const Use& use) const;
  // use: that of the Forward call. dh [T, width], the gradient of h, and dx [T, in] are
  // overwritten; adds to params.gradient. REQUIRES: params.gradient.
  void Backward(const Use& use, float* dh, float* dx) const;

  struct Direction {
    std::int64_t weight_ih = 0, weight_hh = 0, bias_ih = 0, bias_hh = 0;  // offsets
  };
  // Weights of the forward direction, for a caller that computes one time step at a time.
  const Direction& forward() const { return directions_[0]; }

 private:
  // direction: 0 forward, 1 backward in time.
  void Run(const Use& use, int direction) const;
  // Leaves the gradient of the gate pre-activations in scratch.ds.
  void RunBack(const Use& use, int direction, float* dh) const;
  void AddGradient(const Use& use, int direction) const;

  Sizes sizes_;
  Direction directions_[2];
};

// Additive attention over each sequence (Bahdanau et al. 2015; Yang et al. 2016, eq. 5-7): the sum
// of h weighted by softmax(v · tanh(W h + b)). h: [T, width], rows in the order of TimeSteps; out:
// [B, width], rows in batch order.
class AttentionPool {
 public:
  AttentionPool() = default;
  // width: of h; units: rows of W.
  AttentionPool(std::int64_t width, std::int64_t units, ParamLayout& layout);

  struct Kept {
    float* u = nullptr;                         // [T, units]: the tanh
    float *share = nullptr, *weight = nullptr;  // [T]: softmax in batch order; in order of rows
  };
  Kept TakeKept(Arena& arena, std::int64_t tokens) const;
  struct Scratch {
    float *du = nullptr, *dweight = nullptr, *dshare = nullptr, *dout = nullptr;
  };
  Scratch TakeScratch(Arena& arena, const TokenSizes& sizes) const;

  // Arguments of one application to a batch of T tokens; borrowed for a call.
  struct Use {
    const Params& params;
    const TokenBatch& batch;
    const TimeSteps& steps;
    const float* h = nullptr;  // [T, width], rows in the order of `steps`
    const Kept& kept;
  };
  // out: [B, width].
  void Forward(const Use& use, float* out) const;
  // use: that of the Forward call. dout: [B, width]; dh [T, width] is overwritten. Adds to
  // params.gradient. REQUIRES: params.gradient.
  void Backward(const Use& use, const float* dout, const Scratch& scratch, float* dh) const;

 private:
  LinearPart map_;
  std::int64_t vector_ = 0;  // offset of v
};

}  // namespace troop
