#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "kernels/fused_mlp/fused_network.h"

// The oracle for small networks: plain loops in f64, with nothing of the kernels in it.
namespace troop {

using Doubles = std::vector<double>;

inline double Activate(Activation activation, double z) {
  if (activation == Activation::kRelu) return z > 0 ? z : 0;
  return activation == Activation::kTanh ? std::tanh(z) : z;
}
inline double Derivative(Activation activation, double y) {
  if (activation == Activation::kRelu) return y > 0 ? 1 : 0;
  return activation == Activation::kTanh ? 1 - y * y : 1;
}

// One item at a time; gradients add up over items.
class SmallNetReference {
 public:
  SmallNetReference(const FusedNet& net, Doubles value)
      : gradient(value.size()), net_(net), value_(std::move(value)) {}

  Doubles Forward(const Doubles& input) {
    results_.clear();
    Doubles x = input;
    for (double& v : x) v *= net_.input_scale;
    results_.push_back(x);
    if (net_.has_conv) results_.push_back(Conv(x));
    for (int i = 0; i < net_.trunk_count; ++i) {
      results_.push_back(Linear(net_.trunk[i], results_.back()));
    }
    const Doubles features = results_.back();
    advantage_ = Stream(net_.advantage, features);
    Doubles q = advantage_.back();
    if (!net_.dueling) return q;
    value_stream_ = Stream(net_.value, features);
    const std::size_t actions = q.size() / numbers;
    for (std::size_t k = 0; k < numbers; ++k) {
      double mean = 0;
      for (std::size_t a = 0; a < actions; ++a) mean += q[a * numbers + k] / double(actions);
      for (std::size_t a = 0; a < actions; ++a) {
        q[a * numbers + k] += value_stream_.back()[k] - mean;
      }
    }
    return q;
  }

  // Backward pass of the last Forward(). Adds to `gradient`.
  void Backward(const Doubles& dq) {
    Doubles da = dq;
    Doubles dx(results_.back().size());
    if (net_.dueling) {
      const std::size_t actions = dq.size() / numbers;
      Doubles sum(numbers);
      for (std::size_t i = 0; i < dq.size(); ++i) sum[i % numbers] += dq[i];
      for (std::size_t i = 0; i < dq.size(); ++i) da[i] -= sum[i % numbers] / double(actions);
      StreamBackward(net_.value, value_stream_, sum, &dx);
    }
    StreamBackward(net_.advantage, advantage_, da, &dx);
    std::size_t at = results_.size() - 1;
    for (int i = net_.trunk_count - 1; i >= 0; --i, --at) {
      const Doubles dy = dx;
      dx.assign(results_[at - 1].size(), 0);
      LinearBackward(net_.trunk[i], results_[at - 1], results_[at], dy, &dx);
    }
    if (net_.has_conv) ConvBackward(results_[0], results_[1], dx);
  }

  Doubles gradient;
  std::size_t numbers =
      1;  // of each action, one after the other (nn/layers/layers.h, MakeDuelingHead)

 private:
  Doubles Linear(const FusedLinear& l, const Doubles& x) const {
    Doubles y(std::size_t(l.out));
    for (std::int64_t o = 0; o < l.out; ++o) {
      double z = At(l.bias + o);
      for (std::int64_t i = 0; i < l.in; ++i) z += At(l.weight + o * l.in + i) * x[std::size_t(i)];
      y[std::size_t(o)] = Activate(l.activation, z);
    }
    return y;
  }

  void LinearBackward(const FusedLinear& l, const Doubles& x, const Doubles& y, const Doubles& dy,
                      Doubles* dx) {
    for (std::int64_t o = 0; o < l.out; ++o) {
      const double dz = dy[std::size_t(o)] * Derivative(l.activation, y[std::size_t(o)]);
      gradient[std::size_t(l.bias + o)] += dz;
      for (std::int64_t i = 0; i < l.in; ++i) {
        gradient[std::size_t(l.weight + o * l.in + i)] += dz * x[std::size_t(i)];
        (*dx)[std::size_t(i)] += dz * At(l.weight + o * l.in + i);
      }
    }
  }

