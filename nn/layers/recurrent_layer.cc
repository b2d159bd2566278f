// Implements LSTM and GRU of reinforcement learning networks, whose state lives outside of the
// layer.
#include <algorithm>

#include "kernels/elementwise/cast.h"
#include "kernels/recurrent/gru_cell.h"
#include "kernels/recurrent/lstm_cell.h"
#include "nn/layers/layers.h"
#include "nn/layers/time_steps.h"
#include "nn/transformer/transformer_parts.h"

namespace troop {
namespace {

// Common part of the layers: parameters, order of the rows, states. Rows are computed in time-major
// order (TimeSteps), since all sequences of a step share a product.
class RecurrentModule : public Module {
 public:
  std::span<const ParamSpec> params() const override { return params_; }

  // The number of sequences is unknown here: at most one per row.
  Result<Plan> MakePlan(std::span<const TensorSpec> in) const override {
    TROOP_RETURN_IF_ERROR(CheckInput(in, in_, "recurrent layer"));
    const std::int64_t rows = in[0].shape[0];
    return Plan{
        .out = {{DType::kF32, {rows, units_}}},
        .cache_bytes = BytesTaken([&](Arena& arena) { TakeKept(arena, rows); }),
        .workspace_bytes = BytesTaken([&](Arena& arena) { TakeScratch(arena, rows, rows); }),
        .cache_begins_with_out = false};
  }

  std::unique_ptr<Packed> MakePacked(Precision precision) const override {
    return std::make_unique<ComputePacked>(ActivationDType(precision));
  }
  void Pack(std::span<const float>, Packed*) const override {}

  void Forward(const StepContext& context, std::span<const ConstTensor> in,
               std::span<const Tensor> out, Cache cache) const override {
    const Params params = ParamsOf(context);
    const Sequences& sequences = SequencesOf(context, in[0]);
    Arena workspace(context.workspace), kept_memory(cache);
    const Scratch scratch = TakeScratch(workspace, in[0].dim(0), in[0].dim(0));
    const Kept kept = cache.empty() ? scratch.kept : TakeKept(kept_memory, in[0].dim(0));
    const Batch batch = MakeBatch(sequences, in[0], scratch);
    Run(params, batch, kept, scratch);
    ToRows(batch, kept.h, out[0], scratch.wide);
    if (!sequences.state_out.empty()) TakeStates(sequences, batch, kept);
  }

  // Steps: 1. through time, from the last step back; 2. weights; 3. inputs.
  void Backward(const StepContext& context, std::span<const ConstTensor> in,
                std::span<const ConstTensor> dout, Cache cache,
                std::span<const Tensor> din) const override {
    Params params = ParamsOf(context);
    const Sequences& sequences = SequencesOf(context, in[0]);
    Arena workspace(context.workspace), kept_memory(cache);
    const Scratch scratch = TakeScratch(workspace, in[0].dim(0), in[0].dim(0));
    const Kept kept = TakeKept(kept_memory, in[0].dim(0));
    const Batch batch = MakeBatch(sequences, in[0], scratch);
    ToSteps(batch, dout[0], scratch.dh, scratch.wide);
    RunBack(params, batch, kept, scratch);
    if (params.gradient != nullptr) {
      if (!context.accumulate) ClearGradient(params_, context.gradient);
      AddGradient(params, batch, kept, scratch);
    }
    if (din.empty() || din[0].empty()) return;
    float* const dx = scratch.x;  // x is not used any more
    params.MatMul({.m = batch.steps.tokens(), .n = in_, .k = gates_ * units_}, scratch.ds,
                  params.value + weight_ih_, 0, dx);
    ToRows(batch, dx, din[0], scratch.wide);
  }

