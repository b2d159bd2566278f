#pragma once

#include <iosfwd>
#include <string>
#include <vector>

#include "core/status.h"

namespace troop {

// `troop tokenize`: how a vocabulary cuts text.
struct TokenizeOptions {
  std::vector<std::string> texts;  // none: a text a line from standard input
  std::string vocabulary;          // a text file of WordPieces, or a SentencePiece .model
  bool cased = false;
  bool json = false;  // an object a text
};
// Writes of each text its pieces and their ids, each text as soon as it is read. Errors: those of
// MakeTokenizer; kInvalidArgument for a text that is too long.
Status TokenizeTexts(const TokenizeOptions& options, std::istream& in, std::ostream& out);
// The same from standard input to standard output. Returns the exit code.
int Tokenize(const TokenizeOptions& options);

}  // namespace troop