  std::vector<Doubles> Stream(const FusedLinear* layers, const Doubles& features) const {
    std::vector<Doubles> results = {features};
    for (int i = 0; i < net_.stream_count; ++i) {
      results.push_back(Linear(layers[i], results.back()));
    }
    return results;
  }

  void StreamBackward(const FusedLinear* layers, const std::vector<Doubles>& results, Doubles dy,
                      Doubles* dfeatures) {
    for (int i = net_.stream_count - 1; i >= 0; --i) {
      Doubles dx(results[std::size_t(i)].size());
      LinearBackward(layers[i], results[std::size_t(i)], results[std::size_t(i) + 1], dy, &dx);
      dy = dx;
    }
    for (std::size_t i = 0; i < dy.size(); ++i) (*dfeatures)[i] += dy[i];
  }

  // Calls f(output index, input index, weight index) for every product of the convolution.
  template <class F>
  void ForEachProduct(F f) const {
    const FusedConv& c = net_.conv;
    std::size_t out = 0;
    for (std::int64_t oy = 0; oy < c.out_height(); ++oy)
      for (std::int64_t ox = 0; ox < c.out_width(); ++ox)
        for (std::int64_t o = 0; o < c.filters; ++o, ++out)
          for (std::int64_t ky = 0; ky < c.kernel; ++ky)
            for (std::int64_t kx = 0; kx < c.kernel; ++kx)
              for (std::int64_t ch = 0; ch < c.channels; ++ch) {
                const std::int64_t y = oy * c.stride + ky, x = ox * c.stride + kx;
                f(out, std::size_t((y * c.width + x) * c.channels + ch),
                  std::size_t(c.weight + ((o * c.kernel + ky) * c.kernel + kx) * c.channels + ch));
              }
  }

  Doubles Conv(const Doubles& x) const {
    const FusedConv& c = net_.conv;
    Doubles y(std::size_t(c.out_height() * c.out_width() * c.filters));
    for (std::size_t i = 0; i < y.size(); ++i) y[i] = At(c.bias + std::int64_t(i) % c.filters);
    ForEachProduct(
        [&](std::size_t out, std::size_t in, std::size_t w) { y[out] += value_[w] * x[in]; });
    for (double& v : y) v = Activate(c.activation, v);
    return y;
  }

  void ConvBackward(const Doubles& x, const Doubles& y, const Doubles& dy) {
    const FusedConv& c = net_.conv;
    Doubles dz(dy.size());
    for (std::size_t i = 0; i < dy.size(); ++i) {
      dz[i] = dy[i] * Derivative(c.activation, y[i]);
      gradient[std::size_t(c.bias) + i % std::size_t(c.filters)] += dz[i];
    }
    ForEachProduct(
        [&](std::size_t out, std::size_t in, std::size_t w) { gradient[w] += dz[out] * x[in]; });
  }

  double At(std::int64_t index) const { return value_[std::size_t(index)]; }

  const FusedNet net_;
  const Doubles value_;
  std::vector<Doubles> results_;  // input (scaled), convolution, trunk
  std::vector<Doubles> value_stream_, advantage_;
};

// Gives a network's layers their places in the value: in order, each at a multiple of 16.
inline std::int64_t PlaceParameters(FusedNet* net) {
  std::int64_t next = 0;
  const auto take = [&next](std::int64_t count) {
    const std::int64_t at = next;
    next += (count + 15) / 16 * 16;
    return at;
  };
  const auto place = [&](FusedLinear& l) {
    l.weight = take(l.in * l.out);
    l.bias = take(l.out);
  };
  if (net->has_conv) {
    FusedConv& c = net->conv;
    c.weight = take(c.filters * c.kernel * c.kernel * c.channels);
    c.bias = take(c.filters);
  }
  for (int i = 0; i < net->trunk_count; ++i) place(net->trunk[i]);
  if (net->dueling) {
    for (int i = 0; i < net->stream_count; ++i) place(net->value[i]);
  }
  for (int i = 0; i < net->stream_count; ++i) place(net->advantage[i]);
  return next;
}

}  // namespace troop
