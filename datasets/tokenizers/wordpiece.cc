// BERT's tokenizer: a fast path for ASCII, a reference path for all other text.

#include "datasets/tokenizers/wordpiece.h"

#include <algorithm>
#include <array>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/storage/crc32c.h"
#include "datasets/lookup/piece_trie.h"
#include "datasets/tokenizers/model_tokenizer.h"
#include "datasets/tokenizers/unicode.h"

namespace troop {
namespace {

constexpr std::size_t kWordCharactersMax = 100;  // transformers: max_input_chars_per_word
// Far above any published vocabulary (BERT has about 30,000 pieces); bounds the memory of a bad
// file.
constexpr std::size_t kPiecesMax = 1 << 24;

// Effect of a character on the current word: kAlone is a word by itself, kNothing is skipped, kWide
// switches to the path for non-ASCII text.
enum class Kind : std::uint8_t { kPart, kSpace, kAlone, kNothing, kWide };

// Blocks of ideographs in BERT's tokenizer. The fast one begins the last block 256 characters late
// (tokenizers 0.23.3, normalizers/bert.rs).
bool IsCjk(char32_t c, bool fast) {
  return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) ||
         (c >= 0x20000 && c <= 0x2A6DF) || (c >= 0x2A700 && c <= 0x2B73F) ||
         (c >= 0x2B740 && c <= 0x2B81F) || (c >= (fast ? 0x2B920 : 0x2B820) && c <= 0x2CEAF) ||
         (c >= 0xF900 && c <= 0xFAFF) || (c >= 0x2F800 && c <= 0x2FA1F);
}

bool IsPunctuation(char32_t c) {
  if (c < 0x80) {  // everything but letters, digits, space and control, unlike Unicode's category
    return c > 32 && c < 127 && !(c >= '0' && c <= '9') && !(c >= 'A' && c <= 'Z') &&
           !(c >= 'a' && c <= 'z');
  }
  return CharFlagsOf(c) & kCharPunctuation;
}

// Classifies a character before case folding; punctuation is split later, after accents are
// removed. fast: true for the ids of the fast tokenizer.
Kind KindOf(char32_t c, bool fast) {
  if (c == '\t' || c == '\n' || c == '\r') return Kind::kSpace;
  const std::uint16_t flags = CharFlagsOf(c);
  // An unassigned character may be a letter of a later Unicode: it must not vanish.
  const bool control = flags & kCharControl && !(flags & kCharUnassigned);
  if (c == kReplacementCharacter || control) return Kind::kNothing;
  if (flags & kCharSpace) return Kind::kSpace;
  return IsCjk(c, fast) ? Kind::kAlone : Kind::kPart;
}

// Kinds of single bytes for the fast path. Bytes from 0x80 belong to longer characters and are
// kWide.
std::array<Kind, 256> MakeByteKinds() {
  std::array<Kind, 256> kinds;
  kinds.fill(Kind::kWide);
  for (char32_t c = 0; c < 0x80; ++c) kinds[c] = IsPunctuation(c) ? Kind::kAlone : KindOf(c, false);
  return kinds;
}

// Decomposition turns accents into separate marks.
std::u32string WithoutAccents(std::u32string_view text) {
  std::u32string plain = Decompose(text, Decomposition::kCanonical);
  std::erase_if(plain, [](char32_t c) { return CharFlagsOf(c) & kCharMark; });
  return plain;
}

// Implements the basic tokenizer and WordPiece of BERT (Devlin et al. 2018, arXiv:1810.04805).
// Immutable after MakeTries, so any number of threads may encode at the same time.
class WordPiece final : public ModelTokenizer<WordPieceModel> {
 public:
  explicit WordPiece(WordPieceModel model) : ModelTokenizer(std::move(model)) {}
  // Builds one trie for the beginnings of words and one for their continuations, stored without ##.
  Status MakeTries() {
    std::vector<PieceTrie::Entry> first, later;
    for (std::size_t id = 0; id < model_.pieces.size(); ++id) {
      if (id < model_.never.size() && model_.never[id]) continue;
      const std::string_view piece = model_.pieces[id];
      // A piece with ## may also begin a word, if the text has "##".
      first.push_back({piece, std::int32_t(id)});
      if (piece.starts_with("##") && piece.size() > 2) {
        later.push_back({piece.substr(2), std::int32_t(id)});
      }
    }
    TROOP_ASSIGN_OR_RETURN(first_, PieceTrie::Make(std::move(first)));
    TROOP_ASSIGN_OR_RETURN(later_, PieceTrie::Make(std::move(later)));
    return {};
  }

