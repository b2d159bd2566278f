#include "learners/gpu/cuda/dqn_step.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "kernels/conv/conv2d_reference.h"
#include "kernels/linear/linear_reference.h"
#include "replay/replica/cuda/device_table.h"
#include "tests/cuda/parity_cases.h"
#include "tests/learners/value_reference.h"

// Whole updates against an f64 reference that is composed of the references of single operations.
// tidy: long file, because all cases of an update share its plain reference
namespace troop::cuda {
namespace {

using Doubles64 = std::vector<double>;

QLayer Conv(std::int64_t side, std::int64_t channels, std::int64_t filters, std::int64_t kernel,
            std::int64_t stride, Activation activation, std::int64_t* at) {
  QLayer layer;
  layer.convolution = true;
  layer.conv = {side, side, channels, filters, kernel, stride};
  layer.activation = activation;
  layer.weight = *at;
  layer.bias = *at + (filters * kernel * kernel * channels + 15) / 16 * 16;
  *at = layer.bias + (filters + 15) / 16 * 16;
  return layer;
}
QLayer Linear(std::int64_t in, std::int64_t out, Activation activation, std::int64_t* at) {
  QLayer layer;
  layer.linear = {in, out};
  layer.activation = activation;
  layer.weight = *at;
  layer.bias = *at + (out * in + 15) / 16 * 16;
  *at = layer.bias + (out + 15) / 16 * 16;
  return layer;
}

// Images through two convolutions, or vectors through linear layers; heads of all three kinds.
enum class Head { kPlain, kDueling, kDuelingHidden };
QNetworkSpec MakeSpec(bool pictures, Head head, std::int64_t numbers) {
  std::int64_t at = 0, features = 24;
  QNetworkSpec spec;
  spec.actions = 3;
  spec.numbers = numbers;
  if (pictures) {
    spec.input = DType::kU8;
    spec.input_scale = 1.0f / 255;
    spec.input_elements = 10 * 10 * 4;
    spec.layers = {Conv(10, 4, 8, 4, 2, Activation::kRelu, &at),
                   Conv(4, 8, 16, 3, 1, Activation::kRelu, &at),
                   Linear(64, features, Activation::kRelu, &at)};
  } else {
    spec.input = DType::kF32;
    spec.input_scale = 0.5f;
    spec.input_elements = 6;
    spec.layers = {Linear(6, 16, Activation::kTanh, &at),
                   Linear(16, features, Activation::kTanh, &at)};
  }
  spec.dueling = head != Head::kPlain;
  if (head == Head::kDuelingHidden) {
    spec.value_hidden = Linear(features, 16, Activation::kRelu, &at);
    spec.advantage_hidden = Linear(features, 16, Activation::kRelu, &at);
    features = 16;
  }
  if (spec.dueling) spec.value = Linear(features, numbers, Activation::kNone, &at);
  spec.advantage = Linear(features, spec.outputs(), Activation::kNone, &at);
  spec.parameters = at;
  return spec;
}

double Derivative(Activation activation, double y) {
  if (activation == Activation::kRelu) return y > 0 ? 1 : 0;
  return activation == Activation::kTanh ? 1 - y * y : 1;
}

ValueReference ValuesOf(const DqnStepOptions& o) {
  using Values = DqnStepOptions::Values;
  return {.kind = o.values == Values::kCategorical ? ValueReference::kCategorical
                  : o.values == Values::kQuantile  ? ValueReference::kQuantile
                                                   : ValueReference::kScalar,
          .numbers = std::size_t(o.network.numbers),
          .low = o.v_min,
          .high = o.v_max};
}

class Reference {
 public:
  Reference(const DqnStepOptions& options, const std::vector<float>& value)
      : o_(options),
        values_(ValuesOf(options)),
        value(value.begin(), value.end()),
        target(this->value),
        m_(value.size(), 0),
        v_(value.size(), 0) {}

  struct Batch {
    std::vector<float> observation;  // [2 B, in], scaled
    std::vector<std::int32_t> action, length;
    std::vector<float> reward, discount, weight;
  };
  struct Outcome {
    double loss = 0, norm = 0;
    Doubles64 priority;
  };

