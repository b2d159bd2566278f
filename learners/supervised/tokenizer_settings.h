#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>

#include "core/base/status.h"
#include "datasets/data_config.h"
#include "datasets/tokenizers/tokenizer.h"

namespace troop {

// Tokenizer settings in Hugging Face's files that change tokens here.
struct TokenizerSettings {
  bool cased = false;
  std::int64_t max_length = std::numeric_limits<std::int64_t>::max();
  TruncationSide side = TruncationSide::kRight;
};

// Reads tokenizer_config.json, special_tokens_map.json and added_tokens.json of a folder; nullopt:
// no tokenizer_config.json. Blocks on the disk. Errors: kInvalidArgument: a setting that this
// tokenizer does not support (other special tokens, added tokens, another pre-tokenizer), by name;
// kDataLoss: not a valid document. The message starts with the file's path.
Result<std::optional<TokenizerSettings>> ReadTokenizerSettings(const std::string& folder);

// Compares the settings next to data.vocabulary and in the folder `pretrained` (empty: none) with
// data.cased and data.truncation_side: a difference would produce other tokens than the model was
// trained on. data.max_length overrides model_max_length; a larger value is a warning. Errors: as
// ReadTokenizerSettings; kInvalidArgument names both values.
Status CheckTokenizerSettings(const DataConfig& data, const std::string& pretrained);

}  // namespace troop
