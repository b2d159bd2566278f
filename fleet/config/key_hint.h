#pragma once

#include <span>
#include <string>
#include <string_view>

namespace troop {

// A setting of another library and the corresponding key.
struct KeyAlias {
  std::string_view name, key;
};
std::span<const KeyAlias> KeyAliases();

// Returns the key for a setting of another library, ignoring its section ("lr" gives
// optimizer.learning_rate), or an empty string. The names are those of Stable-Baselines3, RLlib,
// Tianshou, CleanRL, Acme and transformers.
std::string_view FindKeyAlias(std::string_view word);

// Returns the error for a key or section that is not in the list: "unknown key; ..." followed by
// the equivalent of another library's name, the nearest name, or how to list all names.
std::string UnknownKeyHint(std::string_view key, std::span<const std::string> keys);
std::string UnknownSectionHint(std::string_view section, std::span<const std::string> sections);

}  // namespace troop
