#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/status.h"
#include "core/storage/json.h"
#include "datasets/tokenizers/tokenizer.h"

namespace troop {

// Largest id in a JSON file: far above any published vocabulary (XLM-R has 250,000 pieces); bounds
// the memory of a bad file.
inline constexpr std::int64_t kTokenIdMax = (1 << 24) - 1;

// Collects the pieces of a vocabulary in JSON, which may come in any order of ids.
class JsonPieces {
 public:
  // Adds a piece. Errors: kInvalidArgument: the text is empty or not UTF-8, or the id is outside of
  // 0 to 2^24 - 1.
  Status Add(std::int64_t id, std::string_view text);
  // Adds all entries of an object of ids by piece. Errors: as Add; kDataLoss: another document.
  Status AddAll(const JsonValue& object);
  // Returns the pieces by id. Errors: kInvalidArgument: there is none, an id has no piece or
  // several ones, or a text has several ids.
  Result<std::vector<std::string>> Take();

 private:
  std::vector<std::pair<std::int64_t, std::string>> pieces_;
};

// Finds a piece by its text. Errors: kInvalidArgument, naming it.
Result<TokenId> FindPiece(const std::vector<std::string>& pieces, std::string_view text);

}  // namespace troop
