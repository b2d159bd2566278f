#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace troop {

// Weights of the classes for unbalanced data, as class_weight="balanced" of scikit-learn:
//   n / (k · count of the class), over the n examples with a label and the k classes they have
// Returns one weight for each class up to the largest label; 0: a class without examples. Labels
// below 0 are ignored (no label). O(n).
std::vector<float> BalancedClassWeights(std::span<const std::int32_t> labels);

// Factors of the rows of a batch, from their classes' weights: w / (mean w over the whole batch),
// of which `labels` may be a part. The sum of the weighted losses, over all parts, divided by the
// number of rows of the whole batch is then the weighted mean Σ w loss / Σ w, as torch's
// CrossEntropyLoss(weight=…) computes it, and the same for any split of the batch. whole: labels
// of the whole batch. Empty if `weights` is empty. REQUIRES: a weight for each label. O(rows).
std::vector<float> RowWeights(std::span<const float> weights, std::span<const std::int32_t> whole,
                              std::span<const std::int32_t> labels);

}  // namespace troop
