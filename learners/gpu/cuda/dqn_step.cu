// Implements the DQN update on a GPU as CUDA graphs.

#include "learners/gpu/cuda/dqn_step.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <deque>

#include "kernels/cuda/loss/distributional_loss.h"
#include "kernels/cuda/loss/dqn_loss.h"
#include "kernels/cuda/ops/activation.h"
#include "kernels/cuda/runtime/block_sum.h"
#include "kernels/cuda/runtime/launch.h"
#include "learners/gpu/cuda/optimizer_step_device.h"

namespace troop::cuda {
namespace {

// Inputs and results of an update in device memory: all that changes between updates. A graph is
// recorded once and reads them.
struct StepState {
  OptimizerState rule;
  DqnLossSummary summary;
  DqnStepReport report;
  std::int32_t move_target = 0;
};

// Counts the update, computes the optimizer's coefficients, and decides about the target.
TROOP_DEVICE void PrepareStep(const OptimizerRule& rule, std::int64_t target_update_every_updates,
                              StepState* s) {
  const bool go = s->rule.go != 0;
  if (go) ++s->report.updates;
  NextStep(rule, s->report.gradient_norm, &s->rule);
  // Decided on the device, so that one graph serves all updates.
  s->move_target = go && s->report.updates % target_update_every_updates == 0 ? 1 : 0;
}
TROOP_KERNEL void PrepareKernel(OptimizerRule rule, std::int64_t target_update_every_updates,
                                StepState* s) {
  PrepareStep(rule, target_update_every_updates, s);
}

// Summarizes a gradient and decides whether it may be applied; with kPrepares it also prepares the
// step. One block. squares: partial sums of the gradient's squares.
struct Judged {
  std::int64_t batch, parts;
  bool agreed;  // an all-reduced gradient is applied even if this learner's batch failed
  const float* priority;
  const double* squares;
};
// One block, since the partial sums are few.
constexpr int kJudgeThreads = 256;
template <bool kPrepares>
TROOP_KERNEL void JudgeKernel(Judged in, OptimizerRule rule,
                              std::int64_t target_update_every_updates, StepState* s) {
  TROOP_SHARED(int, bad, 1);
  if (threadIdx.x == 0) *bad = 0;
  __syncthreads();
  for (std::int64_t i = threadIdx.x; i < in.batch; i += kJudgeThreads)
    if (!isfinite(in.priority[i])) *bad = 1;  // concurrent writes of the same value
  double squares = 0;
  for (std::int64_t i = threadIdx.x; i < in.parts; i += kJudgeThreads) squares += in.squares[i];
  squares = BlockSum<kJudgeThreads>(squares);  // contains a barrier
  if (threadIdx.x != 0) return;
  const double norm = sqrt(squares);
  s->rule.go = isfinite(norm) && (in.agreed || (isfinite(s->summary.loss) && *bad == 0)) ? 1 : 0;
  s->report.loss = s->summary.loss;
  s->report.td_error_mean = s->summary.td_error_mean;
  s->report.q_mean = s->summary.q_mean;
  s->report.gradient_norm = norm;
  s->report.finite = s->rule.go;
  if constexpr (kPrepares) PrepareStep(rule, target_update_every_updates, s);
}

StepState FreshState() { return {}; }

}  // namespace

// Device memory, networks and recorded graphs of a step.
struct DqnStep::Impl {
  // Allocation failures are recorded in the device; every later call checks it.
  Impl(Device& the_device, const DqnStepOptions& o)
      : device(the_device),
        options(o),
        plans(the_device),
        network(the_device, plans, o.network,
                {.precision = o.precision,
                 .rows = o.double_q ? 2 * o.batch : o.batch,
                 .backward_rows = o.batch}),
        target_plans(the_device),
        target_network(the_device, target_plans, o.network,
                       {.precision = o.precision, .rows = o.batch}),
        beside(the_device),
        drawn(the_device),
        judged(the_device) {
    // Batch buffers, parameters, optimizer slots, reductions, then the pinned report slots.
    const std::int64_t p = o.network.parameters, b = o.batch;
    const std::int64_t bytes = ElementBytes(o.network.input) * o.network.input_elements;
    observation = DeviceArray<std::byte>(device, 2 * b * bytes, "a batch's observations");
    action = DeviceArray<std::int32_t>(device, b, "a batch's actions");
    reward = DeviceArray<float>(device, b * o.steps, "a batch's rewards");
    discount = DeviceArray<float>(device, b * o.steps, "a batch's discounts");
    length = DeviceArray<std::int32_t>(device, b, "a batch's lengths");
    weight = DeviceArray<float>(device, b, "a batch's weights");
    priority = DeviceArray<float>(device, b, "a batch's priorities");
    batch = {observation.data(), action.data(), reward.data(),  discount.data(),
             length.data(),      weight.data(), priority.data()};
    for (DeviceArray<float>* array : {&value, &target, &gradient}) {
      *array = DeviceArray<float>(device, p, "parameters");
    }
    if (o.rule.has_m()) m = DeviceArray<float>(device, p, "the optimizer's state");
    if (o.rule.has_v()) v = DeviceArray<float>(device, p, "the optimizer's state");
    if (o.precision == Precision::kBF16) {
      value_bf16 = DeviceArray<BF16>(device, p, "parameters in bf16");
      target_bf16 = DeviceArray<BF16>(device, p, "parameters in bf16");
    }
    partial = DeviceArray<double>(device, kSumSquaresParts, "partial sums");
    seen = PinnedArray<DqnLossSummary>(device, 1, "a loss");
    if (o.values != DqnStepOptions::Values::kScalar) {
      loss_partial = DeviceArray<double>(device, 3 * b, "partial sums");
    }
    state = DeviceArray<StepState>(device, 1, "the state of a step");
    rates = PinnedArray<double>(device, kUnderWay, "learning rates");
    reports = PinnedArray<DqnStepReport>(device, kUnderWay, "reports");
    for (auto& event : done) event = std::make_unique<Event>(device);
    for (auto& event : rate_done) event = std::make_unique<Event>(device);
  }

