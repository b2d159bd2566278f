// Implements stacks of LSTM layers with residual connections and a shared context.

#include "nn/translation/lstm_stack.h"

#include <algorithm>

namespace troop {

// The rows of steps are a permutation of those of the batch.
void ToTimeSteps(const TimeSteps& steps, std::int64_t width, const float* x, float* y) {
  for (std::size_t i = 0; i < steps.row.size(); ++i)
    std::copy_n(x + std::int64_t(i) * width, width, y + steps.row[i] * width);
}

void ToBatchOrder(const TimeSteps& steps, std::int64_t width, const float* x, float* y) {
  for (std::size_t i = 0; i < steps.row.size(); ++i)
    std::copy_n(x + steps.row[i] * width, width, y + std::int64_t(i) * width);
}

// Only the first layer may be bidirectional: a stack above must not wait for the end of time.
LstmStack::LstmStack(const Sizes& sizes, const std::string& prefix, std::uint32_t site,
                     float dropout, ParamLayout& layout)
    : sizes_(sizes), site_(site), dropout_(dropout) {
  const LstmLayer::Sizes first{sizes.in, sizes.hidden, sizes.bidirectional ? 2 : 1};
  layers_.emplace_back(first, prefix, 0, layout);
}

// A layer's input is the output below it next to the context.
void LstmStack::AddUpperLayers(const std::string& prefix, ParamLayout& layout) {
  for (std::int64_t i = 1; i < sizes_.layers; ++i) {
    const LstmLayer::Sizes next{layers_.back().width() + sizes_.context, sizes_.hidden, 1};
    layers_.emplace_back(next, prefix, i, layout);
  }
}

// Without a residual connection the output is the states themselves.
LstmStack::Kept LstmStack::TakeKept(Arena& arena, std::int64_t tokens) const {
  Kept kept;
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    kept.x.push_back(TakeFloats(arena, tokens * layers_[i].in()));
    kept.lstm.push_back(layers_[i].TakeKept(arena, tokens));
    kept.out.push_back(IsResidual(i) ? TakeFloats(arena, tokens * width(i)) : kept.lstm.back().h);
  }
  return kept;
}

// All layers share one scratch, since they run one after the other.
LstmStack::Scratch LstmStack::TakeScratch(Arena& arena, const TokenSizes& sizes) const {
  std::int64_t widest = 0;
  for (const LstmLayer& layer : layers_) widest = std::max({widest, layer.in(), layer.width()});
  Scratch scratch;
  scratch.lstm = layers_[0].TakeScratch(arena, sizes);
  scratch.drop = TakeFloats(arena, kDropScratch);
  scratch.dh = TakeFloats(arena, sizes.tokens * widest);
  scratch.dx = TakeFloats(arena, sizes.tokens * widest);
  return scratch;
}

// Each layer is one site.
void LstmStack::DropInput(const Use& use, std::size_t layer, float* x) const {
  DropTimeSteps(use.batch, use.steps,
                {.site = site_ + std::uint32_t(layer),
                 .rate = dropout_,
                 .width = layers_[layer].in(),
                 .x = x,
                 .scratch = use.scratch.drop});
}

void LstmStack::Run(const Use& use, std::size_t layer) const {
  DropInput(use, layer, use.kept.x[layer]);
  layers_[layer].Forward(
      {use.params, use.steps, use.kept.x[layer], use.kept.lstm[layer], use.scratch.lstm});
}

void LstmStack::ForwardFirst(const Use& use) const { Run(use, 0); }

// Per layer: 1. input next to the context; 2. states; 3. the sum with the layer below.
void LstmStack::ForwardUpper(const Use& use) const {
  const std::int64_t tokens = use.steps.tokens(), context = sizes_.context;
  for (std::size_t i = 1; i < layers_.size(); ++i) {
    const std::int64_t below = width(i - 1), in = layers_[i].in();
    for (std::int64_t t = 0; t < tokens; ++t) {
      std::copy_n(use.kept.out[i - 1] + t * below, below, use.kept.x[i] + t * in);
      if (context > 0)
        std::copy_n(use.context + t * context, context, use.kept.x[i] + t * in + below);
    }
    Run(use, i);
    if (!IsResidual(i)) continue;
    std::copy_n(use.kept.lstm[i].h, tokens * width(i), use.kept.out[i]);
    AddInto(tokens * width(i), use.kept.out[i - 1], use.kept.out[i]);
  }
}

// Mirrors ForwardUpper. The gradient of a residual output also belongs to the layer below.
void LstmStack::BackwardUpper(const Use& use, float* dout, float* dcontext) const {
  const std::int64_t tokens = use.steps.tokens(), context = sizes_.context;
  if (context > 0) std::fill_n(dcontext, tokens * context, 0.0f);
  for (std::size_t i = layers_.size(); i-- > 1;) {
    const std::int64_t below = width(i - 1), in = layers_[i].in();
    float *const dh = use.scratch.dh, *const dx = use.scratch.dx;
    std::copy_n(dout, tokens * width(i), dh);
    layers_[i].Backward({use.params, use.steps, use.kept.x[i], use.kept.lstm[i], use.scratch.lstm},
                        dh, dx);
    DropInput(use, i, dx);
    // A layer below of another width gets no residual gradient.
    if (!IsResidual(i)) std::fill_n(dout, tokens * below, 0.0f);
    for (std::int64_t t = 0; t < tokens; ++t) {
      AddInto(below, dx + t * in, dout + t * below);
      if (context > 0) AddInto(context, dx + t * in + below, dcontext + t * context);
    }
  }
}

// The gradient before dropout is that after it times the same factors.
void LstmStack::BackwardFirst(const Use& use, float* dout, float* dx) const {
  layers_[0].Backward({use.params, use.steps, use.kept.x[0], use.kept.lstm[0], use.scratch.lstm},
                      dout, dx);
  DropInput(use, 0, dx);
}

}  // namespace troop
