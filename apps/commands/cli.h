#pragma once

namespace troop {

// Runs the `troop` command line and returns its exit code (apps/launch/train.h).
int RunCommand(int argc, char** argv);

}  // namespace troop
