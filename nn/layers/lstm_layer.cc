// Implements the bidirectional LSTM layer and the additive attention over time-major sequences.
#include "nn/layers/lstm_layer.h"

#include <algorithm>

#include "kernels/elementwise/cast.h"
#include "kernels/optim/optimizer_step.h"
#include "kernels/recurrent/lstm_cell.h"

namespace troop {
namespace {

// The fastest kernels of this CPU, chosen once.
const LstmKernels& Kernels() {
  static const LstmKernels& kernels = LstmKernelsFor(BestCpuLevel());
  return kernels;
}

void AddScaled(std::int64_t n, float weight, const float* x, float* sum) {
  static const OptimizerKernels& kernels = OptimizerKernelsFor(BestCpuLevel());
  kernels.add_scaled(n, weight, x, sum);
}

// The time steps in the order of one direction.
struct Walk {
  const TimeSteps& steps;
  bool back = false;  // true: from the end of each sequence

  // Time of the i-th step of the direction, and the time before it.
  std::int64_t at(std::int64_t i) const { return back ? steps.steps - 1 - i : i; }
  std::int64_t before(std::int64_t t) const { return back ? t + 1 : t - 1; }
  // Number of sequences in step t that have a previous step; they are its first rows in both.
  // Forward, every sequence of a step t > 0 has one; backward, those that reach step t + 1.
  std::int64_t going(std::int64_t t) const {
    if (!back) return t > 0 ? steps.rows(t) : 0;
    return t + 1 < steps.steps ? steps.rows(t + 1) : 0;
  }
};

}  // namespace

// Element t * width + i of a sequence has the same factor as in batch order.
void DropTimeSteps(const TokenBatch& batch, const TimeSteps& steps, const DropRowsArgs& args) {
  if (batch.dropout.empty() || args.rate == 0) return;
  float* x = args.x;
  for (std::int64_t t = 0; t < steps.steps; ++t) {
    for (std::int64_t r = 0; r < steps.rows(t); ++r, x += args.width) {
      const auto sequence = std::size_t(steps.order[std::size_t(r)]);
      Drop({.site = {batch.dropout[sequence], args.site},
            .rate = args.rate,
            .first = t * args.width,
            .n = args.width,
            .x = x,
            .scratch = args.scratch});
    }
  }
}

LstmLayer::LstmLayer(const Sizes& sizes, const std::string& prefix, std::int64_t index,
                     ParamLayout& layout)
    : sizes_(sizes) {
  const auto [in, hidden, directions] = sizes;
  for (int direction = 0; direction < directions; ++direction) {
    const std::string end = fmt::format("_l{}{}", index, direction == 1 ? "_reverse" : "");
    // PyTorch initializes all LSTM parameters with the fan-in of hidden.
    Direction& d = directions_[direction];
    d.weight_ih = layout.Uniform(prefix + "weight_ih" + end, {4 * hidden, in}, hidden);
    d.weight_hh = layout.Uniform(prefix + "weight_hh" + end, {4 * hidden, hidden}, hidden);
    d.bias_ih = layout.Uniform(prefix + "bias_ih" + end, {4 * hidden}, hidden);
    d.bias_hh = layout.Uniform(prefix + "bias_hh" + end, {4 * hidden}, hidden);
  }
}

// Gates and cells per direction; both directions write their half of h.
LstmLayer::Kept LstmLayer::TakeKept(Arena& arena, std::int64_t tokens) const {
  Kept kept;
  for (int direction = 0; direction < sizes_.directions; ++direction) {
    kept.gates[direction] = TakeFloats(arena, 4 * tokens * sizes_.hidden);
    kept.c[direction] = TakeFloats(arena, tokens * sizes_.hidden);
  }
  kept.h = TakeFloats(arena, tokens * width());
  return kept;
}

LstmLayer::Scratch LstmLayer::TakeScratch(Arena& arena, const TokenSizes& sizes) const {
  Scratch scratch;
  scratch.bias = TakeFloats(arena, 4 * sizes_.hidden);
  scratch.before = TakeFloats(arena, sizes.tokens * sizes_.hidden);
  scratch.dc = TakeFloats(arena, sizes.sequences * sizes_.hidden);
  scratch.ds = TakeFloats(arena, 4 * sizes.tokens * sizes_.hidden);
  return scratch;
}

void LstmLayer::Forward(const Use& use) const {
  for (int direction = 0; direction < sizes_.directions; ++direction) Run(use, direction);
}

// One direction: gates = W x + U h' + b, then c = f c' + i g and h = o tanh c, where c' and h' are
// those of the previous step. W x is a single product over all tokens, U h' one product per step.
void LstmLayer::Run(const Use& use, int direction) const {
  const auto& [params, steps, x, kept, scratch] = use;
  const Direction& mine = directions_[direction];
  const Walk walk{steps, direction == 1};
  const std::int64_t n = sizes_.hidden;
  float* const gates = kept.gates[direction];
  float* const c = kept.c[direction];
  float* const h = kept.h + direction * n;
  // PyTorch has two biases; only their sum matters.
  std::copy_n(params.value + mine.bias_ih, 4 * n, scratch.bias);
  AddInto(4 * n, params.value + mine.bias_hh, scratch.bias);
  params.MatMul({.m = steps.tokens(), .n = 4 * n, .k = sizes_.in, .transpose_b = true}, x,
                params.value + mine.weight_ih, 0, gates);
  // Sequences without a previous step begin with h = c = 0.
  for (std::int64_t i = 0; i < steps.steps; ++i) {
    const std::int64_t t = walk.at(i), going = walk.going(t), row = steps.begin(t);
    const std::int64_t before = going > 0 ? steps.begin(walk.before(t)) : 0;
    if (going > 0) {
      params.MatMul({.m = going, .n = 4 * n, .k = n, .transpose_b = true, .lda = width()},
                    h + before * width(), params.value + mine.weight_hh, 1, gates + row * 4 * n);
    }
    Kernels().forward({steps.rows(t), going, n, width()}, scratch.bias, c + before * n,
                      gates + row * 4 * n, c + row * n, h + row * width());
  }
}

// Both directions accumulate into dx, the first one overwrites it.
void LstmLayer::Backward(const Use& use, float* dh, float* dx) const {
  const Params& params = use.params;
  for (int direction = 0; direction < sizes_.directions; ++direction) {
    RunBack(use, direction, dh);
    AddGradient(use, direction);
    params.MatMul({.m = use.steps.tokens(), .n = sizes_.in, .k = 4 * sizes_.hidden}, use.scratch.ds,
                  params.value + directions_[direction].weight_ih, direction == 0 ? 0 : 1, dx);
  }
}

// Backpropagation through time: the steps in reverse order; dh of the previous step accumulates in
// place.
void LstmLayer::RunBack(const Use& use, int direction, float* dh) const {
  const auto& [params, steps, x, kept, scratch] = use;
  const Walk walk{steps, direction == 1};
  const std::int64_t n = sizes_.hidden;
  const float* const c = kept.c[direction];
  dh += direction * n;
  // dc of the last step of each sequence is 0.
  std::fill_n(scratch.dc, steps.sequences() * n, 0.0f);
  for (std::int64_t i = steps.steps; i-- > 0;) {
    const std::int64_t t = walk.at(i), going = walk.going(t), row = steps.begin(t);
    const std::int64_t before = going > 0 ? steps.begin(walk.before(t)) : 0;
    Kernels().backward({steps.rows(t), going, n, width()}, c + before * n,
                       kept.gates[direction] + row * 4 * n, c + row * n, dh + row * width(),
                       scratch.dc, scratch.ds + row * 4 * n);
    if (going == 0) continue;
    // dh' += ds · U.
    params.MatMul({.m = going, .n = n, .k = 4 * n, .ldc = width()}, scratch.ds + row * 4 * n,
                  params.value + directions_[direction].weight_hh, 1, dh + before * width());
  }
}

// Weight gradients as products over all tokens. Both biases have the same gradient.
void LstmLayer::AddGradient(const Use& use, int direction) const {
  const auto& [params, steps, x, kept, scratch] = use;
  const Direction& mine = directions_[direction];
  const Walk walk{steps, direction == 1};
  const std::int64_t n = sizes_.hidden, tokens = steps.tokens();
  const float* const h = kept.h + direction * n;
  for (std::int64_t t = 0; t < steps.steps; ++t) {  // h of the previous step, 0 at the start
    const std::int64_t going = walk.going(t);
    float* to = scratch.before + steps.begin(t) * n;
    for (std::int64_t r = 0; r < going; ++r, to += n)
      std::copy_n(h + (steps.begin(walk.before(t)) + r) * width(), n, to);
    std::fill_n(to, (steps.rows(t) - going) * n, 0.0f);
  }
  params.MatMul({.m = 4 * n, .n = sizes_.in, .k = tokens, .transpose_a = true}, scratch.ds, x, 1,
                params.gradient + mine.weight_ih);
  params.MatMul({.m = 4 * n, .n = n, .k = tokens, .transpose_a = true}, scratch.ds, scratch.before,
                1, params.gradient + mine.weight_hh);
  std::fill_n(scratch.bias, 4 * n, 0.0f);
  SumOfRows(tokens, 4 * n, scratch.ds, scratch.bias);
  AddInto(4 * n, scratch.bias, params.gradient + mine.bias_ih);
  AddInto(4 * n, scratch.bias, params.gradient + mine.bias_hh);
}

AttentionPool::AttentionPool(std::int64_t width, std::int64_t units, ParamLayout& layout)
    : map_(layout, "attention", width, units), vector_(layout.Weight("score.weight", {1, units})) {}

AttentionPool::Kept AttentionPool::TakeKept(Arena& arena, std::int64_t tokens) const {
  Kept kept;
  kept.u = TakeFloats(arena, tokens * map_.out);
  kept.share = TakeFloats(arena, tokens);
  kept.weight = TakeFloats(arena, tokens);
  return kept;
}

AttentionPool::Scratch AttentionPool::TakeScratch(Arena& arena, const TokenSizes& sizes) const {
  Scratch scratch;
  scratch.du = TakeFloats(arena, sizes.tokens * map_.out);
  scratch.dweight = TakeFloats(arena, sizes.tokens);
  scratch.dshare = TakeFloats(arena, sizes.tokens);
  scratch.dout = TakeFloats(arena, sizes.sequences * map_.in);
  return scratch;
}

// Scores are computed by rows, normalized per sequence in batch order, and copied back to rows.
void AttentionPool::Forward(const Use& use, float* out) const {
  const auto& [params, batch, steps, input, kept] = use;
  const float* h = input;
  const std::int64_t tokens = steps.tokens(), width = map_.in;
  // u = tanh(W h + b), score = v · u.
  map_.Forward(params, tokens, h, kept.u);
  ActivationForward(Activation::kTanh, tokens * map_.out, kept.u, kept.u, DType::kF32);
  // Scores, then weights: in f32, like every sum outside of the large products.
  MatMul({.m = tokens, .n = 1, .k = map_.out}, kept.u, params.value + vector_, 0, kept.weight);
  for (std::size_t i = 0; i < steps.row.size(); ++i) kept.share[i] = kept.weight[steps.row[i]];
  // The softmax over the tokens of each sequence.
  static const TransformerKernels& kernels = TransformerKernelsFor(BestCpuLevel());
  for (std::size_t s = 0; s + 1 < batch.starts.size(); ++s) {
    float lse = 0;
    kernels.softmax(1, batch.starts[s + 1] - batch.starts[s], 1, kept.share + batch.starts[s], &lse,
                    1);
  }
  for (std::size_t i = 0; i < steps.row.size(); ++i) kept.weight[steps.row[i]] = kept.share[i];
  // The weighted sum per sequence.
  std::fill_n(out, steps.sequences() * width, 0.0f);
  const float* weight = kept.weight;
  for (std::int64_t t = 0; t < steps.steps; ++t) {
    for (std::int64_t r = 0; r < steps.rows(t); ++r, h += width)
      AddScaled(width, *weight++, h, out + steps.order[std::size_t(r)] * width);
  }
}

// Steps: 1. gradients of the weights and of h; 2. through the softmax; 3. through score and tanh;
// 4. through the linear map.
void AttentionPool::Backward(const Use& use, const float* dout, const Scratch& scratch,
                             float* dh) const {
  const auto& [params, batch, steps, h, kept] = use;
  const std::int64_t tokens = steps.tokens(), width = map_.in, units = map_.out;
  // dout in the order of TimeSteps, so that each step uses its first rows.
  for (std::int64_t r = 0; r < steps.sequences(); ++r)
    std::copy_n(dout + steps.order[std::size_t(r)] * width, width, scratch.dout + r * width);
  for (std::int64_t t = 0; t < steps.steps; ++t) {
    const std::int64_t row = steps.begin(t);
    Kernels().weigh_backward(steps.rows(t), width, kept.weight + row, h + row * width, scratch.dout,
                             scratch.dweight + row, dh + row * width);
  }
  for (std::size_t i = 0; i < steps.row.size(); ++i)
    scratch.dshare[i] = scratch.dweight[steps.row[i]];
  static const TransformerKernels& kernels = TransformerKernelsFor(BestCpuLevel());
  for (std::size_t s = 0; s + 1 < batch.starts.size(); ++s) {
    const std::int32_t first = batch.starts[s], n = batch.starts[s + 1] - first;
    float delta = 0;
    for (std::int32_t i = first; i < first + n; ++i) delta += kept.share[i] * scratch.dshare[i];
    kernels.softmax_backward(1, n, 1, kept.share + first, scratch.dshare + first, &delta,
                             scratch.dshare + first);
  }
  for (std::size_t i = 0; i < steps.row.size(); ++i)
    scratch.dweight[steps.row[i]] = scratch.dshare[i];
  // The score is a product with the vector v: dv and du.
  MatMul({.m = 1, .n = units, .k = tokens}, scratch.dweight, kept.u, 1, params.gradient + vector_);
  MatMul({.m = tokens, .n = units, .k = 1}, scratch.dweight, params.value + vector_, 0, scratch.du);
  // Through tanh and the linear map, whose input gradient adds to dh.
  ActivationBackward({.activation = Activation::kTanh,
                      .n = tokens * units,
                      .y = kept.u,
                      .dy = scratch.du,
                      .dz = scratch.du});
  map_.Backward(params, {.rows = tokens, .x = h, .dy = scratch.du, .beta = 1, .dx = dh});
}

}  // namespace troop
