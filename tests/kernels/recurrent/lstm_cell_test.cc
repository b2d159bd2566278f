#include "kernels/recurrent/lstm_cell.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "core/base/philox.h"

namespace troop {
namespace {

using Floats = std::vector<float>;
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

Floats Random(std::int64_t n, std::uint64_t index, double scale = 1) {
  Rng rng({13, Purpose::kTest, index});
  Floats x(static_cast<std::size_t>(n));
  for (float& v : x) v = float(scale * rng.Normal());
  return x;
}

// Five rows, of which three have a step before; rows of h lie a little apart.
struct Cells {
  explicit Cells(std::int64_t hidden) : step{5, 3, hidden, hidden + 3} {
    const std::int64_t n = step.rows * hidden;
    sums = Random(4 * n, 1, 3);
    bias = Random(4 * hidden, 2);
    c_before = Random(step.going * hidden, 3, 2);
    dh = Random(step.rows * step.h_stride, 4);
    dc = Random(n, 5);
    c.assign(std::size_t(n), kNaN);
    h.assign(std::size_t(step.rows * step.h_stride), kNaN);
    ds.assign(sums.size(), kNaN);
    gates = sums;
  }
  void Forward(const LstmKernels& k) {
    k.forward(step, bias.data(), c_before.data(), gates.data(), c.data(), h.data());
  }
  void Backward(const LstmKernels& k) {
    k.backward(step, c_before.data(), gates.data(), c.data(), dh.data(), dc.data(), ds.data());
  }
  LstmStep step;
  Floats sums, bias, c_before, dh, dc, gates, c, h, ds;
};

// One cell by its definition. Its loss is what the gradients dh and dc are of: dh h + dc c.
struct Cell {
  double i, f, g, o, c, h;
  Cell(const double* s, double before) {
    const auto sigma = [](double x) { return 1 / (1 + std::exp(-x)); };
    i = sigma(s[0]), f = sigma(s[1]), g = std::tanh(s[2]), o = sigma(s[3]);
    c = f * before + i * g;
    h = o * std::tanh(c);
  }
};

// f(row, element, s of its four gates, c before): of every cell.
template <class F>
void ForEachCell(const Cells& cells, F f) {
  const std::int64_t n = cells.step.hidden;
  for (std::int64_t row = 0; row < cells.step.rows; ++row) {
    for (std::int64_t at = 0; at < n; ++at) {
      double s[4];
      for (std::int64_t gate = 0; gate < 4; ++gate) {
        s[gate] = double(cells.sums[std::size_t((4 * row + gate) * n + at)]) +
                  cells.bias[std::size_t(gate * n + at)];
      }
      f(row, at, s,
        row < cells.step.going ? double(cells.c_before[std::size_t(row * n + at)]) : 0.0);
    }
  }
}

void ExpectNear(float got, double expected, double tolerance, const char* what) {
  EXPECT_NEAR(got, expected, tolerance * (1 + std::abs(expected))) << what;
}

TEST(LstmTest, CellsMatchF64Reference) {
  for (const std::int64_t hidden : {1, 7, 16, 33}) {
    Floats first_c, first_h;
    for (const CpuLevel level : SupportedCpuLevels()) {
      SCOPED_TRACE(CpuLevelName(level));
      Cells cells(hidden);
      cells.Forward(LstmKernelsFor(level));
      ForEachCell(cells, [&](std::int64_t row, std::int64_t at, const double* s, double before) {
        const Cell cell(s, before);
        const double gates[] = {cell.i, cell.f, cell.g, cell.o};
        for (std::int64_t gate = 0; gate < 4; ++gate) {
          ExpectNear(cells.gates[std::size_t((4 * row + gate) * hidden + at)], gates[gate], 5e-7,
                     "gate");
        }
        ExpectNear(cells.c[std::size_t(row * hidden + at)], cell.c, 1e-6, "c");
        ExpectNear(cells.h[std::size_t(row * cells.step.h_stride + at)], cell.h, 1e-6, "h");
      });
      EXPECT_TRUE(std::isnan(cells.h[std::size_t(hidden)]));  // between rows: not h's
      std::erase_if(cells.h, [](float x) { return std::isnan(x); });
      if (first_c.empty()) first_c = cells.c, first_h = cells.h;
      EXPECT_EQ(cells.c, first_c);
      EXPECT_EQ(cells.h, first_h);
    }
  }
}

// Slopes of the definition by central differences in f64, exact to 1e-9: the formulas are the
// kernel's own.
TEST(LstmTest, GradientsMatchF64FiniteDifferences) {
  for (const std::int64_t hidden : {1, 7, 16, 33}) {
    Floats first;
    for (const CpuLevel level : SupportedCpuLevels()) {
      SCOPED_TRACE(CpuLevelName(level));
      Cells cells(hidden);
      const LstmKernels& k = LstmKernelsFor(level);
      cells.Forward(k);
      const Floats dc = cells.dc;
      cells.Backward(k);
      ForEachCell(cells, [&](std::int64_t row, std::int64_t at, double* s, double before) {
        const double dh = cells.dh[std::size_t(row * cells.step.h_stride + at)],
                     dstate = dc[std::size_t(row * hidden + at)], step = 1e-5;
        const auto slope = [&](double* x) {
          const auto loss = [&](double by) {
            *x += by;
            const Cell cell(s, before);
            *x -= by;
            return dh * cell.h + dstate * cell.c;
          };
          return (loss(step) - loss(-step)) / (2 * step);
        };
        for (std::int64_t gate = 0; gate < 4; ++gate) {
          ExpectNear(cells.ds[std::size_t((4 * row + gate) * hidden + at)], slope(s + gate), 2e-6,
                     "gate");
        }
        if (row < cells.step.going)
          ExpectNear(cells.dc[std::size_t(row * hidden + at)], slope(&before), 2e-6, "c before");
      });
      if (first.empty()) first = cells.ds;
      EXPECT_EQ(cells.ds, first);
    }
  }
}

// Far beyond where gates are 0 or 1 in f32.
TEST(LstmTest, SaturatesLargeSumsAndPropagatesNaN) {
  for (const CpuLevel level : SupportedCpuLevels()) {
    SCOPED_TRACE(CpuLevelName(level));
    Cells cells(2);
    cells.bias.assign(8, 0.0f);
    for (std::size_t i = 0; i < cells.gates.size(); ++i) cells.gates[i] = i % 3 == 0 ? 1e6f : -1e6f;
    cells.gates[0] = kNaN;
    const LstmKernels& k = LstmKernelsFor(level);
    cells.Forward(k);
    EXPECT_TRUE(std::isnan(cells.h[0]));
    for (std::size_t i = 1; i < cells.c.size(); ++i) EXPECT_TRUE(std::isfinite(cells.c[i])) << i;
    cells.Backward(k);
    EXPECT_TRUE(std::isnan(cells.ds[0]));
    for (std::size_t i = 8; i < cells.ds.size(); ++i) EXPECT_TRUE(std::isfinite(cells.ds[i])) << i;
  }
}

TEST(LstmTest, WeighBackwardComputesDotProductsAndWeightedRows) {
  for (const std::int64_t n : {1, 15, 16, 50}) {
    const std::int64_t rows = 3;
    const Floats weight = Random(rows, 6), x = Random(rows * n, 7), dy = Random(rows * n, 8);
    for (const CpuLevel level : SupportedCpuLevels()) {
      Floats dweight(std::size_t(rows), kNaN), dx(x.size(), kNaN);
      LstmKernelsFor(level).weigh_backward(rows, n, weight.data(), x.data(), dy.data(),
                                           dweight.data(), dx.data());
      for (std::int64_t row = 0; row < rows; ++row) {
        double dot = 0;
        for (std::int64_t i = 0; i < n; ++i) {
          const auto at = std::size_t(row * n + i);
          dot += double(x[at]) * dy[at];
          EXPECT_EQ(dx[at], weight[std::size_t(row)] * dy[at]);
        }
        ExpectNear(dweight[std::size_t(row)], dot, 1e-5, "dweight");
      }
    }
  }
}

}  // namespace
}  // namespace troop
