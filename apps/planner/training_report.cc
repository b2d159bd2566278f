// The report at the end of a supervised run: time per phase, FLOP/s and traffic.
#include "apps/planner/training_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "core/base/time.h"
#include "fleet/config/role_configs.h"
#include "fleet/run/task_info.h"
#include "kernels/linear/matmul.h"
#include "learners/supervised/gpu_profile.h"
#include "nn/models/model.h"
#include "nn/models/text_model.h"

namespace troop {
namespace {

// Small enough for the caches; the best of several tries is the least disturbed one.
constexpr std::int64_t kPeakSize = 512;
constexpr int kPeakTries = 12;
constexpr double kUpdatesPlanned = 8;  // least updates of a run; planning itself makes four

// A learner metric summed over the learners, or 0.
double Value(const RunView& view, const std::string& name) {
  const auto found = view.metrics.find("learner/" + name);
  return found == view.metrics.end() ? 0 : found->second.value;
}

// Batches per learner in this part of the run. The update counter cannot be used: parameter shards
// may count other updates, and a resumed run continues the old count.
double BatchesOf(const Config& config, const RunView& view) {
  return Value(view, "gradients") / double(config.fleet.learners);
}

// "4.0 MB": powers of 1000.
std::string Bytes(double n) {
  const char* const units[] = {"B", "kB", "MB", "GB", "TB"};
  int unit = 0;
  for (; n >= 1000 && unit < 4; ++unit) n /= 1000;
  return fmt::format("{:.{}f} {}", n, unit == 0 || n >= 100 ? 0 : 1, units[unit]);
}

// A table of the traffic per batch, and the share of its time that overlapped with computing.
std::string Collectives(const Config& config, const RunView& view) {
  struct Collective {
    const char* name;
    double bytes, seconds, waited;  // of all learners
  };
  const double learners = double(config.fleet.learners), tensor_s = Value(view, "tensor_s");
  const bool shards = config.learner.sync == LearnerSync::kParamServer;
  // After a push a learner waits for the shards to accept it, then for the weights.
  const double allreduce_wait_s = Value(view, "allreduce_wait_s"),
               weights_s = Value(view, "weights_s");
  const double pull_s = std::min(allreduce_wait_s, weights_s);
  const Collective all[] = {
      {shards ? "gradients to the parameter shards" : "all-reduce of gradients",
       Value(view, "gradient_bytes"), Value(view, "allreduce_s"), allreduce_wait_s - pull_s},
      {"weights from the parameter shards", Value(view, "weights_bytes"), weights_s, pull_s},
      {"all-reduces of tensor parallelism", Value(view, "tensor_bytes"), tensor_s, tensor_s}};
  std::string rows;
  for (const Collective& c : all) {
    if (c.bytes == 0) continue;
    // Overlapped time is the time under way minus the time that the learners waited.
    const double hidden = c.seconds > 0 ? std::max(0.0, 1 - c.waited / c.seconds) : 0;
    rows +=
        fmt::format("| {} | {} | {:.1f} | {:.0f} % |\n", c.name,
                    Bytes(c.bytes / Value(view, "gradients")), c.seconds / learners, 100 * hidden);
  }
  if (rows.empty()) return rows;
  return "\n| per learner | per batch | seconds | overlapped |\n"
         "|---|---:|---:|---:|\n" +
         rows + "\n";
}

// The mean of a measure over the measured runs of a stage.
double OfStage(const RunView& view, std::int64_t stage, const std::string& name) {
  const double runs = Value(view, fmt::format("stage{}_runs", stage));
  return Value(view, fmt::format("stage{}_{}", stage, name)) / std::max(1.0, runs);
}

}  // namespace

// Idle shares are sums of times over all measured runs, so that long ones count more.
std::string PipelineReport(const Config& config, const RunView& view) {
  if (Value(view, "stage0_runs") == 0) return "";
  std::string out =
      "| stage | idle | predicted | memory of micro-batches | predicted |\n"
      "|---:|---:|---:|---:|---:|\n";
  // Stages measure the same runs, so their times differ only by rounding.
  double seconds = 0, planned = 0;
  for (std::int64_t stage = 0; stage < config.mesh.pp; ++stage) {
    const auto share = [&](const char* idle, const char* all) {
      return 100 * OfStage(view, stage, idle) / std::max(1e-9, OfStage(view, stage, all));
    };
    out += fmt::format("| {} | {:.1f} % | {:.1f} % | {} | {} |\n", stage, share("idle_s", "s"),
                       share("planned_idle_s", "planned_s"), Bytes(OfStage(view, stage, "bytes")),
                       Bytes(OfStage(view, stage, "planned_bytes")));
    seconds = std::max(seconds, OfStage(view, stage, "s"));
    planned = std::max(planned, OfStage(view, stage, "planned_s"));
  }
  return out + fmt::format(
                   "\n{} x {} stages (mesh.dp x mesh.pp), schedule {}: passes of an update took "
                   "{:.1f} ms, predicted {:.1f} ms from the times of single passes\n",
                   config.mesh.dp, config.mesh.pp, EnumName(config.pipeline.schedule),
                   1e3 * seconds, 1e3 * planned);
}

// Falls back to the CPU if the GPU cannot be measured.
Peak MeasurePeak(const Config& config) {
  if (config.learner.device != DeviceChoice::kCpu) {
    const TrainingConfig training = TrainingConfigOf(config);
    const Result<std::string> gpu = GpuOf(training);
    const Result<double> reached = gpu.ok() ? MeasureGpuPeak(training) : gpu.status();
    if (reached.ok()) return {*reached, *gpu};
  }
  const auto multiply = config.network.precision == NetworkPrecision::kBf16 ? MatMulBF16 : MatMul;
  // All values are equal and normal, so that the time does not depend on them.
  const std::vector<float> a(std::size_t(kPeakSize * kPeakSize), 0.5f);
  std::vector<float> c(a.size(), 0.0f);
  const MatMulShape shape{.m = kPeakSize, .n = kPeakSize, .k = kPeakSize};
  const SystemClock clock;
  double best = 0;
  for (int i = 0; i < kPeakTries; ++i) {
    const Time begin = clock.Now();
    multiply(shape, a.data(), a.data(), 0, c.data());
    const double seconds = std::max(1e-9, ToSeconds(clock.Now() - begin));
    best = std::max(best, 2.0 * kPeakSize * kPeakSize * kPeakSize / seconds);
  }
  return {best, "one thread"};
}

bool IsWorthAPlan(const Config& config, const RunView& view) {
  // The profile of a plan consists of tokens.
  return !ClassifiesImages(config.model.architecture) && !IsLinearModel(config) &&
         BatchesOf(config, view) >= kUpdatesPlanned;
}

// Parts: a table of phases, the rates, a table of collectives, the final score. All sums are over
// all learners; "per learner" divides by their number.
std::string LearningReport(const Config& config, const RunView& view, const Peak& peak,
                           const MeshPlan* plan) {
  const double learners = double(config.fleet.learners), sequences = Value(view, "sequences");
  // An image has one size, so that images are a measure as tokens are.
  const bool images = ClassifiesImages(config.model.architecture);
  const double tokens = images ? sequences : Value(view, "tokens");
  const char* const inputs = images ? "images" : IsLinearModel(config) ? "features" : "tokens";
  const double batches = BatchesOf(config, view), before = double(view.updates_at_start);
  // A resumed run with a spent budget has made no batches in this part.
  if (tokens == 0 || batches == 0) return "";
  struct Phase {
    const char* name;
    double seconds;  // of all learners
    double planned;  // of a learner's update
  };
  const MeshPlan p = plan != nullptr ? *plan : MeshPlan{};
  // Data loading has no planned time.
  const Phase phases[] = {
      {"compute: forward, loss, backward", Value(view, "compute_s"), p.compute_s},
      {images ? "wait for batch statistics" : "wait for tensor-parallel ranks",
       Value(view, "tensor_s"), p.tensor_s},
      {"wait for gradient sync", Value(view, "allreduce_wait_s"), p.gradient_s},
      {"clip and optimizer", Value(view, "step_s"), p.step_s},
      {images ? "wait for images" : "data: sample, mask, pack", Value(view, "data_s"), 0}};
  double all = 0;
  for (const Phase& phase : phases) all += phase.seconds;
  std::string out = fmt::format(
      "{:.0f} examples, {:.3g} {} in {:.0f} updates{}; {} learners ({} x {}: mesh.dp x "
      "mesh.tp)\n\n"
      "| per learner | seconds | share |{}\n|---|---:|---:|{}\n",
      sequences, tokens, inputs, Value(view, "updates") - before,
      before > 0 ? fmt::format(" after {:.0f} before the resume", before) : "",
      config.fleet.learners, config.mesh.dp, config.mesh.tp, plan != nullptr ? " planned |" : "",
      plan != nullptr ? "---:|" : "");
  // The plan is per update, the other columns are per run.
  const auto planned = [&](double seconds) {
    return plan != nullptr ? fmt::format(" {:.1f} |", seconds * batches) : std::string();
  };
  for (const Phase& phase : phases) {
    out += fmt::format("| {} | {:.1f} | {:.1f} % |{}\n", phase.name, phase.seconds / learners,
                       100 * phase.seconds / all, planned(phase.planned));
  }
  const double seconds = all / learners, flops = Value(view, "flops");
  out += fmt::format("| total | {:.1f} | |{}\n\n{:.0f} {}/s during updates\n", seconds,
                     planned(p.seconds()), tokens / seconds, inputs);
  if (plan != nullptr) {
    out += fmt::format(
        "a batch took {:.1f} ms, planned {:.1f} ms (predicted from measurements at the end of the "
        "run)\n",
        1e3 * seconds / batches, 1e3 * p.seconds());
  }
  // Learners that share cores compute more slowly; the peak was measured alone. A linear model has
  // no matrix products.
  if (flops > 0)
    out += fmt::format(
        "matrix products: {:.1f} GFLOP/s per learner ({:.0f} % of the peak), {:.1f} while "
        "computing "
        "({:.0f} %); the peak is {:.1f} on {}\n",
        flops / all / 1e9, 100 * flops / all / peak.flops, flops / Value(view, "compute_s") / 1e9,
        100 * flops / Value(view, "compute_s") / peak.flops, peak.flops / 1e9, peak.where);
  out += Collectives(config, view);
  if (!view.evaluations.empty() && view.evaluations.back().final) {
    const EvaluationReport& e = view.evaluations.back();
    const ScoreLabels words = GetScoreLabels(config);
    out += fmt::format("final: {:.2f} {}{}, of {} {}; mean {} {:.4f}\n", e.return_mean, words.score,
                       SpreadText(true, e), e.episodes, words.units, LossName(config, " "), e.loss);
  }
  return out;
}

}  // namespace troop
