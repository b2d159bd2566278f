// Implements cross entropy with label smoothing on top of the plain one.

#include "nn/translation/smoothed_loss.h"

#include <algorithm>

#include "kernels/transformer/layer_norm_gelu.h"

namespace troop {

// With e = smoothing and p = softmax(x): loss = log Σ exp(x) - (1 - e) x[label] - e mean(x), so its
// gradient is p - (1 - e) one-hot - e / n. The plain kernel computes e = 0.
TokenLosses SmoothedLoss(const SmoothedLossArgs& args) {
  static const TransformerKernels& kernels = TransformerKernelsFor(BestCpuLevel());
  const std::int64_t n = args.vocabulary;
  TokenLosses sums{.tokens = std::int64_t(args.labels.size())};
  for (std::size_t t = 0; t < args.labels.size(); ++t) {
    float* const x = args.logits + std::int64_t(t) * n;
    const std::int32_t label = args.labels[t];
    const float mine = x[label];
    double mean = 0;
    for (std::int64_t i = 0; i < n; ++i) mean += double(x[i]);
    mean /= double(n);
    // The first of equal logits counts.
    sums.right += std::max_element(x, x + n) - x == label;
    float loss = 0;
    kernels.cross_entropy(1, n, x, &label, args.scale, &loss, args.differentiate ? x : nullptr);
    sums.likelihood += double(loss);
    sums.smoothed += double(loss) + double(args.smoothing) * (double(mine) - mean);
    if (!args.differentiate || args.smoothing == 0) continue;
    const float each = args.scale * args.smoothing / float(n);
    for (std::int64_t i = 0; i < n; ++i) x[i] -= each;
    x[label] += args.scale * args.smoothing;
  }
  return sums;
}

}  // namespace troop