  // Weights in f32, with their bf16 copies if the precision needs them.
  QWeights Online() const { return {value.data(), value_bf16.data()}; }
  QWeights Target() const { return {target.data(), target_bf16.data()}; }

  // Step 1: both forward passes, concurrently on two streams, then the loss.
  void Losses(Stream& stream) {
    const std::int64_t b = options.batch;
    const auto* next = static_cast<const std::byte*>(batch.observation) +
                       b * ElementBytes(options.network.input) * options.network.input_elements;
    // The side stream starts when the batch is complete, and joins before the loss.
    drawn.Record(stream);
    beside.Wait(drawn);
    // With double Q one pass over 2 B rows: first and last observations.
    const QHeads online = network.ForwardHeads(stream,
                                               {.weights = Online(),
                                                .rows = options.double_q ? 2 * b : b,
                                                .observation = batch.observation},
                                               true);
    const QHeads target = target_network.ForwardHeads(
        beside, {.weights = Target(), .rows = b, .observation = next}, false);
    judged.Record(beside);
    stream.Wait(judged);
    Loss(stream, online, target);
  }
  // Step 2: backward, then the summary of the gradient.
  void Backward(Stream& stream, bool prepares, const QNetwork::Ready& ready = {}) {
    network.Backward(stream,
                     {.weights = Online(), .rows = options.batch, .observation = batch.observation},
                     gradient.data(), ready);
    Judge(stream, false, prepares);
  }
  void Gradient(Stream& stream, bool prepares) {
    Losses(stream);
    Backward(stream, prepares);
  }
  // Other ranks add to parts reported as ready, so `ready` is not passed on if the loss is not
  // finite.
  void GradientInParts(Stream& stream, const QNetwork::Ready& ready) {
    Losses(stream);
    stream.CopyToHost(seen.data(), &state.data()->summary, sizeof(DqnLossSummary));
    stream.Synchronize();
    const bool finite = device.ok() && std::isfinite(seen[0].loss);
    Backward(stream, false, finite ? ready : QNetwork::Ready());
  }

  // Fills the inputs that all three losses share.
  template <class Input>
  Input InputOf() const {
    Input in;
    in.batch = options.batch;
    in.actions = options.network.actions;
    in.steps = options.steps;
    in.action = batch.action;
    in.reward = batch.reward;
    in.discount = batch.discount;
    in.length = batch.length;
    in.weight = batch.weight;
    in.gamma = options.gamma;
    in.reward_clip = options.reward_clip;
    return in;
  }

