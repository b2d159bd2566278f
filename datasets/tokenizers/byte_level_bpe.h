#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/status.h"
#include "datasets/tokenizers/text_normalizer.h"
#include "datasets/tokenizers/tokenizer.h"

namespace troop {

// Byte-level BPE of GPT-2 and RoBERTa (Radford et al. 2019, sec. 2.2; Liu et al. 2019). Text is
// split into words with their leading spaces; each byte of a word is a symbol, and the pair of
// neighbors that is first in the list of merges is merged until there is none (Sennrich et al.
// 2016). No text is unknown. Equals transformers' RobertaTokenizer where that does not extract
// special tokens.
struct BpeModel {
  // By id, in GPT-2's alphabet: a printable character per byte ("Ġ" is a space). The pieces of all
  // 256 bytes are required. Pieces with other characters never result from text.
  std::vector<std::string> pieces{};
  // Pairs of pieces whose concatenation is a piece; the first ones are merged first.
  std::vector<std::pair<std::string, std::string>> merges{};
  std::vector<bool> never{};  // by id: words never yield the piece; empty: all may
  SpecialTokens special{};
  PairFormat pair{};
  TextNormalizer normalizer{};    // applied before the split
  std::uint32_t fingerprint = 0;  // checksum of the files and the options
  bool add_prefix_space = false;  // before a text that does not begin with a space
  bool ignore_merges = false;     // a word that is a piece is not split, whatever the merges are
};
// Errors: kInvalidArgument: a byte has no piece, a merge is a duplicate or uses text that is not a
// piece. O(bytes of the pieces) in time; memory about 40 bytes per piece and merge.
Result<std::unique_ptr<Tokenizer>> MakeByteLevelBpe(BpeModel model);

// vocab: a JSON object of the ids by piece, with the special tokens <s>, </s>, <pad>, <unk> and
// <mask>. merges: a pair per line; a first line that begins with #version is skipped. The pair
// format is RoBERTa's: two end tokens between the texts, and token type 0 for both. Errors: as
// above; kDataLoss: not such a document; kInvalidArgument with the line.
Result<std::unique_ptr<Tokenizer>> MakeByteLevelBpe(std::string_view vocab, std::string_view merges,
                                                    const TokenizerOptions& options);

// End of the word of GPT-2's pattern that begins at `begin`:
//   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
// REQUIRES: begin < text.size(), valid UTF-8. O(bytes of the word and of one more character).
std::size_t EndOfGpt2Word(std::string_view text, std::size_t begin);

}  // namespace troop
