// Reads tokenizer.json: added tokens, post-processor, and one of three models.

#include "datasets/tokenizers/tokenizer_json.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/storage/crc32c.h"
#include "core/storage/json.h"
#include "datasets/tokenizers/added_tokens.h"
#include "datasets/tokenizers/byte_level_bpe.h"
#include "datasets/tokenizers/json_pieces.h"
#include "datasets/tokenizers/normalizer_json.h"
#include "datasets/tokenizers/unigram_json.h"
#include "datasets/tokenizers/wordpiece.h"

namespace troop {
namespace {

// Parts of the document that all models have.
struct Document {
  const JsonValue* model = nullptr;
  JsonNormalizer normalizer{};
  JsonPreTokenizer pre_tokenizer{};
  std::vector<AddedToken> added{};
  std::string begin{}, end{};  // texts
  PairFormat pair{};
  std::uint32_t fingerprint = 0;

  // True if texts are searched for added tokens.
  bool has_added() const {
    return std::ranges::any_of(added, [](const AddedToken& token) { return !token.special; });
  }
  // The normalizer of the model; with added tokens it is applied before the model.
  TextNormalizer model_normalizer() const {
    return has_added() ? TextNormalizer() : TextNormalizer(normalizer.steps);
  }
};

// Reads one element of "added_tokens". Missing flags have the defaults of AddedToken in Python.
Result<AddedToken> ParseAddedToken(const JsonValue& json) {
  AddedToken token;
  TROOP_ASSIGN_OR_RETURN(token.content, json.String("content"));
  TROOP_ASSIGN_OR_RETURN(const std::int64_t id, json.Integer("id"));
  if (id < 0 || id > kTokenIdMax) {
    return InvalidArgument("\"added_tokens\" has {:?} with id {}, must be in 0 to {}",
                           token.content, id, kTokenIdMax);
  }
  token.id = TokenId(id);
  TROOP_ASSIGN_OR_RETURN(token.special, json.BooleanOr("special", false));
  TROOP_ASSIGN_OR_RETURN(token.normalized, json.BooleanOr("normalized", !token.special));
  TROOP_ASSIGN_OR_RETURN(token.lstrip, json.BooleanOr("lstrip", false));
  TROOP_ASSIGN_OR_RETURN(token.rstrip, json.BooleanOr("rstrip", false));
  TROOP_ASSIGN_OR_RETURN(token.single_word, json.BooleanOr("single_word", false));
  return token;
}

// Another kind of value is damage: without the list, words would have other ids.
Status ParseAdded(const JsonValue* json, Document* document) {
  if (!IsSet(json)) return Status::Ok();
  if (json->kind != JsonValue::Kind::kArray) return DataLoss("\"added_tokens\" is not a list");
  for (const JsonValue& each : json->array) {
    TROOP_ASSIGN_OR_RETURN(AddedToken token, ParseAddedToken(each));
    document->added.push_back(std::move(token));
  }
  return Status::Ok();
}

// Special tokens that no template places are there for texts, and are found in them.
void FreeTokensWithoutRole(Document* document) {
  constexpr std::array<std::string_view, 10> kRoles = {
      "[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "<pad>", "<unk>", "<s>", "</s>", "<mask>"};
  bool freed = false;
  for (AddedToken& token : document->added) {
    const bool role = std::ranges::find(kRoles, token.content) != kRoles.end() ||
                      token.content == document->begin || token.content == document->end;
    if (!token.special || role) continue;
    token.special = false;
    freed = true;
  }
  // Caches of tokens by earlier versions, which left these to the model, must not match.
  if (freed) document->fingerprint = ~document->fingerprint;
}

// An element of a template: a special token, or one of the two texts.
struct Element {
  std::string name;  // text of the token, "A" or "B"
  bool is_text = false;
  std::int64_t type = 0;
  bool operator==(const Element&) const = default;
};

// key: "single" or "pair".
Result<std::vector<Element>> ParseTemplate(const JsonValue& json, const char* key) {
  const JsonValue* const list = json.Find(key);
  if (list == nullptr || list->kind != JsonValue::Kind::kArray) {
    return DataLoss("TemplateProcessing has no list {:?}", key);
  }
  std::vector<Element> elements;
  for (const JsonValue& each : list->array) {
    // An object with one of two keys.
    const JsonValue* const text = each.Find("Sequence");
    const JsonValue* const token = text != nullptr ? text : each.Find("SpecialToken");
    if (token == nullptr) return DataLoss("{:?} has an element of another kind", key);
    Element element{.is_text = text != nullptr};
    TROOP_ASSIGN_OR_RETURN(element.name, token->String("id"));
    TROOP_ASSIGN_OR_RETURN(element.type, token->Integer("type_id"));
    elements.push_back(std::move(element));
  }
  return elements;
}

// Accepts [CLS] A [SEP] for a text, and [CLS] A [SEP] B [SEP] or [CLS] A [SEP] [SEP] B [SEP] for
// two, with the type 0 up to B.
Status ParseTemplateProcessing(const JsonValue& json, Document* document) {
  TROOP_ASSIGN_OR_RETURN(const std::vector<Element> single, ParseTemplate(json, "single"));
  TROOP_ASSIGN_OR_RETURN(const std::vector<Element> pair, ParseTemplate(json, "pair"));
  const Element a{.name = "A", .is_text = true};
  if (single.size() != 3 || single[0].is_text || single[1] != a || single[2].is_text ||
      single[0].type != 0 || single[2].type != 0) {
    return InvalidArgument(
        "the post-processor TemplateProcessing has another template of a text than begin token, A, "
        "end token with type 0, which is not supported");
  }
  document->begin = single[0].name;
  document->end = single[2].name;
  // Four templates are possible; the one in the document is found by comparison.
  for (const int separators : {1, 2}) {
    for (const std::int32_t type : {0, 1}) {
      std::vector<Element> wanted = {single[0], a};
      wanted.insert(wanted.end(), std::size_t(separators), single[2]);
      wanted.push_back({.name = "B", .is_text = true, .type = type});
      wanted.push_back({.name = document->end, .type = type});
      if (pair != wanted) continue;
      document->pair = {.separators = separators, .second_type = type};
      return Status::Ok();
    }
  }
  return InvalidArgument(
      "the post-processor TemplateProcessing has a template of a pair that is neither BERT's nor "
      "RoBERTa's, which is not supported");
}

// "cls" and "sep" of BertProcessing and RobertaProcessing: a text and an id each.
Result<std::string> TokenOf(const JsonValue& json, const char* key) {
  const JsonValue* const token = json.Find(key);
  if (token != nullptr && token->array.size() == 2 && !token->array[0].string.empty()) {
    return token->array[0].string;
  }
  return DataLoss("{} has no {:?} with a text and an id", TypeOf(json), key);
}

// ByteLevel only moves offsets.
Status ParsePostProcessor(const JsonValue* json, Document* document) {
  for (const JsonValue* const step : StepsOf(json, "processors")) {
    const std::string_view type = TypeOf(*step);
    if (type == "ByteLevel") continue;
    if (!document->begin.empty()) {
      return InvalidArgument("the post-processor {:?} after another one is not supported", type);
    }
    if (type == "TemplateProcessing") {
      TROOP_RETURN_IF_ERROR(ParseTemplateProcessing(*step, document));
    } else if (type == "BertProcessing" || type == "RobertaProcessing") {
      TROOP_ASSIGN_OR_RETURN(document->begin, TokenOf(*step, "cls"));
      TROOP_ASSIGN_OR_RETURN(document->end, TokenOf(*step, "sep"));
      if (type == "RobertaProcessing") document->pair = {.separators = 2, .second_type = 0};
    } else {
      return InvalidArgument("the post-processor {:?} is not supported", type);
    }
  }
  if (!document->begin.empty() && !document->end.empty()) return Status::Ok();
  return InvalidArgument(
      "it has no post-processor that names the begin and end tokens (TemplateProcessing, "
      "BertProcessing or RobertaProcessing)");
}

// Id of the first of some texts that is a piece.
Result<TokenId> FindOne(const std::vector<std::string>& pieces,
                        std::initializer_list<std::string_view> texts) {
  for (const std::string_view text : texts) {
    if (const auto id = FindPiece(pieces, text); id.ok()) return *id;
  }
  return FindPiece(pieces, *texts.begin());
}

// unknown: text of the unknown piece; empty: [UNK] or <unk>.
Result<SpecialTokens> FindSpecial(const Document& document, const std::vector<std::string>& pieces,
                                  std::string_view unknown) {
  SpecialTokens special;
  TROOP_ASSIGN_OR_RETURN(special.begin, FindPiece(pieces, document.begin));
  TROOP_ASSIGN_OR_RETURN(special.end, FindPiece(pieces, document.end));
  TROOP_ASSIGN_OR_RETURN(special.pad, FindOne(pieces, {"[PAD]", "<pad>"}));
  TROOP_ASSIGN_OR_RETURN(special.mask, FindOne(pieces, {"[MASK]", "<mask>"}));
  if (unknown.empty()) {
    TROOP_ASSIGN_OR_RETURN(special.unknown, FindOne(pieces, {"[UNK]", "<unk>"}));
  } else {
    TROOP_ASSIGN_OR_RETURN(special.unknown, FindPiece(pieces, unknown));
  }
  return special;
}

// Pieces of an object of ids and of the added tokens. never: true for those that only the latter
// have, which the model does not yield.
Status ParsePieces(const Document& document, std::vector<std::string>* texts,
                   std::vector<bool>* never) {
  // Added tokens may have ids after the vocabulary, or fill gaps in it.
  JsonPieces pieces;
  const JsonValue* const vocabulary = document.model->Find("vocab");
  if (vocabulary == nullptr) return DataLoss("the model has no \"vocab\"");
  TROOP_RETURN_IF_ERROR(pieces.AddAll(*vocabulary));
  for (const AddedToken& token : document.added) {
    TROOP_RETURN_IF_ERROR(pieces.Add(token.id, token.content));
  }
  TROOP_ASSIGN_OR_RETURN(*texts, pieces.Take());
  never->assign(texts->size(), true);
  for (const auto& [text, id] : vocabulary->object) (*never)[std::size_t(*id.integer)] = false;
  return Status::Ok();
}

// The text of an optional setting; null and missing are empty.
Result<std::string> TextOf(const JsonValue& json, const char* key) {
  if (!IsSet(json.Find(key))) return std::string();
  return json.String(key);
}

// Error of a combination that no supported model has.
Status Unsupported(std::string_view model, std::string_view wanted) {
  return InvalidArgument("the model {} is supported only with {}", model, wanted);
}

// The settings that are compared here have one value in all published files.
Result<std::unique_ptr<Tokenizer>> MakeWordPieceOf(const Document& document) {
  const JsonValue& json = *document.model;
  if (!document.normalizer.bert || !document.pre_tokenizer.bert) {
    return Unsupported("WordPiece", "BertNormalizer and BertPreTokenizer");
  }
  TROOP_ASSIGN_OR_RETURN(const std::string prefix,
                         json.StringOr("continuing_subword_prefix", "##"));
  TROOP_ASSIGN_OR_RETURN(const double most, json.NumberOr("max_input_chars_per_word", 100));
  if (prefix != "##" || most != 100) {
    return Unsupported("WordPiece",
                       "\"continuing_subword_prefix\" ## and \"max_input_chars_per_word\" 100");
  }
  TROOP_ASSIGN_OR_RETURN(const std::string unknown, json.StringOr("unk_token", "[UNK]"));
  WordPieceModel model{.pair = document.pair,
                       .lowercase = document.normalizer.bert->lowercase,
                       .strip_accents = document.normalizer.bert->strip_accents,
                       .fingerprint = document.fingerprint};
  TROOP_RETURN_IF_ERROR(ParsePieces(document, &model.pieces, &model.never));
  TROOP_ASSIGN_OR_RETURN(model.special, FindSpecial(document, model.pieces, unknown));
  return MakeWordPiece(std::move(model));
}

// A merge is a text with a space, or a list of two texts (from tokenizers 0.20 on).
Result<std::pair<std::string, std::string>> ParseMerge(const JsonValue& json, std::size_t number) {
  if (json.array.size() == 2 && !json.array[0].string.empty() && !json.array[1].string.empty()) {
    return std::pair(json.array[0].string, json.array[1].string);
  }
  // Pieces contain no space: the alphabet has another character for it.
  const std::size_t space = json.string.find(' ');
  if (space == json.string.npos) return DataLoss("merge {} is not a pair of texts", number);
  return std::pair(json.string.substr(0, space), json.string.substr(space + 1));
}

// Every byte has a piece, so that settings for unknown characters have no effect.
Result<std::unique_ptr<Tokenizer>> MakeBpeOf(const Document& document) {
  const JsonValue& json = *document.model;
  if (document.normalizer.bert || !document.pre_tokenizer.byte_level) {
    return Unsupported("BPE", "the pre-tokenizer ByteLevel, and without BertNormalizer");
  }
  for (const char* const key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    TROOP_ASSIGN_OR_RETURN(const std::string text, TextOf(json, key));
    if (!text.empty()) return Unsupported("BPE", "an empty \"" + std::string(key) + "\"");
  }
  const JsonValue* const dropout = json.Find("dropout");
  if (IsSet(dropout) && dropout->number != 0) return Unsupported("BPE", "\"dropout\" null");
  BpeModel model{.pair = document.pair,
                 .normalizer = document.model_normalizer(),
                 .fingerprint = document.fingerprint,
                 .add_prefix_space = *document.pre_tokenizer.byte_level};
  TROOP_ASSIGN_OR_RETURN(model.ignore_merges, json.BooleanOr("ignore_merges", false));
  TROOP_RETURN_IF_ERROR(ParsePieces(document, &model.pieces, &model.never));
  TROOP_ASSIGN_OR_RETURN(const std::string unknown, TextOf(json, "unk_token"));
  TROOP_ASSIGN_OR_RETURN(model.special, FindSpecial(document, model.pieces, unknown));
  const JsonValue* const merges = json.Find("merges");
  if (merges == nullptr) return DataLoss("the model has no \"merges\"");
  // Ranks are the positions in the list.
  for (const JsonValue& merge : merges->array) {
    TROOP_ASSIGN_OR_RETURN(auto pair, ParseMerge(merge, model.merges.size() + 1));
    model.merges.push_back(std::move(pair));
  }
  return MakeByteLevelBpe(std::move(model));
}

// The f64 that Hugging Face's tokenizers read for a score. Their parser (serde_json) divides the
// digits as an integer by a power of ten, which rounds twice and may miss the nearest f64 by one
// unit in the last place. That decides between segmentations of equal sums. value: the nearest f64;
// its shortest digits are those in the file.
double ScoreOf(double value) {
  constexpr int kPowerMax = 308;  // of ten, as f64
  char digits[64];
  const auto end =
      std::to_chars(digits, digits + sizeof digits, std::abs(value), std::chars_format::scientific);
  // At most 17 digits, which 64 bits hold.
  std::uint64_t significand = 0;
  int exponent = 0;
  const char* at = digits;
  for (bool fraction = false; at < end.ptr && *at != 'e'; ++at) {
    if (*at == '.') {
      fraction = true;
      continue;
    }
    significand = significand * 10 + std::uint64_t(*at - '0');
    exponent -= fraction;
  }
  int power = 0;
  at += at + 1 < end.ptr && at[1] == '+' ? 2 : 1;  // from_chars accepts no plus sign
  std::from_chars(at, end.ptr, power);
  exponent += power;
  if (std::abs(exponent) > kPowerMax) return value;
  const double scale = std::pow(10.0, std::abs(exponent));
  const double rounded = exponent < 0 ? double(significand) / scale : double(significand) * scale;
  return std::copysign(rounded, value);
}

// Pieces and scores of a unigram model: a list of pairs. Added tokens may follow.
Status ParseUnigramPieces(const Document& document, UnigramModel* model) {
  const JsonValue* const vocabulary = document.model->Find("vocab");
  if (vocabulary == nullptr || vocabulary->array.empty()) {
    return DataLoss("the model has no \"vocab\"");
  }
  JsonPieces pieces;
  for (const JsonValue& piece : vocabulary->array) {
    const auto id = std::int64_t(model->scores.size());
    if (piece.array.size() != 2 || piece.array[1].kind != JsonValue::Kind::kNumber ||
        !std::isfinite(piece.array[1].number)) {
      return DataLoss("piece {} is not a text and a finite score", id);
    }
    TROOP_RETURN_IF_ERROR(pieces.Add(id, piece.array[0].string));
    model->scores.push_back(ScoreOf(piece.array[1].number));
  }
  for (const AddedToken& token : document.added) {
    TROOP_RETURN_IF_ERROR(pieces.Add(token.id, token.content));
  }
  TROOP_ASSIGN_OR_RETURN(model->pieces, pieces.Take());
  // Tokens that are not in the list have no score, and need none.
  model->never.assign(model->scores.size(), false);
  model->never.resize(model->pieces.size(), true);
  model->scores.resize(model->pieces.size(), 0);
  for (const AddedToken& token : document.added) {
    if (token.special) model->never[std::size_t(token.id)] = true;
  }
  return Status::Ok();
}

// The unknown piece is found by its id; its text in a text is plain text.
Result<std::unique_ptr<Tokenizer>> MakeUnigramOf(const Document& document) {
  const JsonValue& json = *document.model;
  if (document.normalizer.bert || !document.pre_tokenizer.metaspace) {
    return Unsupported("Unigram", "the pre-tokenizer Metaspace, and without BertNormalizer");
  }
  TROOP_ASSIGN_OR_RETURN(const bool fallback, json.BooleanOr("byte_fallback", false));
  if (fallback) return Unsupported("Unigram", "\"byte_fallback\" false");
  // After the search for added tokens, the place of a part in its text is not known.
  if (document.has_added() && document.pre_tokenizer.metaspace->first_only) {
    return Unsupported("Unigram",
                       "\"prepend_scheme\" \"always\" or \"never\" if it has added tokens");
  }
  UnigramModel model{.pair = document.pair,
                     .normalizer = document.model_normalizer(),
                     .split_white_space = document.pre_tokenizer.white_space,
                     .prepend = document.pre_tokenizer.metaspace->prepend,
                     .split = document.pre_tokenizer.metaspace->split,
                     .fingerprint = document.fingerprint};
  TROOP_RETURN_IF_ERROR(ParseUnigramPieces(document, &model));
  TROOP_ASSIGN_OR_RETURN(const std::int64_t unknown, json.Integer("unk_id"));
  if (unknown < 0 || unknown >= std::int64_t(model.pieces.size())) {
    return InvalidArgument("\"unk_id\" is {}, must be the id of a piece (0 to {})", unknown,
                           model.pieces.size() - 1);
  }
  model.never[std::size_t(unknown)] = true;
  TROOP_ASSIGN_OR_RETURN(model.special,
                         FindSpecial(document, model.pieces, model.pieces[std::size_t(unknown)]));
  return MakeUnigramJson(std::move(model));
}

// Compares the settings of tokenizer_config.json with those of the document.
Status CheckOptions(const Document& document, const TokenizerOptions& options) {
  const bool lowercase = document.normalizer.lowercases();
  if (options.lowercase.value_or(lowercase) != lowercase) {
    return InvalidArgument("\"do_lower_case\" is {} in tokenizer_config.json, but {} in this file",
                           *options.lowercase, lowercase);
  }
  // A model without such a setting has no conflict.
  const auto& [bert, white_space, metaspace, byte_level] = document.pre_tokenizer;
  std::optional<bool> prefix = byte_level;
  if (metaspace) prefix = metaspace->prepend;
  if (!prefix || options.add_prefix_space.value_or(*prefix) == *prefix) return Status::Ok();
  return InvalidArgument("\"add_prefix_space\" is {} in tokenizer_config.json, but {} in this file",
                         *options.add_prefix_space, *prefix);
}

// The normalizer of a file with added tokens; null: there is none.
Normalize NormalizeOf(const Document& document) {
  if (!document.normalizer.bert) {
    if (document.normalizer.steps.empty()) return nullptr;
    return TextNormalizer(document.normalizer.steps);
  }
  // The model normalizes again, which changes nothing.
  const WordPieceModel flags{.lowercase = document.normalizer.bert->lowercase,
                             .strip_accents = document.normalizer.bert->strip_accents};
  return [flags](std::string_view text) { return NormalizeForWordPiece(text, flags); };
}

// Makes the model of a document, without added tokens.
Result<std::unique_ptr<Tokenizer>> MakeModelOf(const Document& document) {
  // Old files have no type: the keys of the model tell them apart.
  // RoBERTa's published file is one of them.
  std::string_view type = TypeOf(*document.model);
  if (type.empty() && document.model->Find("merges") != nullptr) type = "BPE";
  if (type.empty() && document.model->Find("unk_id") != nullptr) type = "Unigram";
  if (type.empty() && document.model->Find("max_input_chars_per_word") != nullptr) {
    type = "WordPiece";
  }
  if (type == "WordPiece") return MakeWordPieceOf(document);
  if (type == "BPE") return MakeBpeOf(document);
  if (type == "Unigram") return MakeUnigramOf(document);
  return InvalidArgument("the model {:?} is not supported (WordPiece, Unigram and BPE are)", type);
}

}  // namespace

// Steps: components in the order of their use, checks against the settings, the model.
Result<std::unique_ptr<Tokenizer>> MakeTokenizerJson(std::string_view text,
                                                     const TokenizerOptions& options) {
  TROOP_ASSIGN_OR_RETURN(const JsonValue json, ParseJson(text));
  Document document{.model = json.Find("model"),
                    .fingerprint = Crc32c(std::as_bytes(std::span(text)))};
  if (document.model == nullptr || document.model->kind != JsonValue::Kind::kObject) {
    return DataLoss("it has no \"model\": it is not a file of Hugging Face's tokenizers");
  }
  TROOP_ASSIGN_OR_RETURN(document.normalizer, ParseNormalizer(json.Find("normalizer")));
  TROOP_ASSIGN_OR_RETURN(document.pre_tokenizer, ParsePreTokenizer(json.Find("pre_tokenizer")));
  TROOP_RETURN_IF_ERROR(ParseAdded(json.Find("added_tokens"), &document));
  TROOP_RETURN_IF_ERROR(ParsePostProcessor(json.Find("post_processor"), &document));
  FreeTokensWithoutRole(&document);
  TROOP_RETURN_IF_ERROR(CheckOptions(document, options));
  TROOP_ASSIGN_OR_RETURN(std::unique_ptr<Tokenizer> model, MakeModelOf(document));
  if (!document.has_added()) return model;
  return WithAddedTokens(std::move(model), document.added, NormalizeOf(document));
}

}  // namespace troop
