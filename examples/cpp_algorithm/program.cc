// The linked program: `troop` with both names. Its roles are processes of this program, too.
#include <cstdio>

#include "apps/commands/cli.h"
#include "gated_linear.h"
#include "munchausen_dqn.h"

int main(int argc, char** argv) {
  for (const troop::Status& status :
       {troop::RegisterLayer("gated_linear", MakeGatedLinear),
        troop::RegisterAlgorithm("munchausen_dqn", MakeMunchausenDqn)}) {
    if (status.ok()) continue;
    std::fprintf(stderr, "%s\n", status.ToString().c_str());
    return 1;
  }
  return troop::RunCommand(argc, argv);
}
