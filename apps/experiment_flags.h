#pragma once

#include <functional>

#include "apps/experiment.h"

namespace CLI {
class App;
}

namespace troop {

// `troop experiment ...`: its words and flags, which fill `a`; `chosen` becomes what runs it.
void AddExperiment(CLI::App* app, ParallelOptions* a, std::function<int()>* chosen);

}  // namespace troop
