// Suggestions for mistyped commands, flags and config keys.
#include "apps/commands/command_hint.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/base/edit_distance.h"
#include "fleet/config/config.h"
#include "fleet/config/key_hint.h"

namespace troop {
namespace {

// Visible commands only: hidden ones have an empty group.
std::vector<const CLI::App*> CommandsOf(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App* command) { return !command->get_group().empty(); });
}

// The command as the user types it, with its groups: "troop env check".
std::string PathOf(const CLI::App& command) {
  std::string names;
  for (const CLI::App* at = &command; at->get_parent() != nullptr; at = at->get_parent()) {
    names = fmt::format(" {}{}", at->get_name(), names);
  }
  return "troop" + names;
}

// Exact names only; null if the command does not exist or is hidden.
const CLI::App* FindCommand(const CLI::App& app, const std::string& name) {
  const auto commands = CommandsOf(app);
  const auto found = std::ranges::find(commands, name, &CLI::App::get_name);
  return found == commands.end() ? nullptr : *found;
}

// Long flags with their dashes, as the user types them.
std::vector<std::string> FlagsOf(const CLI::App& command) {
  std::vector<std::string> flags;
  for (const CLI::Option* option : command.get_options()) {
    for (const std::string& name : option->get_lnames()) flags.push_back("--" + name);
  }
  return flags;
}

// The config key that a flag resembles: "--batch-size" is learner.batch_size; empty if none.
std::string KeyOfFlag(std::string flag) {
  flag.erase(0, 2);
  std::ranges::replace(flag, '-', '_');
  for (const ConfigKey& key : ConfigKeys()) {
    const std::string_view name = key.name;
    if (name == flag || name.ends_with("." + flag)) return std::string(name);
  }
  return std::string(FindKeyAlias(flag));
}

// True if the command accepts config overrides (key=value).
bool TakesKeys(const CLI::App& command) {
  return command.get_option_no_throw("overrides") != nullptr;
}

// The name that replaces a flag or a command of version 0.1, or an empty string. Flags are named
// with the command that had them.
std::string ReplacementOf(std::string_view name) {
  constexpr std::pair<std::string_view, const char*> kRenamed[] = {
      {"join --listen", "--advertise-host"}, {"join --stay", "--rejoin"},
      {"role --reach", "--advertise-host"},  {"role --stay", "--rejoin"},
      {"role --any-index", "--auto-index"},  {"role --dead-after", "--heartbeat-timeout"},
      {"check", "troop selftest"},           {"env-check", "troop env check"}};
  const auto* const found = std::ranges::find(kRenamed, name, [](auto& r) { return r.first; });
  return found == std::end(kRenamed) ? "" : found->second;
}

// `value`: the argument after the flag; empty if there is none.
// Handles "--flag=value" and "--flag value".
std::string ExplainFlag(const CLI::App& command, std::string flag, std::string value) {
  if (const std::size_t equals = flag.find('='); equals != std::string::npos) {
    value = flag.substr(equals + 1);
    flag.resize(equals);
  }
  const std::string renamed = ReplacementOf(fmt::format("{} {}", command.get_name(), flag));
  if (!renamed.empty()) return fmt::format("{} was renamed; use {}", flag, renamed);
  const std::string key = TakesKeys(command) ? KeyOfFlag(flag) : "";
  if (!key.empty()) {
    return fmt::format("{} is not a flag of {}; set config keys without dashes: {}={}", flag,
                       command.get_name(), key, value.empty() ? "VALUE" : value);
  }
  const std::string nearest = Nearest(flag, FlagsOf(command));
  return fmt::format("{} is not a flag of {}; {}", flag, command.get_name(),
                     nearest.empty() ? fmt::format("see {} --help", PathOf(command))
                                     : "the nearest is " + nearest);
}

// Maps the names that other programs use to Troop's commands.
std::string CommandOfOtherName(const std::string& word) {
  constexpr std::pair<std::string_view, const char*> kOtherNames[] = {
      {"evaluate", "eval"},     {"test", "eval"},     {"tune", "sweep"},      {"fit", "train"},
      {"run", "train"},         {"start", "train"},   {"enjoy", "play"},      {"watch", "play"},
      {"inference", "predict"}, {"infer", "predict"}, {"continue", "resume"}, {"ps", "status"}};
  const auto* const found =
      std::ranges::find(kOtherNames, word, [](auto& name) { return name.first; });
  return found == std::end(kOtherNames) ? "" : found->second;
}

