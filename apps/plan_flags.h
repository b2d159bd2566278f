#pragma once

#include <functional>
#include <string>
#include <vector>

#include "apps/plan.h"

namespace CLI {
class App;
}

namespace troop {

struct PlanArguments {
  std::string config;
  std::vector<std::string> overrides;
  std::string serve;
  PlanOptions options;
};

// `troop plan`: its words and flags, which fill `a`; `chosen` becomes what runs it.
void AddPlan(CLI::App* app, PlanArguments* a, std::function<int()>* chosen);

}  // namespace troop
