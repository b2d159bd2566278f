#pragma once

#include <span>
#include <string>
#include <string_view>

namespace troop {

struct OtherName {
  std::string_view name, key;
};
std::span<const OtherName> OtherNames();

// The key that another library's name of a setting stands for ("lr": optimizer.learning_rate), its
// section left aside; empty: none is known. The names are those of Stable-Baselines3, RLlib,
// Tianshou, CleanRL, Acme and transformers.
std::string_view KeyOfOtherName(std::string_view word);

// What to say of a key, or of a section, that is not among these: "unknown key; ..." with another
// library's name for it, the nearest one, or where all are listed.
std::string UnknownKeyHint(std::string_view key, std::span<const std::string> keys);
std::string UnknownSectionHint(std::string_view section, std::span<const std::string> sections);

}  // namespace troop
