// `troop keygen`: chooses which key pairs to write; net/keys writes them.
#include "apps/commands/keygen_command.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "fleet/launcher/exit_code.h"
#include "net/security/keys.h"

namespace troop {
namespace {

// Errors: kInvalidArgument: an unknown role, or a name without a role; those of MakeKeys.
Status MakeWanted(const KeygenOptions& options) {
  // By default one key per role; --role keeps only that one, and --name renames it.
  std::vector<NewKey> wanted = KeysOfAllRoles();
  if (options.role.empty() && !options.name.empty()) {
    return InvalidArgument("--name {:?} needs --role: give the role of that key", options.name);
  }
  if (!options.role.empty()) {
    // Keys of roles are named after them, so a name selects a role.
    std::string roles;
    for (const NewKey& key : wanted) roles += (roles.empty() ? "" : ", ") + key.name;
    std::erase_if(wanted, [&](const NewKey& key) { return key.name != options.role; });
    if (wanted.empty()) {
      return InvalidArgument("unknown role {:?}; roles: {}", options.role, roles);
    }
    if (!options.name.empty()) wanted[0].name = options.name;
  }
  // Existing keys are replaced only with --rotate.
  TROOP_RETURN_IF_ERROR(MakeKeys(options.folder, wanted, options.rotate));
  for (const NewKey& key : wanted) {
    fmt::print("{}/{}.key: key of the role {}\n", options.folder, key.name, RoleName(key.role));
  }
  fmt::print(
      "Keep these files secret: copy to each machine only the keys of its roles. Use the keys with "
      "security.keys = \"{}\" in the config\n",
      options.folder);
  return Status::Ok();
}

}  // namespace

int Keygen(const KeygenOptions& options) {
  const Status made = MakeWanted(options);
  if (made.ok()) return kExitOk;
  fmt::print(stderr, "troop: {}\n", made.message());
  return ExitCodeFor(made);
}

void RegisterKeygen(CLI::App& app, ChosenCommand* chosen) {
  const auto options = std::make_shared<KeygenOptions>();
  CLI::App* keygen = app.add_subcommand("keygen", "generate keys, one per role or user");
  keygen->add_option("folder", options->folder, "output folder")->required();
  keygen->add_option("--role", options->role,
                     "generate one key of this role (default: one key per role)");
  keygen->add_option("--name", options->name,
                     "name of the key, such as a user name (default: the role)");
  keygen->add_flag("--rotate", options->rotate,
                   "replace existing keys; old ones stay valid until the next rotation");
  keygen->callback([options, chosen] { *chosen = [options] { return Keygen(*options); }; });
}

}  // namespace troop
