// Unigram models of tokenizer.json files: words, and the Viterbi search in f64.

#include "datasets/tokenizers/unigram_json.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "datasets/lookup/piece_trie.h"
#include "datasets/tokenizers/model_tokenizer.h"
#include "datasets/tokenizers/unicode.h"

namespace troop {
namespace {

constexpr std::string_view kSpaceSymbol = "\xE2\x96\x81";  // U+2581
constexpr double kUnknownPenalty = 10;  // below the worst score (tokenizers, unigram/model.rs)

// Immutable after MakeUnigramJson, so any number of threads may encode at the same time.
class UnigramJson final : public ModelTokenizer<UnigramModel> {
 public:
  UnigramJson(UnigramModel model, PieceTrie trie)
      : ModelTokenizer(std::move(model)),
        trie_(std::move(trie)),
        unknown_score_(*std::ranges::min_element(model_.scores) - kUnknownPenalty) {}

  void Encode(std::string_view text, std::vector<TokenId>* ids) const override;

 private:
  // Best path to the end of a character.
  struct Best {
    double score = 0;
    std::int32_t begin = -1;  // -1: not reached yet
    TokenId id = 0;
  };
  // Memory that the words of a text share.
  struct Scratch {
    std::string word;
    std::vector<Best> best;
  };
  void EncodeWord(std::string_view word, Scratch* scratch, std::vector<TokenId>* ids) const;
  void EncodePart(std::string_view part, std::vector<Best>* best, std::vector<TokenId>* ids) const;

  const PieceTrie trie_;
  const double unknown_score_;
};

// Steps: valid UTF-8, normalizer, split at white space.
void UnigramJson::Encode(std::string_view text, std::vector<TokenId>* ids) const {
  std::string valid;
  const std::string normal = model_.normalizer(ValidUtf8(text, &valid));
  text = normal;
  Scratch scratch;
  if (!model_.split_white_space) {
    EncodeWord(text, &scratch, ids);
    return;
  }
  // Runs of white space give empty words, which are skipped.
  std::size_t word = 0;
  for (std::size_t next = 0; next < text.size();) {
    const std::size_t at = next;
    if (!IsWhiteSpace(DecodeUtf8(text, &next))) continue;
    EncodeWord(text.substr(word, at - word), &scratch, ids);
    word = next;
  }
  EncodeWord(text.substr(word), &scratch, ids);
}

// The pre-tokenizer Metaspace: replaces spaces, prepends, and splits before each U+2581.
void UnigramJson::EncodeWord(std::string_view text, Scratch* scratch,
                             std::vector<TokenId>* ids) const {
  if (text.empty()) return;
  // The word is rebuilt, because U+2581 is longer than a space.
  std::string& word = scratch->word;
  word.clear();
  if (model_.prepend && text[0] != ' ' && !text.starts_with(kSpaceSymbol)) word = kSpaceSymbol;
  for (const char c : text) {
    if (c == ' ') {
      word += kSpaceSymbol;
    } else {
      word.push_back(c);
    }
  }
  for (std::string_view rest = word; !rest.empty();) {
    std::size_t end = rest.size();
    if (model_.split) end = std::min(end, rest.find(kSpaceSymbol, 1));
    EncodePart(rest.substr(0, end), &scratch->best, ids);
    rest.remove_prefix(end);
  }
}

// Viterbi search from left to right; positions are bytes. O(bytes times the longest piece).
void UnigramJson::EncodePart(std::string_view part, std::vector<Best>* best,
                             std::vector<TokenId>* ids) const {
  best->assign(part.size() + 1, {});
  // A later path of equal score does not replace an earlier one.
  const auto offer = [best](std::size_t begin, std::size_t end, double score, TokenId id) {
    Best& there = (*best)[end];
    if (there.begin < 0 || score > there.score) there = {score, std::int32_t(begin), id};
  };
  for (std::size_t begin = 0; begin < part.size();) {
    std::size_t next = begin;
    DecodeUtf8(part, &next);
    const double score_here = (*best)[begin].score;
    bool has_single = false;
    // Walk along all pieces that begin here.
    std::int32_t node = PieceTrie::kRoot;
    for (std::size_t i = begin; i < part.size();) {
      node = trie_.Next(node, part[i++]);
      if (node == PieceTrie::kNone) break;
      const TokenId id = trie_.value(node);
      if (id == PieceTrie::kNone) continue;
      offer(begin, i, model_.scores[std::size_t(id)] + score_here, id);
      has_single |= i == next;
    }
    // Every character must be coverable.
    if (!has_single) offer(begin, next, unknown_score_ + score_here, model_.special.unknown);
    begin = next;
  }
  // Follow the best path backwards; a run of unknown characters gives one id.
  const std::size_t first = ids->size();
  for (std::size_t end = part.size(); end > 0; end = std::size_t((*best)[end].begin)) {
    const TokenId id = (*best)[end].id;
    const bool in_a_run = ids->size() > first && ids->back() == model_.special.unknown;
    if (id != model_.special.unknown || !in_a_run) ids->push_back(id);
  }
  std::reverse(ids->begin() + std::ptrdiff_t(first), ids->end());
}

}  // namespace

// Special tokens are left out of the trie, so that no text gives them.
Result<std::unique_ptr<Tokenizer>> MakeUnigramJson(UnigramModel model) {
  std::vector<PieceTrie::Entry> entries;
  for (std::size_t id = 0; id < model.pieces.size(); ++id) {
    if (!model.never[id]) entries.push_back({model.pieces[id], std::int32_t(id)});
  }
  TROOP_ASSIGN_OR_RETURN(PieceTrie trie, PieceTrie::Make(std::move(entries)));
  return std::unique_ptr<Tokenizer>(new UnigramJson(std::move(model), std::move(trie)));
}

}  // namespace troop
