// Measures networks and DQN steps through the interfaces that actors and learners use.
//
// nn_bench [--quick] [--case NAME]
//
// Prints one JSON object per case, see bench/README.md; each value is the median of many calls.
// Before a case is timed, q is compared with f64 reference loops. Weights and inputs come from
// Synthetic(), which nn_peers.py implements too: `check` is q, or the report and the changes of one
// step.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "core/base/check.h"
#include "kernels/conv/conv2d_reference.h"
#include "kernels/linear/linear_reference.h"
#include "learners/algorithm.h"
#include "nn/models/model.h"

namespace troop {
namespace {

struct NetworkCase {
  std::string name;
  TrainingConfig config;
  EnvSpec env;
  std::uint32_t levels = 256;  // u8 observations are in [0, levels)
};

LayerConfig Conv(std::int64_t filters, std::int64_t kernel, std::int64_t stride) {
  LayerConfig layer;
  layer.type = LayerType::kConv2d;
  layer.filters = filters;
  layer.kernel = kernel;
  layer.stride = stride;
  return layer;
}
LayerConfig Linear(std::int64_t units) {
  LayerConfig layer;
  layer.type = LayerType::kLinear;
  layer.units = units;
  return layer;
}

EnvSpec MakeEnv(const TensorSpec& observation, float scale, std::int64_t actions) {
  EnvSpec env;
  env.id = "bench";
  env.observation = observation;
  env.observation_scale = scale;
  env.action.count = actions;
  return env;
}

// Mnih et al. 2015 with the two streams of 512 of Wang et al. 2016, optimized as in Ape-X.
NetworkCase Nature(const std::string& precision) {
  NetworkCase c{"nature", {}, MakeEnv({DType::kU8, {84, 84, 4}}, 1.0f / 255, 6)};
  c.config.network.layers = {Conv(32, 8, 4), Conv(64, 4, 2), Conv(64, 3, 1)};
  c.config.network.dueling_units = 512;
  c.config.network.precision = *ParseEnum<NetworkPrecision>(precision);
  c.config.optimizer.type = OptimizerType::kRmsProp;
  c.config.optimizer.learning_rate = 6.25e-5;
  c.config.optimizer.epsilon = 1.5e-7;
  c.config.learner.max_grad_norm = 40;
  return c;
}
NetworkCase Mlp() {
  NetworkCase c{"mlp", {}, MakeEnv({DType::kF32, {4}}, 1, 2)};
  c.config.network.dueling = false;
  return c;
}
// Young & Tian 2019.
NetworkCase MinAtar() {
  NetworkCase c{"minatar", {}, MakeEnv({DType::kU8, {10, 10, 4}}, 1, 6), 2};
  c.config.network.layers = {Conv(16, 3, 1), Linear(128)};
  c.config.network.dueling = false;
  c.config.optimizer.type = OptimizerType::kRmsProp;
  c.config.optimizer.learning_rate = 2.5e-4;
  c.config.optimizer.epsilon = 1e-2;
  return c;
}

struct BenchCase {
  std::string name;
  NetworkCase network;
  std::int64_t batch = 1;
  bool step = false;     // a DQN step, else a forward
  double tolerance = 0;  // deviation of outputs, relative to the largest
};

std::vector<BenchCase> Cases() {
  std::vector<BenchCase> cases;
  for (const std::string precision : {"fp32", "bf16"}) {
    // f32: sums of 3136 products; bf16: 2^-8 per value and five layers.
    const double tolerance = precision == "fp32" ? 1e-4 : 4e-2;
    for (const int batch : {1, 8, 32}) {
      cases.push_back({"nature_forward_b" + std::to_string(batch) + "_" + precision,
                       Nature(precision), batch, false, tolerance});
    }
    for (const int batch : {32, 512}) {
      cases.push_back({"nature_step_b" + std::to_string(batch) + "_" + precision, Nature(precision),
                       batch, true, std::max(tolerance, 1e-3)});
    }
  }
  for (const int batch : {1, 16})
    cases.push_back({"mlp_forward_b" + std::to_string(batch), Mlp(), batch, false, 1e-5});
  cases.push_back({"mlp_step_b64", Mlp(), 64, true, 1e-4});
  for (const int batch : {1, 16})
    cases.push_back({"minatar_forward_b" + std::to_string(batch), MinAtar(), batch, false, 1e-5});
  cases.push_back({"minatar_step_b32", MinAtar(), 32, true, 1e-4});
  return cases;
}

Precision PrecisionOf(const TrainingConfig& config) {
  return config.network.precision == NetworkPrecision::kBf16 ? Precision::kBF16 : Precision::kF32;
}

// Deterministic value of (stream, index) (the integer hash of C. Wellons, "lowbias32").
std::uint32_t Synthetic(std::uint32_t stream, std::uint64_t index) {
  std::uint32_t x = std::uint32_t(index) * 0x9E3779B1u ^ stream * 0x85EBCA77u;
  x = (x ^ (x >> 16)) * 0x7FEB352Du;
  x = (x ^ (x >> 15)) * 0x846CA68Bu;
  return x ^ (x >> 16);
}
float SyntheticUniform(std::uint32_t stream, std::uint64_t index) {  // [0, 1)
  return float(Synthetic(stream, index) >> 8) * 0x1p-24f;
}
enum Stream : std::uint32_t {
  kObservation = 1,
  kNextObservation,
  kAction,
  kReward,
  kDiscount,
  kWeight,
  kValue = 100,  // + index of the parameter
  kTarget = 200,
};

void FillObservation(const NetworkCase& c, Stream stream, const Tensor& observation) {
  std::uint64_t i = 0;
  if (observation.dtype() == DType::kU8) {
    for (auto& x : observation.as<std::uint8_t>())
      x = std::uint8_t(Synthetic(stream, i++) % c.levels);
  } else {
    for (auto& x : observation.as<float>()) x = 2 * SyntheticUniform(stream, i++) - 1;
  }
}

void FillParameters(const Module& module, Stream stream, std::span<float> value) {
  std::uint32_t index = 0;
  for (const ParamSpec& spec : module.params()) {
    const float bound = 1.0f / std::sqrt(float(spec.fan_in));
    for (std::int64_t i = 0; i < spec.shape.elements(); ++i)
      value[std::size_t(spec.offset + i)] =
          bound * (2 * SyntheticUniform(stream + index, std::uint64_t(i)) - 1);
    ++index;
  }
}

// A network with parameters, prepared for one batch size.
class Inference {
 public:
  explicit Inference(const BenchCase& c) : case_(c) {
    auto module = MakeNetwork(ModelSetupOf(c.network.config), c.network.env);
    TROOP_CHECK(module.ok(), "{}", module.status().ToString());
    module_ = std::move(*module);
    const TensorSpec in{c.network.env.observation.dtype,
                        c.network.env.observation.shape.Prepend(c.batch)};
    const auto plan = module_->MakePlan({&in, 1});
    TROOP_CHECK(plan.ok(), "{}", plan.status().ToString());
    value_ = Tensor(DType::kF32, {ParameterCount(*module_)});
    FillParameters(*module_, kValue, value_.as<float>());
    input_ = Tensor(in.dtype, in.shape);
    FillObservation(c.network, kObservation, input_);
    in_ = input_;
    out_ = Tensor(plan->out[0].dtype, plan->out[0].shape);
    workspace_ = MutableBuffer(plan->workspace_bytes);
    packed_ = module_->MakePacked(PrecisionOf(c.network.config));
    module_->Pack(value_.as<float>(), packed_.get());
  }

