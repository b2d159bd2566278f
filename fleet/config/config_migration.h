#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/status.h"
#include "fleet/config/config.h"

namespace troop {

// A key of config version 1, and its name since version 2. Keys of list entries are named
// "replay.tables[].compression".
struct RenamedKey {
  std::string_view before, after;
};
// All renamed keys, sorted by their old name. No old name has a new meaning.
std::span<const RenamedKey> RenamedKeys();

// Returns the current name of a key of version 1, or an empty string if it was not renamed. Accepts
// indices of list entries ("replay.tables[3].codec").
std::string_view CurrentKeyName(std::string_view key);

// Returns the error for a renamed key, with its new name and the remedy, or an empty string if the
// key was not renamed.
std::string RenamedKeyHint(std::string_view key);

// A config after migration.
struct MigratedConfig {
  std::string text;                 // TOML of the current version
  std::vector<RenamedKey> renamed;  // renamed keys, in the order of the file
};

// Rewrites the text of a config of version 1 for the current version: renames keys, and moves those
// that are in another section now into that section. Comments, order and layout are kept. A text
// without such keys is returned unchanged. O(size of the text).
// Errors: kInvalidArgument if the text is not TOML that the scanner can follow, with its line.
Result<MigratedConfig> MigrateConfig(std::string_view toml_text, std::string_view file_name);

// Parse a config that a program of this or an earlier version wrote: one of a run folder or a
// checkpoint. Errors: those of MigrateConfig and ParseConfig; LoadSavedConfigFile also returns
// those of LoadConfigFile.
Result<Config> ParseSavedConfig(std::string_view toml_text, std::string_view file_name,
                                std::span<const std::string> overrides);
Result<Config> LoadSavedConfigFile(const std::string& path, std::span<const std::string> overrides);

}  // namespace troop
