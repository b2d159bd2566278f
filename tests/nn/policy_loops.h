#pragma once

// Policies of agents as plain loops in f64, from the settings of a network and the spec of its
// environment: an oracle for the modules and for every program that computes exported policies.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "nn/models/model.h"
#include "nn/models/value_head.h"
#include "tests/nn/f64_reference.h"

namespace troop::test {

// The loops have linear heads of q-values, quantiles, logits or tanh actions.
inline bool HasPolicyLoops(const ModelSetup& setup, const EnvSpec& env) {
  const bool actor_critic = IsActorCritic(setup.algorithm);
  return !(setup.network.dueling && env.action.discrete() && !actor_critic) &&
         setup.critic != CriticKind::kCategorical && setup.network.one_hot == 0 &&
         !setup.network.layers.empty() && (env.action.discrete() || !actor_critic) &&
         setup.algorithm != AlgorithmKind::kSac &&
         std::ranges::none_of(setup.network.layers, [](const LayerConfig& layer) {
           return layer.type == LayerType::kOwn;
         });
}

// Steps of an episode in the observations of a test: an exported policy with a recurrent state
// begins an episode in every third row.
inline std::int64_t EpisodeOf(const ModelSetup& setup) {
  return StateColumns(setup.network.layers) > 0 ? 3 : 1;
}

// An image [height, width, channels], or a vector as one pixel.
struct Picture {
  std::int64_t height = 1, width = 1, channels = 0;
  Row x;
  bool Has(std::int64_t i, std::int64_t j) const {
    return i >= 0 && j >= 0 && i < height && j < width;
  }
  double At(std::int64_t i, std::int64_t j, std::int64_t c) const {
    return x[std::size_t((i * width + j) * channels + c)];
  }
};

// Calls f(i, j) for the first pixel of each window, in the order of the output.
template <class F>
void ForWindows(const Picture& in, const LayerConfig& layer, Picture* out, F f) {
  const std::int64_t p = layer.padding, k = layer.kernel, s = layer.stride;
  out->height = out->width = 0;
  for (std::int64_t i = -p; i + k <= in.height + p; i += s) ++out->height;
  for (std::int64_t j = -p; j + k <= in.width + p; j += s) ++out->width;
  for (std::int64_t i = 0; i < out->height; ++i) {
    for (std::int64_t j = 0; j < out->width; ++j) f(i * s - p, j * s - p);
  }
}

// Without activation; pixels outside of the image are 0.
inline Picture Convolve(const Picture& in, const LayerConfig& layer, const Values& values,
                        const std::string& name) {
  Picture out{.channels = layer.filters, .x = {}};
  const double* const weight = values[name + ".weight"];
  const double* const bias = values[name + ".bias"];
  const std::int64_t k = layer.kernel;
  ForWindows(in, layer, &out, [&](std::int64_t top, std::int64_t left) {
    for (std::int64_t f = 0; f < layer.filters; ++f) {
      double sum = bias[f];
      for (std::int64_t i = 0; i < k; ++i) {
        for (std::int64_t j = 0; j < k; ++j) {
          for (std::int64_t c = 0; c < in.channels && in.Has(top + i, left + j); ++c)
            sum += weight[((f * k + i) * k + j) * in.channels + c] * in.At(top + i, left + j, c);
        }
      }
      out.x.push_back(sum);
    }
  });
  return out;
}

inline Picture Pool(const Picture& in, const LayerConfig& layer) {
  Picture out{.channels = in.channels, .x = {}};
  ForWindows(in, layer, &out, [&](std::int64_t top, std::int64_t left) {
    for (std::int64_t c = 0; c < in.channels; ++c) {
      double most = -std::numeric_limits<double>::infinity();
      for (std::int64_t i = top; i < top + layer.kernel; ++i) {
        for (std::int64_t j = left; j < left + layer.kernel; ++j) {
          if (in.Has(i, j)) most = std::max(most, in.At(i, j, c));
        }
      }
      out.x.push_back(most);
    }
  });
  return out;
}

inline Row Relu(Row x) {
  for (double& v : x) v = std::max(v, 0.0);
  return x;
}

inline Picture Block(const Picture& in, const LayerConfig& layer, const Values& values,
                     const std::string& name) {
  const LayerConfig same{.filters = in.channels,
                         .kernel = layer.kernel,
                         .stride = 1,
                         .padding = (layer.kernel - 1) / 2};
  Picture x = in;
  for (const char* const part : {".conv0", ".conv1"}) {
    x.x = Relu(x.x);
    x = Convolve(x, same, values, name + part);
  }
  for (std::size_t i = 0; i < x.x.size(); ++i) x.x[i] += in.x[i];
  return x;
}

// Ba et al. 2016, over the channels.
inline Picture Normalize(Picture in, const Values& values, const std::string& name) {
  const auto n = std::size_t(in.channels);
  for (std::size_t at = 0; at < in.x.size(); at += n) {
    const std::span<double> row(in.x.data() + at, n);
    double mean = 0, variance = 0;
    for (const double v : row) mean += v / double(n);
    for (const double v : row) variance += (v - mean) * (v - mean) / double(n);
    for (std::size_t i = 0; i < n; ++i) {
      row[i] = values[name + ".weight"][i] * (row[i] - mean) / std::sqrt(variance + 1e-5) +
               values[name + ".bias"][i];
    }
  }
  return in;
}

inline Picture Layer(const Picture& in, const LayerConfig& layer, const Values& values,
                     const std::string& name) {
  Picture out;
  if (layer.type == LayerType::kMaxPool) return Pool(in, layer);
  if (layer.type == LayerType::kConv2d) out = Convolve(in, layer, values, name);
  if (layer.type == LayerType::kResidual) out = Block(in, layer, values, name);
  if (layer.type == LayerType::kLayerNorm) out = Normalize(in, values, name);
  if (layer.type == LayerType::kLinear)
    out = {.channels = layer.units, .x = Linear(values, name, in.x)};
  if (layer.activation == Activation::kRelu) out.x = Relu(out.x);
  if (layer.activation == Activation::kTanh) {
    for (double& v : out.x) v = std::tanh(v);
  }
  return out;
}

inline double Sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

// h and c of a recurrent layer, empty at the start of an episode.
struct Memory {
  Row h, c;
};
// One step of PyTorch's nn.LSTM (4 gates) or nn.GRU (3 gates).
inline Row Remember(const Row& x, std::int64_t units, const Values& values, const std::string& name,
                    Memory* memory) {
  const auto n = std::size_t(units);
  memory->h.resize(n);
  memory->c.resize(n);
  const Row before = memory->h;
  const std::size_t gates = values.size(name + ".bias_ih") / n;
  const auto sum = [&](const char* side, std::size_t row, const Row& of) {
    double total = values[name + ".bias_" + side][row];
    for (std::size_t k = 0; k < of.size(); ++k)
      total += values[name + ".weight_" + side][row * of.size() + k] * of[k];
    return total;
  };
  for (std::size_t i = 0; i < n; ++i) {
    const auto gate = [&](std::size_t g) {
      return sum("ih", g * n + i, x) + sum("hh", g * n + i, before);
    };
    if (gates == 4) {
      memory->c[i] = Sigmoid(gate(1)) * memory->c[i] + Sigmoid(gate(0)) * std::tanh(gate(2));
      memory->h[i] = Sigmoid(gate(3)) * std::tanh(memory->c[i]);
      continue;
    }
    const double reset = Sigmoid(gate(0)), keep = Sigmoid(gate(1));
    const double fresh = std::tanh(sum("ih", 2 * n + i, x) + reset * sum("hh", 2 * n + i, before));
    memory->h[i] = (1 - keep) * fresh + keep * before[i];
  }
  return memory->h;
}

// One network with its parameters.
class PolicyLoops {
 public:
  PolicyLoops(const ModelSetup& setup, const EnvSpec& env, const Module& network,
              std::span<const float> value)
      : setup_(setup),
        env_(env),
        all_(value.begin(), value.end()),
        values_(network, all_),
        prefix_(network.params()[0].name.starts_with("policy.") ? "policy." : "") {}

