#pragma once

#include "apps/command_line.h"
#include "apps/serving/model_server.h"
#include "apps/serving/model_source.h"

namespace troop {

// Options of `troop serve`.
struct ServeOptions {
  ModelSource::Options source;
  ModelServer::Options server;
  double reload_s = 2;  // between looks at the run folder; 0: never
  double drain_s = 10;  // limit of the drain
};
// Serves until SIGINT or SIGTERM, then drains. Returns the exit code.
int Serve(const ServeOptions& options);

// Adds `troop serve` to `app`.
void RegisterServe(CLI::App& app, ChosenCommand* chosen);

}  // namespace troop
