#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>

#include "core/config.h"
#include "core/status.h"
#include "text/tokenizer.h"

namespace troop {

// What Hugging Face's files say of how text becomes tokens, as far as it changes them here.
struct TokenizerSettings {
  bool cased = false;
  std::int64_t tokens_max = std::numeric_limits<std::int64_t>::max();
  TruncationSide side = TruncationSide::kRight;
};

// tokenizer_config.json, special_tokens_map.json and added_tokens.json of a folder; nullopt: it has
// no tokenizer_config.json. Blocks on the disk. Errors: kInvalidArgument: a setting that this
// tokenizer does not have (other special tokens, added tokens, another way to split), by name;
// kDataLoss: no such document. The message begins with the file's path.
Result<std::optional<TokenizerSettings>> ReadTokenizerSettings(const std::string& folder);

// The settings beside data.vocabulary and in model.pretrained, against data.cased and
// data.truncation_side: a run that differs would get other tokens than the model was made for.
// data.tokens_max takes the place of model_max_length; more than that is a warning. Errors: as
// ReadTokenizerSettings; kInvalidArgument names both values.
Status CheckTokenizerSettings(const Config& config);

}  // namespace troop
