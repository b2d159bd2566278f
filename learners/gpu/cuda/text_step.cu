// Implements the training step of a text model on a GPU.

#include "learners/gpu/cuda/text_step.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>
#include <vector>

#include "kernels/cuda/loss/text_loss.h"
#include "kernels/cuda/ops/activation.h"
#include "kernels/cuda/ops/cross_entropy.h"
#include "kernels/cuda/runtime/launch.h"
#include "learners/gpu/cuda/optimizer_step_device.h"
#include "learners/gpu/cuda/packed_tokens.h"

namespace troop::cuda {
namespace {

constexpr int kThreads = 256;

// Inputs and results of a step in device memory.
struct StepState {
  OptimizerState rule;
  TextStepReport report;
  double squares = 0;
};

// Results of the rows of a micro-batch.
struct RowResults {
  const float *loss, *weight;  // [rows]; weight nullptr: all 1
  const std::int32_t* right;   // [rows]
};

// Accumulates the losses and correct predictions of a micro-batch. One block; the summation order
// depends on `rows` alone, so the result is deterministic.
TROOP_KERNEL void CountKernel(std::int64_t rows, RowResults of, StepState* s) {
  TROOP_SHARED(double, sums, kThreads);
  TROOP_SHARED(std::int64_t, counts, kThreads);
  double sum = 0;
  std::int64_t count = 0;
  for (std::int64_t i = threadIdx.x; i < rows; i += kThreads) {
    const double weight = of.weight != nullptr ? of.weight[i] : 1;
    sum += weight * double(of.loss[i]), count += of.right[i];
  }
  sums[threadIdx.x] = sum, counts[threadIdx.x] = count;
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (int i = 1; i < kThreads; ++i) sum += sums[i], count += counts[i];
  s->report.loss += sum;
  s->report.right += count;
}

// agreed: an all-reduced gradient is applied even if this learner's part failed.
TROOP_KERNEL void JudgeKernel(bool agreed, StepState* s) {
  const double norm = sqrt(s->squares);
  s->rule.go = isfinite(norm) && (agreed || isfinite(s->report.loss)) ? 1 : 0;
  s->report.gradient_norm = norm;
  s->report.finite = s->rule.go;
}

// Runs on the device, where the norm and the decision are.
TROOP_KERNEL void PrepareKernel(OptimizerRule rule, StepState* s) {
  NextStep(rule, s->report.gradient_norm, &s->rule);
}

TROOP_KERNEL void ClearReportKernel(StepState* s) { s->report = TextStepReport(); }

}  // namespace

// Device memory and buffers of a step.
struct TextStep::Impl {
  // Allocation failures are recorded in the device; every later call checks it.
  Impl(Device& the_device, const TextStepOptions& o)
      : device(the_device),
        options(o),
        plans(the_device),
        model(the_device, plans, o.model, o.precision),
        packer(o.model) {
    const std::int64_t p = o.model.parameters;
    value = DeviceArray<float>(device, p, "parameters");
    // Evaluation needs the weights only.
    if (o.trains) gradient = DeviceArray<float>(device, p, "gradients of parameters");
    if (o.trains && o.rule.has_m()) m = DeviceArray<float>(device, p, "the optimizer's state");
    if (o.trains && o.rule.has_v()) v = DeviceArray<float>(device, p, "the optimizer's state");
    if (o.precision == Precision::kBF16)
      value_bf16 = DeviceArray<BF16>(device, p, "parameters in bf16");
    spared = DeviceArray<std::uint8_t>(device, std::int64_t(o.model.spared.size()),
                                       "weight-decay flags");
    // Replicated parameters count once in the norm: on rank 0.
    if (o.model.place.rank > 0)
      left_out = DeviceArray<std::uint8_t>(device, spared.size(), "gradient-norm flags");
    partial = DeviceArray<double>(device, kSumSquaresParts, "partial sums");
    state = DeviceArray<StepState>(device, 1, "the state of a step");
    report = PinnedArray<StepState>(device, 1, "a report");
    rate = PinnedArray<double>(device, 1, "a learning rate");
    for (auto& event : copied) event = std::make_unique<Event>(device);
    rate_done = std::make_unique<Event>(device);
  }