  void Run() {
    module_->Forward(
        {.value = value_.as<float>(), .packed = packed_.get(), .workspace = workspace_.bytes()},
        {&in_, 1}, {&out_, 1}, {});
  }

  std::vector<double> Parameter(const std::string& name) const {
    for (const ParamSpec& spec : module_->params()) {
      if (spec.name != name) continue;
      const auto values =
          value_.as<float>().subspan(std::size_t(spec.offset), std::size_t(spec.shape.elements()));
      return {values.begin(), values.end()};
    }
    TROOP_CHECK(false, "no parameter {}", name);
  }

  const BenchCase& case_;
  std::unique_ptr<Module> module_;
  Tensor value_, input_, out_;
  ConstTensor in_;
  MutableBuffer workspace_;
  std::unique_ptr<Packed> packed_;
};

// One linear layer of a network, in f64.
std::vector<double> ReferenceLinear(const Inference& network, const std::string& name,
                                    const std::vector<double>& x, Activation activation) {
  const auto weight = network.Parameter(name + ".weight"), bias = network.Parameter(name + ".bias");
  const std::int64_t batch = network.case_.batch, out = std::int64_t(bias.size());
  std::vector<double> y(std::size_t(batch * out));
  LinearForwardReference({std::int64_t(x.size()) / batch, out}, activation, batch, weight.data(),
                         bias.data(), x.data(), y.data());
  return y;
}

std::vector<double> ReferenceHead(const Inference& network, const std::vector<double>& x) {
  const TrainingConfig& config = network.case_.network.config;
  if (!config.network.dueling) return ReferenceLinear(network, "head", x, Activation::kNone);
  const auto stream = [&](const std::string& name) {
    if (config.network.dueling_units == 0)
      return ReferenceLinear(network, "head." + name, x, Activation::kNone);
    return ReferenceLinear(
        network, "head." + name,
        ReferenceLinear(network, "head." + name + ".hidden", x, Activation::kRelu),
        Activation::kNone);
  };
  const auto value = stream("value");
  auto q = stream("advantage");
  const auto actions = std::size_t(network.case_.network.env.action.count);
  for (std::size_t b = 0; b < value.size(); ++b) {
    double mean = 0;
    for (std::size_t a = 0; a < actions; ++a) mean += q[b * actions + a] / double(actions);
    for (std::size_t a = 0; a < actions; ++a) q[b * actions + a] += value[b] - mean;
  }
  return q;
}

std::vector<double> ReferenceForward(const Inference& network) {
  const NetworkCase& c = network.case_.network;
  std::vector<double> x;
  if (network.input_.dtype() == DType::kU8) {
    for (const auto v : network.input_.as<std::uint8_t>())
      x.push_back(v * double(c.env.observation_scale));
  } else {
    for (const auto v : network.input_.as<float>())
      x.push_back(v * double(c.env.observation_scale));
  }
  Shape shape = c.env.observation.shape;
  auto layers = c.config.network.layers;
  if (layers.empty()) layers = {Linear(64), Linear(64)};
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const std::string name = "layers." + std::to_string(i);
    if (layers[i].type == LayerType::kLinear) {
      x = ReferenceLinear(network, name, x, Activation::kRelu);
      shape = {layers[i].units};
      continue;
    }
    const ConvShape conv{shape[0],          shape[1],         shape[2],
                         layers[i].filters, layers[i].kernel, layers[i].stride};
    shape = {conv.out_height(), conv.out_width(), conv.filters};
    std::vector<double> y(std::size_t(network.case_.batch * shape.elements()));
    ConvForwardReference(conv, Activation::kRelu, network.case_.batch,
                         network.Parameter(name + ".weight").data(),
                         network.Parameter(name + ".bias").data(), x.data(), y.data());
    x = std::move(y);
  }
  return ReferenceHead(network, x);
}

void CheckForward(Inference& network) {
  network.Run();
  const auto expected = ReferenceForward(network);
  const auto got = network.out_.as<float>();
  double largest = 0, error = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    largest = std::max(largest, std::abs(expected[i]));
    error = std::max(error, std::abs(expected[i] - double(got[i])));
  }
  TROOP_CHECK(error <= network.case_.tolerance * largest, "{}: off by {}, of {}",
              network.case_.name, error, largest);
}