  void Encode(std::string_view text, std::vector<TokenId>* ids) const override;

 private:
  std::size_t EncodeWide(std::string_view text, std::size_t begin, std::string* word,
                         std::vector<TokenId>* ids) const;
  void EncodeCharacters(std::u32string_view token, std::string* word,
                        std::vector<TokenId>* ids) const;
  std::u32string Normalize(std::u32string_view token) const;
  void EncodeWord(std::string_view word, std::size_t characters, std::vector<TokenId>* ids) const;

  PieceTrie first_, later_;
  const std::array<Kind, 256> byte_kinds_ = MakeByteKinds();
};

// Fast path: classifies each byte with a table and encodes a word at its end, without UTF-32
// copies.
void WordPiece::Encode(std::string_view text, std::vector<TokenId>* ids) const {
  std::string word;
  const auto end_word = [&] {
    if (!word.empty()) EncodeWord(word, word.size(), ids);
    word.clear();
  };
  // A wide character invalidates the ids of the current token, so its start and the id count are
  // kept.
  std::size_t token = 0;  // start of the text after the last white space
  std::size_t ids_before = ids->size();
  for (std::size_t i = 0; i < text.size();) {
    const auto byte = static_cast<unsigned char>(text[i++]);
    switch (byte_kinds_[byte]) {
      case Kind::kPart:
        word.push_back(!model_.lowercase || byte < 'A' || byte > 'Z' ? char(byte)
                                                                     : char(byte + 32));
        break;
      case Kind::kAlone:
        end_word();
        EncodeWord(text.substr(i - 1, 1), 1, ids);
        break;
      case Kind::kNothing:
        break;
      case Kind::kWide:  // case and accents depend on the whole token: redo it
        ids->resize(ids_before);
        i = EncodeWide(text, token, &word, ids);
        word.clear();
        [[fallthrough]];
      case Kind::kSpace:
        end_word();
        token = i;
        ids_before = ids->size();
        break;
    }
  }
  end_word();
}

// Encodes text with non-ASCII characters from `begin` to the next white space and returns the
// position after it. word: scratch.
std::size_t WordPiece::EncodeWide(std::string_view text, std::size_t begin, std::string* word,
                                  std::vector<TokenId>* ids) const {
  std::u32string token;
  std::size_t i = begin;
  while (i < text.size()) {
    const std::size_t at = i;
    const char32_t c = DecodeUtf8(text, &i);
    const Kind kind = KindOf(c, !model_.final_sigma);
    if (kind == Kind::kSpace) {
      i = at;
      break;
    }
    // Control characters do not separate words.
    if (kind == Kind::kNothing) continue;
    if (kind == Kind::kAlone) {
      EncodeCharacters(token, word, ids);
      EncodeCharacters({&c, 1}, word, ids);
      token.clear();
    } else {
      token.push_back(c);
    }
  }
  EncodeCharacters(token, word, ids);
  // Skip the white space.
  if (i < text.size()) DecodeUtf8(text, &i);
  return i;
}

// Folds case and removes accents, which decomposition turns into separate marks.
std::u32string WordPiece::Normalize(std::u32string_view token) const {
  std::u32string plain(token);
  if (model_.final_sigma && model_.lowercase) plain = LowerCase(plain);
  if (model_.strip_accents) plain = WithoutAccents(plain);
  return model_.final_sigma || !model_.lowercase ? plain : LowerCaseOfEach(plain);
}

// Encodes a token without white space: folds case, removes accents, then splits at punctuation.
void WordPiece::EncodeCharacters(std::u32string_view token, std::string* word,
                                 std::vector<TokenId>* ids) const {
  const std::u32string plain = Normalize(token);
  // Counted separately from bytes, because the limit of a word's length is in characters.
  std::size_t characters = 0;
  const auto end_word = [&] {
    if (characters > 0) EncodeWord(*word, characters, ids);
    word->clear();
    characters = 0;
  };
  word->clear();
  for (const char32_t c : plain) {
    const bool alone = IsPunctuation(c);
    if (alone) end_word();
    AppendUtf8(c, word);
    ++characters;
    if (alone) end_word();
  }
  end_word();
}

// Appends the pieces of one word. O(bytes of the word times the longest piece).
void WordPiece::EncodeWord(std::string_view word, std::size_t characters,
                           std::vector<TokenId>* ids) const {
  // Greedy longest match; a word that pieces do not cover becomes one [UNK].
  const std::size_t ids_before = ids->size();
  const PieceTrie* trie = &first_;
  for (std::size_t begin = 0; begin < word.size() && characters <= kWordCharactersMax;) {
    // The walk continues after a match, because a longer piece may follow; the last match is taken.
    TokenId longest = PieceTrie::kNone;
    std::size_t end = begin;
    std::int32_t node = PieceTrie::kRoot;
    for (std::size_t i = begin; i < word.size(); ++i) {
      node = trie->Next(node, word[i]);
      if (node == PieceTrie::kNone) break;
      if (trie->value(node) == PieceTrie::kNone) continue;
      longest = trie->value(node);
      end = i + 1;
    }
    if (longest == PieceTrie::kNone) break;
    ids->push_back(longest);
    if (end == word.size()) return;
    begin = end;
    // Every piece after the first one continues the word.
    trie = &later_;
  }
  ids->resize(ids_before);
  ids->push_back(model_.special.unknown);
}

// Splits vocab.txt into lines; the line number from 0 is the id. Accepts \r\n line ends.
Result<std::vector<std::string>> SplitPieces(std::string_view vocabulary) {
  std::vector<std::string> pieces;
  while (!vocabulary.empty()) {
    const std::size_t end = std::min(vocabulary.find('\n'), vocabulary.size());
    std::string_view line = vocabulary.substr(0, end);
    vocabulary.remove_prefix(std::min(end + 1, vocabulary.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    const std::size_t number = pieces.size() + 1;
    if (!IsUtf8(line)) return InvalidArgument("line {} is not UTF-8", number);
    if (line.empty()) return InvalidArgument("line {} is empty; expected a piece", number);
    if (number > kPiecesMax) return InvalidArgument("it has more than {} lines", kPiecesMax);
    pieces.emplace_back(line);
  }
  return pieces;
}

}  // namespace

// The steps of WordPiece::EncodeWide and Normalize, for a whole text.
std::string NormalizeForWordPiece(std::string_view text, const WordPieceModel& model) {
  std::u32string plain;
  for (const char32_t c : ToUtf32(text)) {
    const Kind kind = KindOf(c, true);
    if (kind == Kind::kNothing) continue;
    // An ideograph is a word by itself.
    if (kind == Kind::kAlone) plain.push_back(U' ');
    plain.push_back(kind == Kind::kSpace ? U' ' : c);
    if (kind == Kind::kAlone) plain.push_back(U' ');
  }
  if (model.strip_accents) plain = WithoutAccents(plain);
  return ToUtf8(model.lowercase ? LowerCaseOfEach(plain) : plain);
}

Result<std::unique_ptr<Tokenizer>> MakeWordPiece(WordPieceModel model) {
  auto tokenizer = std::make_unique<WordPiece>(std::move(model));
  TROOP_RETURN_IF_ERROR(tokenizer->MakeTries());
  return std::unique_ptr<Tokenizer>(std::move(tokenizer));
}

Result<std::unique_ptr<Tokenizer>> MakeWordPiece(std::string_view vocabulary,
                                                 const TokenizerOptions& options) {
  WordPieceModel model{
      .lowercase = !options.cased, .strip_accents = !options.cased, .final_sigma = true};
  TROOP_ASSIGN_OR_RETURN(model.pieces, SplitPieces(vocabulary));
  // Ids of special tokens differ between vocabularies, so they are found by their text.
  // All five are required: a vocabulary without [MASK] cannot be used for pretraining.
  const std::pair<std::string_view, TokenId*> wanted[] = {{"[PAD]", &model.special.pad},
                                                          {"[UNK]", &model.special.unknown},
                                                          {"[CLS]", &model.special.begin},
                                                          {"[SEP]", &model.special.end},
                                                          {"[MASK]", &model.special.mask}};
  for (const auto& [piece, id] : wanted) {
    const auto found = std::find(model.pieces.begin(), model.pieces.end(), piece);
    if (found == model.pieces.end()) {
      return InvalidArgument("it has no line {}; it is not a vocabulary of BERT", piece);
    }
    *id = TokenId(found - model.pieces.begin());
  }
  // The fingerprint covers the case setting and all pieces in order.
  const std::string_view how = options.cased ? "cased" : "uncased";
  model.fingerprint = Crc32c(std::as_bytes(std::span(how)));
  for (const std::string& piece : model.pieces) {
    model.fingerprint = Crc32c(std::as_bytes(std::span(piece)), model.fingerprint);
    model.fingerprint = Crc32c(std::as_bytes(std::span("\n", 1)), model.fingerprint);
  }
  return MakeWordPiece(std::move(model));
}

}  // namespace troop
