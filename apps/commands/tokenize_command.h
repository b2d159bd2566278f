#pragma once

#include <iosfwd>
#include <string>
#include <vector>

#include "apps/command_line.h"
#include "core/base/status.h"

namespace troop {

// Options of `troop tokenize`.
struct TokenizeOptions {
  std::vector<std::string> texts;  // none: one text per line from standard input
  std::string vocabulary;          // a file that OpenVocabulary reads
  bool cased = false;              // keep capitals and accents
  bool json = false;               // print one object per text
};
// Writes the pieces of each text and their ids to `out`, as soon as the text is read. Errors: those
// of MakeTokenizer; kInvalidArgument: a text is too long.
Status TokenizeTexts(const TokenizeOptions& options, std::istream& in, std::ostream& out);
// TokenizeTexts from standard input to standard output. Returns the exit code.
int Tokenize(const TokenizeOptions& options);

// Adds `troop tokenize` to `app`.
void RegisterTokenize(CLI::App& app, ChosenCommand* chosen);

}  // namespace troop
