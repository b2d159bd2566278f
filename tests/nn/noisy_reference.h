#pragma once

#include <cmath>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "core/base/philox.h"
#include "nn/module.h"

// Noisy layers as plain ones with other weights, in f64. The normal numbers come from Rng, which
// tests/core checks, in the order that MakeNoisyLinear documents.
namespace troop::test {

// ε of a layer's inputs and units.
struct NoisyFactors {
  std::vector<double> in, out;
};
inline NoisyFactors FactorsOf(const NoiseKey& key, std::uint64_t place, std::int64_t in,
                              std::int64_t units) {
  Rng rng({key.seed, Purpose::kNoisyLayer, place, key.draw});
  NoisyFactors factors;
  const auto draw = [&](std::vector<double>* to, std::int64_t n) {
    for (std::int64_t i = 0; i < n; ++i) {
      const double x = rng.Normal();
      to->push_back(x < 0 ? -std::sqrt(-x) : std::sqrt(x));
    }
  };
  draw(&factors.in, in);
  draw(&factors.out, units);
  return factors;
}

// A noisy layer of a module: the prefix of its parameters, such as "head.value.", and its place.
struct NoisyPlace {
  std::string prefix;
  std::uint64_t place = 0;
};

// Calls f(mean, sigma, ε) for each weight and bias of the layer: offsets in the flat buffer.
template <class F>
void ForEachNoisy(const Module& module, const NoisyPlace& layer, const NoiseKey& key, F f) {
  std::map<std::string, const ParamSpec*> specs;
  for (const ParamSpec& spec : module.params()) specs[spec.name] = &spec;
  const ParamSpec& weight = *specs.at(layer.prefix + "weight");
  const std::int64_t units = weight.shape[0], in = weight.shape[1];
  const NoisyFactors e = FactorsOf(key, layer.place, in, units);
  const std::int64_t weight_sigma = specs.at(layer.prefix + "weight_sigma")->offset;
  const std::int64_t bias = specs.at(layer.prefix + "bias")->offset;
  const std::int64_t bias_sigma = specs.at(layer.prefix + "bias_sigma")->offset;
  for (std::int64_t o = 0; o < units; ++o) {
    for (std::int64_t i = 0; i < in; ++i)
      f(std::size_t(weight.offset + o * in + i), std::size_t(weight_sigma + o * in + i),
        e.out[std::size_t(o)] * e.in[std::size_t(i)]);
    f(std::size_t(bias + o), std::size_t(bias_sigma + o), e.out[std::size_t(o)]);
  }
}

// The parameters, with the noise added to the means: those of a network of plain layers.
inline std::vector<double> WithNoise(const Module& module, const std::vector<NoisyPlace>& layers,
                                     const NoiseKey& key, std::span<const double> value) {
  std::vector<double> noisy(value.begin(), value.end());
  for (const NoisyPlace& layer : layers) {
    ForEachNoisy(module, layer, key, [&](std::size_t mean, std::size_t sigma, double e) {
      noisy[mean] += value[sigma] * e;
    });
  }
  return noisy;
}

}  // namespace troop::test
