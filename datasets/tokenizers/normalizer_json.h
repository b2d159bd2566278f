#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "core/base/status.h"
#include "core/storage/json.h"
#include "datasets/tokenizers/text_normalizer.h"

namespace troop {

// BERT's normalizer with `clean_text` and `handle_chinese_chars`, which are required.
struct BertNormalizer {
  bool lowercase = true, strip_accents = true;
};
// "normalizer" of a tokenizer.json: BERT's alone, or a list of other steps.
struct JsonNormalizer {
  std::optional<BertNormalizer> bert{};
  std::vector<NormalizerStep> steps{};
  bool lowercases() const;
};
// json: null, a step or a Sequence. Errors: kInvalidArgument naming a step or a setting that is not
// supported; kDataLoss: a setting of the wrong type, or a damaged character map.
Result<JsonNormalizer> ParseNormalizer(const JsonValue* json);

// "pre_tokenizer" of a tokenizer.json: the steps that are there.
struct JsonPreTokenizer {
  bool bert = false;         // BertPreTokenizer
  bool white_space = false;  // WhitespaceSplit, before Metaspace
  struct Metaspace {
    bool prepend = true, split = true;
    bool first_only = false;  // `prepend` is for the first word of a text
  };
  std::optional<Metaspace> metaspace{};
  std::optional<bool> byte_level{};  // ByteLevel with this add_prefix_space
};
// Errors: as ParseNormalizer.
Result<JsonPreTokenizer> ParsePreTokenizer(const JsonValue* json);

// Common parts of the readers of tokenizer.json.

// "type" of a step; empty: none.
std::string_view TypeOf(const JsonValue& step);
// Steps of null (none), of a step, or of a Sequence, whose list has the name `key`.
std::vector<const JsonValue*> StepsOf(const JsonValue* json, std::string_view key);
// True if a setting is there and not null.
bool IsSet(const JsonValue* value);

}  // namespace troop
