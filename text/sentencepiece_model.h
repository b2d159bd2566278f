#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/status.h"

namespace troop {

// What a `.model` file of SentencePiece holds, as far as a unigram model needs it (Kudo 2018; Kudo
// & Richardson 2018). The file is one protobuf message, `ModelProto` of sentencepiece_model.proto.
struct SentencePieceModel {
  enum class Type : std::uint8_t {  // the file's numbers
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
  std::string charsmap;  // text/charsmap.h; empty: characters stay
  bool add_dummy_prefix = true;
  bool remove_extra_whitespaces = true;
  bool escape_whitespaces = true;
};

// Errors: kDataLoss where the bytes are no such message; kInvalidArgument where it is a model of
// another kind (BPE, bytes as a fallback, white space as a suffix), or its pieces contradict.
Result<SentencePieceModel> ParseSentencePieceModel(std::string_view bytes);

}  // namespace troop
