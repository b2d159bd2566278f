#pragma once

#include <string>

namespace troop {

struct ScaleOptions {
  std::string run;   // its folder
  std::string what;  // "actors=64", "replay=2", "learners=2", "paramserver=4"
};
// `troop scale`: tells the coordinator of a live run how many of a role there shall be, and waits
// until it is so, or was given up. Returns the exit code.
int Scale(const ScaleOptions& options);

}  // namespace troop
