#pragma once

#include <functional>

namespace CLI {
class App;
}

// Parts that the files of all commands share. Each command has a function RegisterNAME in its own
// file, which adds the subcommand, its flags and its handler to `app`; apps/commands/cli.cc lists
// these functions. A handler and the options that parsing fills live as long as `app`.
namespace troop {

// The handler that the command line selects; it returns the exit code. The callback of a subcommand
// only sets it: it is called after parsing, so that only parse errors are explained as such.
using ChosenCommand = std::function<int()>;

// Help texts of flags and arguments that several commands have.
inline constexpr char kInsecureHelp[] =
    "accept unencrypted connections from other machines, without keys";
inline constexpr char kOverridesHelp[] = "config overrides, key=value (troop config)";

}  // namespace troop
