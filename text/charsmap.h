#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/status.h"

namespace troop {

// SentencePiece's map of characters: sequences of characters and what each becomes, found by the
// longest that stands at the front of a text. The file holds a double array of darts-clone and the
// replacements, each ended by a zero byte. Its offsets are checked at each step: damaged bytes give
// wrong characters, never a read outside. Immutable: any thread.
class Charsmap {
 public:
  Charsmap() = default;  // characters stay
  // Errors: kDataLoss.
  static Result<Charsmap> Make(std::string_view bytes);

  // The replacement of the longest sequence that `text` begins with, and in `length` its bytes; 0
  // where there is none.
  std::string_view Match(std::string_view text, std::size_t* length) const;
  // Whether no sequence begins with these two bytes.
  bool IsFree(char first, char second) const;

 private:
  // The unit behind `*node` by `byte`; false: there is none.
  bool Next(std::size_t* node, char byte, std::uint32_t* unit) const;

  std::vector<std::uint32_t> units_;
  std::string replacements_;
};

}  // namespace troop
