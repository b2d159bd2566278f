// Finds added tokens in texts, and gives the rest to a model.

#include "datasets/tokenizers/added_tokens.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "datasets/lookup/piece_trie.h"
#include "datasets/tokenizers/text_normalizer.h"
#include "datasets/tokenizers/unicode.h"

namespace troop {
namespace {

constexpr TokenId kText = -1;  // a part of a text between added tokens

// Beginning of the last character; its bytes after the first one are 10xxxxxx.
std::size_t LastCharacter(std::string_view text) {
  std::size_t begin = text.size() - 1;
  while (begin > 0 && (static_cast<unsigned char>(text[begin]) & 0xC0) == 0x80) --begin;
  return begin;
}

bool BeginsWithWord(std::string_view text) {
  std::size_t at = 0;
  return !text.empty() && CharFlagsOf(DecodeUtf8(text, &at)) & kCharWord;
}

bool EndsWithWord(std::string_view text) {
  return !text.empty() && BeginsWithWord(text.substr(LastCharacter(text)));
}

// Begin of the white space at the end of the text, not before `least`.
std::size_t BeginOfSpace(std::string_view text, std::size_t least) {
  while (text.size() > least) {
    const std::size_t begin = LastCharacter(text);
    std::size_t at = begin;
    if (!IsWhiteSpace(DecodeUtf8(text, &at))) break;
    text = text.substr(0, begin);
  }
  return text.size();
}

// End of the white space at `begin`.
std::size_t EndOfSpace(std::string_view text, std::size_t begin) {
  for (std::size_t next = begin; next < text.size(); begin = next) {
    if (!IsWhiteSpace(DecodeUtf8(text, &next))) break;
  }
  return begin;
}

// Immutable, so any number of threads may encode at the same time.
class AddedTokenizer final : public Tokenizer {
 public:
  AddedTokenizer(std::unique_ptr<Tokenizer> model, std::vector<AddedToken> tokens,
                 Normalize normalize)
      : model_(std::move(model)), tokens_(std::move(tokens)), normalize_(std::move(normalize)) {}
  // Builds the tries. Errors: those of WithAddedTokens.
  Status Init();

  void Encode(std::string_view text, std::vector<TokenId>* ids) const override;
  std::string_view piece(TokenId id) const override { return model_->piece(id); }
  int size() const override { return model_->size(); }
  const SpecialTokens& special() const override { return model_->special(); }
  PairFormat pair_format() const override { return model_->pair_format(); }
  // Few tokens are added, and they are looked up when a model is opened.
  const AddedToken* FindAdded(std::string_view text) const override {
    const auto it = std::ranges::find_if(
        tokens_, [&](const AddedToken& token) { return !token.special && token.content == text; });
    return it == tokens_.end() ? nullptr : &*it;
  }
  std::uint32_t fingerprint() const override { return model_->fingerprint(); }

 private:
  template <class Emit>
  void Split(std::string_view text, const PieceTrie& trie, const Emit& emit) const;
  std::int32_t Longest(std::string_view text, const PieceTrie& trie, std::size_t* bytes) const;

  const std::unique_ptr<const Tokenizer> model_;
  const std::vector<AddedToken> tokens_;
  const Normalize normalize_;
  // Values are indices of tokens_. The second trie has the normalized texts.
  PieceTrie raw_, normalized_;
};

Status AddedTokenizer::Init() {
  std::vector<std::string> texts;
  for (const AddedToken& token : tokens_) {
    const bool change = token.normalized && normalize_;
    texts.push_back(change ? normalize_(token.content) : token.content);
    if (!texts.back().empty()) continue;
    return InvalidArgument("the added token {:?} is empty after the normalizer", token.content);
  }
  // Equal texts and long ones are errors of the trie, which names tokens by their index.
  std::vector<PieceTrie::Entry> raw, normalized;
  for (std::size_t i = 0; i < tokens_.size(); ++i) {
    (tokens_[i].normalized ? normalized : raw).push_back({texts[i], std::int32_t(i)});
  }
  Result<PieceTrie> first = PieceTrie::Make(std::move(raw));
  if (!first.ok()) return first.status().WithContext("\"added_tokens\"");
  Result<PieceTrie> second = PieceTrie::Make(std::move(normalized));
  if (!second.ok()) return second.status().WithContext("\"added_tokens\"");
  raw_ = *std::move(first);
  normalized_ = *std::move(second);
  return Status::Ok();
}

// Index of the longest token that the text begins with, or kNone.
std::int32_t AddedTokenizer::Longest(std::string_view text, const PieceTrie& trie,
                                     std::size_t* bytes) const {
  std::int32_t found = PieceTrie::kNone, node = PieceTrie::kRoot;
  for (std::size_t i = 0; i < text.size(); ++i) {
    node = trie.Next(node, text[i]);
    if (node == PieceTrie::kNone) break;
    if (trie.value(node) == PieceTrie::kNone) continue;
    found = trie.value(node);
    *bytes = i + 1;
  }
  return found;
}

// Calls emit(part, id) for the parts of a text in order; kText is the id of what is left.
template <class Emit>
void AddedTokenizer::Split(std::string_view text, const PieceTrie& trie, const Emit& emit) const {
  std::size_t done = 0;       // end of the last token with its white space
  std::size_t space_end = 0;  // end of the last run of white space; bounds the time
  for (std::size_t at = 0; at < text.size();) {
    std::size_t bytes = 0;
    const std::int32_t index = Longest(text.substr(at), trie, &bytes);
    std::size_t begin = at, end = at + bytes;
    // A token that is found and not taken still hides those that begin inside it.
    at = index == PieceTrie::kNone ? at + 1 : end;
    if (index == PieceTrie::kNone) continue;
    const AddedToken& token = tokens_[std::size_t(index)];
    if (token.special) continue;
    const bool in_word = EndsWithWord(text.substr(0, begin)) || BeginsWithWord(text.substr(end));
    if (token.single_word && in_word) continue;
    if (token.lstrip) begin = std::max(BeginOfSpace(text.substr(0, begin), done), done);
    if (token.rstrip) {
      if (end >= space_end) space_end = EndOfSpace(text, end);
      end = space_end;
    }
    if (done < begin) emit(text.substr(done, begin - done), kText);
    emit(text.substr(begin, end - begin), token.id);
    done = end;
  }
  if (done != text.size()) emit(text.substr(done), kText);
}

// Steps: tokens of the text, normalizer, tokens of the normalized text, model.
void AddedTokenizer::Encode(std::string_view text, std::vector<TokenId>* ids) const {
  std::string valid, normal;
  const auto encode = [&](std::string_view part, TokenId id) {
    if (id != kText) {
      ids->push_back(id);
    } else {
      model_->Encode(part, ids);
    }
  };
  Split(ValidUtf8(text, &valid), raw_, [&](std::string_view part, TokenId id) {
    if (id != kText) return encode(part, id);
    if (normalize_) part = normal = normalize_(part);
    Split(part, normalized_, encode);
  });
}

}  // namespace

// A file whose added tokens are all special needs no search.
Result<std::unique_ptr<Tokenizer>> WithAddedTokens(std::unique_ptr<Tokenizer> model,
                                                   std::vector<AddedToken> tokens,
                                                   Normalize normalize) {
  auto made =
      std::make_unique<AddedTokenizer>(std::move(model), std::move(tokens), std::move(normalize));
  TROOP_RETURN_IF_ERROR(made->Init());
  return std::unique_ptr<Tokenizer>(std::move(made));
}

}  // namespace troop
