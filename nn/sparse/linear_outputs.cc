// Implements logits and predictions of linear models.

#include "nn/sparse/linear_outputs.h"

#include <algorithm>
#include <cmath>

namespace troop {
namespace {

// ln σ(z) without overflow.
double LogSigmoid(double z) { return std::min(z, 0.0) - std::log1p(std::exp(-std::abs(z))); }

}  // namespace

void AppendLinearLogits(ProblemType problem, std::span<const double> outputs,
                        std::vector<float>* logits) {
  const bool classes = problem == ProblemType::kSingleLabel;
  if (classes && outputs.size() == 1) logits->push_back(float(LogSigmoid(-outputs[0])));
  for (const double z : outputs) logits->push_back(float(classes ? LogSigmoid(z) : z));
}

// The first one of equal outputs counts, as in TextMetrics.
bool IsLinearRight(ProblemType problem, std::span<const double> outputs,
                   std::span<const float> targets) {
  if (problem == ProblemType::kRegression) return false;
  if (problem == ProblemType::kSingleLabel && outputs.size() > 1) {
    return std::ranges::max_element(outputs) - outputs.begin() ==
           std::ranges::max_element(targets) - targets.begin();
  }
  return std::ranges::equal(outputs, targets, [](double z, float y) { return (z > 0) == (y > 0); });
}

}  // namespace troop
