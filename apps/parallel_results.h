#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/config.h"
#include "core/status.h"

namespace troop {

// What a finished run of one model at one mesh says of its updates: those of `troop experiment
// imdb-parallel`, whose learners either all share batches (mesh.dp) or all share the model
// (mesh.tp).
struct ParallelRun {
  double updates = 0;
  double tokens = 0;           // of an update
  double step_s = 0;           // of an update, on the mean of all learners
  double wait_s = 0;           // of that, for other learners
  double sent_bytes = 0;       // by a learner for an update, as counted
  double expected_bytes = 0;   // the same, from the model's sizes and the tokens alone (PlanMesh)
  double parameter_bytes = 0;  // of the first learner: f32, without gradient and optimizer
};
// config: as the run's folder has it. metrics: the last line of its metrics.jsonl. Errors:
// kDataLoss: no such line, or no updates were made.
Result<ParallelRun> ReadParallelRun(const Config& config, std::string_view metrics);

// The repeats of one model at one mesh; figures are their medians.
struct ParallelCell {
  std::vector<ParallelRun> runs;
  double Median(double ParallelRun::*figure) const;  // REQUIRES: there are runs
  double Fastest() const;                            // step_s
  double Slowest() const;
};
struct ParallelModel {
  std::string family;  // "bert", "albert"
  ParallelCell data, tensor;
};

// Which way of being parallel should win because fewer bytes are moved, and which did.
struct ParallelVerdict {
  enum class Winner { kData, kTensor, kNeither };
  Winner expected = Winner::kData;  // by expected_bytes
  // By step_s: all repeats of one were faster than all of the other, else neither.
  Winner measured = Winner::kNeither;
  // Tokens of an update at which both move as many bytes: fewer, and tensor parallel moves fewer.
  double even_tokens = 0;
  bool held() const { return measured == expected; }
};
ParallelVerdict JudgeParallel(const ParallelModel& model);

// What is not a figure of a run.
struct ParallelSetting {
  std::int64_t learners = 2;
  double link_bits_per_s = 0;  // between any two learners; 0: they are on one machine
  std::int64_t layers = 0, hidden = 0, batch = 0;
  std::string machine;  // for people
  double load = 0;      // processes that wanted a core in the minute before it began
  int cores = 1;
};
// Markdown: the published table's form (a row a model, a column a way), all figures, and a sentence
// a model. Published: BERT-base and ALBERT-base on IMDB, PyTorch's data parallelism against
// DeepSpeed's tensor parallelism, six GPUs in two hosts: seconds of a training.
std::string ParallelReport(const ParallelSetting& setting, std::span<const ParallelModel> models);
std::string ParallelJson(const ParallelSetting& setting, std::span<const ParallelModel> models);

}  // namespace troop
