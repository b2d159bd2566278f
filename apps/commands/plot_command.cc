// `troop plot`: collects learning curves of runs and sweeps and writes them as one plot.
#include "apps/commands/plot_command.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <map>
#include <memory>

#include "apps/sweep/sweep_summary.h"
#include "core/base/counted.h"
#include "core/graphics/plot/line_plot.h"
#include "core/storage/storage.h"
#include "fleet/launcher/exit_code.h"
#include "fleet/run/learning_curve.h"

namespace troop {
namespace {

namespace fs = std::filesystem;

// Errors: kInvalidArgument.
Result<CurveAxis> AxisOf(const std::string& name) {
  if (name == "steps") return CurveAxis::kSteps;
  if (name == "updates") return CurveAxis::kUpdates;
  if (name == "minutes") return CurveAxis::kMinutes;
  return InvalidArgument("--x is {}, must be steps, updates or minutes", name);
}

// Prefixes equal labels with their folder, so that runs of one name in several folders differ.
void TellApart(std::vector<CurveGroup>* groups) {
  std::map<std::string, int> count;
  for (const CurveGroup& group : *groups) ++count[group.label];
  for (CurveGroup& group : *groups) {
    if (count[group.label] < 2) continue;
    const fs::path folder = group.runs[0].config.log.dir;
    group.label = folder.filename().string() + "/" + group.label;
  }
}

// A path with a config.toml is a run, any other path is read as a sweep.
Result<std::vector<CurveGroup>> ReadAll(const PlotOptions& options, CurveAxis axis) {
  std::vector<CurveGroup> groups;
  for (const std::string& path : options.paths) {
    if (fs::exists(fs::path(path) / "config.toml")) {
      TROOP_ASSIGN_OR_RETURN(RunCurve curve, ReadRunCurve(path, axis));
      // A single run is a group of one curve.
      std::string label = curve.name;
      groups.push_back({std::move(label), {}});
      groups.back().runs.push_back(std::move(curve));
      continue;
    }
    TROOP_ASSIGN_OR_RETURN(std::vector<CurveGroup> sweep, ReadSweepCurves(path, axis));
    std::ranges::move(sweep, std::back_inserter(groups));
  }
  TellApart(&groups);
  return groups;
}

// Encodes the plot in the format of the file's extension.
Result<Buffer> DrawAs(const fs::path& file, const LinePlot& plot) {
  const std::string format = file.extension().string();
  if (format == ".png") return DrawLinePlot(plot);
  if (format == ".svg") {
    TROOP_ASSIGN_OR_RETURN(const std::string text, SvgLinePlot(plot));
    return Buffer::Copy(std::as_bytes(std::span(text)));
  }
  return InvalidArgument("--out is {}, must end in .png or .svg", file.string());
}

// Steps: check the options, read the curves, choose the title, write the file.
Status Draw(const PlotOptions& options) {
  TROOP_ASSIGN_OR_RETURN(const CurveAxis axis, AxisOf(options.axis));
  TROOP_RETURN_IF_ERROR(DrawAs(options.out, {}).status());  // fails before any run is read
  TROOP_ASSIGN_OR_RETURN(const std::vector<CurveGroup> groups, ReadAll(options, axis));
  // The default title lists the distinct environments.
  LinePlot plot = PlotCurves(groups, axis);
  std::vector<std::string> envs;
  std::size_t points = 0;
  for (const CurveGroup& group : groups) {
    for (const RunCurve& run : group.runs) {
      points += run.xs.size();
      if (std::ranges::find(envs, run.config.env.id) == envs.end()) {
        envs.push_back(run.config.env.id);
      }
    }
  }
  if (points == 0) return NotFound("nothing to plot yet: no run has an evaluation");
  plot.title = options.title.empty() ? fmt::format("{}", fmt::join(envs, ", ")) : options.title;
  const fs::path out = fs::absolute(options.out);
  TROOP_ASSIGN_OR_RETURN(const auto folder, MakeDiskStorage(out.parent_path().string()));
  TROOP_ASSIGN_OR_RETURN(const Buffer picture, DrawAs(options.out, plot));
  TROOP_RETURN_IF_ERROR(folder->WriteAtomic(out.filename().string(), picture.bytes()));
  fmt::print("wrote {} ({})\n", options.out, Counted(std::int64_t(groups.size()), "curve"));
  return Status::Ok();
}

}  // namespace

// Replaces an existing output file.
int PlotRuns(const PlotOptions& options) {
  const Status drawn = Draw(options);
  if (drawn.ok()) return kExitOk;
  fmt::print(stderr, "troop: {}\n", drawn.message());
  return ExitCodeFor(drawn);
}

void RegisterPlot(CLI::App& app, ChosenCommand* chosen) {
  const auto options = std::make_shared<PlotOptions>();
  CLI::App* plot = app.add_subcommand("plot", "plot learning curves of runs and sweeps");
  plot->add_option("runs", options->paths, "run folders or sweep folders")->required();
  plot->add_option("--out,--png", options->out, "output file, .png or .svg (curves.png)");
  plot->add_option("--title", options->title, "plot title (default: the environment)");
  plot->add_option("--x", options->axis, "x axis: steps, updates or minutes (steps)");
  plot->callback([options, chosen] { *chosen = [options] { return PlotRuns(*options); }; });
}

}  // namespace troop