SampleBatch MakeBatch(const BenchCase& c) {
  const TensorSpec observation{c.network.env.observation.dtype,
                               c.network.env.observation.shape.Prepend(c.batch)};
  SampleBatch batch;
  const auto size = std::size_t(c.batch);
  batch.key.resize(size);
  batch.probability.assign(size, 1.0 / double(size));
  batch.length.assign(size, 1);
  batch.policy_version.assign(size, 0);
  batch.observation = Tensor(observation.dtype, observation.shape);
  batch.next_observation = Tensor(observation.dtype, observation.shape);
  FillObservation(c.network, kObservation, batch.observation);
  FillObservation(c.network, kNextObservation, batch.next_observation);
  batch.action = Tensor(DType::kI32, {c.batch});
  batch.reward = Tensor(DType::kF32, {c.batch, 1});
  batch.discount = Tensor(DType::kF32, {c.batch, 1});
  const auto actions = std::uint32_t(c.network.env.action.count);
  for (std::size_t i = 0; i < size; ++i) {
    batch.weight.push_back(0.5f + 0.5f * SyntheticUniform(kWeight, i));
    batch.action.as<std::int32_t>()[i] = std::int32_t(Synthetic(kAction, i) % actions);
    batch.reward.as<float>()[i] = 2 * SyntheticUniform(kReward, i) - 1;
    batch.discount.as<float>()[i] = Synthetic(kDiscount, i) % 10 == 0 ? 0.0f : 1.0f;
  }
  return batch;
}

class Step {
 public:
  explicit Step(const BenchCase& c)
      : batch_(MakeBatch(c)),
        priority_(std::size_t(c.batch)),
        learning_rate_(c.network.config.optimizer.learning_rate) {
    TrainingConfig config = c.network.config;
    config.learner.target_update_every_updates = 1'000'000'000;
    auto algorithm = MakeAlgorithm(config, c.network.env);
    const auto module = MakeNetwork(ModelSetupOf(config), c.network.env);
    TROOP_CHECK(algorithm.ok() && module.ok(), "{} {}", algorithm.status().ToString(),
                module.status().ToString());
    algorithm_ = std::move(*algorithm);
    TensorFile state = algorithm_->State();
    for (const auto& [name, stream] : {std::pair{"value", kValue}, {"target", kTarget}}) {
      Tensor tensor(DType::kF32, {ParameterCount(**module)});
      FillParameters(**module, stream, tensor.as<float>());
      state.tensors[name] = tensor;
    }
    const Status set = algorithm_->SetState(state);
    TROOP_CHECK(set.ok(), "{}", set.ToString());
  }