 protected:
  // gates: blocks of `units` rows in the weights. states: 2 for h and c, 1 for h alone.
  RecurrentModule(const RecurrentOptions& options, std::int64_t gates, std::int64_t states)
      : in_(options.in),
        units_(options.units),
        gates_(gates),
        states_(states),
        column_(options.state_column) {
    ParamLayout layout(0);
    // PyTorch initializes all parameters of these layers with the fan-in of the state.
    weight_ih_ = layout.Uniform("weight_ih", {gates_ * units_, in_}, units_);
    weight_hh_ = layout.Uniform("weight_hh", {gates_ * units_, units_}, units_);
    bias_ih_ = layout.Uniform("bias_ih", {gates_ * units_}, units_);
    bias_hh_ = layout.Uniform("bias_hh", {gates_ * units_}, units_);
    params_ = std::move(layout).Take();
  }

  // Activations that Forward keeps for Backward, in time-major order.
  struct Kept {
    // [T, 4 units], [T, units] twice; a GRU has no c.
    float *gates = nullptr, *c = nullptr, *h = nullptr;
  };
  Kept TakeKept(Arena& arena, std::int64_t rows) const {
    Kept kept;
    kept.gates = TakeFloats(arena, 4 * rows * units_);
    if (states_ == 2) kept.c = TakeFloats(arena, rows * units_);
    kept.h = TakeFloats(arena, rows * units_);
    return kept;
  }
  struct Scratch {
    Kept kept;  // without a cache
    TimeSteps steps;
    std::span<std::int32_t> starts;       // [N + 1]
    float *x = nullptr, *bias = nullptr;  // [T, in], [gates units]
    float *h = nullptr, *c = nullptr;     // [N, units]: states in the order of `steps`
    // [T, units], [N, units], [T, gates units]. ds: gradient of the gates' sums.
    float *dh = nullptr, *dc = nullptr, *ds = nullptr;
    float* du = nullptr;      // [T, gates units]: that of the recurrent sums, where it differs
    float* before = nullptr;  // [T, units]: h of the previous step
    float* wide = nullptr;    // [T, max(in, units)]: a tensor as f32
  };
  Scratch TakeScratch(Arena& arena, std::int64_t rows, std::int64_t sequences) const {
    Scratch scratch;
    scratch.kept = TakeKept(arena, rows);
    scratch.steps = TakeTimeSteps(arena, rows, sequences);
    scratch.starts = TakeInts(arena, sequences + 1);
    scratch.x = TakeFloats(arena, rows * in_);
    scratch.bias = TakeFloats(arena, gates_ * units_);
    scratch.h = TakeFloats(arena, sequences * units_);
    scratch.c = TakeFloats(arena, sequences * units_);
    scratch.dh = TakeFloats(arena, rows * units_);
    scratch.dc = TakeFloats(arena, sequences * units_);
    scratch.ds = TakeFloats(arena, gates_ * rows * units_);
    scratch.du = states_ == 1 ? TakeFloats(arena, gates_ * rows * units_) : scratch.ds;
    scratch.before = TakeFloats(arena, rows * units_);
    scratch.wide = TakeFloats(arena, rows * std::max(in_, units_));
    return scratch;
  }

  // Inputs and first states of a batch in time-major order.
  struct Batch {
    TimeSteps steps;
    const float *x = nullptr, *h = nullptr, *c = nullptr;
    // The state before step t of its sequences: that of the step before, or the given one.
    const float* Before(std::int64_t t, const float* all, const float* first,
                        std::int64_t units) const {
      return t == 0 ? first : all + steps.begin(t - 1) * units;
    }
  };

