#pragma once

#include <string>
#include <vector>

// CLI11 takes an argument in brackets for a list of arguments. The words of a command whose
// arguments are texts (tokenize, predict) are guarded before it parses them, and freed behind.
namespace troop {

std::vector<std::string> GuardTexts(int argc, char** argv);
void FreeText(std::string* word);
inline void FreeTexts(std::vector<std::string>* words) {
  for (std::string& word : *words) FreeText(&word);
}

}  // namespace troop
