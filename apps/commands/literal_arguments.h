#pragma once

#include <string>
#include <vector>

// CLI11 splits an argument in brackets into a list. For commands whose arguments are texts
// (tokenize, predict) such words get a prefix before parsing, which is removed after it.
namespace troop {

// The command line as words, with the prefix where it is needed.
std::vector<std::string> EscapeBrackets(int argc, char** argv);
// Removes the prefix, if there is one.
void UnescapeBrackets(std::string* word);
inline void UnescapeAllBrackets(std::vector<std::string>* words) {
  for (std::string& word : *words) UnescapeBrackets(&word);
}

}  // namespace troop