  // Value heads of a dueling network, which the loss combines with the advantages.
  DuelingValues ValuesOf(const QHeads& online, const QHeads& last_target) const {
    if (!options.network.dueling) return {};
    const float* const last_online = online.value + options.batch * options.network.numbers;
    return {online.value, last_target.value, options.double_q ? last_online : nullptr};
  }
  // Gradients go directly into the network's head buffers.
  LossOutput Output() const {
    const QHeadGradients gradients = network.head_gradients();
    return {.dtype = ElementType(options.precision),
            .dq = gradients.advantage,
            .dvalue = gradients.value,
            .priority = batch.priority,
            .summary = &state.data()->summary,
            .partial = loss_partial.data()};
  }

  // One loss per value form, with gradients written into the network's head buffers.
  void Loss(Stream& stream, const QHeads& online, const QHeads& last_target) {
    using Values = DqnStepOptions::Values;
    const QNetworkSpec& spec = options.network;
    const float* const last_online =
        options.double_q ? online.advantage + options.batch * spec.outputs() : nullptr;
    const DuelingValues values = ValuesOf(online, last_target);
    const LossOutput out = Output();
    if (options.values == Values::kCategorical) {
      auto in = InputOf<CategoricalLossInput>();
      in.support = {spec.numbers, options.v_min, options.v_max};
      in.logits = online.advantage;
      in.logits_target = last_target.advantage;
      in.logits_online = last_online;
      return CategoricalLoss(stream, in, out, values);
    }
    if (options.values == Values::kQuantile) {
      auto in = InputOf<QuantileLossInput>();
      in.quantiles = spec.numbers;
      in.quantile = online.advantage;
      in.quantile_target = last_target.advantage;
      in.quantile_online = last_online;
      return QuantileLoss(stream, in, out, values);
    }
    auto in = InputOf<DqnLossInput>();
    in.q = online.advantage;
    in.q_next_target = last_target.advantage;
    in.q_next_online = last_online;
    in.huber = options.huber;
    DqnLoss(stream, in, out, values);
  }

  // prepares: also prepares the step, if it follows immediately.
  void Judge(Stream& stream, bool agreed, bool prepares) {
    const std::int64_t parts = SumSquaresInParts(
        stream, {.n = options.network.parameters, .x = gradient.data(), .partial = partial.data()});
    const Judged in{options.batch, parts, agreed, batch.priority, partial.data()};
    Launch(stream, "Judge", {dim3(1), dim3(kJudgeThreads)},
           prepares ? JudgeKernel<true> : JudgeKernel<false>, in, options.rule,
           options.target_update_every_updates, state.data());
  }

  // Step 3: optimizer step and target update; both do nothing if the batch was rejected.
  void Step(Stream& stream, bool prepared) {
    StepState* s = state.data();
    if (!prepared) {
      Launch(stream, "Prepare", {dim3(1), dim3(1)}, PrepareKernel, options.rule,
             options.target_update_every_updates, s);
    }
    ApplyOptimizer(stream, options.rule, &s->rule,
                   {.n = options.network.parameters,
                    .gradient = gradient.data(),
                    .m = m.data(),
                    .v = v.data(),
                    .value = value.data(),
                    .value_bf16 = value_bf16.data()});
    MoveTarget(stream, {.n = options.network.parameters,
                        .tau = float(options.target_tau),
                        .value = value.data(),
                        .target = target.data(),
                        .target_bf16 = target_bf16.data(),
                        .go = &s->move_target});
  }

  // Runs `work` directly the first time, when libraries choose algorithms and allocate; later as a
  // graph.
  struct Recorded {
    explicit Recorded(Device& device) : graph(device) {}
    Graph graph;
    bool warm = false;
  };
  template <class Work>
  void Play(Stream& stream, Recorded* recorded, const Work& work) {
    if (!options.graph || !recorded->warm) {
      recorded->warm = true;
      return work();
    }
    // Recording does not execute the work; the launch below does.
    if (!recorded->graph.ready()) {
      recorded->graph.Begin(stream);
      work();
      recorded->graph.End(stream);
    }
    if (recorded->graph.ready()) recorded->graph.Launch(stream);
  }

