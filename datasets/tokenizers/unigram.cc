// ALBERT's tokenizer: preprocessing, normalization and the Viterbi search of a unigram model.

#include "datasets/tokenizers/unigram.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/storage/crc32c.h"
#include "datasets/lookup/charsmap.h"
#include "datasets/lookup/piece_trie.h"
#include "datasets/tokenizers/sentencepiece_model.h"
#include "datasets/tokenizers/unicode.h"

namespace troop {
namespace {

constexpr std::string_view kSpaceSymbol = "\xE2\x96\x81";  // U+2581, represents a space
constexpr float kUnknownPenalty = 10;  // below the worst score (SentencePiece, unigram_model.cc)
// Marker in the trie for user-defined pieces; real scores are finite.
constexpr float kUserDefined = std::numeric_limits<float>::infinity();
// Sums are rebased when they exceed this, so that a long text does not exhaust the digits of an f32
// (SentencePiece: kScoreResetThreshold).
constexpr float kSumMax = 100'000;

// Score of a user-defined piece: positive from two bytes on, so that it wins against any split
// (SentencePiece 0.2: GetUserDefinedScore).
float UserDefinedScore(std::size_t bytes) { return float(0.1 * double(bytes - 1)); }

// Length of a UTF-8 character by its lead byte.
std::size_t CharacterBytes(char lead) {
  const auto byte = static_cast<unsigned char>(lead);
  return byte < 0xC0 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
}

// True if all bytes are below 0x80; such text needs no decomposition.
bool IsAscii(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c >= 0; });
}

// str.isspace() for ASCII.
bool IsAsciiSpace(char c) { return c == ' ' || (c >= '\t' && c <= '\r') || (c >= 28 && c <= 31); }

// Normalizes text for the model: maps characters, and spaces to U+2581.
class Normalizer {
 public:
  Normalizer(Charsmap charsmap, PieceTrie user_defined, const SentencePieceModel& model)
      : charsmap_(std::move(charsmap)),
        user_defined_(std::move(user_defined)),
        dummy_prefix_(model.add_dummy_prefix),
        single_spaces_(model.remove_extra_whitespaces),
        space_(model.escape_whitespaces ? kSpaceSymbol : " ") {
    // An ASCII byte is simple if no piece or sequence of the map begins with it before another
    // ASCII byte.
    for (int c = 0; c < 0x80; ++c) {
      const char byte = char(c);
      bool simple = user_defined_.Next(PieceTrie::kRoot, byte) == PieceTrie::kNone;
      for (int next = 0; next < 0x80; ++next) simple &= charsmap_.IsFree(byte, char(next));
      std::size_t length = 0;
      simple &= charsmap_.Match({&byte, 1}, &length).empty() && length == 0 && byte != ' ';
      is_simple_[c] = simple;
    }
  }

  // Maps characters, collapses spaces and adds the dummy prefix, in one pass over `text`.
  std::string operator()(std::string_view text) const {
    std::string out;
    // A space grows from 1 byte to 3; half of the size more is enough for usual text.
    out.reserve(text.size() + text.size() / 2 + 3);
    // Initially true, so that spaces at the beginning are dropped.
    bool space_before = single_spaces_;
    while (!text.empty()) {
      const char c = text[0];
      // Fast path: most characters of English text map to themselves.
      if (c >= 0 && is_simple_[c] && (text.size() == 1 || text[1] >= 0)) {
        if (out.empty() && dummy_prefix_) out += space_;
        out.push_back(c);
        text.remove_prefix(1);
        space_before = false;
        continue;
      }
      std::string_view mapped = TakeFront(&text);
      while (space_before && mapped.starts_with(' ')) mapped.remove_prefix(1);
      if (mapped.empty()) continue;
      if (out.empty() && dummy_prefix_) out += space_;
      for (const char byte : mapped) {
        if (byte == ' ') {
          out += space_;
        } else {
          out.push_back(byte);
        }
      }
      space_before = single_spaces_ && mapped.ends_with(' ');
    }
    while (single_spaces_ && out.ends_with(space_)) out.resize(out.size() - space_.size());
    return out;
  }

 private:
  // Removes a prefix of `*text` and returns its replacement: the longest user-defined piece, else
  // the longest sequence of the map, else one character.
  std::string_view TakeFront(std::string_view* text) const {
    std::size_t length = 0;
    std::int32_t node = PieceTrie::kRoot;
    for (std::size_t i = 0; i < text->size(); ++i) {
      node = user_defined_.Next(node, (*text)[i]);
      if (node == PieceTrie::kNone) break;
      if (user_defined_.value(node) != PieceTrie::kNone) length = i + 1;
    }
    std::string_view mapped = text->substr(0, length);
    if (length == 0) mapped = charsmap_.Match(*text, &length);
    if (length == 0) {
      length = std::min(CharacterBytes(text->front()), text->size());
      mapped = text->substr(0, length);
    }
    text->remove_prefix(length);
    return mapped;
  }