  // The sequences of the call, after a check: the rows of another number would be read beyond
  // their end, and states of another width would be those of another layer.
  const Sequences& SequencesOf(const StepContext& context, const ConstTensor& in) const {
    TROOP_CHECK(context.sequences != nullptr, "a recurrent layer without sequences");
    const Sequences& sequences = *context.sequences;
    std::int64_t rows = 0;
    for (const std::int32_t length : sequences.length) {
      TROOP_CHECK(length > 0, "a sequence of {} steps", length);
      rows += length;
    }
    TROOP_CHECK(rows == in.dim(0), "sequences of {} rows for a batch of {}", rows, in.dim(0));
    const std::size_t states = sequences.length.size() * std::size_t(sequences.width);
    TROOP_CHECK(column_ + states_ * units_ <= sequences.width && sequences.state.size() == states &&
                    (sequences.state_out.empty() || sequences.state_out.size() == states),
                "recurrent states of {} columns do not fit", sequences.width);
    return sequences;
  }

  // Fills the scratch memory with the batch: sequence order, inputs by time step, and the given
  // states in the order of the sequences.
  Batch MakeBatch(const Sequences& sequences, const ConstTensor& in, const Scratch& scratch) const {
    Batch batch{scratch.steps, scratch.x, scratch.h, scratch.c};
    const std::size_t count = sequences.length.size();
    batch.steps.order = batch.steps.order.first(count);
    std::int32_t start = 0;
    for (std::size_t s = 0; s < count; ++s) {
      scratch.starts[s] = start;
      start += sequences.length[s];
    }
    scratch.starts[count] = start;
    FillTimeSteps(scratch.starts.first(count + 1), &batch.steps);
    ToSteps(batch, in, scratch.x, scratch.wide);
    for (std::size_t r = 0; r < count; ++r) {
      const auto s = std::size_t(batch.steps.order[r]);
      const float* const state =
          sequences.state.data() + s * std::size_t(sequences.width) + column_;
      std::copy_n(state, units_, scratch.h + std::int64_t(r) * units_);
      if (states_ == 2) std::copy_n(state + units_, units_, scratch.c + std::int64_t(r) * units_);
    }
    return batch;
  }

  // Copies the rows of a tensor [T, n] into time-major order. wide: [T, n], for other precisions.
  static void ToSteps(const Batch& batch, const ConstTensor& from, float* to, float* wide) {
    const std::int64_t n = from.elements() / from.dim(0);
    const auto* x = reinterpret_cast<const float*>(from.bytes().data());
    if (from.dtype() != DType::kF32) {
      ConvertScaled(
          {.n = from.elements(), .x = from.bytes().data(), .x_dtype = from.dtype(), .y = wide});
      x = wide;
    }
    for (std::size_t i = 0; i < batch.steps.row.size(); ++i)
      std::copy_n(x + std::int64_t(i) * n, n, to + batch.steps.row[i] * n);
  }
  // The reverse; a result in bf16 is rounded once, from f32.
  static void ToRows(const Batch& batch, const float* from, const Tensor& to, float* wide) {
    const std::int64_t n = to.elements() / to.dim(0);
    const bool f32 = to.dtype() == DType::kF32;
    auto* const y = f32 ? reinterpret_cast<float*>(to.bytes().data()) : wide;
    for (std::size_t i = 0; i < batch.steps.row.size(); ++i)
      std::copy_n(from + batch.steps.row[i] * n, n, y + std::int64_t(i) * n);
    if (!f32)
      ConvertScaled({.n = to.elements(), .x = y, .y = to.bytes().data(), .y_dtype = to.dtype()});
  }

  // The steps of the batch in order, and in reverse order with the gradients of the sums.
  virtual void Run(const Params& params, const Batch& batch, const Kept& kept,
                   const Scratch& scratch) const = 0;
  virtual void RunBack(const Params& params, const Batch& batch, const Kept& kept,
                       const Scratch& scratch) const = 0;

