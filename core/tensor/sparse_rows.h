#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace troop {

// One row of a sparse matrix: columns in increasing order, and their values.
struct SparseRow {
  std::span<const std::int32_t> columns;
  std::span<const float> values;  // one for each column
};

// A sparse matrix in compressed rows (CSR), row after row without padding. A plain value; immutable
// once built.
struct SparseRows {
  std::vector<std::int64_t> begins = {0};  // [N + 1]: row i is entries begins[i] to begins[i + 1]
  std::vector<std::int32_t> columns;       // within a row in increasing order
  std::vector<float> values;
  std::int64_t width = 0;  // number of columns; every column is below it

  std::int64_t size() const { return std::int64_t(begins.size()) - 1; }
  // Row i, valid until the matrix changes. REQUIRES: 0 <= i < size().
  SparseRow row(std::int64_t i) const {
    const auto first = std::size_t(begins[std::size_t(i)]);
    const auto count = std::size_t(begins[std::size_t(i) + 1]) - first;
    return {std::span(columns).subspan(first, count), std::span(values).subspan(first, count)};
  }
  // Ends the row whose entries were appended to `columns` and `values`.
  void EndRow() { begins.push_back(std::int64_t(columns.size())); }
  bool operator==(const SparseRows&) const = default;
};

}  // namespace troop
