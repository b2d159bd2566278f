// Implements the learning of byte-pair merges with counts that change in place.

#include "datasets/translation/subword_merges.h"

#include <algorithm>
#include <queue>
#include <set>
#include <tuple>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "datasets/tokenizers/unicode.h"

namespace troop {
namespace {

// subword-nmt's end of a word, which takes part in the order of pairs with equal counts.
constexpr char kEnd[] = "</w>";
// Pairs that occur once say nothing about the language (min_frequency of subword-nmt).
constexpr std::int64_t kCountMin = 2;

using Pair = std::pair<std::int32_t, std::int32_t>;
struct PairHash {
  std::size_t operator()(const Pair& pair) const {
    const auto key = (std::uint64_t(std::uint32_t(pair.first)) << 32) | std::uint32_t(pair.second);
    return std::size_t(key * 0x9E3779B97F4A7C15u);  // Fibonacci hashing
  }
};

// A word as symbols.
struct Word {
  std::vector<std::int32_t> symbols;
  std::int64_t count = 0;
};

// Number of a pair's occurrences, and the words that had it; a word may have lost it since.
struct PairState {
  std::int64_t count = 0;
  std::unordered_set<std::size_t> words;
};

// State of learning. The heap may hold old counts of a pair, which are detected when they are
// removed from it.
class MergeLearner {
 public:
  // Step 1: the characters become symbols, sorted, so that ids do not depend on the words' order.
  explicit MergeLearner(const WordCounts& words) : heap_(Less{this}) {
    std::set<std::pair<bool, std::string>> characters;
    for (const auto& [text, count] : words) {
      for (const Subword& c : CharactersOf(text)) characters.emplace(c.final, c.text);
    }
    for (const auto& [final, text] : characters) SymbolOf({text, final});
    learned_.characters = std::int64_t(learned_.symbols.size());
    for (const auto& [text, count] : words) {
      Word word{.count = count};
      for (const Subword& c : CharactersOf(text)) word.symbols.push_back(SymbolOf(c));
      words_.push_back(std::move(word));
      Count(words_.size() - 1, 1);
    }
    for (const auto& [pair, state] : pairs_) heap_.emplace(state.count, pair);
  }

  // Step 2: merges until the limit is reached or no pair is frequent.
  LearnedMerges Learn(std::int64_t symbols_max) && {
    while (std::int64_t(learned_.symbols.size()) < symbols_max && !heap_.empty()) {
      const auto [count, pair] = heap_.top();
      heap_.pop();
      const std::int64_t now = pairs_[pair].count;
      // A count that fell since has its place further down.
      if (now != count) {
        if (now > 0 && now < count) heap_.emplace(now, pair);
        continue;
      }
      if (count < kCountMin) break;
      Merge(pair);
    }
    return std::move(learned_);
  }

 private:
  using Entry = std::pair<std::int64_t, Pair>;  // count and pair
  // Order of the heap: by count, then by the texts.
  struct Less {
    const MergeLearner* learner;
    bool operator()(const Entry& a, const Entry& b) const {
      if (a.first != b.first) return a.first < b.first;
      const auto& keys = learner->keys_;
      const auto key = [&](const Pair& pair) {
        return std::tie(keys[std::size_t(pair.first)], keys[std::size_t(pair.second)]);
      };
      return key(a.second) < key(b.second);
    }
  };

  // Id of a symbol, which is added if it is new.
  std::int32_t SymbolOf(Subword symbol) {
    const std::string id = (symbol.final ? '=' : '-') + symbol.text;
    const auto [place, added] = ids_.try_emplace(id, std::int32_t(learned_.symbols.size()));
    if (added) {
      keys_.push_back(symbol.final ? symbol.text + kEnd : symbol.text);
      learned_.symbols.push_back(std::move(symbol));
    }
    return place->second;
  }

  // Adds (sign 1) or removes (-1) the pairs of a word.
  void Count(std::size_t index, std::int64_t sign) {
    const Word& word = words_[index];
    for (std::size_t i = 0; i + 1 < word.symbols.size(); ++i) {
      PairState& state = pairs_[{word.symbols[i], word.symbols[i + 1]}];
      state.count += sign * word.count;
      if (sign > 0) state.words.insert(index);
    }
  }

  // Replaces the pair in all words, from left to right, and counts their pairs again.
  void Merge(const Pair& pair) {
    const auto& symbols = learned_.symbols;
    const Subword &left = symbols[std::size_t(pair.first)],
                  &right = symbols[std::size_t(pair.second)];
    const std::int32_t merged = SymbolOf({left.text + right.text, right.final});
    learned_.merges.push_back({pair.first, pair.second});
    const std::unordered_set<std::size_t> words = std::move(pairs_[pair].words);
    std::unordered_set<Pair, PairHash> changed;
    for (const std::size_t index : words) {
      Count(index, -1);
      std::vector<std::int32_t>& now = words_[index].symbols;
      std::vector<std::int32_t> next;
      for (std::size_t i = 0; i < now.size(); ++i) {
        const bool found = i + 1 < now.size() && now[i] == pair.first && now[i + 1] == pair.second;
        next.push_back(found ? merged : now[i]);
        i += found;
      }
      now = std::move(next);
      Count(index, 1);
      for (std::size_t i = 0; i + 1 < now.size(); ++i) changed.emplace(now[i], now[i + 1]);
    }
    // Counts that rose need a new place; those that fell are corrected when they are found.
    for (const Pair& one : changed) heap_.emplace(pairs_[one].count, one);
    pairs_.erase(pair);
  }

  LearnedMerges learned_;
  std::vector<std::string> keys_;                      // by symbol: its text as subword-nmt has it
  std::unordered_map<std::string, std::int32_t> ids_;  // by text and place in the word
  std::vector<Word> words_;
  std::unordered_map<Pair, PairState, PairHash> pairs_;
  std::priority_queue<Entry, std::vector<Entry>, Less> heap_;
};

}  // namespace

std::vector<Subword> CharactersOf(const std::string& word) {
  std::vector<Subword> characters;
  for (std::size_t at = 0; at < word.size();) {
    characters.emplace_back();
    AppendUtf8(DecodeUtf8(word, &at), &characters.back().text);
  }
  if (!characters.empty()) characters.back().final = true;
  return characters;
}

LearnedMerges LearnMerges(const WordCounts& words, std::int64_t symbols_max) {
  return MergeLearner(words).Learn(symbols_max);
}

}  // namespace troop