  // A slot for a report. If all are taken, the oldest report is received first.
  std::int64_t NextSlot() {
    if (started - reported == kUnderWay) kept.push_back(TakeReport());
    return started++ % kUnderWay;
  }
  // `done` marks that the host may read the slot.
  void CopyReport(Stream& stream, std::int64_t slot) {
    stream.CopyToHost(&reports[slot], &state.data()->report, sizeof(DqnStepReport));
    done[slot]->Record(stream);
  }
  // The device keeps the rate, so it is copied only when it changes.
  void CopyRate(Stream& stream, double learning_rate) {
    if (learning_rate == last_rate) return;
    last_rate = learning_rate;
    const std::int64_t slot = rates_taken++ % kUnderWay;
    rate_done[slot]->Synchronize();
    rates[slot] = learning_rate;
    stream.CopyToDevice(&state.data()->rule.learning_rate, &rates[slot], sizeof(double));
    rate_done[slot]->Record(stream);
  }

  // Reports arrive in order, one slot after the other.
  DqnStepReport TakeReport() {
    const std::int64_t slot = reported++ % kUnderWay;
    done[slot]->Synchronize();
    return device.ok() ? reports[slot] : DqnStepReport{};
  }

  // The parameter arrays with their fields in State.
  struct Part {
    const DeviceArray<float>& array;
    std::span<float>& (*of)(State&);
    const DeviceArray<BF16>* rounded;
  };
  std::array<Part, 4> Parts() {
    using Span = std::span<float>;
    return {Part{value, [](State& s) -> Span& { return s.value; }, &value_bf16},
            Part{target, [](State& s) -> Span& { return s.target; }, &target_bf16},
            Part{m, [](State& s) -> Span& { return s.m; }, nullptr},
            Part{v, [](State& s) -> Span& { return s.v; }, nullptr}};
  }

