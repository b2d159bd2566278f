#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/status.h"

namespace troop {

// SentencePiece's character map: replacements of character sequences, matched by the longest prefix
// of a text. The file has a double array of darts-clone and the replacements, each ended by a zero
// byte. Offsets are checked at each step: damaged bytes give wrong characters, never an
// out-of-bounds read. Immutable: any thread.
class Charsmap {
 public:
  Charsmap() = default;  // maps nothing
  // Parses a map; empty bytes give an empty map. Errors: kDataLoss.
  static Result<Charsmap> Make(std::string_view bytes);

  // Returns the replacement of the longest sequence that `text` begins with, and its size in bytes
  // in `length`; 0 if there is none. O(length).
  std::string_view Match(std::string_view text, std::size_t* length) const;
  // Matches the shortest sequence instead, which Hugging Face's tokenizers take.
  std::string_view MatchShortest(std::string_view text, std::size_t* length) const;
  // True if no sequence begins with these two bytes.
  bool IsFree(char first, char second) const;

 private:
  // Follows the edge labeled `byte` from `*node`; false if there is none.
  bool Next(std::size_t* node, char byte, std::uint32_t* unit) const;

  std::vector<std::uint32_t> units_;
  std::string replacements_;
};

}  // namespace troop
