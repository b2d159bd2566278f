// Implements the checks of Hugging Face's tokenizer settings.

#include "learners/supervised/tokenizer_settings.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/log.h"
#include "core/config/enum_format.h"
#include "core/storage/json.h"
#include "core/storage/read_file.h"
#include "datasets/tokenizers/added_tokens.h"

namespace troop {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kSettingsBytesMax = std::size_t{1}
                                          << 20;  // bounds the read of a damaged file

// Special pieces of the kinds of vocabularies (BERT, ALBERT and RoBERTa).
constexpr std::array<std::string_view, 10> kSpecial = {
    "[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "<pad>", "<unk>", "<s>", "</s>", "<mask>"};
constexpr std::size_t kVocabularyBytesMax = std::size_t{256} << 20;  // as MakeTokenizer

bool IsSpecial(std::string_view piece) {
  return std::ranges::find(kSpecial, piece) != kSpecial.end();
}

// A setting that is null counts as missing, as in transformers.
bool IsGiven(const JsonValue* value) {
  return value != nullptr && value->kind != JsonValue::Kind::kNull;
}

// missing: the result if the key is absent.
Result<bool> ReadFlag(const JsonValue& json, const char* key, bool missing) {
  const JsonValue* const value = json.Find(key);
  if (!IsGiven(value)) return missing;
  if (value->kind == JsonValue::Kind::kBool) return value->boolean;
  return DataLoss("\"{}\" is neither true nor false", key);
}

// Settings for which only one value is supported.
Status CheckFixed(const JsonValue& json) {
  constexpr std::pair<const char*, bool> kFlags[] = {
      {"tokenize_chinese_chars", true}, {"do_basic_tokenize", true},
      {"do_split_on_punc", true},       {"clean_text", true},
      {"keep_accents", false},          {"remove_space", true}};
  for (const auto& [key, supported] : kFlags) {
    TROOP_ASSIGN_OR_RETURN(const bool value, ReadFlag(json, key, supported));
    if (value == supported) continue;
    return InvalidArgument("\"{}\" is {}: only {} is supported", key, value, supported);
  }
  // These are supported only if they are empty.
  for (const char* const key : {"never_split", "sp_model_kwargs", "auto_map", "word_tokenizer_type",
                                "subword_tokenizer_type"}) {
    const JsonValue* const value = json.Find(key);
    if (!IsGiven(value)) continue;
    const bool scalar =
        value->kind == JsonValue::Kind::kNumber || value->kind == JsonValue::Kind::kBool;
    if (!scalar && value->array.empty() && value->object.empty() && value->string.empty()) continue;
    return InvalidArgument("\"{}\" is not supported: it changes the tokens", key);
  }
  const JsonValue* const prefix = json.Find("wordpieces_prefix");
  if (!IsGiven(prefix) || prefix->string == "##") return Status::Ok();
  return InvalidArgument("\"wordpieces_prefix\" is \"{}\": only ## is supported", prefix->string);
}

// Classes of the package transformers that split text as BERT's, ALBERT's or RoBERTa's do.
Status CheckClass(const JsonValue& json) {
  const JsonValue* const given = json.Find("tokenizer_class");
  if (!IsGiven(given)) return Status::Ok();
  std::string_view name = given->string;
  // The fast classes give the same tokens.
  if (name.ends_with("Fast")) name.remove_suffix(4);
  for (const std::string_view known :
       {"BertTokenizer", "AlbertTokenizer", "DistilBertTokenizer", "ElectraTokenizer",
        "MobileBertTokenizer", "RobertaTokenizer", "XLMRobertaTokenizer", "PreTrainedTokenizer",
        "TokenizersBackend"}) {
    if (name == known) return Status::Ok();
  }
  return InvalidArgument(
      "\"tokenizer_class\" is \"{}\": only BertTokenizer, AlbertTokenizer, RobertaTokenizer and "
      "equivalent tokenizers are supported",
      given->string);
}

// A token is a string, or an object whose "content" is the text.
std::string_view ContentOf(const JsonValue& token) {
  const JsonValue* const content = token.Find("content");
  return content != nullptr ? content->string : token.string;
}

// Names of the special tokens. A vocabulary without names in the file has BERT's, ALBERT's or
// RoBERTa's; OpenVocabulary compares those of a tokenizer.json.
Status CheckSpecialTokens(const JsonValue& json, VocabularyKind kind, TokenizerSettings* settings) {
  struct Name {
    const char* key;
    std::string_view bert, roberta;
  };
  constexpr Name kNames[] = {{"cls_token", "[CLS]", "<s>"},
                             {"sep_token", "[SEP]", "</s>"},
                             {"mask_token", "[MASK]", "<mask>"},
                             {"unk_token", "[UNK]", "<unk>"},
                             {"pad_token", "[PAD]", "<pad>"}};
  for (const auto& [key, bert, roberta] : kNames) {
    const JsonValue* const token = json.Find(key);
    if (!IsGiven(token)) continue;
    const std::string_view name = ContentOf(*token);
    // ALBERT's unknown and padding tokens have RoBERTa's names.
    const bool either =
        kind == VocabularyKind::kTokenizerJson || bert == "[UNK]" || bert == "[PAD]";
    const std::string_view wanted = kind == VocabularyKind::kBpe ? roberta : bert;
    if (name != wanted && !(either && (name == bert || name == roberta))) {
      return InvalidArgument("\"{}\" is \"{}\": only {} is supported", key, name, wanted);
    }
    settings->names[key] = name;
  }
  return Status::Ok();
}

// Takes over a token without a role. Only a tokenizer.json can have it: its place in texts depends
// on flags that the other files do not have.
Status DeclareToken(DeclaredToken token, VocabularyKind kind, TokenizerSettings* settings) {
  if (IsSpecial(token.content)) return Status::Ok();
  if (kind != VocabularyKind::kTokenizerJson) {
    return InvalidArgument(
        "the token \"{}\" is added to the vocabulary, which is only supported in a tokenizer.json; "
        "write that file with transformers (save_pretrained) and set data.vocabulary to it",
        token.content);
  }
  settings->added.push_back(std::move(token));
  return Status::Ok();
}

// Reads the flags of an object; a token without them is a string.
Result<DeclaredToken> ParseToken(const JsonValue& json) {
  DeclaredToken token{.content = std::string(ContentOf(json))};
  if (token.content.empty()) return DataLoss("an added token is neither a text nor an object");
  for (const auto& [key, flag] : {std::pair("lstrip", &token.lstrip),
                                  {"rstrip", &token.rstrip},
                                  {"normalized", &token.normalized},
                                  {"single_word", &token.single_word}}) {
    if (!IsGiven(json.Find(key))) continue;
    TROOP_ASSIGN_OR_RETURN(*flag, ReadFlag(json, key, false));
  }
  return token;
}

// Tokens besides those with roles: lists, or objects by id ("added_tokens_decoder") or by name
// (other keys). transformers 5 lists all added tokens as "extra_special_tokens".
Status ReadAddedTokens(const JsonValue& json, VocabularyKind kind, TokenizerSettings* settings) {
  for (const char* const key :
       {"additional_special_tokens", "extra_special_tokens", "added_tokens_decoder"}) {
    const JsonValue* const list = json.Find(key);
    if (!IsGiven(list)) continue;
    const bool ids = std::string_view(key) == "added_tokens_decoder";
    const bool object = list->kind == JsonValue::Kind::kObject;
    if (!object && (ids || list->kind != JsonValue::Kind::kArray))
      return DataLoss("\"{}\" is not {}", key, ids ? "an object" : "a list");
    for (const JsonValue& each : list->array) {
      TROOP_ASSIGN_OR_RETURN(DeclaredToken token, ParseToken(each));
      TROOP_RETURN_IF_ERROR(DeclareToken(std::move(token), kind, settings).WithContext(key));
    }
    // The keys of the object are ids, or names such as "image_token".
    for (const auto& [name, each] : list->object) {
      TROOP_ASSIGN_OR_RETURN(DeclaredToken token, ParseToken(each));
      if (ids) {
        std::int64_t id = -1;
        const char* const end = name.data() + name.size();
        const auto [at, error] = std::from_chars(name.data(), end, id);
        if (error != std::errc() || at != end)
          return DataLoss("\"{}\" has \"{}\", must be an id", key, name);
        token.id = id;
      }
      TROOP_RETURN_IF_ERROR(DeclareToken(std::move(token), kind, settings).WithContext(key));
    }
  }
  return Status::Ok();
}

// Columns of the texts that the model was trained on.
Status ReadTextColumns(const JsonValue& json, std::vector<std::string>* columns) {
  const JsonValue* const given = json.Find("text_columns");
  if (!IsGiven(given)) return Status::Ok();
  for (const JsonValue& name : given->array) columns->push_back(name.string);
  const std::size_t count = columns->size();
  if ((count == 1 || count == 2) && std::ranges::count(*columns, "") == 0) return Status::Ok();
  return InvalidArgument("\"text_columns\" must be a list of one or two names");
}

// Keys that do not affect tokens are ignored. settings: with the names of other files.
Result<TokenizerSettings> ParseSettings(const JsonValue& json, VocabularyKind kind,
                                        TokenizerSettings settings) {
  TROOP_RETURN_IF_ERROR(CheckFixed(json));
  TROOP_RETURN_IF_ERROR(CheckClass(json));
  TROOP_RETURN_IF_ERROR(CheckSpecialTokens(json, kind, &settings));
  TROOP_RETURN_IF_ERROR(ReadAddedTokens(json, kind, &settings));
  TROOP_ASSIGN_OR_RETURN(const bool lower, ReadFlag(json, "do_lower_case", true));
  settings.cased = !lower;
  if (IsGiven(json.Find("do_lower_case"))) settings.lowercase = lower;
  if (IsGiven(json.Find("add_prefix_space"))) {
    TROOP_ASSIGN_OR_RETURN(settings.add_prefix_space, ReadFlag(json, "add_prefix_space", false));
  }
  // By default accents are stripped if text is lower-cased.
  TROOP_ASSIGN_OR_RETURN(const bool strip, ReadFlag(json, "strip_accents", lower));
  if (strip != lower) {
    return InvalidArgument("\"strip_accents\" is {}, must equal \"do_lower_case\"", strip);
  }
  // transformers writes 10^30 for "no limit", which is not an integer here.
  const JsonValue* const most = json.Find("model_max_length");
  if (IsGiven(most) && most->kind != JsonValue::Kind::kNumber)
    return DataLoss("\"model_max_length\" is not a number");
  if (IsGiven(most) && most->integer) settings.max_length = *most->integer;
  TROOP_RETURN_IF_ERROR(ReadTextColumns(json, &settings.text_columns));
  const JsonValue* const side = json.Find("truncation_side");
  if (!IsGiven(side)) return settings;
  if (side->string != "left" && side->string != "right") {
    return InvalidArgument("\"truncation_side\" is \"{}\", must be \"left\" or \"right\"",
                           side->string);
  }
  settings.side = side->string == "left" ? TruncationSide::kLeft : TruncationSide::kRight;
  return settings;
}

// Parses a JSON file; nullopt: the file does not exist.
Result<std::optional<JsonValue>> ReadDocument(const std::string& path) {
  std::error_code error;
  if (!fs::exists(path, error)) return std::optional<JsonValue>();
  TROOP_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kSettingsBytesMax));
  Result<JsonValue> json = ParseJson(text);
  if (!json.ok()) return json.status().WithContext(path);
  return std::optional(*std::move(json));
}

