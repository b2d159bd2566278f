// A prefix that keeps CLI11 from splitting "[…]" arguments.
#include "apps/commands/literal_arguments.h"

namespace troop {
namespace {

constexpr char kGuard = '\x02';  // the prefix: a control character that no text starts with

}  // namespace

// Only for the two commands whose arguments are texts: elsewhere brackets are lists.
std::vector<std::string> EscapeBrackets(int argc, char** argv) {
  std::vector<std::string> words(argv, argv + argc);
  if (argc < 2 || (words[1] != "tokenize" && words[1] != "predict")) return words;
  for (std::string& word : words) {
    if (word.starts_with('[') && word.ends_with(']')) word.insert(word.begin(), kGuard);
  }
  return words;
}

void UnescapeBrackets(std::string* word) {
  if (word->starts_with(kGuard)) word->erase(0, 1);
}

}  // namespace troop
