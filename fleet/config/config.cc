// Special members of Config. Compiling them once saves compile time in every file that copies a
// Config.
#include "fleet/config/config.h"

namespace troop {

Config::Config() = default;
Config::~Config() = default;
Config::Config(const Config&) = default;
Config::Config(Config&&) noexcept = default;
Config& Config::operator=(const Config&) = default;
Config& Config::operator=(Config&&) noexcept = default;
bool Config::operator==(const Config&) const = default;

}  // namespace troop