  const Charsmap charsmap_;
  const PieceTrie user_defined_;
  const bool dummy_prefix_, single_spaces_;
  const std::string_view space_;
  std::array<bool, 0x80> is_simple_;  // unchanged before any other ASCII byte
};

// Tokenizer of ALBERT (Kudo 2018, arXiv:1804.10959; SentencePiece: arXiv:1808.06226).
// Immutable after MakeUnigram, so any number of threads may encode at the same time.
class Unigram final : public Tokenizer {
 public:
  Unigram(SentencePieceModel model, const SpecialTokens& special, Normalizer normalizer,
          PieceTrie trie, bool cased)
      : model_(std::move(model)),
        special_(special),
        normalizer_(std::move(normalizer)),
        trie_(std::move(trie)),
        cased_(cased) {
    FindLeastScore();
    FindPiecesToCutAgain();
  }
  void set_fingerprint(std::uint32_t fingerprint) { fingerprint_ = fingerprint; }

  // Encodes, then replaces the pieces that end in a digit and a comma, as AlbertTokenizer does.
  void Encode(std::string_view text, std::vector<TokenId>* ids) const override {
    const std::size_t begin = ids->size();
    EncodePrepared(PrepareForAlbert(text, cased_), ids);
    if (cut_again_.empty()) return;
    // Most texts have few such pieces; a copy is simpler than insertion in place.
    std::vector<TokenId> cut;
    for (std::size_t i = begin; i < ids->size(); ++i) {
      const auto found = std::lower_bound(cut_again_.begin(), cut_again_.end(), (*ids)[i],
                                          [](const auto& c, TokenId id) { return c.first < id; });
      if (found != cut_again_.end() && found->first == (*ids)[i]) {
        cut.insert(cut.end(), found->second.begin(), found->second.end());
      } else {
        cut.push_back((*ids)[i]);
      }
    }
    ids->resize(begin);
    ids->insert(ids->end(), cut.begin(), cut.end());
  }
  std::string_view piece(TokenId id) const override { return model_.pieces[std::size_t(id)].text; }
  int size() const override { return int(model_.pieces.size()); }
  const SpecialTokens& special() const override { return special_; }
  std::uint32_t fingerprint() const override { return fingerprint_; }

 private:
  using Type = SentencePieceModel::Type;
  void FindLeastScore();
  void FindPiecesToCutAgain();
  std::vector<TokenId> CutWithoutComma(std::string_view piece) const;
  TokenId Find(std::string_view piece) const;
  void EncodePrepared(std::string_view text, std::vector<TokenId>* ids) const;

  const SentencePieceModel model_;
  const SpecialTokens special_;
  const Normalizer normalizer_;
  const PieceTrie trie_;
  const bool cased_;
  std::uint32_t fingerprint_ = 0;
  // Least score of the normal pieces, which are log-probabilities.
  float score_min_ = std::numeric_limits<float>::max();
  // Replacements of pieces that are split again, sorted by id.
  std::vector<std::pair<TokenId, std::vector<TokenId>>> cut_again_;
};

// Only normal pieces have trained scores.
void Unigram::FindLeastScore() {
  for (const auto& piece : model_.pieces) {
    if (piece.type == Type::kNormal) score_min_ = std::min(score_min_, piece.score);
  }
}

// Id of a piece with exactly this text, else that of the unknown piece.
TokenId Unigram::Find(std::string_view piece) const {
  std::int32_t node = PieceTrie::kRoot;
  for (const char byte : piece) {
    if ((node = trie_.Next(node, byte)) == PieceTrie::kNone) return special_.unknown;
  }
  const TokenId id = trie_.value(node);
  return id == PieceTrie::kNone ? special_.unknown : id;
}

