#pragma once

#include <functional>

#include "apps/experiments/imdb_parallel.h"

namespace CLI {
class App;
}

namespace troop {

// Adds `troop experiment …` to `app`. Parsing fills `a` and sets `chosen` to the function to run.
void AddExperiment(CLI::App* app, ParallelOptions* a, std::function<int()>* chosen);

}  // namespace troop