  // The outputs of each row of observations [rows, ...NetworkInput], in episodes of EpisodeOf rows.
  std::vector<double> Outputs(const Tensor& observations) {
    std::vector<double> out;
    const std::int64_t frame = env_.observation.shape.elements(), size = frame * setup_.frame_stack;
    for (std::int64_t b = 0; b < observations.dim(0); ++b) {
      if (b % EpisodeOf(setup_) == 0) memory_.clear();
      Row whole;
      for (std::int64_t i = 0; i < size; ++i) {
        const auto at = std::size_t(b * size + i);
        whole.push_back(observations.dtype() == DType::kU8
                            ? double(observations.as<std::uint8_t>()[at])
                            : double(observations.as<float>()[at]));
      }
      Row row = Head(Hidden(Input(whole)));
      Mask({whole.end() - frame, whole.end()}, &row);
      out.insert(out.end(), row.begin(), row.end());
    }
    return out;
  }

 private:
  // Part of an observation, without the mask.
  struct Seen {
    std::string name;
    std::int64_t first;
    Shape shape;
    double scale;
  };
  std::vector<Seen> Parts() const {
    std::vector<Seen> parts;
    std::int64_t first = 0;
    for (const ObservationPart& part : env_.parts) {
      const double scale = setup_.network.normalize_observations ? 1 : double(part.scale);
      if (!part.action_mask) parts.push_back({part.name, first, part.shape, scale});
      first += part.shape.elements();
    }
    // A plain observation; pictures without channels have one.
    const Shape& shape = env_.observation.shape;
    const bool picture = setup_.network.layers[0].type == LayerType::kConv2d && shape.rank() == 2;
    if (parts.empty()) parts.push_back({"", 0, picture ? Shape{shape[0], shape[1], 1} : shape, 1});
    return parts;
  }