  // x W^T of all rows, [T, gates units]: one product, since it does not depend on the states.
  // MatMul takes the precision of the packed parameters.
  void Project(const Params& params, const Batch& batch, float* out) const {
    params.MatMul({.m = batch.steps.tokens(), .n = gates_ * units_, .k = in_, .transpose_b = true},
                  batch.x, params.value + weight_ih_, 0, out);
  }
  // h U^T of the sequences of step t; `before` is their state h before it. beta: as in MatMul.
  void ProjectState(const Params& params, std::int64_t rows, const float* before, float beta,
                    float* out) const {
    params.MatMul({.m = rows, .n = gates_ * units_, .k = units_, .transpose_b = true}, before,
                  params.value + weight_hh_, beta, out);
  }
  // Adds the gradient of the recurrent sums of step t > 0 to dh of the step before.
  void AddGradientOfState(const Params& params, const Batch& batch, std::int64_t t,
                          const Scratch& scratch) const {
    params.MatMul({.m = batch.steps.rows(t), .n = units_, .k = gates_ * units_},
                  scratch.du + batch.steps.begin(t) * gates_ * units_, params.value + weight_hh_, 1,
                  scratch.dh + batch.steps.begin(t - 1) * units_);
  }

  // A sequence's last step is at the same position within the step as its first.
  void TakeStates(const Sequences& sequences, const Batch& batch, const Kept& kept) const {
    for (std::size_t r = 0; r < batch.steps.order.size(); ++r) {
      const auto s = std::size_t(batch.steps.order[r]);
      const std::int64_t row = batch.steps.begin(sequences.length[s] - 1) + std::int64_t(r);
      float* const to = sequences.state_out.data() + s * std::size_t(sequences.width) + column_;
      std::copy_n(kept.h + row * units_, units_, to);
      if (states_ == 2) std::copy_n(kept.c + row * units_, units_, to + units_);
    }
  }

  // Products over all rows.
  void AddGradient(const Params& params, const Batch& batch, const Kept& kept,
                   const Scratch& scratch) const {
    const std::int64_t n = units_, rows = batch.steps.tokens(), sums = gates_ * units_;
    for (std::int64_t t = 0; t < batch.steps.steps; ++t)
      std::copy_n(batch.Before(t, kept.h, batch.h, n), batch.steps.rows(t) * n,
                  scratch.before + batch.steps.begin(t) * n);
    params.MatMul({.m = sums, .n = in_, .k = rows, .transpose_a = true}, scratch.ds, batch.x, 1,
                  params.gradient + weight_ih_);
    params.MatMul({.m = sums, .n = n, .k = rows, .transpose_a = true}, scratch.du, scratch.before,
                  1, params.gradient + weight_hh_);
    SumOfRows(rows, sums, scratch.ds, params.gradient + bias_ih_);
    SumOfRows(rows, sums, scratch.du, params.gradient + bias_hh_);
  }

  const std::int64_t in_, units_, gates_, states_, column_;
  std::int64_t weight_ih_ = 0, weight_hh_ = 0, bias_ih_ = 0, bias_hh_ = 0;  // offsets
  std::vector<ParamSpec> params_;
};

class LstmModule final : public RecurrentModule {
 public:
  explicit LstmModule(const RecurrentOptions& options) : RecurrentModule(options, 4, 2) {}

 private:
  static const LstmKernels& Kernels() {
    static const LstmKernels& kernels = LstmKernelsFor(BestCpuLevel());
    return kernels;
  }

  // The recurrent products are added to those of the inputs in place; the cells turn the sums into
  // the gates that Backward needs.
  void Run(const Params& params, const Batch& batch, const Kept& kept,
           const Scratch& scratch) const override {
    const std::int64_t n = units_;
    // PyTorch has two biases; only their sum matters.
    std::copy_n(params.value + bias_ih_, 4 * n, scratch.bias);
    AddInto(4 * n, params.value + bias_hh_, scratch.bias);
    Project(params, batch, kept.gates);
    for (std::int64_t t = 0; t < batch.steps.steps; ++t) {
      const std::int64_t row = batch.steps.begin(t), rows = batch.steps.rows(t);
      ProjectState(params, rows, batch.Before(t, kept.h, batch.h, n), 1, kept.gates + row * 4 * n);
      Kernels().forward({rows, rows, n, n}, scratch.bias, batch.Before(t, kept.c, batch.c, n),
                        kept.gates + row * 4 * n, kept.c + row * n, kept.h + row * n);
    }
  }

