#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <vector>

#include "core/base/philox.h"
#include "nn/layers/layers.h"
#include "nn/models/model.h"
#include "tests/nn/transformer_bench.h"

namespace troop {
namespace {

using Doubles = std::vector<double>;

constexpr std::int64_t kIn = 5, kUnits = 7, kColumn = 3, kWidth = kColumn + 2 * kUnits + 1;

// A batch of sequences with random inputs, states and output gradients.
struct Data {
  explicit Data(std::vector<std::int32_t> lengths, std::uint64_t seed = 1)
      : length(std::move(lengths)) {
    Rng rng({.run_seed = seed, .purpose = Purpose::kTest});
    rows = std::accumulate(length.begin(), length.end(), 0);
    x = Tensor(DType::kF32, {rows, kIn});
    dout = Tensor(DType::kF32, {rows, kUnits});
    state.resize(length.size() * kWidth);
    for (float& v : x.as<float>()) v = float(rng.Normal());
    for (float& v : dout.as<float>()) v = float(rng.Normal());
    for (float& v : state) v = float(rng.Normal());
  }
  Sequences View(std::span<float> state_out = {}) const {
    return {length, state, state_out, kWidth};
  }
  std::vector<std::int32_t> length;
  std::int64_t rows = 0;
  Tensor x, dout;
  std::vector<float> state;
};

// Every test runs with both kinds of layers.
class RecurrentLayerTest : public ::testing::TestWithParam<bool> {
 protected:
  static bool lstm() { return GetParam(); }
  static std::unique_ptr<Module> Layer(const RecurrentOptions& options = {kIn, kUnits, kColumn}) {
    return lstm() ? MakeLstm(options) : MakeGru(options);
  }
};
INSTANTIATE_TEST_SUITE_P(Kinds, RecurrentLayerTest, ::testing::Bool(),
                         [](const auto& i) { return i.param ? "Lstm" : "Gru"; });

std::vector<float> Parameters(const Module& module) {
  std::vector<float> value(std::size_t(ParameterCount(module)));
  InitParameters(module, 3, value);
  return value;
}

double Sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

// The equations, one step at a time: outputs [rows, kUnits], and the states after the last steps.
struct Reference {
  Doubles out, state;
};
Reference Evaluate(bool lstm, const Module& module, const Doubles& value, const Data& data,
                   const Doubles& x) {
  const auto at = [&](int param, std::int64_t i) {
    return value[std::size_t(module.params()[std::size_t(param)].offset + i)];
  };
  Reference result{{}, Doubles(data.state.begin(), data.state.end())};
  std::int64_t row = 0;
  for (std::size_t s = 0; s < data.length.size(); ++s) {
    double* const h = result.state.data() + s * kWidth + kColumn;
    double* const c = h + kUnits;
    for (std::int32_t t = 0; t < data.length[s]; ++t, ++row) {
      const std::int64_t gates = lstm ? 4 : 3;
      Doubles input(std::size_t(gates * kUnits)), recurrent(input.size());
      for (std::int64_t g = 0; g < gates * kUnits; ++g) {
        double &in = input[std::size_t(g)], &before = recurrent[std::size_t(g)];
        in = at(2, g);
        before = at(3, g);
        for (std::int64_t k = 0; k < kIn; ++k)
          in += at(0, g * kIn + k) * x[std::size_t(row * kIn + k)];
        for (std::int64_t k = 0; k < kUnits; ++k) before += at(1, g * kUnits + k) * h[k];
      }
      for (std::int64_t k = 0; k < kUnits; ++k) {
        const auto u = std::size_t(k), n = std::size_t(kUnits);
        const auto sum = [&](std::size_t gate) {
          return input[gate * n + u] + recurrent[gate * n + u];
        };
        if (lstm) {
          c[k] = Sigmoid(sum(1)) * c[k] + Sigmoid(sum(0)) * std::tanh(sum(2));
          h[k] = Sigmoid(sum(3)) * std::tanh(c[k]);
        } else {
          const double r = Sigmoid(sum(0)), z = Sigmoid(sum(1));
          h[k] = (1 - z) * std::tanh(input[2 * n + u] + r * recurrent[2 * n + u]) + z * h[k];
        }
        result.out.push_back(h[k]);
      }
    }
  }
  return result;
}

struct Passes {
  Tensor out, din;
  std::vector<float> state, gradient;
};
Passes Both(const Module& module, const std::vector<float>& value, const Data& data) {
  Passes result{Tensor(DType::kF32, {data.rows, kUnits}), Tensor(DType::kF32, {data.rows, kIn}),
                data.state, std::vector<float>(value.size(), 9)};
  const TensorSpec spec = data.x.spec();
  const Plan plan = *module.MakePlan({&spec, 1});
  MutableBuffer cache(plan.cache_bytes), workspace(plan.workspace_bytes);
  const Sequences sequences = data.View(result.state);
  StepContext context{.value = value, .workspace = workspace.bytes(), .sequences = &sequences};
  const ConstTensor x = data.x, dout = data.dout;
  module.Forward(context, {&x, 1}, {&result.out, 1}, cache.bytes());
  context.gradient = result.gradient;
  context.accumulate = false;
  module.Backward(context, {&x, 1}, {&dout, 1}, cache.bytes(), {&result.din, 1});
  return result;
}

TEST_P(RecurrentLayerTest, OutputsStatesAndGradientsMatchEquations) {
  const auto module = Layer();
  const std::vector<float> value = Parameters(*module);
  const Data data({3, 1, 6, 3, 2});
  const Passes passes = Both(*module, value, data);
  const Doubles wide(value.begin(), value.end());
  const auto x32 = data.x.as<float>();
  const Doubles x(x32.begin(), x32.end());
  const Reference want = Evaluate(lstm(), *module, wide, data, x);
  for (std::size_t i = 0; i < want.out.size(); ++i)
    EXPECT_NEAR(passes.out.as<float>()[i], want.out[i], 1e-5);
  // Columns of other layers are not touched.
  for (std::size_t i = 0; i < want.state.size(); ++i)
    EXPECT_NEAR(passes.state[i], want.state[i], 1e-5) << i;
  const auto loss = [&](const Doubles& at, const Doubles& input) {
    const Reference result = Evaluate(lstm(), *module, at, data, input);
    double sum = 0;
    for (std::size_t i = 0; i < result.out.size(); ++i)
      sum += result.out[i] * double(data.dout.as<float>()[i]);
    return sum;
  };
  constexpr double kStep = 1e-5;
  for (const ParamSpec& spec : module->params()) {
    for (std::int64_t k = 0; k < spec.shape.elements(); ++k) {
      Doubles above = wide, below = wide;
      above[std::size_t(spec.offset + k)] += kStep;
      below[std::size_t(spec.offset + k)] -= kStep;
      EXPECT_NEAR(passes.gradient[std::size_t(spec.offset + k)],
                  (loss(above, x) - loss(below, x)) / (2 * kStep), 1e-4)
          << spec.name << " " << k;
    }
  }
  for (std::size_t i = 0; i < x.size(); ++i) {
    Doubles above = x, below = x;
    above[i] += kStep;
    below[i] -= kStep;
    EXPECT_NEAR(passes.din.as<float>()[i], (loss(wide, above) - loss(wide, below)) / (2 * kStep),
                1e-4);
  }
}

// tools/make_lstm_fixtures.py.
TEST_P(RecurrentLayerTest, MatchesPyTorch) {
  const TensorFile file =
      test::ReadTensors(lstm() ? "unrolls_lstm.safetensors" : "unrolls_gru.safetensors", "lstm/");
  const auto floats = [&](const std::string& name) { return file.tensors.at(name).as<float>(); };
  const auto length = file.tensors.at("length").as<std::int32_t>();
  const ConstTensor x = file.tensors.at("x"), dout = file.tensors.at("dout");
  const std::int64_t in = x.dim(1), units = dout.dim(1);
  const auto module = Layer({in, units, 0});
  std::vector<float> value(std::size_t(ParameterCount(*module)));
  for (const ParamSpec& spec : module->params())
    std::ranges::copy(floats(spec.name + "_l0"), value.begin() + spec.offset);
  const TensorSpec spec = x.spec();
  const Plan plan = *module->MakePlan({&spec, 1});
  MutableBuffer cache(plan.cache_bytes), workspace(plan.workspace_bytes);
  std::vector<float> state_out(floats("state").size()), gradient(value.size());
  const Sequences sequences{length, floats("state"), state_out, (lstm() ? 2 : 1) * units};
  const StepContext context{.value = value,
                            .gradient = gradient,
                            .workspace = workspace.bytes(),
                            .sequences = &sequences};
  const Tensor out(DType::kF32, {x.dim(0), units}), din(DType::kF32, {x.dim(0), in});
  module->Forward(context, {&x, 1}, {&out, 1}, cache.bytes());
  module->Backward(context, {&x, 1}, {&dout, 1}, cache.bytes(), {&din, 1});
  const auto expect = [&](std::span<const float> got, const std::string& name) {
    const auto want = floats(name);
    ASSERT_EQ(got.size(), want.size());
    for (std::size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got[i], want[i], 2e-6) << name << i;
  };
  expect(out.as<float>(), "out");
  expect(state_out, "state_out");
  expect(din.as<float>(), "dx");
  for (const ParamSpec& param : module->params()) {
    expect(std::span<const float>(gradient).subspan(std::size_t(param.offset),
                                                    std::size_t(param.shape.elements())),
           "gradient." + param.name + "_l0");
  }
}

// An actor's steps, one call each, equal the learner's pass over the sequence.
TEST_P(RecurrentLayerTest, StepsWithCarriedStateEqualWholeSequence) {
  const auto module = Layer();
  const std::vector<float> value = Parameters(*module);
  const Data data({6});
  const Passes passes = Both(*module, value, data);
  std::vector<float> state = data.state, next = data.state;
  const std::vector<std::int32_t> one{1};
  const TensorSpec spec{DType::kF32, {1, kIn}};
  MutableBuffer workspace((*module->MakePlan({&spec, 1})).workspace_bytes);
  for (std::int64_t t = 0; t < 6; ++t) {
    const Sequences sequences{one, state, next, kWidth};
    const ConstTensor x(data.x.Rows(t, 1));
    const Tensor out(DType::kF32, {1, kUnits});
    module->Forward({.value = value, .workspace = workspace.bytes(), .sequences = &sequences},
                    {&x, 1}, {&out, 1}, {});
    for (std::size_t k = 0; k < kUnits; ++k)
      EXPECT_NEAR(out.as<float>()[k], passes.out.as<float>()[std::size_t(t) * kUnits + k], 1e-6);
    state = next;
  }
  for (std::size_t i = 0; i < state.size(); ++i) EXPECT_NEAR(state[i], passes.state[i], 1e-6);
}

// The sequences of a batch do not influence each other.
TEST_P(RecurrentLayerTest, SequencesAreIndependentOfTheBatch) {
  const auto module = Layer();
  const std::vector<float> value = Parameters(*module);
  const Data data({4, 2, 5});
  const Passes all = Both(*module, value, data);
  std::int64_t row = 0;
  for (std::size_t s = 0; s < 3; ++s) {
    Data one({data.length[s]});
    one.x = data.x.Rows(row, data.length[s]);
    one.state.assign(data.state.begin() + std::ptrdiff_t(s * kWidth),
                     data.state.begin() + std::ptrdiff_t((s + 1) * kWidth));
    const Passes alone = Both(*module, value, one);
    for (std::size_t i = 0; i < alone.out.as<float>().size(); ++i)
      EXPECT_NEAR(alone.out.as<float>()[i], all.out.as<float>()[std::size_t(row) * kUnits + i],
                  1e-6);
    row += data.length[s];
  }
}

TEST(RecurrentLayerDeathTest, RejectsSequencesOfAnotherBatch) {
  const auto module = MakeLstm({kIn, kUnits, kColumn});
  const std::vector<float> value = Parameters(*module);
  Data data({3, 2});
  data.length = {3, 3};
  EXPECT_DEATH(Both(*module, value, data), "sequences of 6 rows for a batch of 5");
}

}  // namespace
}  // namespace troop