  Outcome Update(const Batch& batch, double rate) {
    const std::int64_t b = o_.batch, a = o_.network.outputs(), in = o_.network.input_elements;
    const Doubles64 all(batch.observation.begin(), batch.observation.end());
    const Doubles64 first(all.begin(), all.begin() + b * in), last(all.begin() + b * in, all.end());
    std::map<const QLayer*, Doubles64> scrap, kept;
    const Doubles64 q_target = Forward(target, last, &scrap),
                    q_online = Forward(value, last, &scrap);
    const Doubles64 q = Forward(value, first, &kept);
    Doubles64 dq(q.size(), 0);
    Outcome outcome;
    for (std::int64_t i = 0; i < b; ++i) {
      double sum = 0, factor = 1;
      for (std::int64_t k = 0; k < batch.length[std::size_t(i)]; ++k) {
        sum += factor * batch.reward[std::size_t(i * o_.steps + k)];
        factor *= o_.gamma * batch.discount[std::size_t(i * o_.steps + k)];
      }
      const auto row = [&](const Doubles64& all) {
        return Doubles64(all.begin() + i * a, all.begin() + (i + 1) * a);
      };
      const std::size_t best = values_.Best(row(o_.double_q ? q_online : q_target));
      const auto action = std::size_t(batch.action[std::size_t(i)]);
      const auto item = values_.Learn(values_.Of(row(q), action), values_.Of(row(q_target), best),
                                      [&](double z) { return sum + factor * z; });
      const double w = batch.weight[std::size_t(i)] / double(b);
      outcome.loss += w * item.loss;
      for (std::size_t k = 0; k < values_.numbers; ++k)
        dq[std::size_t(i * a) + action * values_.numbers + k] = w * item.dout[k];
      outcome.priority.push_back(item.priority);
    }
    gradient.assign(value.size(), 0);
    Backward(first, dq, &kept);
    for (const double g : gradient) outcome.norm += g * g;
    outcome.norm = std::sqrt(outcome.norm);
    Step(outcome.norm > o_.rule.max_grad_norm ? o_.rule.max_grad_norm / outcome.norm : 1, rate);
    return outcome;
  }

 private:
  const DqnStepOptions o_;
  const ValueReference values_;

 public:
  Doubles64 value, target, gradient;

 private:
  Doubles64 Layer(const Doubles64& weights, const QLayer& layer, const Doubles64& x) const {
    Doubles64 y(std::size_t(o_.batch * layer.out()), 0);
    if (layer.convolution) {
      ConvForwardReference(layer.conv, layer.activation, o_.batch,
                           &weights[std::size_t(layer.weight)], &weights[std::size_t(layer.bias)],
                           x.data(), y.data());
    } else {
      LinearForwardReference(layer.linear, layer.activation, o_.batch,
                             &weights[std::size_t(layer.weight)], &weights[std::size_t(layer.bias)],
                             x.data(), y.data());
    }
    return y;
  }

  Doubles64 Forward(const Doubles64& weights, const Doubles64& observation,
                    std::map<const QLayer*, Doubles64>* out) const {
    const QNetworkSpec& n = o_.network;
    Doubles64 x = observation;
    for (const QLayer& layer : n.layers) x = (*out)[&layer] = Layer(weights, layer, x);
    if (!n.dueling) return Layer(weights, n.advantage, x);
    Doubles64 of_value = x, of_advantage = x;
    if (n.hidden()) {
      of_value = (*out)[&n.value_hidden] = Layer(weights, n.value_hidden, x);
      of_advantage = (*out)[&n.advantage_hidden] = Layer(weights, n.advantage_hidden, x);
    }
    const Doubles64 v = Layer(weights, n.value, of_value);
    Doubles64 q = Layer(weights, n.advantage, of_advantage);
    for (std::int64_t at = 0; at < o_.batch * n.numbers; ++at) {
      double mean = 0;
      for (std::int64_t a = 0; a < n.actions; ++a) mean += q[Place(at, a)] / double(n.actions);
      for (std::int64_t a = 0; a < n.actions; ++a) q[Place(at, a)] += v[std::size_t(at)] - mean;
    }
    return q;
  }

  // Index of the value of an action, for at = row · K + k.
  std::size_t Place(std::int64_t at, std::int64_t action) const {
    const std::int64_t k = o_.network.numbers;
    return std::size_t((at / k * o_.network.actions + action) * k + at % k);
  }

  // From dz of a layer: the gradient of its parameters, and dx.
  Doubles64 LayerBackward(const QLayer& layer, const Doubles64& x, const Doubles64& dz) {
    Doubles64 dx(x.size(), 0);
    double* dw = &gradient[std::size_t(layer.weight)];
    double* db = &gradient[std::size_t(layer.bias)];
    const double* w = &value[std::size_t(layer.weight)];
    if (layer.convolution) {
      ConvBackwardWeightReference(layer.conv, o_.batch, x.data(), dz.data(), dw, db);
      ConvBackwardDataReference(layer.conv, o_.batch, w, dz.data(), dx.data());
    } else {
      LinearBackwardWeightReference(layer.linear, o_.batch, x.data(), dz.data(), dw, db);
      LinearBackwardDataReference(layer.linear, o_.batch, w, dz.data(), dx.data());
    }
    return dx;
  }
  static void Multiply(const QLayer& layer, const Doubles64& y, Doubles64* dy) {
    for (std::size_t i = 0; i < y.size(); ++i) (*dy)[i] *= Derivative(layer.activation, y[i]);
  }

