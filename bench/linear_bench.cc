// Measures the solver of linear models on the n-grams of IMDB's training reviews, in one thread.
//
// linear_bench features ARCHIVE FOLDER
//   makes the features of configs/imdb_linear.toml with naive Bayes weights and a constant column,
//   prints the time, and writes them for both sides: begins.i64, columns.i32, values.f32 and
//   targets.f32
// linear_bench solve FOLDER CASE LOSS L2 OBJECTIVE
//   prints the seconds of dual ascent until the objective is at most OBJECTIVE, and that objective,
//   computed in f64, as `check`; writes the weights to FOLDER/weights.f32
#include <fmt/format.h>
#include <stdlib.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <numeric>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "learners/linear/linear_data.h"
#include "nn/sparse/dual_ascent.h"
#include "nn/sparse/naive_bayes.h"

namespace troop {
namespace {

constexpr int kRepeats = 7;
constexpr int kPassesMax = 100;  // far above what any case needs

double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// An array as a file of its bytes, which numpy.fromfile reads.
template <class T>
Status WriteArray(const std::string& path, std::span<const T> values) {
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(values.data()), std::streamsize(values.size_bytes()));
  file.flush();
  return file ? Status::Ok() : Unavailable("{}: the file can't be written", path);
}

template <class T>
Result<std::vector<T>> ReadArray(const std::string& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) return NotFound("{}: the file can't be read; run linear_bench features first", path);
  std::vector<T> values(std::size_t(file.tellg()) / sizeof(T));
  file.seekg(0);
  file.read(reinterpret_cast<char*>(values.data()), std::streamsize(values.size() * sizeof(T)));
  if (!file) return DataLoss("{}: the file ends early", path);
  return values;
}

// A column of ones, whose weight is the bias: both sides penalize it.
SparseRows WithConstant(const SparseRows& rows) {
  SparseRows out{.width = rows.width + 1};
  for (std::int64_t i = 0; i < rows.size(); ++i) {
    const SparseRow row = rows.row(i);
    out.columns.insert(out.columns.end(), row.columns.begin(), row.columns.end());
    out.values.insert(out.values.end(), row.values.begin(), row.values.end());
    out.columns.push_back(std::int32_t(rows.width));
    out.values.push_back(1);
    out.EndRow();
  }
  return out;
}

// Reading the files is part of the time, as in a run.
Status MakeFeatures(const std::string& archive, const std::string& folder) {
  TrainingConfig config;
  config.learner.algorithm = AlgorithmKind::kClassifier;
  config.data.reviews = archive;
  config.data.cache = "";
  config.features = {.ngram_max = 3, .word_length_min = 1, .binary = true, .min_df = 2};
  const double begin = Now();
  TROOP_ASSIGN_OR_RETURN(const auto data, LoadLinearData(config));
  const double seconds = Now() - begin;
  const auto examples = LinearExamplesOf(data->train, config.model.problem_type, 2);
  SparseRows rows = examples->rows;
  ScaleColumns(NaiveBayesRatios(rows, examples->targets, 1), &rows);
  rows = WithConstant(rows);
  // The peer reads the same bytes.
  TROOP_RETURN_IF_ERROR(WriteArray<std::int64_t>(folder + "/begins.i64", rows.begins));
  TROOP_RETURN_IF_ERROR(WriteArray<std::int32_t>(folder + "/columns.i32", rows.columns));
  TROOP_RETURN_IF_ERROR(WriteArray<float>(folder + "/values.f32", rows.values));
  TROOP_RETURN_IF_ERROR(WriteArray<float>(folder + "/targets.f32", examples->targets));
  std::printf("%s\n", fmt::format("{{\"case\":\"n-grams of 50,000 reviews\",\"metric\":\"features\""
                                  ",\"unit\":\"s\",\"values\":[{:.4g}]}}",
                                  seconds)
                          .c_str());
  return Status::Ok();
}

// One run of the solver: everything after the features, with a new order per pass.
DualAscent Solve(const DualAscentOptions& options, const SparseRows& rows,
                 std::span<const float> targets, int passes) {
  DualAscent solver(options, &rows, targets);
  std::vector<std::int32_t> order(targets.size());
  std::iota(order.begin(), order.end(), 0);
  std::mt19937 random(1);
  for (int i = 0; i < passes; ++i) {
    std::ranges::shuffle(order, random);
    solver.Pass(order);
  }
  return solver;
}

// Finds the number of passes first, untimed: the peer's is found in the same way.
Status Measure(const std::string& folder, const std::string& name, DualAscentOptions options,
               double objective) {
  SparseRows rows;
  TROOP_ASSIGN_OR_RETURN(rows.begins, ReadArray<std::int64_t>(folder + "/begins.i64"));
  TROOP_ASSIGN_OR_RETURN(rows.columns, ReadArray<std::int32_t>(folder + "/columns.i32"));
  TROOP_ASSIGN_OR_RETURN(rows.values, ReadArray<float>(folder + "/values.f32"));
  TROOP_ASSIGN_OR_RETURN(const auto targets, ReadArray<float>(folder + "/targets.f32"));
  rows.width = std::ranges::max(rows.columns) + 1;
  int passes = 1;
  double reached = 0;
  for (;; ++passes) {
    const DualAscent solver = Solve(options, rows, targets, passes);
    reached = solver.Objective();
    if (reached <= objective) {
      TROOP_RETURN_IF_ERROR(WriteArray<float>(folder + "/weights.f32", solver.weights()));
      break;
    }
    if (passes == kPassesMax)
      return DataLoss("{}: the objective is {} after {} passes", name, reached, passes);
  }
  std::string values;
  for (int i = 0; i < kRepeats; ++i) {
    const double begin = Now();
    Solve(options, rows, targets, passes);
    values += fmt::format("{}{:.4g}", i > 0 ? "," : "", Now() - begin);
  }
  // Both sides have reached the objective, and may be below it by different amounts.
  std::printf("%s\n",
              fmt::format("{{\"case\":\"{}\",\"metric\":\"solve\",\"unit\":\"s\",\"values\":[{}],"
                          "\"check\":[{:.15g}],\"check_tolerance\":2e-4}}",
                          name, values, reached)
                  .c_str());
  std::fprintf(stderr, "%s: %d passes\n", name.c_str(), passes);
  return Status::Ok();
}

int Main(const std::vector<std::string>& arguments) {
  Status done = InvalidArgument(
      "use features ARCHIVE FOLDER, or solve FOLDER CASE log_loss|squared_hinge L2 OBJECTIVE");
  if (arguments.size() == 3 && arguments[0] == "features") {
    done = MakeFeatures(arguments[1], arguments[2]);
  } else if (arguments.size() == 6 && arguments[0] == "solve") {
    const bool log = arguments[3] == "log_loss";
    done = Measure(arguments[1], arguments[2],
                   {.loss = log ? LinearLoss::kLog : LinearLoss::kSquaredHinge,
                    .l2 = ::atof(arguments[4].c_str())},
                   ::atof(arguments[5].c_str()));
  }
  if (!done.ok()) std::fprintf(stderr, "linear_bench: %s\n", done.message().c_str());
  return done.ok() ? 0 : 2;
}

}  // namespace
}  // namespace troop

int main(int argc, char** argv) { return troop::Main({argv + 1, argv + argc}); }