  // dc passes from step to step: sequences that end at step t are the last rows there, and their dc
  // is still 0.
  void RunBack(const Params& params, const Batch& batch, const Kept& kept,
               const Scratch& scratch) const override {
    const std::int64_t n = units_;
    std::fill_n(scratch.dc, batch.steps.sequences() * n, 0.0f);
    for (std::int64_t t = batch.steps.steps; t-- > 0;) {
      const std::int64_t row = batch.steps.begin(t), rows = batch.steps.rows(t);
      Kernels().backward({rows, rows, n, n}, batch.Before(t, kept.c, batch.c, n),
                         kept.gates + row * 4 * n, kept.c + row * n, scratch.dh + row * n,
                         scratch.dc, scratch.ds + row * 4 * n);
      if (t > 0) AddGradientOfState(params, batch, t, scratch);
    }
  }
};

class GruModule final : public RecurrentModule {
 public:
  explicit GruModule(const RecurrentOptions& options) : RecurrentModule(options, 3, 1) {}

 private:
  static const GruKernels& Kernels() {
    static const GruKernels& kernels = GruKernelsFor(BestCpuLevel());
    return kernels;
  }

  // Sums are kept apart, since r applies to the recurrent one only; their memory is that of their
  // gradients.
  void Run(const Params& params, const Batch& batch, const Kept& kept,
           const Scratch& scratch) const override {
    const std::int64_t n = units_;
    Project(params, batch, scratch.ds);
    for (std::int64_t t = 0; t < batch.steps.steps; ++t) {
      const std::int64_t row = batch.steps.begin(t), rows = batch.steps.rows(t);
      const float* const before = batch.Before(t, kept.h, batch.h, n);
      ProjectState(params, rows, before, 0, scratch.du);
      Kernels().forward({.rows = rows,
                         .hidden = n,
                         .bias_x = params.value + bias_ih_,
                         .bias_u = params.value + bias_hh_,
                         .x = scratch.ds + row * 3 * n,
                         .u = scratch.du,
                         .h_before = before,
                         .gates = kept.gates + row * 4 * n,
                         .h = kept.h + row * n});
    }
  }

  // The gradient of the given states is not used.
  void RunBack(const Params& params, const Batch& batch, const Kept& kept,
               const Scratch& scratch) const override {
    const std::int64_t n = units_;
    std::fill_n(scratch.dc, batch.steps.sequences() * n, 0.0f);
    for (std::int64_t t = batch.steps.steps; t-- > 0;) {
      const std::int64_t row = batch.steps.begin(t);
      Kernels().backward(
          {.rows = batch.steps.rows(t),
           .hidden = n,
           .gates = kept.gates + row * 4 * n,
           .h_before = batch.Before(t, kept.h, batch.h, n),
           .dh = scratch.dh + row * n,
           .dx = scratch.ds + row * 3 * n,
           .du = scratch.du + row * 3 * n,
           .dh_before = t > 0 ? scratch.dh + batch.steps.begin(t - 1) * n : scratch.dc});
      if (t > 0) AddGradientOfState(params, batch, t, scratch);
    }
  }
};

}  // namespace

std::unique_ptr<Module> MakeLstm(const RecurrentOptions& options) {
  TROOP_CHECK(options.in > 0 && options.units > 0, "lstm {} -> {}", options.in, options.units);
  return std::make_unique<LstmModule>(options);
}

std::unique_ptr<Module> MakeGru(const RecurrentOptions& options) {
  TROOP_CHECK(options.in > 0 && options.units > 0, "gru {} -> {}", options.in, options.units);
  return std::make_unique<GruModule>(options);
}

}  // namespace troop