// Splits "▁9," into "▁9" and ",". A "9," that does not begin a word must not become "▁9". The
// reference does this for each text, but the result depends on the piece alone.
std::vector<TokenId> Unigram::CutWithoutComma(std::string_view piece) const {
  std::string rest(piece.substr(0, piece.size() - 1));
  const bool begins_word = rest.starts_with(kSpaceSymbol);
  for (std::size_t at; (at = rest.find(kSpaceSymbol)) != rest.npos;) {
    rest.erase(at, kSpaceSymbol.size());
  }
  // The symbol is removed everywhere: the encoder adds its own dummy prefix to `rest`.
  std::vector<TokenId> ids;
  EncodePrepared(rest, &ids);
  // Undo that prefix if the piece stands within a word.
  if (!begins_word && !ids.empty()) {
    const std::string_view first = this->piece(ids[0]);
    if (first == kSpaceSymbol) {
      ids.erase(ids.begin());
    } else if (first.starts_with(kSpaceSymbol)) {
      ids[0] = Find(first.substr(kSpaceSymbol.size()));
    }
  }
  ids.push_back(Find(","));
  return ids;
}

// Computes the replacements once, for all normal pieces that end in a digit and a comma.
void Unigram::FindPiecesToCutAgain() {
  for (TokenId id = 0; id < size(); ++id) {
    const std::string_view text = piece(id);
    if (model_.pieces[id].type != Type::kNormal || text.size() < 2 || !text.ends_with(','))
      continue;
    const std::u32string characters = ToUtf32(text);
    if (!(CharFlagsOf(characters[characters.size() - 2]) & kCharDigit)) continue;
    cut_again_.push_back({id, CutWithoutComma(text)});
  }
}

// The best segmentation of the first bytes of a text, up to each end of a character. Sums are f32
// and the first of equal ones wins, as in SentencePiece 0.2.3 (Model::EncodeOptimized).
class BestPaths {
 public:
  struct Step {
    float score = 0;
    std::int32_t begin = -1;  // -1: not reached yet
    TokenId id = 0;
  };
  explicit BestPaths(std::size_t bytes) : steps_(bytes + 1) {}
  const Step& operator[](std::size_t end) const { return steps_[end]; }

  // Score of the best path to `begin`, from which pieces are offered next. A sum that is too large
  // becomes 0; the sums that follow are lowered by as much, so that their order stays.
  float Open(std::size_t begin) {
    const float score = steps_[begin].score;
    if (std::abs(score) <= kSumMax) return score;
    for (std::size_t i = begin; i <= frontier_; ++i) {
      if (i == begin || steps_[i].begin >= 0) steps_[i].score -= score;
    }
    return 0;
  }
  // Offers a path whose last piece covers the bytes from `begin` to `end`.
  void Offer(std::size_t begin, std::size_t end, float score, TokenId id) {
    frontier_ = std::max(frontier_, end);
    if (steps_[end].begin < 0 || score > steps_[end].score) {
      steps_[end] = {score, std::int32_t(begin), id};
    }
  }

 private:
  std::vector<Step> steps_;
  std::size_t frontier_ = 0;  // the farthest end that was offered
};

// Viterbi search: the best path to each character end, from left to right.
void Unigram::EncodePrepared(std::string_view text, std::vector<TokenId>* ids) const {
  // Step 1: normalize. All positions below are bytes of `normal`.
  const std::string normal = normalizer_(text);
  const std::size_t size = normal.size();
  const float unknown_score = score_min_ - kUnknownPenalty;
  BestPaths best(size);
  // Step 2: extend each best path by all pieces that begin at its end. A trie walk finds them.
  for (std::size_t begin = 0; begin < size;) {
    const std::size_t next = std::min(begin + CharacterBytes(normal[begin]), size);
    const float score_here = best.Open(begin);
    bool has_single = false;
    std::int32_t node = PieceTrie::kRoot;
    for (std::size_t i = begin; i < size;) {
      node = trie_.Next(node, normal[i++]);
      if (node == PieceTrie::kNone) break;
      const TokenId id = trie_.value(node);
      if (id == PieceTrie::kNone) continue;
      float score = trie_.weight(node);
      if (score == kUserDefined) score = UserDefinedScore(i - begin);
      best.Offer(begin, i, score + score_here, id);
      has_single |= i == next;
    }
    // Every character must be coverable: as an unknown piece if there is no other.
    if (!has_single) best.Offer(begin, next, unknown_score + score_here, special_.unknown);
    begin = next;
  }
  // Step 3: follow the best path backwards; a run of unknown characters gives one id.
  const std::size_t first = ids->size();
  for (std::size_t end = size; end > 0; end = std::size_t(best[end].begin)) {
    const bool in_a_run = ids->size() > first && ids->back() == special_.unknown;
    if (best[end].id != special_.unknown || !in_a_run) ids->push_back(best[end].id);
  }
  std::reverse(ids->begin() + std::ptrdiff_t(first), ids->end());
}