  TransformerWeights Weights() const { return {value.data(), value_bf16.data()}; }

  // Expected outputs of a batch on the device.
  struct Expected {
    const std::int32_t* label = nullptr;  // [rows]
    const float* target = nullptr;        // [rows, classes]
    const float* weight = nullptr;        // [rows]; nullptr: all 1
  };

  // Packs a batch and enqueues its copy; the result is valid at that point of the stream.
  DeviceTokens Put(Stream& stream, const HostTokens& batch, Expected* expected) {
    // Two pinned buffers alternate, so that packing overlaps the previous copy.
    const std::size_t slot = std::size_t(puts++ % 2);
    packer.Pack(batch, &packed);
    Settle();
    copied[slot]->Synchronize();  // of the batch before the previous one
    const auto n = std::int64_t(packed.words.size());
    if (pinned[slot].size() < n)
      pinned[slot] = PinnedArray<std::uint32_t>(device, n + n / 4, "a batch");
    if (on_device.size() < n) {
      stream.Synchronize();
      on_device = DeviceArray<std::uint32_t>(device, n + n / 4, "a batch");
    }
    if (!device.ok()) return {};
    std::ranges::copy(packed.words, pinned[slot].data());
    stream.CopyToDevice(on_device.data(), pinned[slot].data(),
                        packed.words.size() * sizeof(std::uint32_t));
    copied[slot]->Record(stream);
    const auto at = [&](std::int64_t offset) {
      return reinterpret_cast<const std::int32_t*>(on_device.data() + offset);
    };
    expected->label = at(packed.label);
    expected->target = reinterpret_cast<const float*>(at(packed.target));
    if (packed.weighs) expected->weight = reinterpret_cast<const float*>(at(packed.weight));
    DeviceTokens tokens;
    tokens.sequences = {at(packed.starts), packed.sequences, packed.tokens, packed.longest};
    tokens.id = at(packed.id);
    if (packed.types > 0) tokens.type = at(packed.type);
    tokens.types = packed.types;
    const auto groups = [&](const PackedTokens::Groups& of) {
      return WordTokens{of.count, at(of.row), at(of.first), at(of.order)};
    };
    tokens.words = groups(packed.ids);
    if (packed.placed) {
      tokens.place = at(packed.place);
      tokens.places = groups(packed.by_place);
    }
    if (packed.drops) tokens.dropout = reinterpret_cast<const DropoutKey*>(at(packed.keys));
    tokens.rows = packed.rows;
    tokens.chosen = at(packed.chosen);
    tokens.scattered = packed.scattered;
    return tokens;
  }

  // Computes the logits and losses; with_gradient replaces the logits by the gradient of scale · Σ
  // loss.
  DeviceTokens Losses(Stream& stream, const HostTokens& batch, float scale, bool with_gradient) {
    Expected expected;
    const DeviceTokens tokens = Put(stream, batch, &expected);
    const std::int64_t rows = tokens.rows, n = rows * model.stride();
    // Row buffers grow by a quarter more than needed.
    if (rows > loss.size()) {
      stream.Synchronize();
      loss = DeviceArray<float>(device, rows + rows / 4, "losses");
      right = DeviceArray<std::int32_t>(device, rows + rows / 4, "correct predictions");
      logits = DeviceArray<std::byte>(device, (n + n / 4) * ElementBytes(model.output_dtype()),
                                      "logits");
      if (Slices()) sums = DeviceArray<float>(device, 4 * loss.size(), "softmax sums");
    }
    if (!device.ok()) return tokens;
    model.Forward(stream, {Weights(), tokens}, with_gradient, logits.data());
    LossOf(stream, rows, expected, scale, with_gradient);
    Launch(stream, "Count", {dim3(1), dim3(kThreads)}, CountKernel, rows,
           RowResults{loss.data(), expected.weight, right.data()}, state.data());
    return tokens;
  }