// added_tokens.json maps each token to its id.
Status ReadAddedFile(const JsonValue& json, VocabularyKind kind, TokenizerSettings* settings) {
  for (const auto& [token, id] : json.object) {
    if (!id.integer) return DataLoss("the id of \"{}\" is not a whole number", token);
    TROOP_RETURN_IF_ERROR(DeclareToken({.content = token, .id = id.integer}, kind, settings));
  }
  return Status::Ok();
}

// special_tokens_map.json has names, and lists of other special tokens.
Status ReadMapFile(const JsonValue& json, VocabularyKind kind, TokenizerSettings* settings) {
  TROOP_RETURN_IF_ERROR(CheckSpecialTokens(json, kind, settings));
  return ReadAddedTokens(json, kind, settings);
}

// Compares the tokens of the files with those of a tokenizer.json, which determines the ids: others
// would get new ids in transformers, or be found elsewhere in a text.
Status CheckDeclared(const std::vector<DeclaredToken>& declared, const Tokenizer& tokenizer) {
  const auto same = [](const auto& stated, auto value) { return !stated || *stated == value; };
  for (const DeclaredToken& token : declared) {
    const AddedToken* const found = tokenizer.FindAdded(token.content);
    if (found != nullptr && same(token.id, found->id) && same(token.lstrip, found->lstrip) &&
        same(token.rstrip, found->rstrip) && same(token.normalized, found->normalized) &&
        same(token.single_word, found->single_word)) {
      continue;
    }
    return InvalidArgument(
        "the token \"{}\" of the files next to it is not among its \"added_tokens\"{}; they belong "
        "to different models",
        token.content, found == nullptr ? "" : " with the same id and flags");
  }
  return Status::Ok();
}