// Finds the special tokens by their text; the unknown piece has its own type instead.
Result<SpecialTokens> FindSpecial(const SentencePieceModel& model) {
  SpecialTokens special;
  const std::pair<std::string_view, TokenId*> wanted[] = {{"<pad>", &special.pad},
                                                          {"[CLS]", &special.begin},
                                                          {"[SEP]", &special.end},
                                                          {"[MASK]", &special.mask}};
  for (const auto& [text, id] : wanted) {
    const auto found = std::find_if(model.pieces.begin(), model.pieces.end(),
                                    [t = text](const auto& piece) { return piece.text == t; });
    if (found == model.pieces.end()) {
      return InvalidArgument("it has no piece {}; it is not a model of ALBERT", text);
    }
    *id = TokenId(found - model.pieces.begin());
  }
  int unknown = 0;
  for (std::size_t id = 0; id < model.pieces.size(); ++id) {
    if (model.pieces[id].type != SentencePieceModel::Type::kUnknown) continue;
    special.unknown = TokenId(id);
    ++unknown;
  }
  if (unknown != 1) return InvalidArgument("it has {} unknown pieces, must have 1", unknown);
  return special;
}

}  // namespace

// Steps of AlbertTokenizer before SentencePiece: white space, quotes, accents, case.
std::string PrepareForAlbert(std::string_view text, bool cased) {
  std::string bytes;
  std::u32string wide;
  if (!IsAscii(text)) {
    // Unicode white space first; a space that arises only from decomposition is not collapsed.
    for (const char32_t c : ToUtf32(text)) wide.push_back(CharFlagsOf(c) & kCharSpace ? U' ' : c);
    bytes = ToUtf8(wide);
    text = bytes;
  }
  std::string out;
  out.reserve(text.size());
  for (const char c : text) {
    if (IsAsciiSpace(c)) {
      if (!out.empty() && out.back() != ' ') out.push_back(' ');
    } else if ((c == '`' || c == '\'') && out.ends_with(c)) {
      out.back() = '"';
    } else {
      out.push_back(!cased && c >= 'A' && c <= 'Z' ? char(c + 32) : c);
    }
  }
  if (out.ends_with(' ')) out.pop_back();
  // Accents are removed by decomposition; characters with a combining class are the marks.
  if (cased || IsAscii(out)) return out;
  wide = Decompose(ToUtf32(out), Decomposition::kCompatible);
  std::erase_if(wide, [](char32_t c) { return CombiningClass(c) != 0; });
  return ToUtf8(LowerCase(wide));
}

Result<std::unique_ptr<Tokenizer>> MakeUnigram(std::string_view bytes,
                                               const TokenizerOptions& options) {
  using Type = SentencePieceModel::Type;
  TROOP_ASSIGN_OR_RETURN(SentencePieceModel model, ParseSentencePieceModel(bytes));
  TROOP_ASSIGN_OR_RETURN(const SpecialTokens special, FindSpecial(model));
  TROOP_ASSIGN_OR_RETURN(Charsmap charsmap, Charsmap::Make(model.charsmap));
  // User-defined pieces are in both tries: the normalizer must keep their text unchanged.
  std::vector<PieceTrie::Entry> pieces, user_defined;
  for (std::size_t id = 0; id < model.pieces.size(); ++id) {
    // Control and unused pieces are not part of the trie: text never yields them.
    const auto& [text, score, type] = model.pieces[id];
    if (type == Type::kByte)
      return InvalidArgument("piece {} is a byte piece, which is not supported", id);
    if (type == Type::kNormal) pieces.push_back({text, std::int32_t(id), score});
    if (type == Type::kUserDefined) {
      pieces.push_back({text, std::int32_t(id), kUserDefined});
      user_defined.push_back({text, std::int32_t(id)});
    }
  }
  TROOP_ASSIGN_OR_RETURN(PieceTrie trie, PieceTrie::Make(std::move(pieces)));
  TROOP_ASSIGN_OR_RETURN(PieceTrie user_trie, PieceTrie::Make(std::move(user_defined)));
  Normalizer normalizer(std::move(charsmap), std::move(user_trie), model);
  auto tokenizer = std::make_unique<Unigram>(std::move(model), special, std::move(normalizer),
                                             std::move(trie), options.cased);
  // The fingerprint covers the model file, the case setting and the version that is followed, which
  // together decide the ids.
  const std::string_view how =
      options.cased ? "unigram cased SentencePiece 0.2.3" : "unigram SentencePiece 0.2.3";
  // Set after construction, because the constructor takes only the parsed model.
  tokenizer->set_fingerprint(
      Crc32c(std::as_bytes(std::span(bytes)), Crc32c(std::as_bytes(std::span(how)))));
  return std::unique_ptr<Tokenizer>(std::move(tokenizer));
}

}  // namespace troop
