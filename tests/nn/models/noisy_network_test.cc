// Networks with noisy heads, against plain loops in f64 over the weights with their noise.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "nn/layers/layers.h"
#include "nn/models/model.h"
#include "nn/models/q_network_spec.h"
#include "tests/nn/f64_reference.h"
#include "tests/nn/noisy_reference.h"
#include "tests/nn/policy_cases.h"

namespace troop {
namespace {

using test::NoisyPlace;
using test::Row;
using test::Values;

constexpr std::int64_t kBatch = 4, kInputs = 5, kActions = 3;
constexpr NoiseKey kKey{.seed = 77, .draw = 1};
// Places of the head's layers, after those of the list.
constexpr std::uint64_t kHead = std::uint64_t{1} << 32;

ModelSetup NoisySetup(bool dueling, std::int64_t units, std::int64_t numbers) {
  ModelSetup setup;
  setup.network.layers = {LinearLayer(7, Activation::kTanh), LinearLayer(6, Activation::kTanh)};
  setup.network.noisy = true;
  setup.network.dueling = dueling;
  setup.network.dueling_units = units;
  if (numbers > 1) {
    setup.critic = CriticKind::kQuantile;
    setup.atoms = numbers;
  }
  return setup;
}

// Noisy layers of that setup: with dueling those of the streams, otherwise all.
std::vector<NoisyPlace> Places(bool dueling, std::int64_t units) {
  if (!dueling) return {{"layers.0.", 0}, {"layers.1.", 1}, {"head.", kHead}};
  std::vector<NoisyPlace> places{{"head.value.", kHead + 1}, {"head.advantage.", kHead + 3}};
  if (units > 0) {
    places.push_back({"head.value.hidden.", kHead});
    places.push_back({"head.advantage.hidden.", kHead + 2});
  }
  return places;
}

Row Mapped(Row x, double (*f)(double)) {
  for (double& v : x) v = f(v);
  return x;
}
double Tanh(double x) { return std::tanh(x); }
double Relu(double x) { return std::max(x, 0.0); }

// Outputs [A · K] for one observation; the network's layers are plain, with these parameters.
Row Plain(const Module& module, std::span<const double> value, Row x, bool dueling, bool hidden) {
  const Values values(module, value);
  for (const char* const layer : {"layers.0", "layers.1"})
    x = Mapped(test::Linear(values, layer, x), Tanh);
  if (!dueling) return test::Linear(values, "head", x);
  const auto stream = [&](const std::string& name) {
    return test::Linear(values, name,
                        hidden ? Mapped(test::Linear(values, name + ".hidden", x), Relu) : x);
  };
  const Row v = stream("head.value");
  Row q = stream("head.advantage");
  const std::size_t numbers = v.size();
  for (std::size_t k = 0; k < numbers; ++k) {
    double mean = 0;
    for (std::size_t i = k; i < q.size(); i += numbers) mean += q[i] / kActions;
    for (std::size_t i = k; i < q.size(); i += numbers) q[i] += v[k] - mean;
  }
  return q;
}

TEST(NoisyNetworkTest, EqualsLoops) {
  const EnvSpec env = DiscreteEnv({DType::kF32, {kInputs}}, kActions);
  Rng rng({3, Purpose::kTest});
  const Tensor rows(DType::kF32, {kBatch, kInputs});
  for (float& x : rows.as<float>()) x = float(rng.Normal());
  for (const auto& [dueling, units, numbers] :
       {std::tuple(false, 0, 1), {false, 0, 2}, {true, 0, 1}, {true, 5, 1}, {true, 5, 2}}) {
    SCOPED_TRACE(testing::Message() << dueling << units << numbers);
    const auto network = *MakeNetwork(NoisySetup(dueling, units, numbers), env);
    std::vector<float> value(std::size_t(ParameterCount(*network)));
    InitParameters(*network, 7, value);
    const Plan plan = *network->MakePlan({{rows.spec()}});
    const std::size_t width = std::size_t(kActions * numbers);
    MutableBuffer workspace = MutableBuffer::Zeros(plan.workspace_bytes),
                  cache = MutableBuffer::Zeros(plan.cache_bytes);
    const Tensor out(DType::kF32, plan.out[0].shape), dout(DType::kF32, plan.out[0].shape);
    const ConstTensor in(rows), dy(dout);
    // Output row b of parameters in f64, with the noise of this key.
    const auto reference = [&](std::span<const double> at, std::optional<NoiseKey> key,
                               std::int64_t b) {
      const std::vector<double> noisy =
          key ? test::WithNoise(*network, Places(dueling, units), *key, at)
              : std::vector<double>(at.begin(), at.end());
      const auto x = rows.Rows(b, 1).as<float>();
      return Plain(*network, noisy, Row(x.begin(), x.end()), dueling, units > 0);
    };
    const std::vector<double> doubles(value.begin(), value.end());
    for (const std::optional<NoiseKey> key : {std::optional<NoiseKey>(), {kKey}}) {
      for (const bool keep : {false, true}) {
        network->Forward({.value = value, .workspace = workspace.bytes(), .noise = key}, {&in, 1},
                         {&out, 1}, keep ? cache.bytes() : Cache());
        for (std::int64_t b = 0; b < kBatch; ++b) {
          const Row want = reference(doubles, key, b);
          for (std::size_t i = 0; i < width; ++i)
            EXPECT_NEAR(out.as<float>()[std::size_t(b) * width + i], want[i], 1e-5) << b << i;
        }
      }
    }
    for (std::size_t i = 0; i < dout.as<float>().size(); ++i)
      dout.as<float>()[i] = test::LossWeight(i);
    std::vector<float> gradient(value.size());
    network->Backward(
        {.value = value, .gradient = gradient, .workspace = workspace.bytes(), .noise = kKey},
        {&in, 1}, {&dy, 1}, cache.bytes(), {});
    const auto loss = [&](std::span<const double> at) {
      double sum = 0;
      for (std::int64_t b = 0; b < kBatch; ++b) {
        const Row row = reference(at, kKey, b);
        for (std::size_t i = 0; i < width; ++i)
          sum += double(test::LossWeight(std::size_t(b) * width + i)) * row[i];
      }
      return sum;
    };
    test::ExpectSlopes(*network, value, gradient, loss, 1e-3);
  }
}

// Rounding of bf16 in a whole network, in both passes.
TEST(NoisyNetworkTest, Bf16StaysWithinRoundingError) {
  const EnvSpec env = DiscreteEnv({DType::kF32, {kInputs}}, kActions);
  const auto network = *MakeNetwork(NoisySetup(true, 5, 1), env);
  std::vector<float> value(std::size_t(ParameterCount(*network)));
  InitParameters(*network, 7, value);
  Rng rng({3, Purpose::kTest});
  const Tensor rows(DType::kF32, {kBatch, kInputs}), out(DType::kF32, {kBatch, kActions});
  for (float& x : rows.as<float>()) x = float(rng.Normal());
  const Plan plan = *network->MakePlan({{rows.spec()}});
  MutableBuffer workspace = MutableBuffer::Zeros(plan.workspace_bytes),
                cache = MutableBuffer::Zeros(plan.cache_bytes);
  std::vector<std::vector<float>> outputs, gradients;
  for (const Precision precision : {Precision::kF32, Precision::kBF16}) {
    const auto packed = network->MakePacked(precision);
    network->Pack(value, packed.get());
    std::vector<float> gradient(value.size());
    const StepContext context{.value = value,
                              .packed = packed.get(),
                              .gradient = gradient,
                              .workspace = workspace.bytes(),
                              .noise = kKey};
    const ConstTensor in(rows), dy(out);
    network->Forward(context, {&in, 1}, {&out, 1}, cache.bytes());
    outputs.emplace_back(out.as<float>().begin(), out.as<float>().end());
    for (std::size_t i = 0; i < out.as<float>().size(); ++i)
      out.as<float>()[i] = test::LossWeight(i);
    network->Backward(context, {&in, 1}, {&dy, 1}, cache.bytes(), {});
    gradients.push_back(gradient);
  }
  for (std::size_t i = 0; i < outputs[0].size(); ++i)
    EXPECT_NEAR(outputs[1][i], outputs[0][i], 0.05) << i;
  for (std::size_t i = 0; i < value.size(); ++i)
    EXPECT_NEAR(gradients[1][i], gradients[0][i], 0.1) << i;
}

TEST(NoisyNetworkTest, GpusRefuseIt) {
  const EnvSpec env = DiscreteEnv({DType::kF32, {kInputs}}, kActions);
  const auto network = *MakeNetwork(NoisySetup(true, 0, 1), env);
  EXPECT_EQ(QNetworkSpecOf(NoisySetup(true, 0, 1), env, *network).status().message(),
            "network.noisy is only supported on the CPU; set the device to \"cpu\"");
}

}  // namespace
}  // namespace troop