// Other programs' names are tried first, at the top level only; then the nearest spelling.
std::string ExplainCommand(const CLI::App& app, const std::string& word) {
  std::vector<std::string> names;
  for (const CLI::App* command : CommandsOf(app)) names.push_back(command->get_name());
  if (const std::string here = CommandOfOtherName(word);
      app.get_parent() == nullptr && !here.empty()) {
    return fmt::format("there is no command {}; use troop {}", word, here);
  }
  if (const std::string renamed = ReplacementOf(word);
      app.get_parent() == nullptr && !renamed.empty()) {
    return fmt::format("{} was renamed; use {}", word, renamed);
  }
  const std::string nearest = Nearest(word, names);
  const std::string path = PathOf(app);
  return fmt::format("there is no command {}; {}", word,
                     nearest.empty() ? fmt::format("see {} --help", path)
                                     : fmt::format("the nearest is {} {}", path, nearest));
}

}  // namespace

std::string ExplainUsageError(const CLI::App& app, const std::vector<std::string>& words,
                              std::string what) {
  // Step 1: follow the subcommands; step 2: find the first unknown flag; else append a help hint.
  const CLI::App* command = &app;
  std::size_t at = 1;
  while (at < words.size() && !CommandsOf(*command).empty()) {
    // An unknown word after a group is the mistake, unless it is a flag.
    const CLI::App* const next = FindCommand(*command, words[at]);
    if (next == nullptr) {
      if (words[at].starts_with('-')) break;
      return ExplainCommand(*command, words[at]);
    }
    command = next;
    ++at;
  }
  const std::vector<std::string> flags = FlagsOf(*command);
  for (; at < words.size() && words[at] != "--"; ++at) {
    if (!words[at].starts_with("--")) continue;
    const std::string flag = words[at].substr(0, words[at].find('='));
    if (std::ranges::find(flags, flag) != flags.end()) continue;
    const bool more = at + 1 < words.size() && !words[at + 1].starts_with('-');
    return ExplainFlag(*command, words[at], more ? words[at + 1] : "");
  }
  // CLI11's own message, as one line.
  while (what.ends_with('\n')) what.pop_back();
  // Example: "--jobs: 1 required INT:INT in [1 - 1000] missing".
  const std::size_t end = what.find(": 1 required ");
  if (end != std::string::npos && what.ends_with(" missing")) {
    what = what.substr(0, end) + " needs a value";
  }
  return fmt::format("{}; see {} --help", what, PathOf(*command));
}

// The headings of `troop --help`, in the order in which they are printed.
void GroupCommands(CLI::App* app) {
  constexpr std::pair<const char*, const char*> kGroups[] = {{"train", "Train"},
                                                             {"resume", "Train"},
                                                             {"sweep", "Train"},
                                                             {"experiment", "Train"},
                                                             {"plan", "Train"},
                                                             {"status", "Watch"},
                                                             {"dashboard", "Watch"},
                                                             {"plot", "Watch"},
                                                             {"eval", "Use a model"},
                                                             {"play", "Use a model"},
                                                             {"export", "Use a model"},
                                                             {"serve", "Use a model"},
                                                             {"predict", "Use a model"},
                                                             {"tokenize", "Use a model"},
                                                             {"join", "Fleets"},
                                                             {"scale", "Fleets"},
                                                             {"role", "Fleets"},
                                                             {"replay", "Fleets"},
                                                             {"keygen", "Fleets"},
                                                             {"health", "Fleets"},
                                                             {"env", "Try and check"},
                                                             {"bench", "Try and check"},
                                                             {"selftest", "Try and check"},
                                                             {"doctor", "Try and check"},
                                                             {"config", "Try and check"}};
  for (const auto& [name, group] : kGroups) app->get_subcommand(name)->group(group);
}

}  // namespace troop
