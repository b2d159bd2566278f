#include "kernels/cuda/ops/lstm.h"

#include <algorithm>
#include <cmath>

#include "tests/cuda/parity_cases.h"

namespace troop::cuda {
namespace {

struct Cells {
  std::int64_t rows, going, hidden, stride;
  std::vector<float> bias, c_before, gates, dh, dc;
};

Cells MakeCells(Parity& parity, std::int64_t rows, std::int64_t going, std::int64_t hidden) {
  Cells x{rows, going, hidden, hidden + 3, {}, {}, {}, {}, {}};
  x.bias = parity.Random(4 * hidden);
  x.c_before = parity.Random(std::max<std::int64_t>(going, 1) * hidden, -2, 2);
  x.gates = parity.Random(rows * 4 * hidden, -4, 4);
  x.dh = parity.Random(rows * x.stride);
  x.dc = parity.Random(rows * hidden);
  return x;
}

// The formulas of the paper in f64, and their derivatives by the chain rule.
struct Wanted {
  std::vector<double> gates, c, h, dc, ds;
};
Wanted Reference(const Cells& x) {
  const auto cells = std::size_t(x.rows * x.hidden);
  Wanted w{std::vector<double>(4 * cells), std::vector<double>(cells), std::vector<double>(cells),
           std::vector<double>(cells), std::vector<double>(4 * cells)};
  const auto sigmoid = [](double z) { return 1 / (1 + std::exp(-z)); };
  for (std::int64_t row = 0; row < x.rows; ++row) {
    for (std::int64_t unit = 0; unit < x.hidden; ++unit) {
      const auto at = std::size_t(row * x.hidden + unit);
      const auto gate = [&](std::int64_t k) {
        return std::size_t((row * 4 + k) * x.hidden + unit);
      };
      double v[4];
      for (std::int64_t k = 0; k < 4; ++k) {
        const double z =
            double(x.gates[gate(k)]) + double(x.bias[std::size_t(k * x.hidden + unit)]);
        v[k] = w.gates[gate(k)] = k == 2 ? std::tanh(z) : sigmoid(z);
      }
      const double before = row < x.going ? double(x.c_before[at]) : 0;
      w.c[at] = v[1] * before + v[0] * v[2];
      const double t = std::tanh(w.c[at]);
      w.h[at] = v[3] * t;
      const double dh = x.dh[std::size_t(row * x.stride + unit)];
      const double dstate = double(x.dc[at]) + dh * v[3] * (1 - t * t);
      w.ds[gate(0)] = dstate * v[2] * v[0] * (1 - v[0]);
      w.ds[gate(1)] = dstate * before * v[1] * (1 - v[1]);
      w.ds[gate(2)] = dstate * v[0] * (1 - v[2] * v[2]);
      w.ds[gate(3)] = dh * t * v[3] * (1 - v[3]);
      w.dc[at] = dstate * v[1];
    }
  }
  return w;
}

// For rows with stride `stride`.
template <class T>
std::vector<T> Dense(const Cells& x, const std::vector<T>& strided) {
  std::vector<T> dense;
  for (std::int64_t row = 0; row < x.rows; ++row) {
    const auto at = strided.begin() + row * x.stride;
    dense.insert(dense.end(), at, at + x.hidden);
  }
  return dense;
}

void Compare(Parity& parity, const Cells& x) {
  const Wanted want = Reference(x);
  const LstmStep step{x.rows, x.going, x.hidden, x.stride};
  const auto bias = parity.Upload(x.bias), c_before = parity.Upload(x.c_before);
  const auto gates = parity.Upload(x.gates), dh = parity.Upload(x.dh), dc = parity.Upload(x.dc);
  const auto c = parity.Output<float>(x.rows * x.hidden);
  const auto ds = parity.Output<float>(4 * x.rows * x.hidden);
  const auto h = parity.Output<float>(x.rows * x.stride);
  LstmForwardArgs args{.step = step,
                       .bias = bias.data(),
                       .c_before = c_before.data(),
                       .gates = gates.data(),
                       .c = c.data(),
                       .h = h.data()};
  LstmForward(parity.stream(), args);
  // Elementwise: a few roundings of f32, 2^-24 each; 4e-3: one more rounding to bf16, 2^-9.
  parity.Close("gates", parity.Download(gates), want.gates, 1e-6);
  parity.Close("c", parity.Download(c), want.c, 1e-6);
  parity.Close("h", Dense(x, parity.Download(h)), want.h, 1e-6);
  for (std::int64_t row = 0; row < x.rows; ++row)
    parity.True("what is between rows of h is left alone",
                std::isnan(parity.Download(h)[std::size_t((row + 1) * x.stride - 1)]));
  LstmBackward(parity.stream(), {.step = step,
                                 .c_before = c_before.data(),
                                 .gates = gates.data(),
                                 .c = c.data(),
                                 .dh = dh.data(),
                                 .dc = dc.data(),
                                 .ds = ds.data()});
  parity.Close("ds", parity.Download(ds), want.ds, 1e-6);
  parity.Close("dc", parity.Download(dc), want.dc, 1e-6);
  const auto again = parity.Upload(x.gates);
  const auto h16 = parity.Output<BF16>(x.rows * x.stride);
  args.gates = again.data();
  args.h = h16.data();
  args.h_dtype = DType::kBF16;
  LstmForward(parity.stream(), args);
  parity.Close("h in bf16", Dense(x, FromBF16s(parity.Download(h16))), want.h, 4e-3);
}

void CellsFollowTheFormulas(Parity& parity) {
  Compare(parity, MakeCells(parity, 1, 0, 1));
  Compare(parity, MakeCells(parity, 5, 3, 7));
  Compare(parity, MakeCells(parity, 4, 4, 130));
  if (parity.large()) Compare(parity, MakeCells(parity, 512, 300, 512));
}

}  // namespace

std::vector<ParityCase> LstmCases() {
  return {{"Lstm.CellsFollowTheFormulas", CellsFollowTheFormulas}};
}

}  // namespace troop::cuda
