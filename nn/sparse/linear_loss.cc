// Implements the losses of linear models in f64.

#include "nn/sparse/linear_loss.h"

#include <algorithm>
#include <cmath>

namespace troop {

// exp gets no positive argument, so nothing overflows.
double LossOf(LinearLoss loss, double z, double y) {
  const double margin = y * z;
  switch (loss) {
    case LinearLoss::kLog:
      return std::max(0.0, -margin) + std::log1p(std::exp(-std::abs(margin)));
    case LinearLoss::kSquaredHinge:
      return margin < 1 ? (1 - margin) * (1 - margin) : 0;
    case LinearLoss::kSquaredError:
      return 0.5 * (z - y) * (z - y);
  }
  return 0;
}

// The derivative of the log loss is -y times the probability of the other class.
double LossSlope(LinearLoss loss, double z, double y) {
  const double margin = y * z;
  switch (loss) {
    case LinearLoss::kLog:
      return margin > 0 ? -y * std::exp(-margin) / (1 + std::exp(-margin))
                        : -y / (1 + std::exp(margin));
    case LinearLoss::kSquaredHinge:
      return margin < 1 ? -2 * y * (1 - margin) : 0;
    case LinearLoss::kSquaredError:
      return z - y;
  }
  return 0;
}

}  // namespace troop
