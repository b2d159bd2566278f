// Parser of SentencePiece models: the needed part of protobuf, with limits and checks.

#include "datasets/tokenizers/sentencepiece_model.h"

#include <cmath>
#include <cstring>
#include <optional>

#include "datasets/tokenizers/unicode.h"

namespace troop {
namespace {

constexpr std::size_t kPiecesMax = 1 << 24;  // far above any vocabulary; bounds memory

// One field of a protobuf message; the wire type decides which of the values is set.
struct Field {
  enum class Wire : std::uint8_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };
  std::uint64_t number = 0;
  Wire wire = Wire::kVarint;
  std::uint64_t value = 0;  // a varint, or the bits of a fixed-size value
  std::string_view bytes;
};

// Reads the fields of a message one at a time (protobuf.dev/programming-guides/encoding).
class FieldReader {
 public:
  explicit FieldReader(std::string_view message) : rest_(message) {}

  bool done() const { return rest_.empty(); }
  // Parses the next field. Errors: kDataLoss. REQUIRES: !done().
  Result<Field> Next() {
    Field field;
    TROOP_ASSIGN_OR_RETURN(const std::uint64_t key, Varint());
    field.number = key >> 3;
    // The key has the field number and the wire type.
    field.wire = static_cast<Field::Wire>(key & 7);
    switch (field.wire) {
      case Field::Wire::kVarint: {
        TROOP_ASSIGN_OR_RETURN(field.value, Varint());
        return field;
      }
      case Field::Wire::kFixed64:
      case Field::Wire::kFixed32: {
        TROOP_ASSIGN_OR_RETURN(field.bytes, Take(field.wire == Field::Wire::kFixed64 ? 8 : 4));
        std::memcpy(&field.value, field.bytes.data(), field.bytes.size());  // little-endian
        return field;
      }
      case Field::Wire::kBytes: {
        TROOP_ASSIGN_OR_RETURN(const std::uint64_t size, Varint());
        TROOP_ASSIGN_OR_RETURN(field.bytes, Take(size));
        return field;
      }
    }
    return DataLoss("a field of unknown wire type {}", key & 7);
  }

 private:
  // Reads a LEB128 number of at most 10 bytes. Errors: kDataLoss if it does not end.
  Result<std::uint64_t> Varint() {
    std::uint64_t value = 0;
    for (int shift = 0; shift < 64 && !rest_.empty(); shift += 7) {
      const auto byte = static_cast<unsigned char>(rest_.front());
      rest_.remove_prefix(1);
      value |= std::uint64_t(byte & 0x7F) << shift;
      if (byte < 0x80) return value;
    }
    return DataLoss("a number that is cut off");
  }
  // Removes the next `size` bytes; the comparison cannot overflow, because `size` is not added to
  // anything.
  Result<std::string_view> Take(std::uint64_t size) {
    if (size > rest_.size()) {
      return DataLoss("a field of {} bytes where {} are left", size, rest_.size());
    }
    const std::string_view taken = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return taken;
  }

