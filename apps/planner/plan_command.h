#pragma once

#include <functional>
#include <string>
#include <vector>

#include "apps/planner/mesh_planner.h"

namespace CLI {
class App;
}

namespace troop {

// The command line of `troop plan`.
struct PlanArguments {
  std::string config;
  std::vector<std::string> overrides;
  std::string serve;  // ADDRESS:PORT to serve at; empty: plan
  PlanOptions options;
};

// Adds `troop plan` to `app`. Parsing fills `a` and sets `chosen` to the function to run.
void AddPlan(CLI::App* app, PlanArguments* a, std::function<int()>* chosen);

}  // namespace troop
