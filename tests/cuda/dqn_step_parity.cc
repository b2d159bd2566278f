#include "learners/gpu/cuda/dqn_step.h"

#include <algorithm>
#include <cmath>

#include "replay/replica/cuda/device_table.h"
#include "tests/cuda/dqn_oracle.h"
#include "tests/cuda/parity_cases.h"

// Whole updates against the f64 reference of dqn_oracle.h.
namespace troop::cuda {
namespace {

using Doubles64 = DqnOracle::Numbers;

DqnOracle::Batch MakeBatch(Parity& parity, const DqnStepOptions& o,
                           std::vector<std::uint8_t>* bytes) {
  DqnOracle::Batch b;
  const std::int64_t n = 2 * o.batch * o.network.input_elements;
  if (o.network.input == DType::kU8) {
    for (std::int64_t i = 0; i < n; ++i) bytes->push_back(std::uint8_t(parity.Below(256)));
    for (const std::uint8_t x : *bytes) b.observation.push_back(float(x) * o.network.input_scale);
  } else {
    b.observation = parity.Random(n);
  }
  b.reward = parity.Random(o.batch * o.steps);
  b.weight = parity.Random(o.batch, 0.2, 1);
  for (std::int64_t i = 0; i < o.batch; ++i) {
    b.action.push_back(std::int32_t(parity.Below(o.network.actions)));
    b.length.push_back(std::int32_t(1 + parity.Below(o.steps)));
    for (std::int64_t k = 0; k < o.steps; ++k)
      b.discount.push_back(i % 4 == 0 && k == 0 ? 0.0f : 1.0f);
  }
  return b;
}

void PutBatch(Parity& parity, const DqnStepOptions& o, const DqnOracle::Batch& b,
              const std::vector<std::uint8_t>& bytes, const DqnBatch& to) {
  const auto put = [&](void* at, const auto& from) {
    const auto on_device = parity.Upload(from);
    parity.stream().CopyOnDevice(at, on_device.data(), from.size() * sizeof(from[0]));
    parity.stream().Synchronize();
  };
  if (o.network.input == DType::kU8) {
    put(to.observation, bytes);
  } else {
    put(to.observation, b.observation);
  }
  put(to.action, b.action);
  put(to.length, b.length);
  put(to.reward, b.reward);
  put(to.discount, b.discount);
  put(to.weight, b.weight);
}

DqnStepOptions OptionsOf(bool pictures, DqnHead head, OptimizerRule::Kind rule,
                         DqnStepOptions::Values values = DqnStepOptions::Values::kScalar) {
  DqnStepOptions o;
  o.network = DqnSpecOf(pictures, head, values == DqnStepOptions::Values::kScalar ? 1 : 5);
  o.values = values;
  o.v_min = -1.5, o.v_max = 2;  // narrower than some returns
  o.batch = 6;
  o.steps = 3;
  o.rule.max_grad_norm = 0.3;
  o.rule.kind = rule;
  o.rule.epsilon =
      1e-2;  // larger than the gradients, so that rounding of small ones does not matter
  o.rule.momentum = 0.5;
  o.target_update_every_updates = 2;
  o.target_tau = 0.5;
  return o;
}

std::vector<float> StartValue(Parity& parity, const QNetworkSpec& spec) {
  std::vector<float> value = parity.Random(spec.parameters, -0.3, 0.3);
  return value;
}

DqnStep::State StateOf(std::vector<float>* value, std::vector<float>* target) {
  DqnStep::State state;
  state.value = *value;
  state.target = *target;
  return state;
}

// The change over the updates; the size of the weights would hide errors.
void Compare(Parity& parity, const DqnStepOptions& o, double tolerance, int updates = 4) {
  std::vector<float> value = StartValue(parity, o.network), target = value;
  for (float& x : value) {
    if (o.precision == Precision::kBF16) x = RoundedToBF16(x);
    if (o.precision == Precision::kTF32) x = RoundedToTF32(x);
  }
  target = value;
  DqnStep step(parity.device(), o);
  step.SetState(parity.stream(), StateOf(&value, &target));
  DqnOracle reference(o, value);
  const Doubles64 before = reference.value();
  for (int i = 0; i < updates; ++i) {
    std::vector<std::uint8_t> bytes;
    DqnOracle::Batch batch = MakeBatch(parity, o, &bytes);
    PutBatch(parity, o, batch, bytes, step.batch());
    if (o.network.input == DType::kF32)
      for (float& x : batch.observation) x *= o.network.input_scale;
    step.Run(parity.stream(), 0.05);
    const DqnStepReport report = step.NextReport();
    const DqnOracle::Outcome want = reference.Update(batch, 0.05);
    parity.True("updates are counted", report.updates == i + 1 && report.finite == 1);
    parity.Close("loss", Doubles64{report.loss}, Doubles64{want.loss}, tolerance);
    parity.Close("norm", Doubles64{report.gradient_norm}, Doubles64{want.norm}, tolerance);
    std::vector<float> priority(std::size_t(o.batch), 0);
    DeviceArray<float> copy = parity.Output<float>(o.batch);
    parity.stream().CopyOnDevice(copy.data(), step.batch().priority,
                                 priority.size() * sizeof(float));
    parity.Close("priority", parity.Download(copy), want.priority, tolerance);
  }
  DqnStep::State state = StateOf(&value, &target);
  step.GetState(parity.stream(), &state);
  Doubles64 change, want_change, got_target;
  for (std::size_t i = 0; i < value.size(); ++i) {
    change.push_back(value[i] - before[i]);
    want_change.push_back(reference.value()[i] - before[i]);
  }
  parity.Close("change", change, want_change, 3 * tolerance);
  parity.Close("target", target, reference.target(), tolerance);
}

void UpdatesOfEveryNetworkF32(Parity& parity) {
  for (const bool pictures : {true, false}) {
    for (const DqnHead head : {DqnHead::kPlain, DqnHead::kDueling, DqnHead::kDuelingHidden})
      Compare(parity, OptionsOf(pictures, head, OptimizerRule::Kind::kAdam), 1e-4);
  }
}
void UpdatesOfDistributions(Parity& parity) {
  for (const auto values :
       {DqnStepOptions::Values::kCategorical, DqnStepOptions::Values::kQuantile}) {
    for (const DqnHead head : {DqnHead::kPlain, DqnHead::kDueling, DqnHead::kDuelingHidden}) {
      DqnStepOptions o =
          OptionsOf(head == DqnHead::kDueling, head, OptimizerRule::Kind::kAdam, values);
      o.double_q = head != DqnHead::kDuelingHidden;
      Compare(parity, o, 1e-4);
    }
  }
}
void UpdatesOfEveryOptimizer(Parity& parity) {
  for (const auto rule : {OptimizerRule::Kind::kRmsProp, OptimizerRule::Kind::kSgd}) {
    DqnStepOptions o = OptionsOf(false, DqnHead::kPlain, rule);
    o.double_q = false;
    o.graph = false;
    o.rule.weight_decay = 0.1;
    Compare(parity, o, 1e-4);
  }
  // RAdam divides from the sixth update, which the same graph makes.
  DqnStepOptions o = OptionsOf(false, DqnHead::kPlain, OptimizerRule::Kind::kAdam);
  o.rule.rectified = true;
  o.rule.beta2 = 0.95;
  o.rule.weight_decay = 0.1;
  Compare(parity, o, 1e-4, 9);
}
template <Precision kPrecision>
void UpdatesOfPicturesWith(Parity& parity) {
  DqnStepOptions o = OptionsOf(true, DqnHead::kDuelingHidden, OptimizerRule::Kind::kAdam);
  o.precision = kPrecision;
  // Rounding of activations flips some ReLUs, which matters in networks this small.
  Compare(parity, o, 0.1);
}

template <Precision kPrecision>
void AGraphGivesTheBytesOfAStream(Parity& parity) {
  std::vector<float> values[2];
  for (const bool graph : {true, false}) {
    Parity same(parity.device(), 5);
    DqnStepOptions o = OptionsOf(true, DqnHead::kDueling, OptimizerRule::Kind::kAdam);
    o.precision = kPrecision;
    o.graph = graph;
    std::vector<float> value = StartValue(same, o.network), target = value;
    DqnStep step(same.device(), o);
    step.SetState(same.stream(), StateOf(&value, &target));
    std::int64_t warm = 0;
    for (int i = 0; i < 7; ++i) {
      std::vector<std::uint8_t> bytes;
      const DqnOracle::Batch batch = MakeBatch(same, o, &bytes);
      PutBatch(same, o, batch, bytes, step.batch());
      if (i == 3) warm = same.device().driver_allocations();
      step.Run(same.stream(), 0.01 * (i + 1));
    }
    same.True("nothing is allocated by a step", same.device().driver_allocations() == warm);
    for (int i = 0; i < 7; ++i)
      same.True("every report comes, in order", step.NextReport().updates == i + 1);
    DqnStep::State state = StateOf(&value, &target);
    step.GetState(same.stream(), &state);
    values[graph ? 0 : 1] = value;
    for (const std::string& failure : same.failures()) parity.True(failure, false);
  }
  parity.Equal("value", values[0], values[1]);
}

void HalvesMakeAWhole(Parity& parity) {
  std::vector<float> values[3];
  for (const int way : {0, 1, 2}) {
    Parity same(parity.device(), 6);
    const DqnStepOptions o = OptionsOf(false, DqnHead::kPlain, OptimizerRule::Kind::kAdam);
    std::vector<float> value = StartValue(same, o.network), target = value;
    DqnStep step(same.device(), o);
    step.SetState(same.stream(), StateOf(&value, &target));
    for (int i = 0; i < 4; ++i) {
      std::vector<std::uint8_t> bytes;
      PutBatch(same, o, MakeBatch(same, o, &bytes), bytes, step.batch());
      if (way == 0) {
        step.Run(same.stream(), 0.01);
      } else {
        step.RunGradient(same.stream());
        step.RunStep(same.stream(), 0.01, way == 2);
      }
      step.NextReport();
    }
    DqnStep::State state = StateOf(&value, &target);
    step.GetState(same.stream(), &state);
    same.True("updates are counted", state.updates == 4);
    values[way] = value;
    for (const std::string& failure : same.failures()) parity.True(failure, false);
  }
  parity.Equal("halves", values[1], values[0]);
  parity.Equal("halves with a gradient put there", values[2], values[0]);
}

// The gradient is reported part by part, from its end to its beginning, and each part is final; the
// same bytes.
void PartsAreReadyAsTheyAreTold(Parity& parity) {
  for (const bool pictures : {false, true}) {
    const DqnStepOptions o = OptionsOf(pictures, pictures ? DqnHead::kDueling : DqnHead::kPlain,
                                       OptimizerRule::Kind::kAdam);
    std::vector<float> value = StartValue(parity, o.network), target = value;
    DqnStep step(parity.device(), o);
    step.SetState(parity.stream(), StateOf(&value, &target));
    std::vector<std::uint8_t> bytes;
    const DqnOracle::Batch batch = MakeBatch(parity, o, &bytes);
    PutBatch(parity, o, batch, bytes, step.batch());
    const auto gradient = [&] {
      auto copy = parity.Output<float>(o.network.parameters);
      parity.stream().CopyOnDevice(copy.data(), step.gradient(),
                                   std::size_t(o.network.parameters) * sizeof(float));
      return parity.Download(copy);
    };
    step.RunGradient(parity.stream());
    step.NextReport();
    const std::vector<float> whole = gradient();
    std::int64_t before = o.network.parameters, told = 0;
    step.RunGradient(parity.stream(), [&](std::int64_t from) {
      parity.True("it falls", from < before);
      (void)parity.stream().Share();
      const std::vector<float> now = gradient();
      parity.True("the reported range is final",
                  std::equal(now.begin() + from, now.end(), whole.begin() + from));
      before = from;
      ++told;
    });
    step.NextReport();
    parity.True("the whole gradient is reported", before == 0 && told >= 2);
    parity.Equal("the gradient", gradient(), whole);
    double squares = 0;
    for (const float g : whole) squares += double(g) * double(g);
    parity.True("its norm", std::abs(step.GradientNorm(parity.stream()) - std::sqrt(squares)) <
                                1e-6 * std::sqrt(squares));
  }
}

// Sampling, update and priorities as one graph: the same results as single calls.
void ReplayInTheSameGraph(Parity& parity) {
  std::vector<float> values[2];
  std::vector<float> priorities[2];
  for (const bool graph : {true, false}) {
    Parity same(parity.device(), 7);
    DqnStepOptions o = OptionsOf(false, DqnHead::kPlain, OptimizerRule::Kind::kAdam);
    o.graph = graph;
    std::vector<float> value = StartValue(same, o.network), target = value;
    DqnStep step(same.device(), o);
    step.SetState(same.stream(), StateOf(&value, &target));
    DeviceTableOptions t;
    t.slots = t.places = 64;
    t.dtype = DType::kF32;
    t.pixels = o.network.input_elements;
    t.steps = o.steps;
    t.append_max = 64;
    DeviceTable table(same.device(), t, o.batch);
    std::vector<DeviceFrame> frames;
    std::vector<DeviceItem> items;
    std::vector<std::int32_t> window;
    const std::vector<float> observations = same.Random(40 * t.pixels);
    for (std::int32_t i = 0; i < 40; ++i) {
      frames.push_back({i, i % 3, float(same.Uniform(-1, 1)), 1});
      if (i < 3) continue;
      items.push_back({i - 3, 0, 3, float(same.Uniform(0, 1))});
      for (std::int32_t k = i - 3; k <= i; ++k) window.push_back(k);
    }
    same.True("it is taken", table.Append(same.stream(), same.stream(),
                                          {.observation = std::as_bytes(std::span(observations)),
                                           .frames = frames,
                                           .items = items,
                                           .window = window}));
    const DqnBatch& to = step.batch();
    const DeviceSample sample{to.observation, to.action, to.reward,
                              to.discount,    to.length, to.weight};
    step.Surround([&](Stream& s) { table.Draw(s, sample); },
                  [&](Stream& s) { table.UpdatePriorities(s, to.priority); });
    for (int i = 0; i < 6; ++i) step.Run(same.stream(), 0.01);
    for (int i = 0; i < 6; ++i) same.True("it is made", step.NextReport().updates == i + 1);
    DqnStep::State state = StateOf(&value, &target);
    step.GetState(same.stream(), &state);
    values[graph ? 0 : 1] = value;
    auto copy = same.Output<float>(t.slots);
    same.stream().CopyOnDevice(copy.data(), table.tree().priorities(),
                               std::size_t(t.slots) * sizeof(float));
    priorities[graph ? 0 : 1] = same.Download(copy);
    for (const std::string& failure : same.failures()) parity.True(failure, false);
  }
  parity.Equal("value", values[0], values[1]);
  parity.Equal("priorities", priorities[0], priorities[1]);
  parity.True("priorities are those of updates", priorities[0][5] != 0);
}

void WhatIsNotFiniteChangesNothing(Parity& parity) {
  const DqnStepOptions o = OptionsOf(false, DqnHead::kPlain, OptimizerRule::Kind::kAdam);
  std::vector<float> value = StartValue(parity, o.network), target = value;
  const std::vector<float> before = value;
  DqnStep step(parity.device(), o);
  step.SetState(parity.stream(), StateOf(&value, &target));
  for (int i = 0; i < 3; ++i) {
    std::vector<std::uint8_t> bytes;
    DqnOracle::Batch batch = MakeBatch(parity, o, &bytes);
    batch.reward[4] = NAN;
    batch.length[1] = 3;
    PutBatch(parity, o, batch, bytes, step.batch());
    step.Run(parity.stream(), 0.01);
    const DqnStepReport report = step.NextReport();
    parity.True("it is refused", report.finite == 0 && report.updates == 0);
  }
  DqnStep::State state = StateOf(&value, &target);
  step.GetState(parity.stream(), &state);
  parity.Equal("value", value, before);
  parity.Equal("target", target, before);
  parity.True("the optimizer takes no step", state.steps == 0 && state.updates == 0);
}

}  // namespace

std::vector<ParityCase> DqnStepCases() {
  return {{"DqnStep.UpdatesOfEveryNetworkF32", UpdatesOfEveryNetworkF32},
          {"DqnStep.UpdatesOfEveryOptimizer", UpdatesOfEveryOptimizer},
          {"DqnStep.UpdatesOfDistributions", UpdatesOfDistributions},
          {"DqnStep.UpdatesOfPicturesTF32", UpdatesOfPicturesWith<Precision::kTF32>, 80},
          {"DqnStep.UpdatesOfPicturesBF16", UpdatesOfPicturesWith<Precision::kBF16>, 80},
          {"DqnStep.AGraphGivesTheBytesOfAStream", AGraphGivesTheBytesOfAStream<Precision::kF32>},
          {"DqnStep.AGraphGivesTheBytesOfAStreamTF32",
           AGraphGivesTheBytesOfAStream<Precision::kTF32>, 80},
          {"DqnStep.AGraphGivesTheBytesOfAStreamBF16",
           AGraphGivesTheBytesOfAStream<Precision::kBF16>, 80},
          {"DqnStep.HalvesMakeAWhole", HalvesMakeAWhole},
          {"DqnStep.PartsAreReadyAsTheyAreTold", PartsAreReadyAsTheyAreTold},
          {"DqnStep.ReplayInTheSameGraph", ReplayInTheSameGraph},
          {"DqnStep.WhatIsNotFiniteChangesNothing", WhatIsNotFiniteChangesNothing}};
}

}  // namespace troop::cuda
