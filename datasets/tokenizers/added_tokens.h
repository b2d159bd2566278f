#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/status.h"
#include "datasets/tokenizers/tokenizer.h"

namespace troop {

// An element of "added_tokens" in a tokenizer.json: a token that is found in a text before the
// model splits it.
struct AddedToken {
  TokenId id = 0;
  std::string content{};
  // Special tokens with a role ([CLS], <mask>, …) are plain text in Troop, as with
  // `encode_special_tokens` of Hugging Face's tokenizers: they are found and left to the model, and
  // hide added tokens that overlap them.
  bool special = false;
  bool normalized = true;    // its normalized text is found in the normalized text
  bool lstrip = false;       // takes the white space before it
  bool rstrip = false;       // takes the white space after it
  bool single_word = false;  // not next to a character of a word (\w)
};

using Normalize = std::function<std::string(std::string_view)>;

// Puts added tokens before a model, as Hugging Face's tokenizers do (added_vocabulary.rs). First
// the tokens that are not normalized are found in the text, then, in each rest, which `normalize`
// changes, the normalized ones; the longest of those that begin at the leftmost place wins. What is
// left between them is a separate text for `model`, with its own leading space or U+2581.
//
// normalize: the normalizer of the file, if `model` does not normalize or accepts text that is
// normalized; null: there is none. Errors: kInvalidArgument: a token is empty after its
// normalization, equal to another one, or longer than PieceTrie::kBytesMax bytes. REQUIRES: the ids
// are those of pieces. O(bytes of the text times those of the longest token).
Result<std::unique_ptr<Tokenizer>> WithAddedTokens(std::unique_ptr<Tokenizer> model,
                                                   std::vector<AddedToken> tokens,
                                                   Normalize normalize);

}  // namespace troop
