// Implements LoadConfigFile, and the functions for configs that Troop itself wrote.
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <utility>

#include "fleet/config/config_migration.h"
#include "fleet/config/config_paths.h"

namespace troop {
namespace {

constexpr std::size_t kFileBytesMax = 1 << 20;

Result<std::string> ReadConfigFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::error_code error;
  if (!file || std::filesystem::is_directory(path, error)) {
    return NotFound(
        "{}: can't be read ({}); name a TOML file, for example configs/apex_cartpole.toml", path,
        file ? "it is a folder" : std::strerror(errno));
  }
  std::string text(kFileBytesMax + 1, '\0');
  file.read(text.data(), std::streamsize(text.size()));
  text.resize(std::size_t(file.gcount()));
  if (text.size() > kFileBytesMax) {
    return InvalidArgument("{}: larger than {} bytes, the limit for a configuration file", path,
                           kFileBytesMax);
  }
  return text;
}

}  // namespace

Result<Config> LoadConfigFile(const std::string& path, std::span<const std::string> overrides) {
  TROOP_ASSIGN_OR_RETURN(const std::string text, ReadConfigFile(path));
  TROOP_ASSIGN_OR_RETURN(Config config, ParseConfig(text, path, overrides));
  MakePathsAbsolute(path, overrides, &config);
  return config;
}

Result<Config> ParseSavedConfig(std::string_view toml_text, std::string_view file_name,
                                std::span<const std::string> overrides) {
  TROOP_ASSIGN_OR_RETURN(const MigratedConfig migrated, MigrateConfig(toml_text, file_name));
  return ParseConfig(migrated.text, file_name, overrides);
}

Result<Config> LoadSavedConfigFile(const std::string& path,
                                   std::span<const std::string> overrides) {
  TROOP_ASSIGN_OR_RETURN(const std::string text, ReadConfigFile(path));
  TROOP_ASSIGN_OR_RETURN(Config config, ParseSavedConfig(text, path, overrides));
  MakePathsAbsolute(path, overrides, &config);
  return config;
}

}  // namespace troop
