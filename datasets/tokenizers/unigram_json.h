#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/base/status.h"
#include "datasets/tokenizers/text_normalizer.h"
#include "datasets/tokenizers/tokenizer.h"

namespace troop {

// Unigram model of a tokenizer.json, as Hugging Face's tokenizers apply it (ALBERT, XLM-R). Text is
// normalized, and split at white space if that is set. A space becomes U+2581, which is also put
// before the text, or before each word of a split text. Each word is split into the pieces with the
// largest sum of scores in f64, the first one of equals; a run of characters that no piece covers
// is one unknown piece. Unlike SentencePiece (datasets/tokenizers/unigram.h), words are split
// separately, and sums are not rounded to f32.
struct UnigramModel {
  std::vector<std::string> pieces{};  // by id
  std::vector<double> scores{};       // by id: log-probabilities; special tokens without one: 0
  std::vector<bool> never{};          // by id: a special token, which text never yields
  SpecialTokens special{};
  PairFormat pair{};
  TextNormalizer normalizer{};
  bool split_white_space = false;  // pre-tokenizer WhitespaceSplit before Metaspace
  bool prepend = true;             // U+2581 before a word that does not begin with it
  bool split = true;               // at each U+2581
  std::uint32_t fingerprint = 0;   // checksum of the file
};
// Errors: kInvalidArgument: two pieces are equal, or one has more than PieceTrie::kBytesMax bytes.
// REQUIRES: `pieces`, `scores` and `never` have one size; scores are finite.
Result<std::unique_ptr<Tokenizer>> MakeUnigramJson(UnigramModel model);

}  // namespace troop
