#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/base/status.h"
#include "core/storage/storage.h"
#include "datasets/data_config.h"
#include "datasets/tokenizers/tokenizer.h"

namespace troop {

// A token that Hugging Face's files add to a vocabulary, with what they state about it; nullopt:
// not stated.
struct DeclaredToken {
  std::string content;
  std::optional<std::int64_t> id{};
  std::optional<bool> lstrip{}, rstrip{}, normalized{}, single_word{};
};

// Tokenizer settings in Hugging Face's files that change tokens here.
struct TokenizerSettings {
  bool cased = false;
  std::int64_t max_length = std::numeric_limits<std::int64_t>::max();
  TruncationSide side = TruncationSide::kRight;
  // Settings as they are in the file, with which a tokenizer.json must agree; the second one also
  // applies to a vocab.json.
  std::optional<bool> lowercase{}, add_prefix_space{};
  // Names of special tokens by their keys ("cls_token"), also from special_tokens_map.json.
  std::map<std::string, std::string> names{};
  // Tokens without a role, which a tokenizer.json must have among its "added_tokens".
  std::vector<DeclaredToken> added{};
  // "text_columns", which Troop writes: one name, or two of a model of pairs; empty: not given.
  std::vector<std::string> text_columns{};
};

// Reads tokenizer_config.json, special_tokens_map.json and added_tokens.json of a folder; nullopt:
// no tokenizer_config.json. Blocks on the disk. Errors: kInvalidArgument: a setting that this
// tokenizer does not support (other special tokens, another pre-tokenizer, added tokens without a
// tokenizer.json), by name; kDataLoss: not a valid document. The message starts with the file's
// path. kind: of the vocabulary in use, which decides the names of special tokens; nullopt also
// requires that a tokenizer.json has no names in special_tokens_map.json.
Result<std::optional<TokenizerSettings>> ReadTokenizerSettings(const std::string& folder,
                                                               VocabularyKind kind);

// Opens a vocabulary (MakeTokenizer) with the settings in its folder. cased: of the vocabularies
// for which MakeTokenizer permits it. Errors: those of MakeTokenizer and ReadTokenizerSettings;
// kInvalidArgument: a name of a special token differs from the vocabulary's, or a token of the
// files is not among its added tokens.
Result<std::unique_ptr<Tokenizer>> OpenVocabulary(const std::string& path, bool cased);

// Writes the vocabulary of a config under the names that transformers reads (vocab.txt;
// spiece.model; vocab.json and merges.txt; tokenizer.json), and tokenizer_config.json, to a folder
// of a run. The latter states the text columns, and so whether the model takes pairs. Blocks on the
// disk. Errors: those of OpenVocabulary, and of the storage.
Status WriteTokenizer(const DataConfig& data, const std::string& folder, Storage* run);

// Compares the settings next to data.vocabulary and in the folder `pretrained` (empty: none) with
// data.cased and data.truncation_side: a difference would produce other tokens than the model was
// trained on; add_prefix_space of a vocab.json must be equal in both folders. A tokenizer.json or
// vocab.json determines the case itself. data.max_length overrides model_max_length; a larger value
// is a warning. Errors: as ReadTokenizerSettings; kInvalidArgument names both values.
Status CheckTokenizerSettings(const DataConfig& data, const std::string& pretrained);

}  // namespace troop
