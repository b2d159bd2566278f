#include "apps/learning_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "apps/problem.h"
#include "core/time.h"
#include "kernels/matmul.h"
#include "learners/device_profile.h"
#include "nn/model.h"
#include "nn/text_model.h"

namespace troop {
namespace {

constexpr std::int64_t kPeakSize = 512;
constexpr int kPeakTries = 12;
constexpr double kUpdatesPlanned = 8;  // that a run must have made: planning makes four

double Value(const RunView& view, const std::string& name) {
  const auto found = view.metrics.find("learner/" + name);
  return found == view.metrics.end() ? 0 : found->second.value;
}

// Batches that a learner computed a gradient of its share of, as all of them did on average. Not
// counted like updates, of which shards may make another number, and earlier parts of a resumed run
// have made some.
double BatchesOf(const Config& config, const RunView& view) {
  return Value(view, "gradients") / double(config.fleet.learners);
}

std::string Bytes(double n) {
  const char* const units[] = {"B", "kB", "MB", "GB", "TB"};
  int unit = 0;
  for (; n >= 1000 && unit < 4; ++unit) n /= 1000;
  return fmt::format("{:.{}f} {}", n, unit == 0 || n >= 100 ? 0 : 1, units[unit]);
}

// What is sent where, and how much of that time the learners computed meanwhile.
std::string Collectives(const Config& config, const RunView& view) {
  struct Collective {
    const char* name;
    double bytes, seconds, waited;  // of all learners
  };
  const double learners = double(config.fleet.learners), tensor_s = Value(view, "tensor_s");
  const bool shards = config.learner.sync == "paramserver";
  // A learner that has pushed waits for the weights, and before them for the shards to take it.
  const double agree_s = Value(view, "agree_s"), weights_s = Value(view, "weights_s");
  const double pull_s = std::min(agree_s, weights_s);
  const Collective all[] = {
      {shards ? "gradients to the parameter shards" : "all-reduce of gradients",
       Value(view, "gradient_bytes"), Value(view, "travel_s"), agree_s - pull_s},
      {"weights from the parameter shards", Value(view, "weights_bytes"), weights_s, pull_s},
      {"all-reduces between parts of the model", Value(view, "tensor_bytes"), tensor_s, tensor_s}};
  std::string rows;
  for (const Collective& c : all) {
    if (c.bytes == 0) continue;
    const double hidden = c.seconds > 0 ? std::max(0.0, 1 - c.waited / c.seconds) : 0;
    rows +=
        fmt::format("| {} | {} | {:.1f} | {:.0f} % |\n", c.name,
                    Bytes(c.bytes / Value(view, "gradients")), c.seconds / learners, 100 * hidden);
  }
  if (rows.empty()) return rows;
  return "\n| of a learner | a batch | seconds under way | behind computing |\n"
         "|---|---:|---:|---:|\n" +
         rows + "\n";
}

}  // namespace

Peak MeasurePeak(const Config& config) {
  if (config.learner.device != "cpu") {
    const Result<std::string> gpu = GpuOf(config);
    const Result<double> reached = gpu.ok() ? MeasureGpuPeak(config) : gpu.status();
    if (reached.ok()) return {*reached, *gpu};
  }
  const auto multiply = config.network.precision == "bf16" ? MatMulBF16 : MatMul;
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
  return {best, "a thread here"};
}

bool IsWorthAPlan(const Config& config, const RunView& view) {
  return BatchesOf(config, view) >= kUpdatesPlanned;
}

std::string LearningReport(const Config& config, const RunView& view, const Peak& peak,
                           const MeshPlan* plan) {
  const double learners = double(config.fleet.learners), tokens = Value(view, "tokens");
  const double batches = BatchesOf(config, view), before = double(view.updates_at_start);
  if (tokens == 0 || batches == 0) return "";
  struct Phase {
    const char* name;
    double seconds;  // of all learners
    double planned;  // of a learner's update
  };
  const MeshPlan p = plan != nullptr ? *plan : MeshPlan{};
  const Phase phases[] = {
      {"compute: forward, loss, backward", Value(view, "compute_s"), p.compute_s},
      {"wait for the model's other parts", Value(view, "tensor_s"), p.tensor_s},
      {"wait for the gradients to agree", Value(view, "agree_s"), p.gradient_s},
      {"clip and optimizer", Value(view, "step_s"), p.step_s},
      {"data: choose, mask, pack", Value(view, "data_s"), 0}};
  double all = 0;
  for (const Phase& phase : phases) all += phase.seconds;
  std::string out = fmt::format(
      "{:.0f} reviews, {:.3g} tokens in {:.0f} updates{}; {} learners ({} x {}: mesh.dp x "
      "mesh.tp)\n\n"
      "| of a learner | seconds | share |{}\n|---|---:|---:|{}\n",
      Value(view, "sequences"), tokens, Value(view, "updates") - before,
      before > 0 ? fmt::format(" after {:.0f} of the run's earlier parts", before) : "",
      config.fleet.learners, config.mesh.dp, config.mesh.tp, plan != nullptr ? " planned |" : "",
      plan != nullptr ? "---:|" : "");
  const auto planned = [&](double seconds) {
    return plan != nullptr ? fmt::format(" {:.1f} |", seconds * batches) : std::string();
  };
  for (const Phase& phase : phases) {
    out += fmt::format("| {} | {:.1f} | {:.1f} % |{}\n", phase.name, phase.seconds / learners,
                       100 * phase.seconds / all, planned(phase.planned));
  }
  const double seconds = all / learners, flops = Value(view, "flops");
  out += fmt::format("| in all | {:.1f} | |{}\n\n{:.0f} tokens/s while updates are made\n", seconds,
                     planned(p.seconds()), tokens / seconds);
  if (plan != nullptr) {
    out += fmt::format("a batch took {:.1f} ms, planned {:.1f} (troop plan, at the run's end)\n",
                       1e3 * seconds / batches, 1e3 * p.seconds());
  }
  // Beside others on the same cores a learner computes more slowly; the peak was measured alone.
  out += fmt::format(
      "model products: {:.1f} GFLOP/s a learner, {:.1f} while it computes, of {:.1f} that {} "
      "reached ({:.0f} % and {:.0f} %)\n",
      flops / all / 1e9, flops / Value(view, "compute_s") / 1e9, peak.flops / 1e9, peak.where,
      100 * flops / all / peak.flops, 100 * flops / Value(view, "compute_s") / peak.flops);
  out += Collectives(config, view);
  if (!view.evaluations.empty() && view.evaluations.back().final) {
    const EvaluationReport& e = view.evaluations.back();
    const ScoreWords words = ScoreWordsOf(config);
    out +=
        fmt::format("in the end: {:.2f} {}{}, of {} {}; mean cross entropy {:.4f}\n", e.return_mean,
                    words.score, SpreadText(true, e), e.episodes, words.units, e.loss);
  }
  return out;
}

}  // namespace troop