  // The loss of the problem, from the logits, which become their gradient.
  void LossOf(Stream& stream, std::int64_t rows, const Expected& expected, float scale,
              bool with_gradient) {
    if (!options.model.masked() && options.problem != ProblemType::kSingleLabel) {
      auto* const x = reinterpret_cast<float*>(logits.data());  // a classifier's are f32
      const TextLossInput in{rows, model.outputs(), x, expected.target, scale};
      const TextLossResults out{loss.data(), right.data(), with_gradient ? x : nullptr};
      const bool sigmoids = options.problem == ProblemType::kMultiLabel;
      return (sigmoids ? BinaryCrossEntropy : SquaredError)(stream, in, out);
    }
    CrossEntropyOf(stream,
                   {.rows = rows,
                    .n = model.outputs(),
                    .stride = model.stride(),
                    .dtype = model.output_dtype(),
                    .x = logits.data(),
                    .label = expected.label,
                    .scale = scale,
                    .weight = expected.weight,
                    .loss = loss.data(),
                    .right = right.data(),
                    .dx = with_gradient ? logits.data() : nullptr,
                    .first = options.model.masked() ? options.model.word_share().first : 0});
  }
  // True with vocabulary slices: each rank has the logits of some tokens.
  bool Slices() const { return options.model.cut() && options.model.masked(); }
  // Without slices one kernel; with slices three, with all-reduces in between.
  void CrossEntropyOf(Stream& stream, const CrossEntropyArgs& args) {
    if (!Slices()) return CrossEntropy(stream, args);
    const CrossEntropySums of{sums.data(), sums.data() + args.rows, sums.data() + 3 * args.rows};
    // Softmax over all ranks: maximum, then sums of exponentials and target logits.
    BeginSlicedCrossEntropy(stream, args, of);
    peers->Max(stream, of.largest, args.rows);
    ShareSlicedCrossEntropy(stream, args, of);
    peers->Sum(stream, of.sums, DType::kF32, 2 * args.rows);
    EndSlicedCrossEntropy(stream, args, of);
  }

  void Settle() {
    if (peers != nullptr) peers->Settle();
  }
  // Sum of squares, over all ranks with tensor parallelism.
  void SumGradient(Stream& stream) {
    double* const squares = &state.data()->squares;
    SumSquares(stream, {.n = options.model.parameters,
                        .x = gradient.data(),
                        .left_out = left_out.data(),
                        .partial = partial.data(),
                        .sum = squares});
    if (options.model.cut()) peers->Sum(stream, squares, DType::kF64, 1);
  }
  void ClearReport(Stream& stream) {
    Launch(stream, "ClearReport", {dim3(1), dim3(1)}, ClearReportKernel, state.data());
  }
  // Peers settle before the stream is synchronized, since it waits for their operations.
  void FetchState(Stream& stream) {  // into `report`
    stream.CopyToHost(report.data(), state.data(), sizeof(StepState));
    Settle();
    stream.Synchronize();
  }
  TextStepReport TakeReport(Stream& stream) {
    FetchState(stream);
    return device.ok() ? report[0].report : TextStepReport();
  }

  using Part = std::pair<const DeviceArray<float>*, std::span<float> State::*>;
  std::array<Part, 3> Parts() const {
    return {Part{&value, &State::value}, Part{&m, &State::m}, Part{&v, &State::v}};
  }

