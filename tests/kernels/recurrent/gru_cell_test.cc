#include "kernels/recurrent/gru_cell.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "core/base/philox.h"

namespace troop {
namespace {

using Floats = std::vector<float>;
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

Floats Random(std::int64_t n, std::uint64_t index, double scale = 1) {
  Rng rng({17, Purpose::kTest, index});
  Floats x(static_cast<std::size_t>(n));
  for (float& v : x) v = float(scale * rng.Normal());
  return x;
}

struct Cells {
  explicit Cells(std::int64_t hidden) : n(hidden) {
    bias_x = Random(3 * n, 1);
    bias_u = Random(3 * n, 2);
    x = Random(kRows * 3 * n, 3, 2);
    u = Random(kRows * 3 * n, 4, 2);
    h_before = Random(kRows * n, 5);
    dh = Random(kRows * n, 6);
    dh_before = Random(kRows * n, 7);
    gates.assign(std::size_t(kRows * 4 * n), kNaN);
    h.assign(std::size_t(kRows * n), kNaN);
    dx.assign(x.size(), kNaN);
    du.assign(u.size(), kNaN);
  }
  void Run(const GruKernels& k) {
    k.forward({.rows = kRows,
               .hidden = n,
               .bias_x = bias_x.data(),
               .bias_u = bias_u.data(),
               .x = x.data(),
               .u = u.data(),
               .h_before = h_before.data(),
               .gates = gates.data(),
               .h = h.data()});
    k.backward({.rows = kRows,
                .hidden = n,
                .gates = gates.data(),
                .h_before = h_before.data(),
                .dh = dh.data(),
                .dx = dx.data(),
                .du = du.data(),
                .dh_before = dh_before.data()});
  }
  static constexpr std::int64_t kRows = 4;
  std::int64_t n;
  Floats bias_x, bias_u, x, u, h_before, dh, dh_before, gates, h, dx, du;
};

// h of one cell by its definition. s: x_r, x_z, x_n, u_r, u_z, u_n with their biases, h_before.
double Output(const std::array<double, 7>& s) {
  const auto sigmoid = [](double v) { return 1 / (1 + std::exp(-v)); };
  const double r = sigmoid(s[0] + s[3]), z = sigmoid(s[1] + s[4]);
  return (1 - z) * std::tanh(s[2] + r * s[5]) + z * s[6];
}

TEST(GruCellTest, OutputsAndGradientsMatchF64Reference) {
  for (const CpuLevel level : SupportedCpuLevels()) {
    for (const std::int64_t n : {1, 5, 16, 37}) {
      Cells cells(n);
      const Floats before = cells.dh_before;
      cells.Run(GruKernelsFor(level));
      for (std::int64_t row = 0; row < Cells::kRows; ++row) {
        for (std::int64_t at = 0; at < n; ++at) {
          std::array<double, 7> s{};
          for (std::int64_t gate = 0; gate < 3; ++gate) {
            const auto i = std::size_t((3 * row + gate) * n + at), b = std::size_t(gate * n + at);
            s[std::size_t(gate)] = double(cells.x[i]) + cells.bias_x[b];
            s[std::size_t(3 + gate)] = double(cells.u[i]) + cells.bias_u[b];
          }
          const auto cell = std::size_t(row * n + at);
          s[6] = cells.h_before[cell];
          EXPECT_NEAR(cells.h[cell], Output(s), 1e-6);
          const auto slope = [&](std::size_t k) {
            constexpr double kStep = 1e-5;
            std::array<double, 7> above = s, below = s;
            above[k] += kStep;
            below[k] -= kStep;
            return double(cells.dh[cell]) * (Output(above) - Output(below)) / (2 * kStep);
          };
          for (std::int64_t gate = 0; gate < 3; ++gate) {
            const auto i = std::size_t((3 * row + gate) * n + at);
            EXPECT_NEAR(cells.dx[i], slope(std::size_t(gate)), 2e-6) << gate;
            EXPECT_NEAR(cells.du[i], slope(std::size_t(3 + gate)), 4e-6) << gate;
          }
          EXPECT_NEAR(cells.dh_before[cell], double(before[cell]) + slope(6), 2e-6);
        }
      }
    }
  }
}

TEST(GruCellTest, LevelsGiveTheSameBits) {
  Cells wanted(37);
  wanted.Run(GruKernelsFor(CpuLevel::kPlain));
  for (const CpuLevel level : SupportedCpuLevels()) {
    Cells cells(37);
    cells.Run(GruKernelsFor(level));
    EXPECT_EQ(cells.h, wanted.h);
    EXPECT_EQ(cells.gates, wanted.gates);
    EXPECT_EQ(cells.dx, wanted.dx);
    EXPECT_EQ(cells.du, wanted.du);
    EXPECT_EQ(cells.dh_before, wanted.dh_before);
  }
}

TEST(GruCellTest, LargeSumsSaturateAndNaNStays) {
  Cells cells(1);
  cells.x = {1e4F, -1e4F, 1e4F, 1e4F, 1e4F, 0, kNaN, 0, 0, 0, kNaN, 0};
  cells.Run(GruKernelsFor(BestCpuLevel()));
  EXPECT_EQ(cells.h[0], 1);                  // z = 0: the candidate
  EXPECT_EQ(cells.h[1], cells.h_before[1]);  // z = 1
  EXPECT_TRUE(std::isnan(cells.h[2]) && std::isnan(cells.h[3]));
}

}  // namespace
}  // namespace troop
