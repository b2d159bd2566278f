#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <iterator>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/storage/json.h"

// Output of tools/fixtures/make_lbfgs_fixtures.py, and its functions as plain loops.
namespace troop::test {

inline const JsonValue& LbfgsExpected() {
  static const JsonValue* const json = [] {
    std::ifstream file(TROOP_SOURCE_DIR "/tests/fixtures/lbfgs/expected.json");
    auto parsed = ParseJson(std::string{std::istreambuf_iterator<char>(file), {}});
    EXPECT_TRUE(parsed.ok()) << parsed.status().ToString();
    return new JsonValue(*std::move(parsed));
  }();
  return *json;
}

inline std::vector<double> Numbers(const JsonValue& list) {
  std::vector<double> out;
  for (const JsonValue& x : list.array) out.push_back(x.number);
  return out;
}

// The examples of the logistic regression.
struct LogisticExamples {
  std::vector<std::vector<double>> x;
  std::vector<double> y;
  double c = 0;
};
inline const LogisticExamples& FixtureExamples() {
  static const LogisticExamples* const examples = [] {
    auto* all = new LogisticExamples{
        {}, Numbers(*LbfgsExpected().Find("y")), LbfgsExpected().Find("C")->number};
    for (const JsonValue& row : LbfgsExpected().Find("x")->array) all->x.push_back(Numbers(row));
    return all;
  }();
  return *examples;
}

// Value and gradient of the logistic regression's part of examples [first, last), to which the
// penalty is added for first = 0; in T, except for the sums of one example.
template <class T>
double LogisticPart(std::size_t first, std::size_t last, std::span<const T> w, std::span<T> out) {
  const LogisticExamples& all = FixtureExamples();
  const std::size_t bias = w.size() - 1;
  std::vector<double> gradient(w.size());
  double value = 0;
  for (std::size_t i = first; i < last; ++i) {
    double z = double(w[bias]);
    for (std::size_t j = 0; j < bias; ++j) z += all.x[i][j] * double(w[j]);
    const double margin = all.y[i] * z;
    value += all.c *
             (margin > 0 ? std::log1p(std::exp(-margin)) : std::log1p(std::exp(margin)) - margin);
    const double slope = -all.c * all.y[i] / (1 + std::exp(margin));
    for (std::size_t j = 0; j < bias; ++j) gradient[j] += slope * all.x[i][j];
    gradient[bias] += slope;
  }
  for (std::size_t j = 0; j < w.size(); ++j) {
    if (first == 0 && j < bias) {
      value += 0.5 * double(w[j]) * double(w[j]);
      gradient[j] += double(w[j]);
    }
    out[j] = T(gradient[j]);
  }
  return value;
}
template <class T>
double Logistic(std::span<const T> w, std::span<T> gradient) {
  return LogisticPart<T>(0, FixtureExamples().x.size(), w, gradient);
}

// The chained Rosenbrock function.
template <class T>
double Rosenbrock(std::span<const T> x, std::span<T> gradient) {
  double value = 0;
  std::vector<double> sum(x.size());
  for (std::size_t i = 0; i + 1 < x.size(); ++i) {
    const double p = double(x[i]), a = double(x[i + 1]) - p * p, b = 1 - p;
    value += 100 * a * a + b * b;
    sum[i + 1] += 200 * a;
    sum[i] += -400 * a * p - 2 * b;
  }
  for (std::size_t i = 0; i < x.size(); ++i) gradient[i] = T(sum[i]);
  return value;
}

// The extended Powell singular function.
template <class T>
double Powell(std::span<const T> x, std::span<T> gradient) {
  double value = 0;
  for (std::size_t i = 0; i + 3 < x.size(); i += 4) {
    const double p = double(x[i]), q = double(x[i + 1]), r = double(x[i + 2]), s = double(x[i + 3]);
    const double a = p + 10 * q, b = r - s, c = q - 2 * r, d = p - s;
    value += a * a + 5 * b * b + c * c * c * c + 10 * d * d * d * d;
    gradient[i] = T(2 * a + 40 * d * d * d);
    gradient[i + 1] = T(20 * a + 4 * c * c * c);
    gradient[i + 2] = T(10 * b - 8 * c * c * c);
    gradient[i + 3] = T(-10 * b - 40 * d * d * d);
  }
  return value;
}

// Expects two points to agree within `error`, relative to the norm of the second.
inline void ExpectPoint(std::span<const double> got, std::span<const double> want, double error,
                        std::string_view what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  double distance = 0, norm = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    distance += (got[i] - want[i]) * (got[i] - want[i]);
    norm += want[i] * want[i];
  }
  EXPECT_LE(std::sqrt(distance), error * std::sqrt(norm)) << what;
}

}  // namespace troop::test
