// Losses against PyTorch's automatic differentiation (tools/make_loss_fixtures.py).

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "kernels/loss/policy_gradient_loss.h"
#include "kernels/loss/q_lambda_loss.h"
#include "kernels/loss/sequence_q_loss.h"
#include "tests/nn/transformer_bench.h"

namespace troop {
namespace {

// The batch of a file, the results of PyTorch, and room for those of a kernel.
struct Fixture {
  explicit Fixture(const std::string& name)
      : file(test::ReadTensors(name + ".safetensors", "losses/")),
        gradient(file.tensors.at("gradient").shape().elements()),
        priority(file.tensors.at("length").shape().elements()) {}
  const float* floats(const char* name) const { return file.tensors.at(name).data<float>(); }
  const std::int32_t* ints(const char* name) const {
    return file.tensors.at(name).data<std::int32_t>();
  }
  std::int64_t batch() const { return file.tensors.at("length").dim(0); }
  std::int64_t steps() const { return file.tensors.at("reward").dim(1); }
  void Expect(double loss) const {
    const auto want = [&](const char* name) { return file.tensors.at(name).as<double>(); };
    EXPECT_NEAR(loss, want("loss")[0], 1e-9 * (1 + std::abs(loss)));
    for (std::size_t i = 0; i < gradient.size(); ++i)
      EXPECT_NEAR(gradient[i], want("gradient")[i], 1e-6) << i;
    for (std::size_t i = 0; i < priority.size(); ++i)
      EXPECT_NEAR(priority[i], want("priority")[i], 1e-5) << i;
  }
  const TensorFile file;
  std::vector<float> gradient, priority;
};

TEST(LossFixturesTest, R2d2MatchesPyTorch) {
  Fixture f("r2d2");
  f.Expect(SequenceQLoss({.batch = f.batch(),
                          .actions = 3,
                          .q = f.floats("q"),
                          .q_target = f.floats("q_target"),
                          .stride = f.steps(),
                          .action = f.ints("action"),
                          .reward = f.floats("reward"),
                          .discount = f.floats("discount"),
                          .length = f.ints("length"),
                          .weight = f.floats("weight"),
                          .gamma = 0.9,
                          .n_step = 3,
                          .largest_share = 0.75},
                         {f.gradient.data(), f.priority.data()})
               .loss);
}

TEST(LossFixturesTest, QLambdaMatchesPyTorch) {
  Fixture f("q_lambda");
  f.Expect(QLambdaLoss({.batch = f.batch(),
                        .actions = 3,
                        .steps = f.steps(),
                        .q = f.floats("q"),
                        .action = f.ints("action"),
                        .reward = f.floats("reward"),
                        .discount = f.floats("discount"),
                        .length = f.ints("length"),
                        .weight = f.floats("weight"),
                        .gamma = 0.9,
                        .lambda = 0.8,
                        .huber = false},
                       {f.gradient.data(), f.priority.data()})
               .loss);
}

TEST(LossFixturesTest, ActorCriticsMatchPyTorch) {
  // Continuous actions: two dimensions, some at their bounds.
  const std::vector<float> low{-2, 0}, high{2, 0.5F};
  for (const std::string name : {"vtrace", "ppo", "vtrace_gaussian", "ppo_gaussian"}) {
    const bool ppo = name.starts_with("ppo");
    Fixture f(name);
    std::unique_ptr<PolicyDistribution> policy;
    if (name.ends_with("gaussian")) {
      policy = std::make_unique<GaussianDistribution>(low, high, f.floats("action"));
    } else {
      policy = std::make_unique<CategoricalDistribution>(3, f.ints("action"));
    }
    f.Expect(PolicyGradientLoss({.batch = f.batch(),
                                 .steps = f.steps(),
                                 .policy = policy.get(),
                                 .out = f.floats("out"),
                                 .log_mu = f.floats("log_mu"),
                                 .reward = f.floats("reward"),
                                 .discount = f.floats("discount"),
                                 .length = f.ints("length"),
                                 .weight = f.floats("weight"),
                                 .gamma = 0.9,
                                 .lambda = 0.8,
                                 .rho_bar = 1.2,
                                 .c_bar = 1.1,
                                 .value_cost = 0.7,
                                 .entropy_cost = 0.03,
                                 .ratio_clip = ppo ? 0.2 : 0,
                                 .normalize_advantages = ppo},
                                {f.gradient.data(), f.priority.data()})
                 .loss);
  }
}

}  // namespace
}  // namespace troop
