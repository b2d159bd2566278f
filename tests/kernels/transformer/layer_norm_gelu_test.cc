#include "kernels/transformer/layer_norm_gelu.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <vector>

#include "core/base/philox.h"

namespace troop {
namespace {

using Floats = std::vector<float>;
using Doubles = std::vector<double>;
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr std::int64_t kWidths[] = {1, 3, 16, 17, 50, 768};

Floats Random(std::int64_t n, std::uint64_t index, double scale = 1, double shift = 0) {
  Rng rng({11, Purpose::kTest, index});
  Floats x(static_cast<std::size_t>(n));
  for (float& v : x) v = float(scale * rng.Normal() + shift);
  return x;
}

void ExpectNear(const Floats& got, const Doubles& expected, double tolerance, const char* what) {
  ASSERT_EQ(got.size(), expected.size()) << what;
  for (std::size_t i = 0; i < got.size(); ++i)
    ASSERT_NEAR(got[i], expected[i], tolerance * (1 + std::abs(expected[i]))) << what << " " << i;
}

void ForEachLevel(const std::function<void(const TransformerKernels&)>& f) {
  for (const CpuLevel level : SupportedCpuLevels()) {
    SCOPED_TRACE(CpuLevelName(level));
    f(TransformerKernelsFor(level));
  }
}

double GeluIn64(GeluForm form, double x) {
  if (form == GeluForm::kErf) return x * 0.5 * std::erfc(-x / std::sqrt(2.0));
  return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}

// Its slope by a central difference in f64, exact to 1e-9: the formula is the kernel's own.
double GeluSlopeIn64(GeluForm form, double x) {
  const double h = 1e-5;
  return (GeluIn64(form, x + h) - GeluIn64(form, x - h)) / (2 * h);
}

// The polynomials are off by up to 4e-7, and by as much again where the result is a product.
TEST(TransformerTest, GeluAndDerivativeMatchDefinition) {
  for (const GeluForm form : {GeluForm::kErf, GeluForm::kTanh}) {
    Floats z = Random(1003, 1, 3);
    for (const float x : {0.0f, -0.0f, 5.6f, -5.6f, 12.0f, -12.0f, 40.0f, -40.0f}) z.push_back(x);
    const Floats dy = Random(std::int64_t(z.size()), 2);
    Doubles y, dz;
    for (std::size_t i = 0; i < z.size(); ++i) {
      y.push_back(GeluIn64(form, z[i]));
      dz.push_back(dy[i] * GeluSlopeIn64(form, z[i]));
    }
    Floats first_y, first_dz;
    ForEachLevel([&](const TransformerKernels& k) {
      Floats got(z.size(), kNaN), slope(z.size(), kNaN), in_place = z;
      const auto n = std::int64_t(z.size());
      k.gelu(form, n, z.data(), got.data());
      k.gelu_backward(form, n, z.data(), dy.data(), slope.data());
      ExpectNear(got, y, 1e-6, "gelu");
      ExpectNear(slope, dz, 3e-6, "slope");
      k.gelu(form, n, in_place.data(), in_place.data());
      EXPECT_EQ(in_place, got);
      if (first_y.empty()) first_y = got, first_dz = slope;
      EXPECT_EQ(got, first_y);
      EXPECT_EQ(slope, first_dz);
    });
  }
}

TEST(TransformerTest, EveryKernelPropagatesNaN) {
  ForEachLevel([](const TransformerKernels& k) {
    Floats x = Random(21, 3), y(21), p = x, lse(1);
    x[5] = p[5] = kNaN;
    for (const GeluForm form : {GeluForm::kErf, GeluForm::kTanh}) {
      k.gelu(form, 21, x.data(), y.data());
      EXPECT_TRUE(std::isnan(y[5]));
      EXPECT_FALSE(std::isnan(y[6]));
    }
    k.softmax(1, 21, 1, p.data(), lse.data(), 1);
    EXPECT_TRUE(std::isnan(lse[0]));
    const std::int32_t label = 0;
    float loss = 0;
    k.cross_entropy(1, 21, x.data(), &label, 1, &loss, nullptr);
    EXPECT_TRUE(std::isnan(loss));
  });
}

// Rows far from 0 lose digits to their mean: 1000 ± 1 keeps 1e-4 of an element's spread.
TEST(TransformerTest, LayerNormMatchesF64Reference) {
  for (const std::int64_t n : kWidths) {
    const std::int64_t rows = 4;
    const Floats x = Random(rows * n, 4, 2, 1), gamma = Random(n, 5), beta = Random(n, 6);
    const Floats dy = Random(rows * n, 7);
    const double epsilon = 1e-3;
    Doubles y, dx, dgamma(std::size_t(n), 0.5), dbeta(std::size_t(n), -0.5), means, rstds;
    for (std::int64_t r = 0; r < rows; ++r) {
      const float *const row = x.data() + r * n, *const d = dy.data() + r * n;
      double mean = 0, variance = 0, sum = 0, product = 0;
      for (std::int64_t i = 0; i < n; ++i) mean += row[i] / double(n);
      for (std::int64_t i = 0; i < n; ++i)
        variance += (row[i] - mean) * (row[i] - mean) / double(n);
      const double rstd = 1 / std::sqrt(variance + epsilon);
      for (std::int64_t i = 0; i < n; ++i) {
        const double h = (row[i] - mean) * rstd, g = double(d[i]) * gamma[std::size_t(i)];
        y.push_back(h * gamma[std::size_t(i)] + beta[std::size_t(i)]);
        dgamma[std::size_t(i)] += d[i] * h;
        dbeta[std::size_t(i)] += d[i];
        sum += g / double(n);
        product += g * h / double(n);
      }
      for (std::int64_t i = 0; i < n; ++i) {
        const double h = (row[i] - mean) * rstd;
        dx.push_back(rstd * (double(d[i]) * gamma[std::size_t(i)] - sum - h * product));
      }
      means.push_back(mean);
      rstds.push_back(rstd);
    }
    ForEachLevel([&](const TransformerKernels& k) {
      const LayerNormShape shape{rows, n, float(epsilon)};
      Floats got(x.size(), kNaN), mean(4, kNaN), rstd(4, kNaN), got_dx = dy;
      Floats got_dgamma(std::size_t(n), 0.5f), got_dbeta(std::size_t(n), -0.5f);
      k.layer_norm(shape, x.data(), gamma.data(), beta.data(), got.data(), mean.data(),
                   rstd.data());
      k.layer_norm_backward(shape, x.data(), gamma.data(), mean.data(), rstd.data(), got_dx.data(),
                            got_dx.data(), got_dgamma.data(), got_dbeta.data());
      ExpectNear(got, y, 2e-5, "y");
      ExpectNear(mean, means, 1e-5, "mean");
      ExpectNear(rstd, rstds, 1e-5, "rstd");
      ExpectNear(got_dx, dx, 5e-5, "dx");
      ExpectNear(got_dgamma, dgamma, 1e-5, "dgamma");
      ExpectNear(got_dbeta, dbeta, 1e-5, "dbeta");
    });
  }
}

// Scores up to ±60 after scaling: most of a row is nearly nothing.
TEST(TransformerTest, SoftmaxAndGradientMatchF64Reference) {
  for (const std::int64_t n : kWidths) {
    const std::int64_t rows = 3;
    const double scale = 0.3;
    const Floats x = Random(rows * n, 8, 60), dp = Random(rows * n, 9);
    Doubles p, lse, dx, deltas;
    for (std::int64_t r = 0; r < rows; ++r) {
      const float* const row = x.data() + r * n;
      double most = -1e300, sum = 0, delta = 0;
      for (std::int64_t i = 0; i < n; ++i) most = std::max(most, scale * row[i]);
      for (std::int64_t i = 0; i < n; ++i) sum += std::exp(scale * row[i] - most);
      lse.push_back(most + std::log(sum));
      for (std::int64_t i = 0; i < n; ++i) {
        p.push_back(std::exp(scale * row[i] - lse.back()));
        delta += p.back() * dp[std::size_t(r * n + i)];
      }
      for (std::size_t i = std::size_t(r * n); i < std::size_t(r * n + n); ++i)
        dx.push_back(scale * p[i] * (dp[i] - delta));
      deltas.push_back(delta);
    }
    ForEachLevel([&](const TransformerKernels& k) {
      Floats got = x, again = x, got_lse(std::size_t(2 * rows), kNaN), got_dx = dp;
      const Floats delta(deltas.begin(), deltas.end());
      k.softmax(rows, n, float(scale), got.data(), got_lse.data(), 2);
      k.softmax_again(rows, n, float(scale), got_lse.data(), 2, again.data());
      k.softmax_backward(rows, n, float(scale), got.data(), got_dx.data(), delta.data(),
                         got_dx.data());
      ExpectNear(got, p, 2e-5, "p");
      ExpectNear(again, p, 2e-5, "again");
      ExpectNear(got_dx, dx, 2e-5, "dx");
      for (std::size_t r = 0; r < 3; ++r) EXPECT_NEAR(got_lse[2 * r], lse[r], 1e-4);
      EXPECT_TRUE(std::isnan(got_lse[1]));
    });
  }
}

TEST(TransformerTest, CrossEntropyAndGradientMatchF64Reference) {
  for (const std::int64_t n : kWidths) {
    const std::int64_t rows = 4;
    const double scale = 0.25;
    const Floats x = Random(rows * n, 10, 5);
    const std::int32_t labels[] = {0, kIgnoredLabel, std::int32_t(n - 1), std::int32_t(n / 2)};
    Doubles loss, dx;
    for (std::int64_t r = 0; r < rows; ++r) {
      const float* const row = x.data() + r * n;
      double sum = 0;
      for (std::int64_t i = 0; i < n; ++i) sum += std::exp(double(row[i]));
      const bool counts = labels[r] != kIgnoredLabel;
      loss.push_back(counts ? std::log(sum) - row[labels[r]] : 0);
      for (std::int64_t i = 0; i < n; ++i)
        dx.push_back(counts ? scale * (std::exp(double(row[i])) / sum - (i == labels[r])) : 0);
    }
    ForEachLevel([&](const TransformerKernels& k) {
      Floats got_loss(std::size_t(rows), kNaN), alone = got_loss, got(x.size(), kNaN);
      k.cross_entropy(rows, n, x.data(), labels, float(scale), got_loss.data(), got.data());
      ExpectNear(got_loss, loss, 2e-6, "loss");
      ExpectNear(got, dx, 2e-6, "dx");
      k.cross_entropy(rows, n, x.data(), labels, 1, alone.data(), nullptr);
      ExpectNear(alone, loss, 2e-6, "loss alone");
      Floats in_place = x;
      k.cross_entropy(rows, n, in_place.data(), labels, float(scale), got_loss.data(),
                      in_place.data());
      EXPECT_EQ(in_place, got);
    });
  }
}

TEST(TransformerTest, GathersEmbeddingsAndScattersTheirGradients) {
  const Floats table = {1, 2, 10, 20, 100, 200};
  const std::int32_t ids[] = {2, 0, 2};
  Floats out(6, kNaN);
  GatherRows(ids, 2, table.data(), false, out.data());
  EXPECT_EQ(out, Floats({100, 200, 1, 2, 100, 200}));
  GatherRows(ids, 2, table.data(), true, out.data());
  EXPECT_EQ(out, Floats({200, 400, 2, 4, 200, 400}));
  Floats gradient = {0.5f, 0, 7, 7, 0, 0};
  ScatterAddRows(ids, 2, Floats({1, 2, 4, 8, 16, 32}).data(), gradient.data());
  EXPECT_EQ(gradient, Floats({4.5f, 8, 7, 7, 17, 34}));
}

TEST(TransformerTest, AddsBiasToRowsAndSumsItsGradient) {
  Floats x = {1, 2, 3, 4, 5, 6};
  AddToRows(2, 3, Floats({10, 20, 30}).data(), x.data());
  EXPECT_EQ(x, Floats({11, 22, 33, 14, 25, 36}));
  Floats sum = {1, 1, 1};
  SumOfRows(2, 3, x.data(), sum.data());
  EXPECT_EQ(sum, Floats({26, 48, 70}));
}

}  // namespace
}  // namespace troop
