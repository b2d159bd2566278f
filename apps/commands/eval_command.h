#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "apps/command_line.h"

namespace troop {

// Options of `troop eval` and `troop play`. Unset ones come from the checkpoint's config.
struct EvalOptions {
  std::string path;   // run folder (newest checkpoint) or checkpoint folder
  bool best = false;  // the best checkpoint of the run folder instead
  std::optional<std::int64_t> episodes;
  std::optional<double> epsilon;
  std::optional<std::int64_t> seed;
  bool json = false;
  std::string record;        // eval: folder for the episodes; empty: none
  std::string confusion;     // eval: picture of a text model's confusion matrix; empty: none
  std::string gif, png;      // play: output files instead of the terminal
  double frames_per_s = 30;  // play
};
// `troop eval`: prints the mean return, or the accuracy on the test reviews. Returns the exit code.
int Evaluate(const EvalOptions& options);
// `troop play`: renders episodes. Returns the exit code.
int Play(const EvalOptions& options);

// Adds `troop eval` to `app`.
void RegisterEval(CLI::App& app, ChosenCommand* chosen);
// Adds `troop play` to `app`.
void RegisterPlay(CLI::App& app, ChosenCommand* chosen);

}  // namespace troop
