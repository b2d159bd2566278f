#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/status.h"
#include "core/config/config.h"

namespace troop {

// Per-update figures of one finished run of `troop experiment imdb-parallel`: one model, either
// data-parallel (mesh.dp) or tensor-parallel (mesh.tp).
struct ParallelRun {
  double updates = 0;
  double tokens = 0;           // of an update
  double step_s = 0;           // seconds per update, mean over learners
  double wait_s = 0;           // part of step_s spent waiting for other learners
  double sent_bytes = 0;       // per learner and update, measured
  double expected_bytes = 0;   // sent_bytes as predicted from model and tokens (PlanMesh)
  double parameter_bytes = 0;  // of the first learner: f32, without gradient and optimizer
};
// Reads the figures. config: that of the run folder. metrics: last line of metrics.jsonl. Errors:
// kDataLoss: no such line, or no updates.
Result<ParallelRun> ReadParallelRun(const Config& config, std::string_view metrics);

// The repeated runs of one model on one mesh; figures are their medians.
struct ParallelCell {
  std::vector<ParallelRun> runs;
  double Median(double ParallelRun::*figure) const;  // REQUIRES: there are runs
  double Fastest() const;                            // step_s
  double Slowest() const;
};
// Both ways of training one model.
struct ParallelModel {
  std::string architecture;  // "bert", "albert"
  ParallelCell data, tensor;
};

// The faster kind of parallelism: predicted by the bytes moved, and measured.
struct ParallelVerdict {
  enum class Winner { kData, kTensor, kNeither };
  Winner expected = Winner::kData;  // by expected_bytes
  // By step_s: the winner if all of its repeats are faster than all others; else kNeither.
  Winner measured = Winner::kNeither;
  // Tokens per update at which both move the same bytes; below it tensor-parallel moves fewer.
  double even_tokens = 0;
  bool held() const { return measured == expected; }
};
// Compares both ways. REQUIRES: both have runs.
ParallelVerdict JudgeParallel(const ParallelModel& model);

// Settings and machine of the experiment, for the report.
struct ParallelSetting {
  std::int64_t learners = 2;
  double link_bits_per_s = 0;  // between any two learners; 0: no shaped links
  std::int64_t layers = 0, hidden = 0, batch = 0;
  std::string machine;  // human-readable
  double load = 0;      // load average of the minute before the start
  int cores = 1;
};
// The report as Markdown: a table in the published form (a row per model, a column per kind), all
// figures, and a sentence per model. Published: training seconds of BERT-base and ALBERT-base on
// IMDB, PyTorch data parallelism against DeepSpeed tensor parallelism, six GPUs in two hosts.
std::string ParallelReport(const ParallelSetting& setting, std::span<const ParallelModel> models);
// The figures and verdicts as one JSON object (results.json).
std::string ParallelJson(const ParallelSetting& setting, std::span<const ParallelModel> models);

}  // namespace troop