  void Backward(const Doubles64& observation, const Doubles64& dq,
                std::map<const QLayer*, Doubles64>* out) {
    const QNetworkSpec& n = o_.network;
    const Doubles64& x = (*out)[&n.layers.back()];
    Doubles64 dx;
    if (n.dueling) {
      Doubles64 dv, da = dq;
      for (std::int64_t at = 0; at < o_.batch * n.numbers; ++at) {
        double sum = 0;
        for (std::int64_t a = 0; a < n.actions; ++a) sum += dq[Place(at, a)];
        dv.push_back(sum);
        for (std::int64_t a = 0; a < n.actions; ++a) da[Place(at, a)] -= sum / double(n.actions);
      }
      Doubles64 from_value, from_advantage;
      if (n.hidden()) {
        Doubles64 dh = LayerBackward(n.value, (*out)[&n.value_hidden], dv);
        Multiply(n.value_hidden, (*out)[&n.value_hidden], &dh);
        from_value = LayerBackward(n.value_hidden, x, dh);
        dh = LayerBackward(n.advantage, (*out)[&n.advantage_hidden], da);
        Multiply(n.advantage_hidden, (*out)[&n.advantage_hidden], &dh);
        from_advantage = LayerBackward(n.advantage_hidden, x, dh);
      } else {
        from_value = LayerBackward(n.value, x, dv);
        from_advantage = LayerBackward(n.advantage, x, da);
      }
      dx = from_value;
      for (std::size_t i = 0; i < dx.size(); ++i) dx[i] += from_advantage[i];
    } else {
      dx = LayerBackward(n.advantage, x, dq);
    }
    for (std::size_t i = n.layers.size(); i-- > 0;) {
      Multiply(n.layers[i], (*out)[&n.layers[i]], &dx);
      dx = LayerBackward(n.layers[i], i > 0 ? (*out)[&n.layers[i - 1]] : observation, dx);
    }
  }

  void Step(double scale, double rate) {
    ++steps_;
    using Rule = OptimizerRule::Kind;
    for (std::size_t i = 0; i < value.size(); ++i) {
      const double g = gradient[i] * scale;
      value[i] *= 1 - rate * (o_.rule.kind == Rule::kSgd ? 0 : o_.rule.weight_decay);
      if (o_.rule.kind == Rule::kAdam) {
        m_[i] = o_.rule.beta1 * m_[i] + (1 - o_.rule.beta1) * g;
        v_[i] = o_.rule.beta2 * v_[i] + (1 - o_.rule.beta2) * g * g;
        const double m = m_[i] / (1 - std::pow(o_.rule.beta1, steps_));
        const double v = v_[i] / (1 - std::pow(o_.rule.beta2, steps_));
        value[i] -= rate * m / (std::sqrt(v) + o_.rule.epsilon);
      } else if (o_.rule.kind == Rule::kRmsProp) {
        m_[i] = o_.rule.decay * m_[i] + (1 - o_.rule.decay) * g;
        v_[i] = o_.rule.decay * v_[i] + (1 - o_.rule.decay) * g * g;
        value[i] -= rate * g / std::sqrt(v_[i] - m_[i] * m_[i] + o_.rule.epsilon);
      } else {
        m_[i] = o_.rule.momentum * m_[i] + g;
        value[i] -= rate * m_[i];
      }
    }
    if (steps_ % o_.target_update_every_updates != 0) return;
    for (std::size_t i = 0; i < value.size(); ++i)
      target[i] += o_.target_tau * (value[i] - target[i]);
  }

