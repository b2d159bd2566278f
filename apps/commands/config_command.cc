// Implements `troop config` and `troop config migrate`.
#include "apps/commands/config_command.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "core/storage/read_file.h"
#include "core/storage/storage.h"
#include "fleet/config/algorithm_advice.h"
#include "fleet/config/config.h"
#include "fleet/config/config_migration.h"
#include "fleet/config/key_hint.h"
#include "fleet/launcher/error_line.h"
#include "fleet/launcher/exit_code.h"

namespace troop {
namespace {

namespace fs = std::filesystem;

// No config is near this size; it bounds the memory for a wrong file, such as a device.
constexpr std::size_t kConfigBytesMax = 1 << 20;

// Replaces the content of a file atomically. A symbolic link stays one, permissions are kept.
Status Replace(const std::string& path, std::string_view text) {
  // The target of a link is replaced, in its own folder, since a rename cannot cross file systems.
  std::error_code error;
  const fs::path file = fs::canonical(path, error);
  const fs::perms permissions = error ? fs::perms::none : fs::status(file, error).permissions();
  if (error) return NotFound("{}: {}", path, error.message());
  TROOP_ASSIGN_OR_RETURN(const auto folder, MakeDiskStorage(file.parent_path().string()));
  TROOP_RETURN_IF_ERROR(folder->WriteAtomic(file.filename().string(), text));
  // An error here leaves the content right, so it does not fail the command.
  fs::permissions(file, permissions, error);
  return Status::Ok();
}

}  // namespace

int RunConfig(const ConfigArguments& a) {
  if (a.markdown) {
    fmt::print("{}", ConfigMarkdown());
    return kExitOk;
  }
  if (!a.check.empty()) {
    const Result<Config> config = LoadConfigFile(a.check, {});
    if (!config.ok()) {
      PrintError(config.status());
      return kExitUsage;
    }
    // The defaults are filled in, so the output shows every value that a run would use.
    fmt::print("{}", ToToml(*config));
    if (const std::string advice = AlgorithmAdvice(*config); !advice.empty())
      fmt::print(stderr, "troop: {}: {}\n", a.check, advice);
    return kExitOk;
  }
  std::vector<std::string> names;
  // Without a key all are printed; an unknown key gets the nearest name as a hint.
  bool found = a.key.empty();
  for (const ConfigKey& key : ConfigKeys()) {
    names.emplace_back(key.name);
    if (!a.key.empty() && key.name != a.key) continue;
    found = true;
    if (a.keys) {
      fmt::print("{}\n", key.name);
    } else {
      fmt::print("{} = {}\n    {}{}{}. {}\n", key.name, key.default_value, key.type,
                 key.range.empty() ? "" : ", ", key.range, key.doc);
    }
  }
  if (found) return kExitOk;
  fmt::print(stderr, "troop: {}: {}\n", a.key, UnknownKeyHint(a.key, names));
  return kExitUsage;
}

// CLI11 calls it only when the help is printed.
std::string ConfigHelp() {
  std::string out = "All config keys with default, type, range and meaning:\n";
  for (const ConfigKey& key : ConfigKeys()) {
    out += fmt::format("  {} = {}\n      {}{}{}. {}\n", key.name, key.default_value, key.type,
                       key.range.empty() ? "" : ", ", key.range, key.doc);
  }
  return out;
}

// The new text is checked by the parser before the file is replaced.
int RunMigrate(const MigrateArguments& a) {
  const Result<std::string> text = ReadFile(a.file, kConfigBytesMax);
  if (!text.ok()) return PrintError(text.status());
  const Result<MigratedConfig> migrated = MigrateConfig(*text, a.file);
  if (!migrated.ok()) return PrintError(migrated.status());
  // A file without old keys keeps its modification time as well.
  if (migrated->text == *text) {
    fmt::print("{}: no key of an older version; file unchanged\n", a.file);
    return kExitOk;
  }
  // Renaming cannot fix other errors: the file would be left half migrated.
  if (const Result<Config> config = ParseConfig(migrated->text, a.file, {}); !config.ok()) {
    PrintError(config.status());
    PrintError(fmt::format("{}: file unchanged, because the errors above remain after the renaming",
                           a.file));
    return kExitUsage;
  }
  for (const RenamedKey& key : migrated->renamed) fmt::print("{} -> {}\n", key.before, key.after);
  if (a.dry_run) return kExitOk;
  const Status written = Replace(a.file, migrated->text);
  return written.ok() ? kExitOk : PrintError(written);
}

void RegisterConfig(CLI::App& app, ChosenCommand* chosen) {
  const auto arguments = std::make_shared<ConfigArguments>();
  CLI::App* config = app.add_subcommand("config", "describe the config keys");
  config->add_option("key", arguments->key, "describe only this key");
  config->add_option("--check", arguments->check, "parse a file and print the resolved config");
  config->add_flag("--markdown", arguments->markdown,
                   "print all keys as Markdown (docs/reference/config.md)");
  config->add_flag("--keys", arguments->keys, "print only the key names");
  config->footer(ConfigHelp);
  config->callback([arguments, chosen] {
    // CLI11 also calls this for `config migrate`, whose own choice must stay.
    if (!*chosen) *chosen = [arguments] { return RunConfig(*arguments); };
  });
  const auto migration = std::make_shared<MigrateArguments>();
  CLI::App* migrate = config->add_subcommand(
      "migrate", "convert a config file of an older version to the current version, in place");
  migrate->add_option("file", migration->file, "TOML file")->required();
  migrate->add_flag("--dry-run", migration->dry_run, "print the changes, write nothing");
  migrate->callback(
      [migration, chosen] { *chosen = [migration] { return RunMigrate(*migration); }; });
}

}  // namespace troop