  Device& device;
  const DqnStepOptions options;
  MatMulPlans plans;
  QNetwork network;
  MatMulPlans target_plans;  // separate workspace for the concurrent stream
  QNetwork target_network;
  Stream beside;
  Event drawn, judged;  // the batch is in place; the target's values are computed
  DeviceArray<std::byte> observation;
  DeviceArray<std::int32_t> action, length;
  DeviceArray<float> reward, discount, weight, priority;
  DqnBatch batch;
  DeviceArray<float> value, target, gradient, m, v;
  DeviceArray<BF16> value_bf16, target_bf16;
  DeviceArray<double> partial, loss_partial;
  DeviceArray<StepState> state;
  PinnedArray<DqnLossSummary> seen;
  PinnedArray<double> rates;
  PinnedArray<DqnStepReport> reports;
  std::unique_ptr<Event> done[kUnderWay], rate_done[kUnderWay];
  std::int64_t started = 0, reported = 0, rates_taken = 0;
  double last_rate = NAN;          // the rate on the device
  std::deque<DqnStepReport> kept;  // reports received before they were requested
  std::function<void(Stream&)> before, after;
  // One graph per kind of call.
  Recorded whole{device}, gradient_half{device}, step_half{device}, changed_step{device};
};

DqnStep::DqnStep(Device& device, const DqnStepOptions& options)
    : impl_(std::make_unique<Impl>(device, options)) {
  Stream stream(device);
  // All arrays start at zero, including their padding.
  const std::size_t bytes = impl_->value.bytes();
  for (const DeviceArray<float>* array :
       {&impl_->value, &impl_->target, &impl_->gradient, &impl_->m, &impl_->v}) {
    if (array->data() != nullptr) stream.Fill(array->data(), 0, bytes);
  }
  for (const DeviceArray<BF16>* array : {&impl_->value_bf16, &impl_->target_bf16}) {
    if (array->data() != nullptr) stream.Fill(array->data(), 0, array->bytes());
  }
  PinnedArray<StepState> fresh(device, 1, "the state of a step");
  if (fresh.data() == nullptr) return;
  fresh[0] = FreshState();
  stream.CopyToDevice(impl_->state.data(), fresh.data(), sizeof(StepState));
  stream.Synchronize();
}
DqnStep::~DqnStep() = default;

const DqnBatch& DqnStep::batch() const { return impl_->batch; }

void DqnStep::Surround(std::function<void(Stream&)> before, std::function<void(Stream&)> after) {
  impl_->before = std::move(before);
  impl_->after = std::move(after);
}
float* DqnStep::gradient() const { return impl_->gradient.data(); }
const float* DqnStep::value() const { return impl_->value.data(); }

// One graph: sample, update, write priorities back.
void DqnStep::Run(Stream& stream, double learning_rate) {
  Impl& i = *impl_;
  if (!i.device.ok()) return;
  const std::int64_t slot = i.NextSlot();
  i.CopyRate(stream, learning_rate);
  i.Play(stream, &i.whole, [&] {
    if (i.before) i.before(stream);
    i.Gradient(stream, true);
    i.Step(stream, true);
    if (i.after) i.after(stream);
  });
  i.CopyReport(stream, slot);
}

// Without `ready` this half is one graph, too.
void DqnStep::RunGradient(Stream& stream, const QNetwork::Ready& ready) {
  Impl& i = *impl_;
  if (!i.device.ok()) return;
  const std::int64_t slot = i.NextSlot();
  if (ready) {
    i.GradientInParts(stream, ready);
  } else {
    i.Play(stream, &i.gradient_half, [&] { i.Gradient(stream, false); });
  }
  i.CopyReport(stream, slot);
}

// After an all-reduce the gradient has changed: norm and decision are recomputed.
void DqnStep::RunStep(Stream& stream, double learning_rate, bool changed) {
  Impl& i = *impl_;
  if (!i.device.ok()) return;
  i.CopyRate(stream, learning_rate);
  i.Play(stream, changed ? &i.changed_step : &i.step_half, [&] {
    if (changed) i.Judge(stream, true, false);
    i.Step(stream, false);
  });
}

// The device sums the squares; the host takes the root.
double DqnStep::GradientNorm(Stream& stream) {
  Impl& i = *impl_;
  PinnedArray<double> sum(i.device, 1, "a gradient's norm");
  DeviceArray<double> on_device(i.device, 1, "a gradient's norm");
  if (!i.device.ok()) return NAN;
  SumSquares(stream, {.n = i.options.network.parameters,
                      .x = i.gradient.data(),
                      .partial = i.partial.data(),
                      .sum = on_device.data()});
  stream.CopyToHost(sum.data(), on_device.data(), sizeof(double));
  stream.Synchronize();
  return i.device.ok() ? std::sqrt(sum[0]) : NAN;
}

DqnStepReport DqnStep::NextReport() {
  Impl& i = *impl_;
  // Reports that have left their slots come first.
  if (i.kept.empty()) return i.TakeReport();
  const DqnStepReport report = i.kept.front();
  i.kept.pop_front();
  return report;
}

// Copies only the arrays that the caller requests and the optimizer has.
void DqnStep::GetState(Stream& stream, State* out) {
  Impl& i = *impl_;
  PinnedArray<StepState> state(i.device, 1, "the state of a step");
  if (state.data() == nullptr) return;
  stream.CopyToHost(state.data(), i.state.data(), sizeof(StepState));
  for (const auto& part : i.Parts()) {
    const std::span<float> to = part.of(*out);
    if (!to.empty() && part.array.data() != nullptr) CopyOut(stream, part.array.data(), to);
  }
  stream.Synchronize();
  if (!i.device.ok()) return;
  out->updates = state[0].report.updates;
  out->steps = state[0].rule.steps;
}

// Counters and the bf16 copies follow the restored values.
void DqnStep::SetState(Stream& stream, const State& from) {
  Impl& i = *impl_;
  PinnedArray<StepState> state(i.device, 1, "the state of a step");
  if (state.data() == nullptr) return;
  State copy = from;
  for (const auto& part : i.Parts()) {
    const std::span<const float> values = part.of(copy);
    if (values.empty() || part.array.data() == nullptr) continue;
    CopyIn(stream, values, part.array.data());
    if (part.rounded == nullptr || part.rounded->data() == nullptr) continue;
    ConvertScaled(stream, {.n = part.array.size(),
                           .from = part.array.data(),
                           .to = part.rounded->data(),
                           .to_dtype = DType::kBF16});
  }
  state[0] = FreshState();
  // Forces the next CopyRate.
  i.last_rate = NAN;
  state[0].report.updates = from.updates;
  state[0].rule.steps = from.steps;
  stream.CopyToDevice(i.state.data(), state.data(), sizeof(StepState));
  stream.Synchronize();
}

}  // namespace troop::cuda