  std::string_view rest_;
};

using Wire = Field::Wire;
// True if a field has this number and type; a known number with another type is skipped.
bool Is(const Field& field, std::uint64_t number, Wire wire) {
  return field.number == number && field.wire == wire;
}

// SentencePiece message: 1 piece, 2 score, 3 type. Absent fields keep their protobuf defaults.
Result<SentencePieceModel::Piece> ParsePiece(std::string_view message) {
  SentencePieceModel::Piece piece;
  for (FieldReader reader(message); !reader.done();) {
    TROOP_ASSIGN_OR_RETURN(const Field field, reader.Next());
    if (Is(field, 1, Wire::kBytes)) piece.text = field.bytes;
    if (Is(field, 2, Wire::kFixed32)) std::memcpy(&piece.score, &field.value, 4);
    if (Is(field, 3, Wire::kVarint)) {
      if (field.value < 1 || field.value > 6) return DataLoss("a piece of type {}", field.value);
      piece.type = static_cast<SentencePieceModel::Type>(field.value);
    }
  }
  if (piece.text.empty()) return DataLoss("a piece without text");
  if (!IsUtf8(piece.text)) return DataLoss("a piece that is not UTF-8");
  if (!std::isfinite(piece.score)) return DataLoss("a piece whose score is not finite");
  return piece;
}

// TrainerSpec: checks only the settings that would need another tokenizer.
Status CheckTrainer(std::string_view message) {
  for (FieldReader reader(message); !reader.done();) {
    TROOP_ASSIGN_OR_RETURN(const Field field, reader.Next());
    // Field 3 is model_type: 1 unigram, 2 BPE, 3 words, 4 characters.
    if (Is(field, 3, Wire::kVarint) && field.value != 1) {
      const char* const kinds[] = {"BPE", "words", "characters"};
      return InvalidArgument(
          "it is a model of {}; only unigram models are supported",
          field.value >= 2 && field.value <= 4 ? kinds[field.value - 2] : "an unknown kind");
    }
    // Field 24 is treat_whitespace_as_suffix; the normalizer here only adds a prefix.
    if (Is(field, 24, Wire::kVarint) && field.value != 0) {
      return InvalidArgument("white space as a suffix is not supported");
    }
    // Field 35 is byte_fallback, which replaces unknown characters by byte pieces.
    if (Is(field, 35, Wire::kVarint) && field.value != 0) {
      return InvalidArgument("byte fallback is not supported");
    }
  }
  return {};
}

Status ParseNormalizer(std::string_view message, SentencePieceModel* model) {
  // NormalizerSpec; unknown fields are skipped.
  for (FieldReader reader(message); !reader.done();) {
    TROOP_ASSIGN_OR_RETURN(const Field field, reader.Next());
    // Fields: 2 precompiled_charsmap, 3 to 5 the options of white space.
    if (Is(field, 2, Wire::kBytes)) model->charsmap = field.bytes;
    if (Is(field, 3, Wire::kVarint)) model->add_dummy_prefix = field.value != 0;
    if (Is(field, 4, Wire::kVarint)) model->remove_extra_whitespaces = field.value != 0;
    if (Is(field, 5, Wire::kVarint)) model->escape_whitespaces = field.value != 0;
  }
  return {};
}

// Parses the whole model. An empty file is a valid message, so the number of pieces is checked.
Result<SentencePieceModel> Parse(std::string_view bytes) {
  SentencePieceModel model;
  for (FieldReader reader(bytes); !reader.done();) {
    TROOP_ASSIGN_OR_RETURN(const Field field, reader.Next());
    // Fields of ModelProto: 1 pieces, 2 trainer_spec, 3 normalizer_spec.
    if (field.wire != Wire::kBytes) continue;
    if (field.number == 1) {
      if (model.pieces.size() == kPiecesMax) return DataLoss("more than {} pieces", kPiecesMax);
      TROOP_ASSIGN_OR_RETURN(auto piece, ParsePiece(field.bytes));
      model.pieces.push_back(std::move(piece));
    } else if (field.number == 2) {
      TROOP_RETURN_IF_ERROR(CheckTrainer(field.bytes));
    } else if (field.number == 3) {
      TROOP_RETURN_IF_ERROR(ParseNormalizer(field.bytes, &model));
    }
  }
  if (model.pieces.empty()) return DataLoss("it has no pieces");
  return model;
}

}  // namespace

// Adds context to damage only: messages about unsupported models are complete.
Result<SentencePieceModel> ParseSentencePieceModel(std::string_view bytes) {
  Result<SentencePieceModel> model = Parse(bytes);
  if (!model.ok() && model.status().code() == Code::kDataLoss) {
    return model.status().WithContext("not a SentencePiece model, or a damaged one");
  }
  return model;
}

}  // namespace troop
