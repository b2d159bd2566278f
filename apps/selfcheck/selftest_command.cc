// The flags of `troop selftest`.
#include "apps/selfcheck/selftest_command.h"

#include <CLI/CLI.hpp>
#include <memory>

#include "apps/selfcheck/sync_check.h"

namespace troop {

// A group, which leaves room for checks of other components.
void RegisterSelftest(CLI::App& app, ChosenCommand* chosen) {
  const auto command = std::make_shared<CheckSyncCommand>();
  CLI::App* group =
      app.add_subcommand("selftest", "compare components with fp64 reference implementations");
  group->require_subcommand(1);
  CLI::App* sync = group->add_subcommand(
      "sync", "check every gradient-sync mode against an fp64 reference; exit 1 on mismatch");
  sync->add_option("--mode", command->mode, "check one mode, tensor by tensor (see --list)");
  sync->add_option("--seed", command->seed, "seed of the values and the message order (1)");
  sync->add_flag("--list", command->list, "print only the mode names");
  sync->add_flag("--json", command->json, "print one line of JSON per case");
  sync->callback([command, chosen] { *chosen = [command] { return RunCheckSync(*command); }; });
}

}  // namespace troop