// Compares a config with the settings in `path`.
Status CheckAgainst(const DataConfig& data, const TokenizerSettings& settings,
                    const std::string& path) {
  if (HasCaseOption(VocabularyKindOf(data.vocabulary)) && data.cased != settings.cased) {
    return InvalidArgument(
        "data.cased is {}, but \"do_lower_case\" is {} in {}; set data.cased = {}", data.cased,
        !settings.cased, path, settings.cased);
  }
  if (data.max_length > settings.max_length) {
    LogWarning("data.max_length is {}, more than \"model_max_length\" ({}) in {}", data.max_length,
               settings.max_length, path);
  }
  if (settings.side == TruncationSide::kLeft && data.truncation_side != TruncationSide::kLeft) {
    return InvalidArgument(
        "data.truncation_side is \"{}\", but \"truncation_side\" is \"left\" in {}; set \"left\", "
        "or "
        "remove it from the file",
        data.truncation_side, path);
  }
  return Status::Ok();
}

// Keys of tokenizer_config.json with the special pieces of a vocabulary.
// In the order in which they are written.
std::vector<std::pair<std::string, std::string_view>> NamesOf(const Tokenizer& tokenizer) {
  const SpecialTokens& special = tokenizer.special();
  return {{"unk_token", tokenizer.piece(special.unknown)},
          {"cls_token", tokenizer.piece(special.begin)},
          {"sep_token", tokenizer.piece(special.end)},
          {"pad_token", tokenizer.piece(special.pad)},
          {"mask_token", tokenizer.piece(special.mask)}};
}

}  // namespace

