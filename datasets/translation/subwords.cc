// Implements the vocabulary of subwords: encoding, decoding and its file.

#include "datasets/translation/subwords.h"

#include <charconv>
#include <limits>
#include <optional>

namespace troop {
namespace {

constexpr std::string_view kSpaces = " \t\r\n";
constexpr std::string_view kHead = "troop subwords 1 ";
// No language needs more; bounds what a damaged file can allocate.
constexpr std::int64_t kSizeMax = 1 << 20;
constexpr std::size_t kBytesMax = 1 << 24;  // all texts together

// Key of a character in the table.
std::string KeyOf(const Subword& symbol) { return (symbol.final ? '=' : '-') + symbol.text; }

std::uint64_t RuleKey(std::int32_t left, std::int32_t right) {
  return (std::uint64_t(std::uint32_t(left)) << 32) | std::uint32_t(right);
}

// Calls f(word) for each word of a sentence.
template <class F>
void ForEachWord(std::string_view sentence, F f) {
  while (true) {
    sentence.remove_prefix(std::min(sentence.find_first_not_of(kSpaces), sentence.size()));
    if (sentence.empty()) return;
    const std::string_view word = sentence.substr(0, sentence.find_first_of(kSpaces));
    f(std::string(word));
    sentence.remove_prefix(word.size());
  }
}

// Cuts a line off the front of the text; nullopt: it has no line end.
std::optional<std::string_view> NextLine(std::string_view* text) {
  const std::size_t end = text->find('\n');
  if (end == text->npos) return std::nullopt;
  const std::string_view line = text->substr(0, end);
  text->remove_prefix(end + 1);
  return line;
}

// Two integers in [0, limit), separated by a space.
std::optional<std::pair<std::int64_t, std::int64_t>> TwoNumbers(std::string_view line,
                                                                std::int64_t limit) {
  std::pair<std::int64_t, std::int64_t> both;
  const char* const end = line.data() + line.size();
  const auto first = std::from_chars(line.data(), end, both.first);
  if (first.ec != std::errc() || first.ptr == end || *first.ptr != ' ') return std::nullopt;
  const auto second = std::from_chars(first.ptr + 1, end, both.second);
  if (second.ec != std::errc() || second.ptr != end) return std::nullopt;
  if (std::min(both.first, both.second) < 0 || std::max(both.first, both.second) >= limit)
    return std::nullopt;
  return both;
}

}  // namespace

void CountWords(std::string_view sentence, WordCounts* words) {
  ForEachWord(sentence, [&](std::string word) { ++(*words)[std::move(word)]; });
}

// The result of a merge is found by its text, since two merges may share it.
Subwords::Subwords(LearnedMerges learned) : learned_(std::move(learned)) {
  std::unordered_map<std::string, std::int32_t> ids;
  for (std::size_t i = 0; i < learned_.symbols.size(); ++i) {
    ids[KeyOf(learned_.symbols[i])] = std::int32_t(i);
    if (std::int64_t(i) < learned_.characters) characters_[KeyOf(learned_.symbols[i])] = TokenId(i);
  }
  for (std::size_t i = 0; i < learned_.merges.size(); ++i) {
    const auto [left, right] = learned_.merges[i];
    const Subword& end = learned_.symbols[std::size_t(right)];
    const std::string text = learned_.symbols[std::size_t(left)].text + end.text;
    rules_[RuleKey(left, right)] = {std::int32_t(i), ids[KeyOf({text, end.final})]};
  }
}

Result<Subwords> Subwords::Learn(const WordCounts& words, std::int64_t size) {
  LearnedMerges learned = LearnMerges(words, size - kSpecials);
  const std::int64_t found = kSpecials + std::int64_t(learned.symbols.size());
  if (found == size) return Subwords(std::move(learned));
  if (found > size) {
    return InvalidArgument(
        "a vocabulary of {} subwords is too small: the sentences have {} characters, which need {} "
        "at least; raise it",
        size, learned.characters, found);
  }
  return InvalidArgument(
      "a vocabulary of {} subwords is too large: the sentences give at most {}; lower it", size,
      found);
}

std::string Subwords::Serialize() const {
  std::string text = fmt::format("{}{} {}\n", kHead, learned_.characters, learned_.merges.size());
  for (std::int64_t i = 0; i < learned_.characters; ++i)
    text += KeyOf(learned_.symbols[std::size_t(i)]) + '\n';
  for (const auto& [left, right] : learned_.merges) text += fmt::format("{} {}\n", left, right);
  return text;
}

// Symbols of merges are made again from the merges, which refer only to earlier symbols.
Result<Subwords> Subwords::Parse(std::string_view text) {
  const auto damaged = [](std::string_view what) {
    return DataLoss("damaged vocabulary of subwords: {}; copy it from the run again", what);
  };
  const auto head = NextLine(&text);
  if (!head || !head->starts_with(kHead))
    return damaged("its first line is not that of a vocabulary");
  const auto counts = TwoNumbers(head->substr(kHead.size()), kSizeMax);
  if (!counts) return damaged("its first line has no counts");
  LearnedMerges learned{.symbols = {}, .characters = counts->first, .merges = {}};
  std::unordered_map<std::string, std::int32_t> ids;
  const auto add = [&](Subword symbol) {
    const bool added = ids.try_emplace(KeyOf(symbol), std::int32_t(ids.size())).second;
    if (added) learned.symbols.push_back(std::move(symbol));
    return added;
  };
  for (std::int64_t i = 0; i < counts->first; ++i) {
    const auto line = NextLine(&text);
    if (!line || line->size() < 2 || (line->front() != '=' && line->front() != '-'))
      return damaged("a character is missing");
    if (!add({std::string(line->substr(1)), line->front() == '='}))
      return damaged("a character occurs twice");
  }
  std::size_t bytes = 0;
  for (std::int64_t i = 0; i < counts->second; ++i) {
    const auto line = NextLine(&text);
    const auto both = line ? TwoNumbers(*line, std::int64_t(learned.symbols.size())) : std::nullopt;
    if (!both) return damaged("a merge is missing or refers to a later one");
    const Subword left = learned.symbols[std::size_t(both->first)],
                  right = learned.symbols[std::size_t(both->second)];
    if (left.final) return damaged("a merge continues a finished word");
    // A damaged file could double a text with every merge.
    bytes += left.text.size() + right.text.size();
    if (bytes > kBytesMax) return damaged("its subwords are too long");
    add({left.text + right.text, right.final});
    learned.merges.push_back({std::int32_t(both->first), std::int32_t(both->second)});
  }
  if (!text.empty()) return damaged("it has further lines");
  return Subwords(std::move(learned));
}

std::vector<TokenId> Subwords::Encode(std::string_view sentence) const {
  std::vector<TokenId> ids;
  ForEachWord(sentence, [&](const std::string& word) { EncodeWord(word, &ids); });
  return ids;
}

// An unknown character takes part in no merge.
void Subwords::EncodeWord(const std::string& word, std::vector<TokenId>* ids) const {
  std::vector<std::int32_t> symbols;
  for (const Subword& c : CharactersOf(word)) {
    const auto found = characters_.find(KeyOf(c));
    symbols.push_back(found == characters_.end() ? -1 : found->second);
  }
  while (true) {
    // Step 1: the merge with the highest priority.
    Rule best{std::numeric_limits<std::int32_t>::max(), 0};
    std::pair<std::int32_t, std::int32_t> pair;
    for (std::size_t i = 0; i + 1 < symbols.size(); ++i) {
      const auto rule = rules_.find(RuleKey(symbols[i], symbols[i + 1]));
      if (rule == rules_.end() || rule->second.priority >= best.priority) continue;
      best = rule->second;
      pair = {symbols[i], symbols[i + 1]};
    }
    if (best.priority == std::numeric_limits<std::int32_t>::max()) break;
    // Step 2: all its places, from left to right.
    std::size_t to = 0;
    for (std::size_t i = 0; i < symbols.size(); ++i) {
      const bool found = i + 1 < symbols.size() && std::pair(symbols[i], symbols[i + 1]) == pair;
      symbols[to++] = found ? best.result : symbols[i];
      i += found;
    }
    symbols.resize(to);
  }
  for (const std::int32_t symbol : symbols)
    ids->push_back(symbol < 0 ? kUnknown : TokenId(symbol + kSpecials));
}

// A space follows each final subword, except the last one.
std::string Subwords::Decode(const std::vector<TokenId>& ids) const {
  std::string text;
  for (const TokenId id : ids) {
    if (id == kBegin || id == kEnd) continue;
    const std::int64_t symbol = std::int64_t(id) - kSpecials;
    if (symbol < 0 || symbol >= std::int64_t(learned_.symbols.size())) {
      text += "⁇";
      continue;
    }
    text += learned_.symbols[std::size_t(symbol)].text;
    if (learned_.symbols[std::size_t(symbol)].final) text += ' ';
  }
  if (text.ends_with(' ')) text.pop_back();
  return text;
}

}  // namespace troop
