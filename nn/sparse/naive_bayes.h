#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/tensor/sparse_rows.h"

namespace troop {

// Log-count ratios of Wang & Manning 2012, eq. 1: r = ln((p / |p|₁) / (q / |q|₁)), where p and q
// are `smoothing` plus the sum of the rows of positive and of other examples. Multiplying column j
// of all rows by r_j turns a linear classifier into NB-SVM. targets: [n], positive above 0.
// Returns [width]. O(entries + width). REQUIRES: smoothing > 0, values of 0 or more.
std::vector<float> NaiveBayesRatios(const SparseRows& rows, std::span<const float> targets,
                                    double smoothing);
// Multiplies each column by its factor [width].
void ScaleColumns(std::span<const float> factors, SparseRows* rows);

}  // namespace troop
