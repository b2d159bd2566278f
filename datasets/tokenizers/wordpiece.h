#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/status.h"
#include "datasets/tokenizers/tokenizer.h"

namespace troop {

// BERT's tokenizer (Devlin et al. 2019; Wu et al. 2016, sec. 4.1). Control characters are removed;
// text is split at white space, at punctuation and around CJK ideographs; without `cased` it is
// lowercased and stripped of accents. Each word is then split greedily into the longest matching
// pieces, where pieces after the first begin with ##. A word that pieces cannot cover, or with more
// than 100 characters, is [UNK]. Characters that Unicode 14.0 does not have are parts of words, and
// therefore [UNK].
struct WordPieceModel {
  std::vector<std::string> pieces{};  // by id
  std::vector<bool> never{};          // by id: words never yield the piece; empty: all may
  SpecialTokens special{};
  PairFormat pair{};
  bool lowercase = true;
  bool strip_accents = true;
  // Sigma at the end of a word becomes a final one, as in the slow tokenizer of transformers
  // (Python's str.lower). Without this, text is normalized as in the fast one: accents are removed
  // first, each character is lowercased by itself, and the ideographs from U+2B820 to U+2B91F are
  // parts of words. REQUIRES with it: both flags are equal.
  bool final_sigma = false;
  std::uint32_t fingerprint = 0;  // checksum of the file and the options
};
// Errors: kInvalidArgument: two pieces are equal, or one has more than PieceTrie::kBytesMax bytes.
Result<std::unique_ptr<Tokenizer>> MakeWordPiece(WordPieceModel model);

// The text that the fast tokenizer splits into words, with spaces around ideographs. A second
// normalization leaves it as it is. REQUIRES: not model.final_sigma.
std::string NormalizeForWordPiece(std::string_view text, const WordPieceModel& model);

// Equals the slow tokenizer of transformers where that neither extracts special tokens nor composes
// characters first nor removes characters that are not assigned.
//
// vocabulary: one piece per line, whose id is the line's number from 0; it must contain [PAD],
// [UNK], [CLS], [SEP] and [MASK]. Errors: kInvalidArgument, naming the line.
Result<std::unique_ptr<Tokenizer>> MakeWordPiece(std::string_view vocabulary,
                                                 const TokenizerOptions& options);

}  // namespace troop
