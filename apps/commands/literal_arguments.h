#pragma once

#include <string>
#include <vector>

// Protection of arguments in brackets: CLI11 splits "[a,b]" into a list. In commands whose
// arguments are texts (tokenize, predict), such words get a prefix before parsing; it is removed
// afterwards.
namespace troop {

// Returns the command line as words, with the prefix where it is needed.
std::vector<std::string> EscapeBrackets(int argc, char** argv);
// Removes the prefix, if there is one.
void UnescapeBrackets(std::string* word);
// Removes the prefix from each word that has it.
inline void UnescapeAllBrackets(std::vector<std::string>* words) {
  for (std::string& word : *words) UnescapeBrackets(&word);
}

}  // namespace troop
