#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/status.h"
#include "fleet/config/config.h"
#include "nn/model_config.h"

namespace troop {

// Figures of one finished run of `troop experiment imdb-parallel`, which trains one model either
// data-parallel (mesh.dp) or tensor-parallel (mesh.tp).
struct ParallelRun {
  double updates = 0;          // number of updates of the run
  double tokens = 0;           // per update
  double step_s = 0;           // seconds per update, mean over learners
  double wait_s = 0;           // part of step_s spent waiting for other learners
  double sent_bytes = 0;       // per learner and update, measured
  double expected_bytes = 0;   // prediction of sent_bytes from model and tokens (PlanMesh)
  double parameter_bytes = 0;  // f32 parameters of the first learner
};
// Reads the figures of a run. config: the run folder's; metrics: the last line of its
// metrics.jsonl. Errors: kDataLoss: the line has no updates; errors of ParseJson, PlanMesh and
// MakeTextModel.
Result<ParallelRun> ReadParallelRun(const Config& config, std::string_view metrics);

// The repeated runs of one model on one mesh; figures are their medians.
struct ParallelCell {
  std::vector<ParallelRun> runs;
  // Each REQUIRES: there are runs.
  double Median(double ParallelRun::*figure) const;
  double Fastest() const;  // smallest step_s, in seconds
  double Slowest() const;  // largest step_s, in seconds
};
// The runs of one model, data-parallel and tensor-parallel.
struct ParallelModel {
  ModelArchitecture architecture = ModelArchitecture::kBert;
  ParallelCell data, tensor;
};

// The faster kind of parallelism for one model: predicted from the bytes sent, and measured.
struct ParallelVerdict {
  enum class Winner { kData, kTensor, kNeither };
  Winner expected = Winner::kData;  // by expected_bytes
  // By step_s: the winner if all of its repeats are faster than all others; else kNeither.
  Winner measured = Winner::kNeither;
  // Number of tokens per update at which both kinds send the same number of bytes; with fewer
  // tokens, tensor parallelism sends less.
  double even_tokens = 0;
  // True if the measurement confirms the prediction.
  bool held() const { return measured == expected; }
};
// Compares both kinds. REQUIRES: both have runs.
ParallelVerdict JudgeParallel(const ParallelModel& model);

// Settings and machine of the experiment, for the report.
struct ParallelSetting {
  std::int64_t learners = 2;
  double link_bits_per_s = 0;           // between any two learners; 0: no shaped links
  std::int64_t layers = 0, hidden = 0;  // of the model: number of layers, and their width
  std::int64_t batch = 0;               // reviews per update
  std::string machine;                  // description of the hardware
  double load = 0;                      // load average of the minute before the start
  int cores = 1;
};
// Formats the report as Markdown: a table in the form of the published one (a row per model, a
// column per kind), a table of all figures, and a verdict per model. The published table has the
// training seconds of BERT-base and ALBERT-base on IMDB: PyTorch data parallelism against DeepSpeed
// tensor parallelism, on six GPUs in two hosts.
// REQUIRES: each model is "bert" or "albert" and has runs of both kinds.
std::string ParallelReport(const ParallelSetting& setting, std::span<const ParallelModel> models);
// Formats the figures and verdicts as one JSON object (results.json). REQUIRES: as ParallelReport.
std::string ParallelJson(const ParallelSetting& setting, std::span<const ParallelModel> models);

}  // namespace troop
