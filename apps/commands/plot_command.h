#pragma once

#include <string>
#include <vector>

#include "apps/command_line.h"

namespace troop {

// Options of `troop plot`.
struct PlotOptions {
  std::vector<std::string> paths;  // run folders and sweep folders
  std::string out = "curves.png";  // .png or .svg
  std::string title;
  std::string axis = "steps";  // or "updates", "minutes"
};
// `troop plot`: draws the learning curves into one plot: a line per run, and for each combination
// of a sweep the mean over its seeds. Returns the exit code.
int PlotRuns(const PlotOptions& options);

// Adds `troop plot` to `app`.
void RegisterPlot(CLI::App& app, ChosenCommand* chosen);

}  // namespace troop