  // The whole observation as the network sees it: clipped, then scaled or normalized.
  Row Input(Row x) const {
    if (const double limit = setup_.observation_clip; limit > 0) {
      for (double& v : x) v = std::clamp(v, -limit, limit);
    }
    const std::string name = prefix_ + (env_.parts.empty() ? "input" : "input.observation");
    for (std::size_t i = 0; i < x.size(); ++i) {
      if (!setup_.network.normalize_observations) {
        x[i] *= double(env_.observation_scale);
        continue;
      }
      const double variance = values_[name + ".variance"][i];
      x[i] = (x[i] - values_[name + ".mean"][i]) / std::sqrt(variance + 1e-8);
      x[i] = std::clamp(x[i], -10.0, 10.0);
    }
    return x;
  }

  // Frames of an image become channels, the oldest first; those of a vector follow each other.
  Picture Select(const Row& x, const Seen& part) const {
    const bool image = part.shape.rank() == 3;
    const std::int64_t channels = image ? part.shape[2] : part.shape.elements();
    const std::int64_t frame = std::int64_t(x.size()) / setup_.frame_stack;
    Picture out{.channels = channels * setup_.frame_stack, .x = {}};
    if (image) out.height = part.shape[0], out.width = part.shape[1];
    for (std::int64_t pixel = 0; pixel < out.height * out.width; ++pixel) {
      for (std::int64_t s = 0; s < setup_.frame_stack; ++s) {
        for (std::int64_t c = 0; c < channels; ++c) {
          out.x.push_back(part.scale *
                          x[std::size_t(s * frame + part.first + pixel * channels + c)]);
        }
      }
    }
    return out;
  }

  Row Hidden(const Row& x) {
    const std::vector<LayerConfig>& layers = setup_.network.layers;
    const std::vector<Seen> parts = Parts();
    std::size_t next = 0;
    Picture joined;
    if (parts.size() == 1) joined = Select(x, parts[0]);
    // Each of several images has its own copy of the layers before the first one for vectors.
    if (parts.size() > 1) {
      const bool any =
          std::ranges::any_of(parts, [](const Seen& p) { return p.shape.rank() == 3; });
      while (any && layers[0].type == LayerType::kConv2d &&
             (IsImageLayer(layers[next].type) || layers[next].type == LayerType::kLayerNorm))
        ++next;
      for (const Seen& part : parts) {
        Picture seen = Select(x, part);
        for (std::size_t i = 0; part.shape.rank() == 3 && i < next; ++i) {
          seen = Layer(seen, layers[i], values_,
                       prefix_ + "input.parts." + part.name + ".layers." + std::to_string(i));
        }
        joined.x.insert(joined.x.end(), seen.x.begin(), seen.x.end());
      }
      joined.channels = std::int64_t(joined.x.size());
    }
    for (; next < layers.size(); ++next) {
      const std::string name = prefix_ + "layers." + std::to_string(next);
      const LayerConfig& layer = layers[next];
      if (IsRecurrent(layer.type)) {
        joined = {.channels = layer.units,
                  .x = Remember(joined.x, layer.units, values_, name, &memory_[next])};
      } else {
        joined = Layer(joined, layer, values_, name);
      }
    }
    return joined.x;
  }

  Row Head(const Row& x) const {
    Row out = Linear(values_, prefix_ + "head", x);
    const std::vector<float>&low = env_.action.low, &high = env_.action.high;
    for (std::size_t i = 0; i < low.size(); ++i)
      out[i] = low[i] + (double(high[i]) - low[i]) * (1 + std::tanh(out[i])) / 2;
    if (IsActorCritic(setup_.algorithm) || !env_.action.discrete()) return out;
    // The mean of each action's quantiles.
    const auto numbers = std::size_t(GetValueHead(setup_).numbers);
    Row q(out.size() / numbers);
    for (std::size_t i = 0; i < out.size(); ++i) q[i / numbers] += out[i] / double(numbers);
    return q;
  }

  // frame: the newest one, as the environment gave it.
  void Mask(const Row& frame, Row* q) const {
    std::size_t first = 0;
    for (const ObservationPart& part : env_.parts) {
      const auto n = std::size_t(part.shape.elements());
      bool any = false;
      for (std::size_t a = 0; a < n; ++a) any |= frame[first + a] != 0;
      for (std::size_t a = 0; a < n && any && part.action_mask; ++a) {
        if (frame[first + a] == 0) (*q)[a] = -1e30;
      }
      first += n;
    }
  }

  const ModelSetup setup_;
  const EnvSpec env_;
  const std::vector<double> all_;
  const Values values_;
  const std::string prefix_;
  std::map<std::size_t, Memory> memory_;  // of the layers, in the present episode
};

}  // namespace troop::test