// The other two files are checked even without a tokenizer_config.json.
Result<std::optional<TokenizerSettings>> ReadTokenizerSettings(const std::string& folder,
                                                               VocabularyKind kind) {
  const std::string path = (fs::path(folder) / "tokenizer_config.json").string();
  TokenizerSettings names;
  for (const auto& [name, check] : {std::pair("special_tokens_map.json", &ReadMapFile),
                                    std::pair("added_tokens.json", &ReadAddedFile)}) {
    const std::string other = (fs::path(folder) / name).string();
    TROOP_ASSIGN_OR_RETURN(const auto json, ReadDocument(other));
    if (json) TROOP_RETURN_IF_ERROR(check(*json, kind, &names).WithContext(other));
  }
  TROOP_ASSIGN_OR_RETURN(const auto json, ReadDocument(path));
  const bool stated = !names.names.empty() || !names.added.empty();
  if (!json && kind == VocabularyKind::kTokenizerJson && stated) {
    return std::optional(std::move(names));
  }
  if (!json) return std::optional<TokenizerSettings>();
  Result<TokenizerSettings> settings = ParseSettings(*json, kind, std::move(names));
  if (!settings.ok()) return settings.status().WithContext(path);
  return std::optional(*settings);
}

// A missing tokenizer_config.json gives the defaults of transformers.
Result<std::unique_ptr<Tokenizer>> OpenVocabulary(const std::string& path, bool cased) {
  const VocabularyKind kind = VocabularyKindOf(path);
  TROOP_ASSIGN_OR_RETURN(const auto read,
                         ReadTokenizerSettings(fs::path(path).parent_path().string(), kind));
  const TokenizerSettings settings = read.value_or(TokenizerSettings());
  TokenizerOptions options{.cased = cased};
  if (!HasCaseOption(kind)) {
    options.lowercase = settings.lowercase;
    options.add_prefix_space = settings.add_prefix_space;
  }
  TROOP_ASSIGN_OR_RETURN(std::unique_ptr<Tokenizer> tokenizer, MakeTokenizer(path, options));
  for (const auto& [key, piece] : NamesOf(*tokenizer)) {
    const auto found = settings.names.find(key);
    if (found == settings.names.end() || found->second == piece) continue;
    return InvalidArgument(
        "{}: its {} is \"{}\", but \"{}\" in tokenizer_config.json next to it; they belong to "
        "different models",
        path, key, piece, found->second);
  }
  TROOP_RETURN_IF_ERROR(CheckDeclared(settings.added, *tokenizer).WithContext(path));
  return tokenizer;
}

