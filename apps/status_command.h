#pragma once

#include <string>

namespace troop {

struct StatusOptions {
  std::string run;  // a run's folder, or tcp://HOST:PORT of its coordinator
  bool json = false;
  std::string key;  // with tcp://: the file of a tool's key; empty: none
};
// `troop status`: what a run is doing, role by role, or how it ended. Returns the exit code.
int ShowStatus(const StatusOptions& options);

}  // namespace troop
