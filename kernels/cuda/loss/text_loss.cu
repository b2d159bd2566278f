// Losses of text models with targets in f32, and their gradients, one warp per row.
#include "kernels/cuda/loss/text_loss.h"

#include "kernels/cuda/runtime/launch.h"

namespace troop::cuda {
namespace {

constexpr int kLanes = 32;

// Loss of an output, and its derivative.
struct Slope {
  double loss = 0, derivative = 0;
};

// Binary cross entropy of a sigmoid. exp takes only arguments of at most 0, so nothing overflows.
TROOP_DEVICE Slope CrossEntropySlope(double x, double t) {
  const double e = exp(-fabs(x));
  const double sigmoid = x >= 0 ? 1 / (1 + e) : e / (1 + e);
  // A NaN or infinite logit gives NaN, also where the loss itself would have a limit.
  const double loss = isfinite(x) ? (x > 0 ? x : 0) - x * t + log1p(e) : double(NAN);
  return {loss, sigmoid - t};
}
TROOP_DEVICE Slope SquaredSlope(double x, double t) { return {(x - t) * (x - t), 2 * (x - t)}; }

// kSigmoids: binary cross entropy; otherwise squared error.
template <bool kSigmoids>
TROOP_KERNEL void __launch_bounds__(kLanes) TextLossKernel(TextLossInput in, TextLossResults out) {
  const std::int64_t row = blockIdx.x, first = row * in.outputs;
  const double share = 1 / double(in.outputs);
  double sum = 0;
  std::int32_t wrong = 0;
  for (std::int64_t i = threadIdx.x; i < in.outputs; i += kLanes) {
    // Read before dx is written, since both may be the same memory.
    const float x = in.x[first + i], t = in.target[first + i];
    const Slope slope = kSigmoids ? CrossEntropySlope(x, t) : SquaredSlope(x, t);
    sum += slope.loss;
    wrong |= kSigmoids && (x > 0) == (t > 0.5f) ? 0 : 1;
    if (out.dx != nullptr) out.dx[first + i] = float(double(in.scale) * share * slope.derivative);
  }
  // All lanes get the sums of the warp.
  for (int step = kLanes / 2; step > 0; step /= 2) {
    sum += __shfl_xor_sync(kWholeWarp, sum, step);
    wrong |= __shfl_xor_sync(kWholeWarp, wrong, step);
  }
  if (threadIdx.x != 0) return;
  out.loss[row] = float(sum * share);
  out.right[row] = 1 - wrong;
}

template <bool kSigmoids>
void Run(Stream& stream, const char* name, const TextLossInput& in, const TextLossResults& out) {
  // A warp suffices: a text has few outputs, and a batch has a few hundred texts.
  Launch(stream, name, {dim3(unsigned(in.rows)), dim3(kLanes)}, TextLossKernel<kSigmoids>, in, out);
}

}  // namespace

void BinaryCrossEntropy(Stream& stream, const TextLossInput& in, const TextLossResults& out) {
  Run<true>(stream, "BinaryCrossEntropy", in, out);
}
void SquaredError(Stream& stream, const TextLossInput& in, const TextLossResults& out) {
  Run<false>(stream, "SquaredError", in, out);
}

}  // namespace troop::cuda
