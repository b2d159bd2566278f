#pragma once

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <string>

#include "core/storage/json.h"
#include "core/tensor/sparse_rows.h"

// Output of tools/fixtures/make_sparse_fixtures.py: scikit-learn's rows and optima.
namespace troop::test {

inline const JsonValue& SparseExpected() {
  static const JsonValue* const json = [] {
    std::ifstream file(TROOP_SOURCE_DIR "/tests/fixtures/sparse/expected.json");
    auto parsed = ParseJson(std::string{std::istreambuf_iterator<char>(file), {}});
    EXPECT_TRUE(parsed.ok()) << parsed.status().ToString();
    return new JsonValue(*std::move(parsed));
  }();
  return *json;
}

// Expects the rows of the fixture, whose values are f64, within the rounding of f32.
inline void ExpectRows(const SparseRows& rows, const JsonValue& expected) {
  ASSERT_EQ(rows.size(), std::ssize(expected.array));
  for (std::int64_t i = 0; i < rows.size(); ++i) {
    const JsonValue& one = expected.array[std::size_t(i)];
    const auto& columns = one.Find("columns")->array;
    const auto& values = one.Find("values")->array;
    const SparseRow row = rows.row(i);
    ASSERT_EQ(row.columns.size(), columns.size()) << i;
    for (std::size_t j = 0; j < columns.size(); ++j) {
      EXPECT_EQ(row.columns[j], columns[j].integer) << i << " " << j;
      EXPECT_FLOAT_EQ(row.values[j], float(values[j].number)) << i << " " << j;
    }
  }
}

}  // namespace troop::test
