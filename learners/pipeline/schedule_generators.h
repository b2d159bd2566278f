#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "core/base/status.h"
#include "core/config/enum_names.h"
#include "learners/pipeline/pipeline_schedule.h"

namespace troop {

// Methods of pipeline parallelism. K stages, M micro-batches; stage k counts from 0.
enum class ScheduleKind {
  // Model parallelism without a pipeline: a micro-batch passes all stages forward and backward
  // before the next one begins.
  kNone,
  // All forward passes, then all backward passes, in index order, so that gradients are added up in
  // the order of one device. Idle share of a stage: (K-1)/(M+K-1). Huang et al. 2019
  // (arXiv:1811.06965), sec. 2.
  kGpipe,
  // Forward and backward passes alternate after K-1-k forward passes; one update at the end. At
  // most
  // min(K-k, M) micro-batches are in flight. Narayanan et al. 2021 (PipeDream-Flush,
  // arXiv:2006.09503, sec. 3.2).
  k1f1b,
  // 1F1B with V chunks per stage, chunk c on stage c % K. If M is a multiple of K, idle time is
  // that of 1F1B divided by V. Narayanan et al. 2021 (arXiv:2104.04473), sec. 2.2.
  kInterleaved,
  // ZB-H1: 1F1B with the weights' gradients computed later, k micro-batches later on stage k. For
  // M >= K, idle time is (K-1)(F+B-W), with B and W for the gradients of input and weights; memory
  // is that of 1F1B's first stage. Qi et al. 2023 (arXiv:2401.10241), sec. 2.1.
  kZeroBubble,
  // 1F1B without a flush: an update after each backward pass, whose micro-batch reads the version
  // of
  // its forward pass again. Stage k holds K-k versions; between the passes of a micro-batch are
  // K-1-k updates. Narayanan et al. 2019 (SOSP), sec. 3.2 and 3.3.
  kPipedream,
  // PipeDream's order, but forward predicts the version of its backward pass, so that no version is
  // kept. Chen, Yang, Cheng 2018 (arXiv:1809.02839), sec. 3.2. The horizon s is the version of a
  // forward pass minus the number of updates before it.
  kSpectrain,
  // Wavefront over time: stage k has layer k of a recurrent model, and begins time step t when
  // stage
  // k-1 has finished it: K+T-1 steps instead of K*T. Wu et al. 2016 (GNMT, arXiv:1609.08144).
  kWavefront,
};
constexpr auto EnumNames(ScheduleKind) {
  return std::array<std::string_view, 8>{"none",        "gpipe",     "1f1b",      "interleaved",
                                         "zero_bubble", "pipedream", "spectrain", "wavefront"};
}

// Parameters of a schedule. A value that a kind does not use must keep its default.
struct ScheduleOptions {
  ScheduleKind kind = ScheduleKind::k1f1b;
  std::int64_t stages = 1;            // K, from 1 to kStagesMax; a replicated stage counts once
  std::int64_t micro_batches = 1;     // M, or T time steps of kWavefront; 1 or more
  std::int64_t chunks_per_stage = 1;  // V; kInterleaved only
  bool recompute = false;             // training only, not with kZeroBubble
  bool forward_only = false;          // kNone, kGpipe, kWavefront: inference
  bool vertical_sync = false;         // kPipedream without replicas
  bool bidirectional_first = false;   // kWavefront: layer 0 reads both directions; 2T+K-2 steps
  // kPipedream: [stage] processes that divide the micro-batches of the stage; empty: 1 each. Stages
  // of the schedule are then numbered by these processes, stage after stage.
  std::vector<std::int64_t> replicas;
};

// Makes the schedule. Its memory_max are the least limits that it keeps, and send_slots is the
// least number with which it does not deadlock. The result passes CheckSchedule. O(operations).
// Errors: kInvalidArgument: a value out of range, or one that the kind does not use.
Result<PipelineSchedule> MakeSchedule(const ScheduleOptions& options);

// Rows of each micro-batch when `rows` are divided into micro-batches of `micro_batch_rows`: all
// equal, except that the last one has the remainder. Empty if an argument is below 1.
std::vector<std::int64_t> MicroBatchRows(std::int64_t rows, std::int64_t micro_batch_rows);

}  // namespace troop
