// The reference of whole updates, composed of the references of single operations.
#include "tests/cuda/dqn_oracle.h"

#include <cmath>

#include "kernels/conv/conv2d_reference.h"
#include "kernels/linear/linear_reference.h"

namespace troop::cuda {
namespace {

// Layers whose parameters begin at *at, which moves to the next block of 16.
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

// Derivative of an activation from its result y.
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

}  // namespace

QNetworkSpec DqnSpecOf(bool pictures, DqnHead head, std::int64_t numbers) {
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
  spec.dueling = head != DqnHead::kPlain;
  if (head == DqnHead::kDuelingHidden) {
    spec.value_hidden = Linear(features, 16, Activation::kRelu, &at);
    spec.advantage_hidden = Linear(features, 16, Activation::kRelu, &at);
    features = 16;
  }
  if (spec.dueling) spec.value = Linear(features, numbers, Activation::kNone, &at);
  spec.advantage = Linear(features, spec.outputs(), Activation::kNone, &at);
  spec.parameters = at;
  return spec;
}

DqnOracle::DqnOracle(const DqnStepOptions& options, const std::vector<float>& value)
    : o_(options),
      values_(ValuesOf(options)),
      value_(value.begin(), value.end()),
      target_(value_),
      m_(value.size(), 0),
      v_(value.size(), 0) {}

// The n-step target of each item, the gradient of the loss, and the step of the optimizer.
DqnOracle::Outcome DqnOracle::Update(const Batch& batch, double rate) {
  const std::int64_t b = o_.batch, a = o_.network.outputs(), in = o_.network.input_elements;
  const Numbers all(batch.observation.begin(), batch.observation.end());
  const Numbers first(all.begin(), all.begin() + b * in), last(all.begin() + b * in, all.end());
  Kept scrap, kept;
  const Numbers q_target = Forward(target_, last, &scrap), q_online = Forward(value_, last, &scrap);
  const Numbers q = Forward(value_, first, &kept);
  Numbers dq(q.size(), 0);
  Outcome outcome;
  for (std::int64_t i = 0; i < b; ++i) {
    double sum = 0, factor = 1;
    for (std::int64_t k = 0; k < batch.length[std::size_t(i)]; ++k) {
      sum += factor * batch.reward[std::size_t(i * o_.steps + k)];
      factor *= o_.gamma * batch.discount[std::size_t(i * o_.steps + k)];
    }
    const auto row = [&](const Numbers& all) {
      return Numbers(all.begin() + i * a, all.begin() + (i + 1) * a);
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
  gradient_.assign(value_.size(), 0);
  Backward(first, dq, &kept);
  for (const double g : gradient_) outcome.norm += g * g;
  outcome.norm = std::sqrt(outcome.norm);
  Step(outcome.norm > o_.rule.max_grad_norm ? o_.rule.max_grad_norm / outcome.norm : 1, rate);
  return outcome;
}

// y = activation(w x + b).
DqnOracle::Numbers DqnOracle::Layer(const Numbers& weights, const QLayer& layer,
                                    const Numbers& x) const {
  Numbers y(std::size_t(o_.batch * layer.out()), 0);
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

// q [B, A, K]. out: the results of the layers before the heads.
DqnOracle::Numbers DqnOracle::Forward(const Numbers& weights, const Numbers& observation,
                                      Kept* out) const {
  const QNetworkSpec& n = o_.network;
  Numbers x = observation;
  for (const QLayer& layer : n.layers) x = (*out)[&layer] = Layer(weights, layer, x);
  if (!n.dueling) return Layer(weights, n.advantage, x);
  Numbers of_value = x, of_advantage = x;
  if (n.hidden()) {
    of_value = (*out)[&n.value_hidden] = Layer(weights, n.value_hidden, x);
    of_advantage = (*out)[&n.advantage_hidden] = Layer(weights, n.advantage_hidden, x);
  }
  const Numbers v = Layer(weights, n.value, of_value);
  Numbers q = Layer(weights, n.advantage, of_advantage);
  for (std::int64_t at = 0; at < o_.batch * n.numbers; ++at) {
    // q = v + a - mean(a) (Wang et al. 2016, eq. 9).
    double mean = 0;
    for (std::int64_t a = 0; a < n.actions; ++a) mean += q[Place(at, a)] / double(n.actions);
    for (std::int64_t a = 0; a < n.actions; ++a) q[Place(at, a)] += v[std::size_t(at)] - mean;
  }
  return q;
}

std::size_t DqnOracle::Place(std::int64_t at, std::int64_t action) const {
  const std::int64_t k = o_.network.numbers;
  return std::size_t((at / k * o_.network.actions + action) * k + at % k);
}

DqnOracle::Numbers DqnOracle::LayerBackward(const QLayer& layer, const Numbers& x,
                                            const Numbers& dz) {
  Numbers dx(x.size(), 0);
  double* dw = &gradient_[std::size_t(layer.weight)];
  double* db = &gradient_[std::size_t(layer.bias)];
  const double* w = &value_[std::size_t(layer.weight)];
  if (layer.convolution) {
    ConvBackwardWeightReference(layer.conv, o_.batch, x.data(), dz.data(), dw, db);
    ConvBackwardDataReference(layer.conv, o_.batch, w, dz.data(), dx.data());
  } else {
    LinearBackwardWeightReference(layer.linear, o_.batch, x.data(), dz.data(), dw, db);
    LinearBackwardDataReference(layer.linear, o_.batch, w, dz.data(), dx.data());
  }
  return dx;
}

// From the gradient of y to that before the activation.
void DqnOracle::Multiply(const QLayer& layer, const Numbers& y, Numbers* dy) {
  for (std::size_t i = 0; i < y.size(); ++i) (*dy)[i] *= Derivative(layer.activation, y[i]);
}

// From the gradient of q to those of all parameters.
void DqnOracle::Backward(const Numbers& observation, const Numbers& dq, Kept* out) {
  const QNetworkSpec& n = o_.network;
  const Numbers& x = (*out)[&n.layers.back()];
  Numbers dx;
  if (n.dueling) {
    Numbers dv, da = dq;
    for (std::int64_t at = 0; at < o_.batch * n.numbers; ++at) {
      double sum = 0;
      for (std::int64_t a = 0; a < n.actions; ++a) sum += dq[Place(at, a)];
      dv.push_back(sum);
      for (std::int64_t a = 0; a < n.actions; ++a) da[Place(at, a)] -= sum / double(n.actions);
    }
    Numbers from_value, from_advantage;
    if (n.hidden()) {
      Numbers dh = LayerBackward(n.value, (*out)[&n.value_hidden], dv);
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

// The optimizer, then the target network.
void DqnOracle::Step(double scale, double rate) {
  ++steps_;
  using Rule = OptimizerRule::Kind;
  for (std::size_t i = 0; i < value_.size(); ++i) {
    double g = gradient_[i] * scale;
    if (o_.rule.kind == Rule::kSgd) {
      g += o_.rule.weight_decay * value_[i];
    } else {
      value_[i] *= 1 - rate * o_.rule.weight_decay;
    }
    if (o_.rule.kind == Rule::kAdam) {
      m_[i] = o_.rule.beta1 * m_[i] + (1 - o_.rule.beta1) * g;
      v_[i] = o_.rule.beta2 * v_[i] + (1 - o_.rule.beta2) * g * g;
      const double m = m_[i] / (1 - std::pow(o_.rule.beta1, steps_));
      const double v = v_[i] / (1 - std::pow(o_.rule.beta2, steps_));
      const double limit = 2 / (1 - o_.rule.beta2) - 1, power = std::pow(o_.rule.beta2, steps_);
      const double length = limit - 2 * steps_ * power / (1 - power);
      double size = rate / (std::sqrt(v) + o_.rule.epsilon);
      if (o_.rule.rectified && steps_ > 5) {
        size *=
            std::sqrt((length - 4) * (length - 2) * limit / ((limit - 4) * (limit - 2) * length));
      } else if (o_.rule.rectified) {
        size = rate;
      }
      value_[i] -= size * m;
    } else if (o_.rule.kind == Rule::kRmsProp) {
      m_[i] = o_.rule.decay * m_[i] + (1 - o_.rule.decay) * g;
      v_[i] = o_.rule.decay * v_[i] + (1 - o_.rule.decay) * g * g;
      value_[i] -= rate * g / std::sqrt(v_[i] - m_[i] * m_[i] + o_.rule.epsilon);
    } else {
      m_[i] = o_.rule.momentum * m_[i] + g;
      value_[i] -= rate * m_[i];
    }
  }
  if (steps_ % o_.target_update_every_updates != 0) return;
  for (std::size_t i = 0; i < value_.size(); ++i)
    target_[i] += o_.target_tau * (value_[i] - target_[i]);
}

}  // namespace troop::cuda
