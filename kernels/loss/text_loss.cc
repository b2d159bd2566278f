// Losses of text models with targets in f32, and their gradients, in f64.
#include "kernels/loss/text_loss.h"

#include <algorithm>
#include <cmath>

namespace troop {
namespace {

// A value with its derivative.
struct Slope {
  double loss = 0, derivative = 0;
};

// Rows one after the other: the mean of `at` over a row's outputs. x is read before dx is written,
// since both may be the same memory.
template <class At>
void MeanOfOutputs(const TextLossInput& in, const TextLossOutput& out, const At& at) {
  const double share = 1 / double(in.outputs);
  for (std::int64_t i = 0; i < in.rows; ++i) {
    double sum = 0;
    for (std::int64_t j = i * in.outputs; j < (i + 1) * in.outputs; ++j) {
      const Slope slope = at(double(in.x[j]), double(in.target[j]));
      sum += slope.loss;
      if (out.dx != nullptr) out.dx[j] = float(double(in.scale) * share * slope.derivative);
    }
    out.loss[i] = float(sum * share);
  }
}

}  // namespace

// exp takes only arguments of at most 0, so nothing overflows. A NaN or infinite logit gives NaN,
// also where the loss itself would have a limit.
void BinaryCrossEntropy(const TextLossInput& in, const TextLossOutput& out) {
  MeanOfOutputs(in, out, [](double x, double t) -> Slope {
    const double e = std::exp(-std::fabs(x));
    const double sigmoid = x >= 0 ? 1 / (1 + e) : e / (1 + e);
    return {std::isfinite(x) ? std::max(x, 0.0) - x * t + std::log1p(e) : NAN, sigmoid - t};
  });
}

void SquaredError(const TextLossInput& in, const TextLossOutput& out) {
  MeanOfOutputs(in, out, [](double x, double t) -> Slope {
    return {(x - t) * (x - t), 2 * (x - t)};
  });
}

}  // namespace troop
