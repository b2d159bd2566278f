// Figures, verdicts and reports of `troop experiment imdb-parallel`.
#include "apps/experiments/imdb_parallel_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "apps/planner/mesh_planner.h"
#include "core/base/version.h"
#include "core/storage/json.h"
#include "fleet/config/role_configs.h"
#include "nn/models/model.h"
#include "nn/models/text_model.h"

namespace troop {
namespace {

// Training times in seconds, as published (imdb_parallel_report.h).
struct Published {
  ModelArchitecture family;
  const char* name;
  double data_s, tensor_s;
};
constexpr Published kPublished[] = {{ModelArchitecture::kBert, "BERT", 556, 392},
                                    {ModelArchitecture::kAlbert, "ALBERT", 264, 200}};

// REQUIRES: `family` is one of kPublished.
const Published& PublishedOf(ModelArchitecture family) {
  return *std::ranges::find(kPublished, family, &Published::family);
}

const char* NameOf(ParallelVerdict::Winner winner) {
  switch (winner) {
    case ParallelVerdict::Winner::kData:
      return "data parallel";
    case ParallelVerdict::Winner::kTensor:
      return "tensor parallel";
    case ParallelVerdict::Winner::kNeither:
      return "neither";
  }
  return "";
}

// Where the learners are, for the title of the report.
std::string LinkOf(const ParallelSetting& setting) {
  if (setting.link_bits_per_s == 0) return "on one machine";
  return fmt::format("on links of {:g} Mbit/s", setting.link_bits_per_s / 1e6);
}

// "12.1 to 12.9": fastest and slowest repeat in ms.
std::string Range(const ParallelCell& cell) {
  return fmt::format("{:.1f} to {:.1f}", 1e3 * cell.Fastest(), 1e3 * cell.Slowest());
}

// Median over the repeats, which a single disturbed run does not move.
double Step(const ParallelCell& cell) { return cell.Median(&ParallelRun::step_s); }

// One row of the table of figures.
std::string FiguresRow(const std::string& model, const char* way, const ParallelCell& cell) {
  const double step = Step(cell);
  return fmt::format("| {} | {} | {:.1f} ({}) | {:.0f} | {:.3f} | {:.3f} | {:.0f} % | {:.3f} |\n",
                     model, way, 1e3 * step, Range(cell), cell.Median(&ParallelRun::tokens) / step,
                     cell.Median(&ParallelRun::sent_bytes) / 1e6,
                     cell.Median(&ParallelRun::expected_bytes) / 1e6,
                     100 * cell.Median(&ParallelRun::wait_s) / step,
                     cell.Median(&ParallelRun::parameter_bytes) / 1e6);
}

// The verdict on one model, in words.
std::string Sentence(const ParallelModel& model) {
  using Winner = ParallelVerdict::Winner;
  const ParallelVerdict verdict = JudgeParallel(model);
  const double data = model.data.Median(&ParallelRun::expected_bytes);
  const double tensor = model.tensor.Median(&ParallelRun::expected_bytes);
  std::string text = fmt::format(
      "{}: an update of {:.0f} tokens moves {:.3f} MB per learner with data parallelism "
      "(gradients) and {:.3f} MB with tensor parallelism (activations); they are equal at {:.0f} "
      "tokens. By the bytes {} should win; ",
      PublishedOf(model.architecture).name, model.tensor.Median(&ParallelRun::tokens), data / 1e6,
      tensor / 1e6, verdict.even_tokens, NameOf(verdict.expected));
  const std::string times = fmt::format("{} ms against {} ms for tensor parallel",
                                        Range(model.data), Range(model.tensor));
  if (verdict.measured == Winner::kNeither) {
    return text + fmt::format("neither did: the repeats overlap ({}).\n", times);
  }
  return text + fmt::format("{} ({}).\n", verdict.held() ? "it did" : "it did not", times);
}

// One model and kind as an object of results.json, with the step times of all repeats.
JsonObject CellJson(const ParallelModel& model, const char* way, const ParallelCell& cell) {
  JsonArray steps;
  for (const ParallelRun& run : cell.runs) steps.Add(run.step_s);
  return JsonObject()
      .Add("model", EnumName(model.architecture))
      .Add("parallel", way)
      .Add("step_s", steps)
      .Add("step_s_median", Step(cell))
      .Add("tokens_per_update", cell.Median(&ParallelRun::tokens))
      .Add("tokens_per_s", cell.Median(&ParallelRun::tokens) / Step(cell))
      .Add("wait_share", cell.Median(&ParallelRun::wait_s) / Step(cell))
      .Add("sent_bytes", cell.Median(&ParallelRun::sent_bytes))
      .Add("expected_bytes", cell.Median(&ParallelRun::expected_bytes))
      .Add("parameter_bytes", cell.Median(&ParallelRun::parameter_bytes))
      .Add("updates", cell.Median(&ParallelRun::updates));
}

}  // namespace

// The counters of a run are sums over learners; dividing by `made` gives one learner's update.
Result<ParallelRun> ReadParallelRun(const Config& config, std::string_view metrics) {
  TROOP_ASSIGN_OR_RETURN(const JsonValue line, ParseJson(metrics));
  const auto value = [&line](const char* name) {
    const JsonValue* const found = line.Find(std::string("learner/") + name);
    return found == nullptr ? 0.0 : found->number;
  };
  ParallelRun run{.updates = value("updates")};
  const std::int64_t learners = config.mesh.dp * config.mesh.tp;
  const double made = run.updates * double(learners);  // updates of all learners
  // A run that was stopped early has a line, but nothing to divide by.
  if (made <= 0 || value("tokens") <= 0) {
    return DataLoss("the last line of metrics.jsonl has no updates");
  }
  // Times and bytes are sums over all learners and updates.
  run.tokens = value("tokens") / run.updates;
  // A learner's update is waiting, plus compute, optimizer and data.
  run.wait_s = (value("tensor_s") + value("allreduce_wait_s")) / made;
  run.step_s = run.wait_s + (value("compute_s") + value("step_s") + value("data_s")) / made;
  run.sent_bytes = (value("gradient_bytes") + value("tensor_bytes")) / made * SentShare(learners);
  // Tensor-parallel traffic depends on tokens and sequences, which are whole numbers only for all
  // updates together, so all of them are planned at once. Gradient traffic is constant per update.
  const double planned = config.mesh.tp > 1 ? run.updates : 1;
  const double share = planned / run.updates;
  const MeshProfile sizes{
      .tokens = std::round(value("tokens") * share),
      .labels = std::round(LabelsOf(config, value("tokens"), value("sequences")) * share)};
  TROOP_ASSIGN_OR_RETURN(const MeshPlan plan,
                         PlanMesh(config, sizes, config.mesh.dp, config.mesh.tp));
  run.expected_bytes = plan.bytes / planned;
  TROOP_ASSIGN_OR_RETURN(const auto part,
                         MakeTextModel(ModelSetupOf(config), {.ranks = int(config.mesh.tp)}));
  run.parameter_bytes = double(ParameterCount(*part)) * sizeof(float);
  return run;
}

// The mean of the middle two values if their number is even.
double ParallelCell::Median(double ParallelRun::*figure) const {
  std::vector<double> values;
  for (const ParallelRun& run : runs) values.push_back(run.*figure);
  std::ranges::sort(values);
  return (values[(values.size() - 1) / 2] + values[values.size() / 2]) / 2;
}

double ParallelCell::Fastest() const {
  return std::ranges::min(runs, {}, &ParallelRun::step_s).step_s;
}

double ParallelCell::Slowest() const {
  return std::ranges::max(runs, {}, &ParallelRun::step_s).step_s;
}

// Predicts the winner by the bytes that a learner sends, and compares it with the measured times.
ParallelVerdict JudgeParallel(const ParallelModel& model) {
  using Winner = ParallelVerdict::Winner;
  const double data = model.data.Median(&ParallelRun::expected_bytes);
  const double tensor = model.tensor.Median(&ParallelRun::expected_bytes);
  // Gradient traffic is constant and tensor-parallel traffic is proportional to the tokens, so the
  // break-even point follows from one measurement.
  ParallelVerdict verdict{.expected = data <= tensor ? Winner::kData : Winner::kTensor,
                          .even_tokens = data / tensor * model.tensor.Median(&ParallelRun::tokens)};
  // Disjoint ranges are required: overlapping repeats are not a result.
  if (model.data.Slowest() < model.tensor.Fastest()) verdict.measured = Winner::kData;
  if (model.tensor.Slowest() < model.data.Fastest()) verdict.measured = Winner::kTensor;
  return verdict;
}

// Parts: setting, table in the published form, table of all figures, legend, one verdict per model.
std::string ParallelReport(const ParallelSetting& setting, std::span<const ParallelModel> models) {
  std::string text = fmt::format(
      "{} learners {}, one thread each; {} layers of width {}, {} reviews per update\n{}, {} "
      "cores; load average before the start: {:.1f}{}\n\n",
      setting.learners, LinkOf(setting), setting.layers, setting.hidden, setting.batch,
      setting.machine, setting.cores, setting.load,
      setting.load > 0.5 ? " (a busy machine: all times are too high)" : "");
  text +=
      "| ms/update | data parallel | tensor parallel | tensor / data | published, six GPUs |\n"
      "|---|---:|---:|---:|---:|\n";
  for (const ParallelModel& model : models) {
    const Published& published = PublishedOf(model.architecture);
    text += fmt::format("| {} | {:.1f} | {:.1f} | {:.2f} | {:.0f} s, {:.0f} s: {:.2f} |\n",
                        published.name, 1e3 * Step(model.data), 1e3 * Step(model.tensor),
                        Step(model.tensor) / Step(model.data), published.data_s, published.tensor_s,
                        published.tensor_s / published.data_s);
  }
  text +=
      "\n| model | parallel | ms/update (repeats) | tokens/s | MB sent | predicted | waiting "
      "| MB of parameters |\n|---|---|---:|---:|---:|---:|---:|---:|\n";
  for (const ParallelModel& model : models) {
    text += FiguresRow(PublishedOf(model.architecture).name, "data", model.data);
    text += FiguresRow(PublishedOf(model.architecture).name, "tensor", model.tensor);
  }
  text +=
      "\nMB are per learner: sent per update, and of its parameters. Gradients: 2 (N - 1) / N of "
      "all parameters. Tensor parallel: 2 (N - 1) / N of 4 [tokens, hidden] tensors per layer and "
      "one for the embeddings. 4 bytes each.\n\n";
  for (const ParallelModel& model : models) text += Sentence(model);
  return text;
}

// results.json: the figures of each cell, then one verdict per model.
std::string ParallelJson(const ParallelSetting& setting, std::span<const ParallelModel> models) {
  JsonArray cells, verdicts;
  for (const ParallelModel& model : models) {
    cells.Add(CellJson(model, "data", model.data));
    cells.Add(CellJson(model, "tensor", model.tensor));
    const ParallelVerdict verdict = JudgeParallel(model);
    verdicts.Add(JsonObject()
                     .Add("model", EnumName(model.architecture))
                     .Add("expected", NameOf(verdict.expected))
                     .Add("measured", NameOf(verdict.measured))
                     .Add("held", verdict.held())
                     .Add("even_tokens", verdict.even_tokens));
  }
  return JsonObject()
             .Add("experiment", "imdb-parallel")
             .Add("version", kTroopVersion)
             .Add("machine", setting.machine)
             .Add("cores", setting.cores)
             .Add("load", setting.load)
             .Add("learners", setting.learners)
             .Add("link_bits_per_s", setting.link_bits_per_s)
             .Add("cells", cells)
             .Add("verdicts", verdicts)
             .str() +
         "\n";
}

}  // namespace troop