  LossReport Run() {
    const auto report = algorithm_->Update(batch_, 0, priority_);
    TROOP_CHECK(report.ok(), "{}", report.status().ToString());
    return *report;
  }

  // The first step: loss, mean |TD error|, mean q, gradient norm, and the mean change of a
  // parameter in learning rates.
  std::vector<double> Check() {
    const std::vector<float> before(algorithm_->value().begin(), algorithm_->value().end());
    const LossReport report = Run();
    double change = 0;
    for (std::size_t i = 0; i < before.size(); ++i)
      change += std::abs(double(algorithm_->value()[i]) - double(before[i]));
    change /= double(before.size()) * learning_rate_;
    return {report.loss, report.td_error_mean, report.q_mean, report.gradient_norm, change};
  }

 private:
  SampleBatch batch_;
  std::vector<float> priority_;
  const double learning_rate_;
  std::unique_ptr<Algorithm> algorithm_;
};

double SecondsNow() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// `values` medians, each over about `seconds` of calls; short calls are timed in groups of 10 µs.
std::vector<double> MeasureUs(const std::function<void()>& run, int values, double seconds) {
  double first = 1e9;
  for (int i = 0; i < 5; ++i) {
    const double start = SecondsNow();
    run();
    first = std::min(first, SecondsNow() - start);
  }
  const int group = std::max(1, int(1e-5 / std::max(first, 1e-8)));
  const int repeats = std::max(3, int(seconds / (first * group)));
  std::vector<double> medians;
  for (int v = 0; v < values; ++v) {
    std::vector<double> times;
    for (int r = 0; r < repeats; ++r) {
      const double start = SecondsNow();
      for (int g = 0; g < group; ++g) run();
      times.push_back((SecondsNow() - start) / group * 1e6);
    }
    std::ranges::nth_element(times, times.begin() + repeats / 2);
    medians.push_back(times[std::size_t(repeats / 2)]);
  }
  return medians;
}

void PrintNumbers(const char* name, const std::vector<double>& numbers, const char* format) {
  std::printf(",\"%s\":[", name);
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    if (i > 0) std::printf(",");
    std::printf(format, numbers[i]);
  }
  std::printf("]");
}

void Print(const BenchCase& c, const std::vector<double>& values,
           const std::vector<double>& check) {
  std::printf("{\"case\":\"%s\",\"metric\":\"time\",\"unit\":\"us\"", c.name.c_str());
  PrintNumbers("values", values, "%.4g");
  PrintNumbers("check", check, "%.9g");
  std::printf(",\"check_tolerance\":%g}\n", c.tolerance);
  std::fflush(stdout);
}

void RunCase(const BenchCase& c, bool quick) {
  const int values = quick ? 3 : 7;
  const double seconds = quick ? 0.1 : 0.5;
  if (!c.step) {
    Inference network(c);
    CheckForward(network);
    const auto q = network.out_.as<float>();
    Print(c, MeasureUs([&] { network.Run(); }, values, seconds), {q.begin(), q.end()});
    return;
  }
  // A step has the networks of a forward; the f64 reference loops check those.
  BenchCase forward = c;
  forward.batch = 2;
  Inference network(forward);
  CheckForward(network);
  Step step(c);
  const auto check = step.Check();
  Print(c, MeasureUs([&] { step.Run(); }, values, seconds), check);
}

int Main(int argc, char** argv) {
  bool quick = false;
  std::string only;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    const bool more = i + 1 < argc;
    if (argument == "--quick") {
      quick = true;
    } else if (argument == "--case" && more) {
      only = argv[++i];
    } else {
      std::fprintf(stderr, "nn_bench: unknown argument %s; use [--quick] [--case NAME]\n",
                   argument.c_str());
      return 2;
    }
  }
  bool found = false;
  for (const BenchCase& c : Cases()) {
    if (!only.empty() && c.name != only) continue;
    found = true;
    RunCase(c, quick);
  }
  if (!found) std::fprintf(stderr, "nn_bench: no case \"%s\"\n", only.c_str());
  return found ? 0 : 2;
}

}  // namespace
}  // namespace troop

int main(int argc, char** argv) { return troop::Main(argc, argv); }
