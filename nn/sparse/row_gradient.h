#pragma once

#include <cstdint>
#include <vector>

namespace troop {

// The gradient of a matrix [rows, width] of which few rows are not zero, such as the weights of a
// linear model or an embedding. A plain value, which can be encoded and sent.
struct RowGradient {
  std::int64_t width = 1;
  std::vector<std::int32_t> rows;  // each at most once
  std::vector<float> values;       // [rows.size(), width]
};

// Sums contributions to rows into a RowGradient. Memory: 4 bytes per row of the matrix. One owner
// thread.
class RowGradientSum {
 public:
  RowGradientSum(std::int64_t rows, std::int64_t width)
      : place_(std::size_t(rows), -1), sum_{.width = width} {}
  // The sum of a row, `width` numbers, to add to; valid until the next call. REQUIRES: row is below
  // the number of rows.
  float* Row(std::int32_t row) {
    std::int32_t& place = place_[std::size_t(row)];
    const auto width = std::size_t(sum_.width);
    if (place < 0) {
      place = std::int32_t(sum_.rows.size());
      sum_.rows.push_back(row);
      sum_.values.resize(sum_.values.size() + width, 0.0f);
    }
    return sum_.values.data() + std::size_t(place) * width;
  }
  // Divides all values.
  void Divide(float by) {
    for (float& value : sum_.values) value /= by;
  }
  // The sum, in the order of the first contributions.
  const RowGradient& sum() const { return sum_; }
  // Sets all rows to zero; O(rows touched).
  void Clear() {
    for (const std::int32_t row : sum_.rows) place_[std::size_t(row)] = -1;
    sum_.rows.clear();
    sum_.values.clear();
  }

 private:
  std::vector<std::int32_t> place_;  // index in sum_.rows; -1: not touched
  RowGradient sum_;
};

}  // namespace troop
