#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/status.h"

namespace troop {

// Content of a SentencePiece `.model` file that a unigram model needs (Kudo 2018; Kudo & Richardson
// 2018). The file is one protobuf message, `ModelProto` of sentencepiece_model.proto.
struct SentencePieceModel {
  enum class Type : std::uint8_t {  // values as in the file
    kNormal = 1,
    kUnknown = 2,
    kControl = 3,
    kUserDefined = 4,
    kUnused = 5,
    kByte = 6,
  };
  struct Piece {
    std::string text;
    float score = 0;  // log-probability
    Type type = Type::kNormal;
  };
  std::vector<Piece> pieces;
  std::string charsmap;  // datasets/lookup/charsmap.h; empty: no replacements
  bool add_dummy_prefix = true;
  bool remove_extra_whitespaces = true;
  bool escape_whitespaces = true;
};

// Parses a model. Errors: kDataLoss if the bytes are not such a message; kInvalidArgument for other
// kinds of models (BPE, byte fallback, white space as a suffix) or contradictory pieces.
Result<SentencePieceModel> ParseSentencePieceModel(std::string_view bytes);

}  // namespace troop
