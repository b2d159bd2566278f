// Linear models as modules, against plain f64 loops.
#include "nn/sparse/linear_module.h"

#include <gmock/gmock.h>

#include <cmath>

#include "tests/testing/gradient_check.h"

namespace troop {
namespace {

constexpr std::int64_t kFeatures = 6;

// Three examples, of which the second has no features and the last one a feature twice.
const std::vector<std::int32_t> kIds = {0, 3, 5, 2, 2};
const std::vector<std::int32_t> kStarts = {0, 3, 3, 5};
const std::vector<float> kValues = {1, -2, 0.5f, 1, 3};

// A tensor of one dimension.
template <class T>
ConstTensor TensorOf(const std::vector<T>& values) {
  return ConstTensor(Buffer::Copy(std::as_bytes(std::span(values))),
                     {DTypeOf<T>::value, {std::ssize(values)}});
}

// Kinds of predictions with one and with several outputs.
struct Case {
  ProblemType problem;
  std::int64_t outputs;
};
constexpr Case kCases[] = {{ProblemType::kSingleLabel, 1},
                           {ProblemType::kSingleLabel, 3},
                           {ProblemType::kMultiLabel, 2},
                           {ProblemType::kRegression, 1}};

std::unique_ptr<Module> Make(const Case& c) {
  auto made = MakeLinearModule({.features = kFeatures, .outputs = c.outputs}, c.problem);
  EXPECT_TRUE(made.ok()) << made.status().ToString();
  return *std::move(made);
}

// A batch of all examples, and random weights.
test::ModuleBench BenchOf(const Module& module) {
  test::ModuleBench bench(module, {TensorOf(kIds), TensorOf(kStarts), TensorOf(kValues)},
                          Precision::kF32);
  Rng rng({4, Purpose::kTest, 0, 0});
  for (float& w : bench.value) w = float(rng.Normal());
  return bench;
}

// Classes have ln σ(±z), by its definition.
TEST(LinearModuleTest, LogitsAreThoseOfPlainLoops) {
  for (const Case& c : kCases) {
    const auto module = Make(c);
    test::ModuleBench bench = BenchOf(*module);
    bench.Loss();
    std::vector<double> logits;
    for (std::size_t i = 0; i < 3; ++i) {
      for (std::int64_t k = 0; k < c.outputs; ++k) {
        double z = double(bench.value[std::size_t(kFeatures * c.outputs + k)]);
        for (auto j = std::size_t(kStarts[i]); j < std::size_t(kStarts[i + 1]); ++j)
          z += double(kValues[j]) * double(bench.value[std::size_t(kIds[j] * c.outputs + k)]);
        const bool classes = c.problem == ProblemType::kSingleLabel;
        if (classes && c.outputs == 1) logits.push_back(-std::log(1 + std::exp(z)));
        logits.push_back(classes ? -std::log(1 + std::exp(-z)) : z);
      }
    }
    ASSERT_EQ(bench.output.elements(), std::ssize(logits));
    for (std::size_t i = 0; i < logits.size(); ++i)
      EXPECT_NEAR(bench.output.as<float>()[i], logits[i], 1e-5) << i;
  }
}

// Central differences along random directions.
TEST(LinearModuleTest, GradientsAreDerivatives) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(fmt::format("{} {}", EnumName(c.problem), c.outputs));
    const auto module = Make(c);
    test::ModuleBench bench = BenchOf(*module);
    bench.Loss();
    bench.Backward();
    Rng rng({6, Purpose::kTest, 0, 0});
    test::ExpectDirectionalDerivative(bench, bench.value, bench.gradient, rng, {}, "weight");
    // Overwritten instead of accumulated.
    const std::vector<float> once = bench.gradient;
    bench.Backward({}, false);
    EXPECT_EQ(bench.gradient, once);
  }
}

// No features, too many weights, a missing input, and values of another length than the ids.
TEST(LinearModuleTest, WrongSizesAreRefused) {
  EXPECT_FALSE(MakeLinearModule({.features = 0}, ProblemType::kSingleLabel).ok());
  EXPECT_FALSE(
      MakeLinearModule({.features = 1 << 30, .outputs = 4}, ProblemType::kMultiLabel).ok());
  const auto module = Make(kCases[0]);
  const TensorSpec ids{DType::kI32, {4}}, starts{DType::kI32, {3}}, values{DType::kF32, {5}};
  const TensorSpec two[] = {ids, starts}, unequal[] = {ids, starts, values};
  EXPECT_EQ(module->MakePlan(two).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(module->MakePlan(unequal).status().code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace troop