  Doubles64 m_, v_;
  int steps_ = 0;
};

Reference::Batch MakeBatch(Parity& parity, const DqnStepOptions& o,
                           std::vector<std::uint8_t>* bytes) {
  Reference::Batch b;
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

void PutBatch(Parity& parity, const DqnStepOptions& o, const Reference::Batch& b,
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

DqnStepOptions OptionsOf(bool pictures, Head head, OptimizerRule::Kind rule,
                         DqnStepOptions::Values values = DqnStepOptions::Values::kScalar) {
  DqnStepOptions o;
  o.network = MakeSpec(pictures, head, values == DqnStepOptions::Values::kScalar ? 1 : 5);
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

// The change over three updates; the size of the weights would hide errors.
void Compare(Parity& parity, const DqnStepOptions& o, double tolerance) {
  std::vector<float> value = StartValue(parity, o.network), target = value;
  for (float& x : value) {
    if (o.precision == Precision::kBF16) x = RoundedToBF16(x);
    if (o.precision == Precision::kTF32) x = RoundedToTF32(x);
  }
  target = value;
  DqnStep step(parity.device(), o);
  step.SetState(parity.stream(), StateOf(&value, &target));
  Reference reference(o, value);
  const Doubles64 before = reference.value;
  for (int i = 0; i < 4; ++i) {
    std::vector<std::uint8_t> bytes;
    Reference::Batch batch = MakeBatch(parity, o, &bytes);
    PutBatch(parity, o, batch, bytes, step.batch());
    if (o.network.input == DType::kF32)
      for (float& x : batch.observation) x *= o.network.input_scale;
    step.Run(parity.stream(), 0.05);
    const DqnStepReport report = step.NextReport();
    const Reference::Outcome want = reference.Update(batch, 0.05);
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
    want_change.push_back(reference.value[i] - before[i]);
  }
  parity.Close("change", change, want_change, 3 * tolerance);
  parity.Close("target", target, reference.target, tolerance);
}

void UpdatesOfEveryNetworkF32(Parity& parity) {
  for (const bool pictures : {true, false}) {
    for (const Head head : {Head::kPlain, Head::kDueling, Head::kDuelingHidden})
      Compare(parity, OptionsOf(pictures, head, OptimizerRule::Kind::kAdam), 1e-4);
  }
}
void UpdatesOfDistributions(Parity& parity) {
  for (const auto values :
       {DqnStepOptions::Values::kCategorical, DqnStepOptions::Values::kQuantile}) {
    for (const Head head : {Head::kPlain, Head::kDueling, Head::kDuelingHidden}) {
      DqnStepOptions o =
          OptionsOf(head == Head::kDueling, head, OptimizerRule::Kind::kAdam, values);
      o.double_q = head != Head::kDuelingHidden;
      Compare(parity, o, 1e-4);
    }
  }
}
void UpdatesOfEveryOptimizer(Parity& parity) {
  for (const auto rule : {OptimizerRule::Kind::kRmsProp, OptimizerRule::Kind::kSgd}) {
    DqnStepOptions o = OptionsOf(false, Head::kPlain, rule);
    o.double_q = false;
    o.graph = false;
    o.rule.weight_decay = rule == OptimizerRule::Kind::kSgd ? 0 : 0.1;
    Compare(parity, o, 1e-4);
  }
}
template <Precision kPrecision>
void UpdatesOfPicturesWith(Parity& parity) {
  DqnStepOptions o = OptionsOf(true, Head::kDuelingHidden, OptimizerRule::Kind::kAdam);
  o.precision = kPrecision;
  // Rounding of activations flips some ReLUs, which matters in networks this small.
  Compare(parity, o, 0.1);
}

template <Precision kPrecision>
void AGraphGivesTheBytesOfAStream(Parity& parity) {
  std::vector<float> values[2];
  for (const bool graph : {true, false}) {
    Parity same(parity.device(), 5);
    DqnStepOptions o = OptionsOf(true, Head::kDueling, OptimizerRule::Kind::kAdam);
    o.precision = kPrecision;
    o.graph = graph;
    std::vector<float> value = StartValue(same, o.network), target = value;
    DqnStep step(same.device(), o);
    step.SetState(same.stream(), StateOf(&value, &target));
    std::int64_t warm = 0;
    for (int i = 0; i < 7; ++i) {
      std::vector<std::uint8_t> bytes;
      const Reference::Batch batch = MakeBatch(same, o, &bytes);
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
    const DqnStepOptions o = OptionsOf(false, Head::kPlain, OptimizerRule::Kind::kAdam);
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
    const DqnStepOptions o =
        OptionsOf(pictures, pictures ? Head::kDueling : Head::kPlain, OptimizerRule::Kind::kAdam);
    std::vector<float> value = StartValue(parity, o.network), target = value;
    DqnStep step(parity.device(), o);
    step.SetState(parity.stream(), StateOf(&value, &target));
    std::vector<std::uint8_t> bytes;
    const Reference::Batch batch = MakeBatch(parity, o, &bytes);
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
    DqnStepOptions o = OptionsOf(false, Head::kPlain, OptimizerRule::Kind::kAdam);
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
  const DqnStepOptions o = OptionsOf(false, Head::kPlain, OptimizerRule::Kind::kAdam);
  std::vector<float> value = StartValue(parity, o.network), target = value;
  const std::vector<float> before = value;
  DqnStep step(parity.device(), o);
  step.SetState(parity.stream(), StateOf(&value, &target));
  for (int i = 0; i < 3; ++i) {
    std::vector<std::uint8_t> bytes;
    Reference::Batch batch = MakeBatch(parity, o, &bytes);
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
