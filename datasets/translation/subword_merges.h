#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace troop {

// Words of a text with the number of their occurrences. std::map, so that the order is fixed.
using WordCounts = std::map<std::string, std::int64_t, std::less<>>;

// A symbol of byte-pair encoding: characters in UTF-8, at the end of a word or within it.
struct Subword {
  std::string text;
  bool final = false;  // true: the last one of its word
  bool operator==(const Subword&) const = default;
};

// A merge of two symbols, by their indices in LearnedMerges::symbols.
struct SubwordMerge {
  std::int32_t left = 0, right = 0;
  bool operator==(const SubwordMerge&) const = default;
};

// Result of LearnMerges. The first `characters` symbols are single characters in the order of their
// text, first those within words. The others are the results of merges, in the order of learning;
// two merges with one result share its symbol.
struct LearnedMerges {
  std::vector<Subword> symbols;
  std::int64_t characters = 0;
  std::vector<SubwordMerge> merges;  // by priority
};

// Learns byte-pair encoding from words (Sennrich et al. 2016, algorithm 1). Each merge joins the
// most frequent pair of adjacent symbols; equal counts select the pair whose texts are last in the
// order of code points, as in subword-nmt, where a final symbol ends in "</w>". Stops at
// `symbols_max` symbols, or when no pair occurs twice. Bytes that are not UTF-8 become U+FFFD.
// O(characters + merges · occurrences · log).
LearnedMerges LearnMerges(const WordCounts& words, std::int64_t symbols_max);

// Splits a word into its characters, as LearnMerges does.
std::vector<Subword> CharactersOf(const std::string& word);

}  // namespace troop