// Keys of tokenizer_config.json by the kind of vocabulary.
Status WriteTokenizer(const DataConfig& data, const std::string& folder, Storage* run) {
  const VocabularyKind kind = VocabularyKindOf(data.vocabulary);
  // Files are copied as they are, so that their checksums stay.
  const auto copy = [&](const fs::path& from, const char* name) -> Status {
    TROOP_ASSIGN_OR_RETURN(const std::string bytes, ReadFile(from.string(), kVocabularyBytesMax));
    return run->WriteAtomic(folder + "/" + name, bytes);
  };
  const char* name = "vocab.txt";
  JsonObject config;
  switch (kind) {
    case VocabularyKind::kWordPiece:
      config.Add("tokenizer_class", "BertTokenizer").Add("do_lower_case", !data.cased);
      break;
    case VocabularyKind::kSentencePiece:
      name = "spiece.model";
      config.Add("tokenizer_class", "AlbertTokenizer").Add("do_lower_case", !data.cased);
      break;
    case VocabularyKind::kBpe: {
      name = "vocab.json";
      const fs::path from = fs::path(data.vocabulary).parent_path();
      TROOP_RETURN_IF_ERROR(copy(from / "merges.txt", "merges.txt"));
      TROOP_ASSIGN_OR_RETURN(const auto read, ReadTokenizerSettings(from.string(), kind));
      const bool prefix = read && read->add_prefix_space.value_or(false);
      config.Add("tokenizer_class", "RobertaTokenizer").Add("add_prefix_space", prefix);
      break;
    }
    case VocabularyKind::kTokenizerJson: {
      name = "tokenizer.json";
      config.Add("tokenizer_class", "PreTrainedTokenizerFast");
      TROOP_ASSIGN_OR_RETURN(const auto tokenizer, OpenVocabulary(data.vocabulary, data.cased));
      for (const auto& [key, piece] : NamesOf(*tokenizer)) config.Add(key, piece);
      break;
    }
  }
  TROOP_RETURN_IF_ERROR(copy(data.vocabulary, name));
  config.Add("model_max_length", data.max_length)
      .Add("truncation_side", EnumName(data.truncation_side));
  // transformers keeps a key without meaning for it.
  if (HasPairs(data)) {
    const std::vector<std::string> single = {"text"};
    config.Add("text_columns",
               JsonArray::Of(data.text_columns.empty() ? single : data.text_columns));
  }
  return run->WriteAtomic(folder + "/tokenizer_config.json", config.str() + "\n");
}

// Checks the vocabulary's folder, and that of the pretrained model.
Status CheckTokenizerSettings(const DataConfig& data, const std::string& pretrained) {
  std::vector<std::string> folders = {fs::path(data.vocabulary).parent_path().string()};
  if (!pretrained.empty()) folders.push_back(pretrained);
  const VocabularyKind kind = VocabularyKindOf(data.vocabulary);
  std::optional<bool> prefix;  // of the vocabulary's folder
  for (const std::string& folder : folders) {
    TROOP_ASSIGN_OR_RETURN(const auto settings, ReadTokenizerSettings(folder, kind));
    if (!prefix) prefix = settings && settings->add_prefix_space.value_or(false);
    if (!settings) continue;
    const std::string path = (fs::path(folder) / "tokenizer_config.json").string();
    TROOP_RETURN_IF_ERROR(CheckAgainst(data, *settings, path));
    // Those of the vocabulary's own folder are compared when it is opened.
    if (&folder != &folders[0] && !settings->added.empty()) {
      TROOP_ASSIGN_OR_RETURN(const auto tokenizer, OpenVocabulary(data.vocabulary, data.cased));
      TROOP_RETURN_IF_ERROR(CheckDeclared(settings->added, *tokenizer).WithContext(path));
    }
    if (kind != VocabularyKind::kBpe) continue;
    if (settings->add_prefix_space.value_or(false) != *prefix) {
      return InvalidArgument(
          "\"add_prefix_space\" is {} next to data.vocabulary, but {} in {}; copy "
          "tokenizer_config.json with the vocabulary",
          *prefix, !*prefix, path);
    }
  }
  return Status::Ok();
}

}  // namespace troop
