#pragma once

#include <string>
#include <vector>

#include "nn/layers/lstm_layer.h"

namespace troop {

// Copies rows between the order of a batch and that of its TimeSteps. x, y: [T, width].
void ToTimeSteps(const TimeSteps& steps, std::int64_t width, const float* x, float* y);
void ToBatchOrder(const TimeSteps& steps, std::int64_t width, const float* x, float* y);

// LSTM layers one above the other, as an encoder or decoder of GNMT (Wu et al. 2016, sec. 3). Each
// layer above the first takes the output of the one below and, in a decoder, a context; from the
// third layer on its output is the sum of its states and the output of the layer below. Dropout
// applies to each layer's input. Immutable, so usable from any thread; rows are in the order of
// TimeSteps.
class LstmStack {
 public:
  struct Sizes {
    std::int64_t in = 0, hidden = 0, layers = 2;  // at least two layers
    std::int64_t context = 0;                     // columns of the context; 0: none
    bool bidirectional = false;                   // the first layer
  };
  LstmStack() = default;
  // Adds the first layer; AddUpperLayers adds the others, so that parameters may lie between them.
  // prefix: "encoder.lstm."; site: number of the first dropout site, one per layer.
  LstmStack(const Sizes& sizes, const std::string& prefix, std::uint32_t site, float dropout,
            ParamLayout& layout);
  void AddUpperLayers(const std::string& prefix, ParamLayout& layout);

  // Activations of all layers that Forward keeps for Backward.
  struct Kept {
    std::vector<LstmLayer::Kept> lstm;
    std::vector<float*> x;    // [T, in of the layer]: inputs after dropout
    std::vector<float*> out;  // [T, width of the layer]
  };
  Kept TakeKept(Arena& arena, std::int64_t tokens) const;
  struct Scratch {
    LstmLayer::Scratch lstm;
    float *drop = nullptr, *dh = nullptr, *dx = nullptr;
  };
  Scratch TakeScratch(Arena& arena, const TokenSizes& sizes) const;

  // Arguments of one application; borrowed for a call.
  struct Use {
    const Params& params;
    const TokenBatch& batch;  // its dropout keys and lengths
    const TimeSteps& steps;
    const Kept& kept;
    const Scratch& scratch;
    const float* context = nullptr;  // [T, context], for the upper layers
  };
  // The first layer, on kept.x[0], which the caller has filled.
  void ForwardFirst(const Use& use) const;
  // The other layers; the result is kept.out.back().
  void ForwardUpper(const Use& use) const;
  // dout [T, hidden]: in: the gradient of kept.out.back(); out: that of kept.out[0], [T, width(0)].
  // dcontext [T, context] is overwritten; nullptr without context.
  void BackwardUpper(const Use& use, float* dout, float* dcontext) const;
  // dout: [T, width(0)], overwritten; dx [T, in]: the gradient of the input before dropout.
  void BackwardFirst(const Use& use, float* dout, float* dx) const;

  std::int64_t layers() const { return sizes_.layers; }
  std::int64_t hidden() const { return sizes_.hidden; }
  std::int64_t width(std::size_t layer) const { return layers_[layer].width(); }
  const LstmLayer& layer(std::size_t i) const { return layers_[i]; }
  // True if the layer's output contains that of the layer below.
  static bool IsResidual(std::size_t layer) { return layer >= 2; }

 private:
  // Dropout of a layer's input, or of its gradient.
  void DropInput(const Use& use, std::size_t layer, float* x) const;
  void Run(const Use& use, std::size_t layer) const;

  Sizes sizes_;
  std::uint32_t site_ = 0;
  float dropout_ = 0;
  std::vector<LstmLayer> layers_;
};

}  // namespace troop
