#pragma once

namespace troop {

// The `troop` command. Returns the exit code (apps/train.h).
int RunCommand(int argc, char** argv);

}  // namespace troop
