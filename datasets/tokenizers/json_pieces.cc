// Vocabularies in JSON files: ids by piece.

#include "datasets/tokenizers/json_pieces.h"

#include <algorithm>
#include <utility>

#include "datasets/tokenizers/unicode.h"

namespace troop {

// Checks what concerns one piece.
Status JsonPieces::Add(std::int64_t id, std::string_view text) {
  if (text.empty()) return InvalidArgument("the piece with id {} is empty", id);
  if (!IsUtf8(text)) return InvalidArgument("the piece with id {} is not UTF-8", id);
  if (id < 0 || id > kTokenIdMax) {
    return InvalidArgument("the piece {:?} has id {}, must be in 0 to {}", text, id, kTokenIdMax);
  }
  pieces_.emplace_back(id, text);
  return Status::Ok();
}

// Ids may come in any order; gaps are found by Take.
Status JsonPieces::AddAll(const JsonValue& object) {
  if (object.kind != JsonValue::Kind::kObject) {
    return DataLoss("the vocabulary is not an object of ids by piece");
  }
  for (const auto& [text, id] : object.object) {
    if (!id.integer) return DataLoss("the id of the piece {:?} is not an integer", text);
    TROOP_RETURN_IF_ERROR(Add(*id.integer, text));
  }
  return Status::Ok();
}

// Equal entries are one: a special token is usually listed twice.
Result<std::vector<std::string>> JsonPieces::Take() {
  std::sort(pieces_.begin(), pieces_.end());
  pieces_.erase(std::unique(pieces_.begin(), pieces_.end()), pieces_.end());
  if (pieces_.empty()) return InvalidArgument("the vocabulary has no pieces");
  std::vector<std::string> texts;
  for (auto& [id, text] : pieces_) {
    const auto next = std::int64_t(texts.size());
    if (id < next) {
      return InvalidArgument("the pieces {:?} and {:?} have the same id {}", texts.back(), text,
                             id);
    }
    if (id > next) {
      return InvalidArgument("no piece has id {}; ids must be 0 to {}", next, pieces_.size() - 1);
    }
    texts.push_back(std::move(text));
  }
  // A text with two ids would have to be one of them.
  std::vector<std::string_view> sorted(texts.begin(), texts.end());
  std::sort(sorted.begin(), sorted.end());
  const auto twice = std::adjacent_find(sorted.begin(), sorted.end());
  if (twice != sorted.end()) return InvalidArgument("the piece {:?} has two ids", *twice);
  return texts;
}

// A scan: only a few special tokens are looked up.
Result<TokenId> FindPiece(const std::vector<std::string>& pieces, std::string_view text) {
  const auto found = std::find(pieces.begin(), pieces.end(), text);
  if (found != pieces.end()) return TokenId(found - pieces.begin());
  return InvalidArgument("it has no piece {}, a special token that is required", text);
}

}  // namespace troop
