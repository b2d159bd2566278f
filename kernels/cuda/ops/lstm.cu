// Cells of an LSTM step, one thread per cell; the formulas are in kernels/recurrent/lstm_cell.h.
#include "kernels/cuda/ops/lstm.h"

#include "kernels/cuda/runtime/launch.h"
#include "kernels/cuda/runtime/vector_types.h"

namespace troop::cuda {
namespace {

// The cells are independent and limited by bandwidth, so the size is not critical.
constexpr int kThreads = 256;

TROOP_DEVICE float Sigmoid(float x) { return 1 / (1 + expf(-x)); }

// Position of a thread's cell. FindCell returns false after the last cell.
struct Cell {
  std::int64_t row, unit, at, gate;  // at: in [rows, hidden]; gate: its i in [rows, 4 hidden]
};
TROOP_DEVICE bool FindCell(const LstmStep& step, Cell* cell) {
  const std::int64_t at = std::int64_t(blockIdx.x) * kThreads + threadIdx.x;
  const std::int64_t row = at / step.hidden;
  *cell = {row, at - row * step.hidden, at, at + 3 * row * step.hidden};
  return at < step.rows * step.hidden;
}

template <class H>
TROOP_KERNEL void __launch_bounds__(kThreads)
    LstmForwardKernel(LstmStep step, const float* bias, const float* c_before, float* gates,
                      float* c, H* h) {
  Cell cell;
  if (!FindCell(step, &cell)) return;
  // `gates` has the products with x and h on entry, and the activated gates on return.
  // Gates are i, f, g, o, `hidden` elements each.
  const std::int64_t n = step.hidden;
  float s[4];
  for (int k = 0; k < 4; ++k) s[k] = gates[cell.gate + k * n] + bias[k * n + cell.unit];
  const float i = Sigmoid(s[0]), f = Sigmoid(s[1]), g = tanhf(s[2]), o = Sigmoid(s[3]);
  // Rows from `going` on begin a sequence, with a state of 0.
  const float before = cell.row < step.going ? f * c_before[cell.at] : 0;
  const float state = before + i * g;
  // Backward needs the activated gates, not the sums.
  gates[cell.gate] = i;
  gates[cell.gate + n] = f;
  gates[cell.gate + 2 * n] = g;
  gates[cell.gate + 3 * n] = o;
  c[cell.at] = state;
  Put(h + cell.row * step.h_stride + cell.unit, o * tanhf(state));
}

TROOP_KERNEL void __launch_bounds__(kThreads)
    LstmBackwardKernel(LstmStep step, const float* c_before, const float* gates, const float* c,
                       const float* dh, float* dc, float* ds) {
  Cell cell;
  if (!FindCell(step, &cell)) return;
  const std::int64_t n = step.hidden;
  const float i = gates[cell.gate], f = gates[cell.gate + n], g = gates[cell.gate + 2 * n],
              o = gates[cell.gate + 3 * n];
  // dstate: the gradient of c, directly and through h. Derivatives follow from the activations: σ'
  // = y (1 - y), tanh' = 1 - y².
  const float t = tanhf(c[cell.at]), d = dh[cell.row * step.h_stride + cell.unit];
  const float dstate = dc[cell.at] + d * o * (1 - t * t);
  const float before = cell.row < step.going ? c_before[cell.at] : 0;
  ds[cell.gate] = dstate * g * (i * (1 - i));
  ds[cell.gate + n] = dstate * before * (f * (1 - f));
  ds[cell.gate + 2 * n] = dstate * i * (1 - g * g);
  ds[cell.gate + 3 * n] = d * t * (o * (1 - o));
  // Gradient of the previous state: the caller's next call is for the previous time step.
  dc[cell.at] = dstate * f;
}

LaunchShape Over(const LstmStep& step) {
  return {dim3(unsigned(CeilDivide(step.rows * step.hidden, kThreads))), dim3(kThreads)};
}

}  // namespace

void LstmForward(Stream& stream, const LstmForwardArgs& args) {
  if (args.h_dtype == DType::kBF16) {
    Launch(stream, "LstmForward", Over(args.step), LstmForwardKernel<BF16>, args.step, args.bias,
           args.c_before, args.gates, args.c, static_cast<BF16*>(args.h));
  } else {
    Launch(stream, "LstmForward", Over(args.step), LstmForwardKernel<float>, args.step, args.bias,
           args.c_before, args.gates, args.c, static_cast<float*>(args.h));
  }
}

void LstmBackward(Stream& stream, const LstmBackwardArgs& args) {
  Launch(stream, "LstmBackward", Over(args.step), LstmBackwardKernel, args.step, args.c_before,
         args.gates, args.c, args.dh, args.dc, args.ds);
}

}  // namespace troop::cuda
