#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/base/status.h"
#include "datasets/tokenizers/tokenizer.h"
#include "datasets/translation/subword_merges.h"

namespace troop {

// Vocabulary of subwords for translation: three special pieces, the characters, and the results of
// byte-pair merges. Immutable, so usable from any thread.
class Subwords {
 public:
  // Ids of the special pieces: a character that training did not have; begin and end of a sentence.
  static constexpr TokenId kUnknown = 0, kBegin = 1, kEnd = 2;
  static constexpr TokenId kSpecials = 3;

  // Learns a vocabulary of `size` pieces, special ones included. Errors: kInvalidArgument: the
  // words have more characters, or give fewer pieces.
  static Result<Subwords> Learn(const WordCounts& words, std::int64_t size);
  // Reads the result of Serialize. Errors: kDataLoss: damaged.
  static Result<Subwords> Parse(std::string_view text);
  // Text form: a line with the counts, then one line per character, then one per merge. O(size).
  std::string Serialize() const;

  std::int64_t size() const { return kSpecials + std::int64_t(learned_.symbols.size()); }
  const LearnedMerges& learned() const { return learned_; }
  // Ids of a sentence, without begin and end: each word is split into characters, and the merge
  // with the highest priority is applied until none is left. O(n²) per word.
  std::vector<TokenId> Encode(std::string_view sentence) const;
  // The sentence of ids; special pieces give nothing, except "⁇" for unknown ones. Ids out of range
  // count as unknown.
  std::string Decode(const std::vector<TokenId>& ids) const;

 private:
  explicit Subwords(LearnedMerges learned);
  void EncodeWord(const std::string& word, std::vector<TokenId>* ids) const;

  LearnedMerges learned_;
  std::unordered_map<std::string, TokenId> characters_;  // by "=" or "-" and text
  struct Rule {
    std::int32_t priority = 0;
    std::int32_t result = 0;
  };
  std::unordered_map<std::uint64_t, Rule> rules_;  // by the two symbols
};

// Adds the words of a sentence, which are separated by spaces and tabs.
void CountWords(std::string_view sentence, WordCounts* words);

}  // namespace troop
