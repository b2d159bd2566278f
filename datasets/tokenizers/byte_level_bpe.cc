// Byte-level BPE: GPT-2's split into words, a table of whole words, and merges by rank.

#include "datasets/tokenizers/byte_level_bpe.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <queue>
#include <span>

#include "core/storage/crc32c.h"
#include "core/storage/json.h"
#include "datasets/lookup/word_table.h"
#include "datasets/tokenizers/json_pieces.h"
#include "datasets/tokenizers/model_tokenizer.h"
#include "datasets/tokenizers/unicode.h"

namespace troop {
namespace {

// Symbols of a word up to which the next merge is found by a scan, which needs no memory; longer
// words take a heap.
constexpr std::size_t kScannedMax = 48;

// Class of a character in GPT-2's pattern.
enum class CharClass : std::uint8_t { kOther, kSpace, kLetter, kNumber, kWide };

CharClass ClassOf(char32_t c) {
  const std::uint16_t flags = CharFlagsOf(c);
  if (flags & kCharLetter) return CharClass::kLetter;
  if (flags & kCharNumber) return CharClass::kNumber;
  return IsWhiteSpace(c) ? CharClass::kSpace : CharClass::kOther;
}

// Classes of single bytes; kWide: a part of a longer character.
const std::array<CharClass, 256>& ByteClasses() {
  static const std::array<CharClass, 256> classes = [] {
    std::array<CharClass, 256> made;
    made.fill(CharClass::kWide);
    for (char32_t c = 0; c < 0x80; ++c) made[c] = ClassOf(c);
    return made;
  }();
  return classes;
}

// Class of the character at `*position`, which is advanced.
CharClass NextClass(std::string_view text, std::size_t* position) {
  const CharClass byte = ByteClasses()[static_cast<unsigned char>(text[*position])];
  if (byte == CharClass::kWide) return ClassOf(DecodeUtf8(text, position));
  ++*position;
  return byte;
}

// End of the run of characters of one class from `begin`.
std::size_t EndOfRun(std::string_view text, std::size_t begin, CharClass wanted) {
  std::size_t end = begin;
  for (std::size_t next = begin; next < text.size(); end = next) {
    if (NextClass(text, &next) != wanted) break;
  }
  return end;
}

// Length of the contraction that `text` begins with; 0: none.
std::size_t ContractionBytes(std::string_view text) {
  if (text.size() < 2 || text[0] != '\'') return 0;
  const char first = text[1], second = text.size() > 2 ? text[2] : '\0';
  if (first == 's' || first == 't' || first == 'm' || first == 'd') return 2;
  const bool two = (first == 'r' && second == 'e') || (first == 'v' && second == 'e') ||
                   (first == 'l' && second == 'l');
  return two ? 3 : 0;
}

// GPT-2's alphabet: the character of each byte. Printable characters of Latin-1 represent
// themselves, the others follow from U+0100 on (Radford et al. 2019, bytes_to_unicode).
std::array<char32_t, 256> Alphabet() {
  std::array<char32_t, 256> alphabet{};
  char32_t next = 0x100;
  for (char32_t byte = 0; byte < 256; ++byte) {
    const bool printable =
        (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
    alphabet[byte] = printable ? byte : next++;
  }
  return alphabet;
}

// Pieces are converted once, at construction; a search through 256 characters is fast enough.
// Bytes that a piece represents; empty: it has characters outside of the alphabet.
std::string BytesOf(std::string_view piece) {
  static const std::array<char32_t, 256> alphabet = Alphabet();
  std::string bytes;
  for (const char32_t c : ToUtf32(piece)) {
    const auto found = std::find(alphabet.begin(), alphabet.end(), c);
    if (found == alphabet.end()) return "";
    bytes.push_back(char(found - alphabet.begin()));
  }
  return bytes;
}

// Tokenizer of RoBERTa and GPT-2. Immutable after Init, so any number of threads may encode at the
// same time.
class ByteLevelBpe final : public ModelTokenizer<BpeModel> {
 public:
  explicit ByteLevelBpe(BpeModel model) : ModelTokenizer(std::move(model)) {}
  // Builds the tables. Errors: those of MakeByteLevelBpe.
  Status Init();

  void Encode(std::string_view text, std::vector<TokenId>* ids) const override;

 private:
  Status AddMerges();
  void AddWords();
  bool IsHidden(TokenId id) const;
  void Merge(std::string_view word, std::vector<TokenId>* ids) const;
  void MergeByScan(std::string_view word, std::vector<TokenId>* ids) const;
  void MergeByHeap(std::string_view word, std::vector<TokenId>* ids) const;

  std::vector<std::string> bytes_;       // by id: the bytes of a piece, empty for special ones
  std::array<TokenId, 256> byte_ids_{};  // piece of each byte
  PairTable merges_;
  WordTable words_;  // words that become a single piece
};

// Special and added tokens are not part of the alphabet, even if their characters are.
bool ByteLevelBpe::IsHidden(TokenId id) const {
  const SpecialTokens& s = model_.special;
  if (std::size_t(id) < model_.never.size() && model_.never[std::size_t(id)]) return true;
  return id == s.pad || id == s.unknown || id == s.begin || id == s.end || id == s.mask;
}

// Steps: bytes of the pieces, pieces of the bytes, merges, whole words.
Status ByteLevelBpe::Init() {
  byte_ids_.fill(-1);
  for (TokenId id = 0; id < size(); ++id) {
    bytes_.push_back(IsHidden(id) ? "" : BytesOf(piece(id)));
    if (bytes_.back().size() == 1) byte_ids_[static_cast<unsigned char>(bytes_.back()[0])] = id;
  }
  for (std::size_t byte = 0; byte < byte_ids_.size(); ++byte) {
    if (byte_ids_[byte] >= 0) continue;
    const char32_t c = Alphabet()[byte];
    return InvalidArgument(
        "it has no piece {:?} for the byte {}; only vocabularies of byte-level BPE with all 256 "
        "bytes are supported",
        ToUtf8({&c, 1}), byte);
  }
  TROOP_RETURN_IF_ERROR(AddMerges());
  AddWords();
  return Status::Ok();
}

// Converts the merges from texts to ids.
Status ByteLevelBpe::AddMerges() {
  std::vector<std::pair<std::string_view, std::int32_t>> ids;
  for (TokenId id = 0; id < size(); ++id) ids.emplace_back(piece(id), id);
  WordTable by_text;
  by_text.Build(std::move(ids));
  merges_.Reserve(model_.merges.size());
  for (std::size_t rank = 0; rank < model_.merges.size(); ++rank) {
    const auto& [left, right] = model_.merges[rank];
    const TokenId from[] = {by_text.Find(left), by_text.Find(right)};
    const TokenId to = by_text.Find(left + right);
    for (const auto& [id, text] :
         {std::pair(from[0], left), std::pair(from[1], right), std::pair(to, left + right)}) {
      if (id < 0) {
        return InvalidArgument("merge {} uses {:?}, which is not in the vocabulary", rank + 1,
                               text);
      }
    }
    if (!merges_.Add(from[0], from[1], {.rank = std::uint32_t(rank), .to = to})) {
      return InvalidArgument("merge {} ({:?} {:?}) is a duplicate", rank + 1, left, right);
    }
  }
  // The texts are not needed any more.
  model_.merges = {};
  return Status::Ok();
}

// Most words of a text are pieces. Their merges give the same each time, so that one lookup
// replaces them.
void ByteLevelBpe::AddWords() {
  std::vector<std::pair<std::string_view, std::int32_t>> words;
  std::vector<TokenId> ids;
  for (TokenId id = 0; id < size(); ++id) {
    const std::string& bytes = bytes_[std::size_t(id)];
    if (bytes.empty()) continue;
    ids.clear();
    if (!model_.ignore_merges) Merge(bytes, &ids);
    if (model_.ignore_merges || (ids.size() == 1 && ids[0] == id)) words.emplace_back(bytes, id);
  }
  words_.Build(std::move(words));
}

// Appends the pieces of a word that is not one piece.
void ByteLevelBpe::Merge(std::string_view word, std::vector<TokenId>* ids) const {
  if (word.size() <= kScannedMax) {
    MergeByScan(word, ids);
  } else {
    MergeByHeap(word, ids);
  }
}

// Merges the pair of lowest rank, the leftmost one of equals, until there is none. O(bytes^2).
void ByteLevelBpe::MergeByScan(std::string_view word, std::vector<TokenId>* ids) const {
  // Only pairs that a merge changed are looked up again.
  // merge[i] joins symbol i and the next one.
  // Both arrays are on the stack and need no initial values.
  std::array<TokenId, kScannedMax> symbol;
  std::array<PairTable::Merge, kScannedMax> merge;
  std::size_t size = word.size();
  for (std::size_t i = 0; i < size; ++i) {
    symbol[i] = byte_ids_[static_cast<unsigned char>(word[i])];
  }
  for (std::size_t i = 0; i + 1 < size; ++i) merge[i] = merges_.Find(symbol[i], symbol[i + 1]);
  while (size > 1) {
    std::size_t best = 0;
    for (std::size_t i = 1; i + 1 < size; ++i) {
      if (merge[i].rank < merge[best].rank) best = i;
    }
    if (merge[best].rank == PairTable::kNever) break;
    symbol[best] = merge[best].to;
    // Close the gap of the right symbol; the last pair has no merge.
    --size;
    for (std::size_t i = best + 1; i < size; ++i) {
      symbol[i] = symbol[i + 1];
      if (i + 1 < size) merge[i] = merge[i + 1];
    }
    if (best > 0) merge[best - 1] = merges_.Find(symbol[best - 1], symbol[best]);
    if (best + 1 < size) merge[best] = merges_.Find(symbol[best], symbol[best + 1]);
  }
  ids->insert(ids->end(), symbol.begin(), symbol.begin() + std::ptrdiff_t(size));
}

// Merges in the same order with a heap and a linked list. O(bytes log bytes).
void ByteLevelBpe::MergeByHeap(std::string_view word, std::vector<TokenId>* ids) const {
  struct Symbol {
    TokenId id;  // -1: merged into the symbol before it
    std::uint32_t before, after;
  };
  struct Candidate {
    std::uint32_t rank, at;
    bool operator>(const Candidate& other) const {
      return std::pair(rank, at) > std::pair(other.rank, other.at);
    }
  };
  const auto end = std::uint32_t(word.size());
  std::vector<Symbol> symbols;
  for (std::uint32_t i = 0; i < end; ++i) {
    const TokenId id = byte_ids_[static_cast<unsigned char>(word[i])];
    symbols.push_back({id, i == 0 ? end : i - 1, i + 1});
  }
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> heap;
  const auto merge_at = [&](std::uint32_t at) {
    const Symbol& left = symbols[at];
    return left.id < 0 || left.after == end ? PairTable::Merge{}
                                            : merges_.Find(left.id, symbols[left.after].id);
  };
  // Candidates stay in the heap when their pair changes, and are compared when they are taken.
  const auto offer = [&](std::uint32_t at) {
    const PairTable::Merge merge = merge_at(at);
    if (merge.rank != PairTable::kNever) heap.push({merge.rank, at});
  };
  for (std::uint32_t i = 0; i < end; ++i) offer(i);
  while (!heap.empty()) {
    const Candidate best = heap.top();
    heap.pop();
    // A merge of a neighbor since then changed the pair.
    const PairTable::Merge merge = merge_at(best.at);
    if (merge.rank != best.rank) continue;
    Symbol& left = symbols[best.at];
    Symbol& right = symbols[left.after];
    left.id = merge.to;
    right.id = -1;
    left.after = right.after;
    if (left.after != end) symbols[left.after].before = best.at;
    offer(best.at);
    if (left.before != end) offer(left.before);
  }
  // Symbols that are left, in the order of the text.
  for (const Symbol& symbol : symbols) {
    if (symbol.id >= 0) ids->push_back(symbol.id);
  }
}

// Steps: valid UTF-8, normalizer, leading space, words.
void ByteLevelBpe::Encode(std::string_view text, std::vector<TokenId>* ids) const {
  // The prefix makes the first word equal to the same word within a text.
  std::string valid, changed;
  text = ValidUtf8(text, &valid);
  if (!model_.normalizer.empty()) text = changed = model_.normalizer(text);
  if (model_.add_prefix_space && !text.empty() && text[0] != ' ') {
    changed = std::string(" ").append(text);
    text = changed;
  }
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = EndOfGpt2Word(text, begin);
    const std::string_view word = text.substr(begin, end - begin);
    begin = end;
    const TokenId whole = words_.Find(word);
    if (whole >= 0) {
      ids->push_back(whole);
    } else {
      Merge(word, ids);
    }
  }
}

// Splits merges.txt into pairs; a pair is two texts with a space between them.
Result<std::vector<std::pair<std::string, std::string>>> SplitMerges(std::string_view lines) {
  std::vector<std::pair<std::string, std::string>> merges;
  for (std::size_t number = 1; !lines.empty(); ++number) {
    const std::size_t end = std::min(lines.find('\n'), lines.size());
    std::string_view line = lines.substr(0, end);
    lines.remove_prefix(std::min(end + 1, lines.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.starts_with("#version")) continue;
    // A space of the text has another character in the alphabet.
    const std::size_t space = line.find(' ');
    if (space == 0 || space == line.npos || space + 1 == line.size() ||
        line.find(' ', space + 1) != line.npos) {
      return InvalidArgument("merges.txt: line {} is not a pair with one space: {:?}", number,
                             line.substr(0, 80));
    }
    merges.emplace_back(line.substr(0, space), line.substr(space + 1));
  }
  return merges;
}

}  // namespace

// The alternatives of the pattern in their order; a space may precede a run.
std::size_t EndOfGpt2Word(std::string_view text, std::size_t begin) {
  if (const std::size_t bytes = ContractionBytes(text.substr(begin))) return begin + bytes;
  std::size_t run = begin + (text[begin] == ' ' && begin + 1 < text.size());
  std::size_t next = run;
  CharClass found = NextClass(text, &next);
  if (found != CharClass::kSpace) return EndOfRun(text, next, found);
  // The lookahead (?!\S) needs one character after the run.
  // White space: a run before other text leaves its last character to the next word.
  next = begin;
  std::size_t last = begin;
  while (next < text.size()) {
    const std::size_t here = next;
    found = NextClass(text, &next);
    if (found != CharClass::kSpace) return last > begin ? last : here;
    last = here;
  }
  return text.size();
}

// The tables are built after the model has its final place.
Result<std::unique_ptr<Tokenizer>> MakeByteLevelBpe(BpeModel model) {
  auto tokenizer = std::make_unique<ByteLevelBpe>(std::move(model));
  TROOP_RETURN_IF_ERROR(tokenizer->Init());
  return std::unique_ptr<Tokenizer>(std::move(tokenizer));
}

Result<std::unique_ptr<Tokenizer>> MakeByteLevelBpe(std::string_view vocab, std::string_view merges,
                                                    const TokenizerOptions& options) {
  if (options.lowercase.value_or(false)) {
    return InvalidArgument(
        "\"do_lower_case\" is true in tokenizer_config.json, but RoBERTa's tokenizer keeps case; "
        "remove it, or use a tokenizer.json");
  }
  TROOP_ASSIGN_OR_RETURN(const JsonValue json, ParseJson(vocab));
  JsonPieces pieces;
  TROOP_RETURN_IF_ERROR(pieces.AddAll(json));
  BpeModel model{.pair = {.separators = 2, .second_type = 0},
                 .add_prefix_space = options.add_prefix_space.value_or(false)};
  TROOP_ASSIGN_OR_RETURN(model.pieces, pieces.Take());
  const std::pair<const char*, TokenId*> wanted[] = {{"<pad>", &model.special.pad},
                                                     {"<unk>", &model.special.unknown},
                                                     {"<s>", &model.special.begin},
                                                     {"</s>", &model.special.end},
                                                     {"<mask>", &model.special.mask}};
  for (const auto& [text, id] : wanted) {
    TROOP_ASSIGN_OR_RETURN(*id, FindPiece(model.pieces, text));
  }
  TROOP_ASSIGN_OR_RETURN(model.merges, SplitMerges(merges));
  // The fingerprint covers both files and the only option.
  const std::string_view how = model.add_prefix_space ? "bpe prefix" : "bpe";
  for (const std::string_view part : {how, vocab, merges}) {
    model.fingerprint = Crc32c(std::as_bytes(std::span(part)), model.fingerprint);
  }
  return MakeByteLevelBpe(std::move(model));
}

}  // namespace troop