  Device& device;
  const TextStepOptions options;
  MatMulPlans plans;
  Transformer model;
  TokenPacker packer;
  PackedTokens packed;
  DeviceArray<float> value, gradient, m, v, loss;
  DeviceArray<BF16> value_bf16;
  DeviceArray<std::uint8_t> spared, left_out;
  DeviceArray<std::int32_t> right;
  DeviceArray<float> sums;  // CrossEntropySums with vocabulary slices
  DeviceArray<std::byte> logits;
  DeviceArray<double> partial;
  DeviceArray<StepState> state;
  DeviceArray<std::uint32_t> on_device;
  PinnedArray<std::uint32_t> pinned[2];
  PinnedArray<StepState> report;
  PinnedArray<double> rate;
  std::unique_ptr<Event> copied[2], rate_done;
  std::int64_t puts = 0;
  TensorParallelComm* peers = nullptr;
};

// Parameters with slots, activations, logits with their buffers, and the packed batch.
std::int64_t TextStepBytes(const TextStepOptions& options, std::int64_t tokens, std::int64_t rows) {
  const TransformerSpec& model = options.model;
  const std::int64_t slots = (options.rule.has_m() ? 1 : 0) + (options.rule.has_v() ? 1 : 0);
  std::int64_t parameter = 4 * (2 + slots);
  if (options.precision == Precision::kBF16) parameter += 2;
  tokens = RoundedTokens(tokens);
  if (model.masked()) rows = RoundedTokens(rows);
  const std::int64_t outputs = model.masked() ? model.word_share().count : model.classes;
  const std::int64_t logit = model.masked() ? ElementBytes(ElementType(options.precision)) : 4;
  return model.parameters * parameter +
         TransformerMemory::StepBytes(model, options.precision, tokens, rows) +
         (rows + rows / 4) * (outputs * logit + 8) +
         5 * 4 * (model.padding >= 0 ? 10 : 6) * tokens / 4 +
         (model.masked() ? 0 : 5 * 4 * (outputs + 1) * rows / 4);
}

TextStep::TextStep(Device& device, const TextStepOptions& options)
    : impl_(std::make_unique<Impl>(device, options)) {
  Stream stream(device);
  Impl& i = *impl_;
  for (const DeviceArray<float>* array : {&i.value, &i.gradient, &i.m, &i.v}) {
    if (array->data() != nullptr) stream.Fill(array->data(), 0, array->bytes());
  }
  if (i.value_bf16.data() != nullptr) stream.Fill(i.value_bf16.data(), 0, i.value_bf16.bytes());
  // The flags are constant, so they are copied once.
  using Flags = std::pair<const std::vector<std::uint8_t>*, const DeviceArray<std::uint8_t>*>;
  for (const auto& [from, to] :
       {Flags{&options.model.spared, &i.spared}, Flags{&options.model.whole, &i.left_out}}) {
    if (to->data() == nullptr) continue;
    const PinnedArray<std::uint8_t> flags(device, to->size(), "parameter flags");
    if (!device.ok()) return;
    std::ranges::copy(*from, flags.data());
    stream.CopyToDevice(to->data(), flags.data(), flags.bytes());
    stream.Synchronize();
  }
  if (!device.ok()) return;
  i.report[0] = StepState();
  stream.CopyToDevice(i.state.data(), i.report.data(), sizeof(StepState));
  stream.Synchronize();
}
TextStep::~TextStep() = default;

void TextStep::SetTensorParallelComm(TensorParallelComm* peers) {
  impl_->peers = peers;
  impl_->model.SetTensorParallelComm(peers);
}

float* TextStep::gradient() const { return impl_->gradient.data(); }
const float* TextStep::value() const { return impl_->value.data(); }

// An update: gradient and report start at zero.
void TextStep::Begin(Stream& stream) {
  Impl& i = *impl_;
  if (!i.device.ok()) return;
  stream.Fill(i.gradient.data(), 0, i.gradient.bytes());
  i.ClearReport(stream);
}

void TextStep::Add(Stream& stream, const HostTokens& batch, float scale,
                   const Transformer::Ready& ready) {
  Impl& i = *impl_;
  if (!i.device.ok()) return;
  const DeviceTokens tokens = i.Losses(stream, batch, scale, true);
  if (!i.device.ok()) return;
  // Losses has replaced the logits by their gradient.
  i.model.Backward(stream, {i.Weights(), tokens}, i.logits.data(), i.gradient.data(), ready);
}

// The gradient is this learner's own here, so a non-finite loss rejects it.
TextStepReport TextStep::Finish(Stream& stream) {
  Impl& i = *impl_;
  if (!i.device.ok()) return {};
  i.SumGradient(stream);
  Launch(stream, "Judge", {dim3(1), dim3(1)}, JudgeKernel, false, i.state.data());
  return i.TakeReport(stream);
}

// `changed`: after an all-reduce, norm and decision are recomputed.
void TextStep::RunStep(Stream& stream, double learning_rate, bool changed) {
  Impl& i = *impl_;
  if (!i.device.ok()) return;
  i.Settle();
  // The previous copy must have left the pinned value.
  i.rate_done->Synchronize();
  i.rate[0] = learning_rate;
  stream.CopyToDevice(&i.state.data()->rule.learning_rate, i.rate.data(), sizeof(double));
  i.rate_done->Record(stream);
  if (changed) {
    i.SumGradient(stream);
    Launch(stream, "Judge", {dim3(1), dim3(1)}, JudgeKernel, true, i.state.data());
  }
  Launch(stream, "Prepare", {dim3(1), dim3(1)}, PrepareKernel, i.options.rule, i.state.data());
  ApplyOptimizer(stream, i.options.rule, &i.state.data()->rule,
                 {.n = i.options.model.parameters,
                  .gradient = i.gradient.data(),
                  .m = i.m.data(),
                  .v = i.v.data(),
                  .value = i.value.data(),
                  .value_bf16 = i.value_bf16.data(),
                  .spared = i.spared.data()});
}

// Evaluation: no gradient, and a report of this batch alone.
TextStepReport TextStep::Judge(Stream& stream, const HostTokens& batch,
                               std::vector<float>* logits) {
  Impl& i = *impl_;
  if (logits != nullptr) logits->clear();
  if (!i.device.ok()) return {};
  i.ClearReport(stream);
  const DeviceTokens tokens = i.Losses(stream, batch, 1, false);
  const TextStepReport report = i.TakeReport(stream);
  if (logits != nullptr && i.device.ok() && !i.options.model.masked()) {
    logits->resize(std::size_t(tokens.rows * i.model.stride()));
    CopyOut(stream, reinterpret_cast<const float*>(i.logits.data()), *logits);
  }
  return report;
}

// Over all ranks with tensor parallelism.
double TextStep::GradientNorm(Stream& stream) {
  Impl& i = *impl_;
  if (!i.device.ok()) return NAN;
  i.SumGradient(stream);
  i.FetchState(stream);
  return i.device.ok() ? std::sqrt(i.report[0].squares) : NAN;
}

// There is no target network; m and v exist if the optimizer has them.
void TextStep::GetState(Stream& stream, State* out) {
  Impl& i = *impl_;
  for (const auto& [array, span] : i.Parts()) {
    const std::span<float> to = out->*span;
    if (!to.empty() && array->data() != nullptr) CopyOut(stream, array->data(), to);
  }
  if (!i.device.ok()) return;
  i.FetchState(stream);
  if (i.device.ok()) out->steps = i.report[0].rule.steps;
}

// Counters and the bf16 copy follow the restored values.
void TextStep::SetState(Stream& stream, const State& from) {
  Impl& i = *impl_;
  for (const auto& [array, span] : i.Parts()) {
    const std::span<float> values = from.*span;
    if (!values.empty() && array->data() != nullptr) CopyIn(stream, values, array->data());
  }
  if (!i.device.ok()) return;
  if (i.value_bf16.data() != nullptr) {
    ConvertScaled(stream, {.n = i.value.size(),
                           .from = i.value.data(),
                           .to = i.value_bf16.data(),
                           .to_dtype = DType::kBF16});
  }
  i.report[0] = StepState();
  i.report[0].rule.steps = from.steps;
  stream.CopyToDevice(i.state.data(), i.report.data(), sizeof(StepState));
  stream.Synchronize();
}

}  // namespace troop::cuda
