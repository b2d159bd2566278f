#pragma once

#include <string>
#include <vector>

namespace troop {

struct PlotOptions {
  std::vector<std::string> paths;  // folders of runs and of sweeps
  std::string out = "curves.png";  // .png or .svg
  std::string title;
  std::string axis = "steps";  // or "updates", "minutes"
};
// Draws the learning curves of all of them together: a line a run, and of each combination of a
// sweep the mean over its seeds. Returns the exit code.
int PlotRuns(const PlotOptions& options);

}  // namespace troop
