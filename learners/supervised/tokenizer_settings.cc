// Implements the checks of Hugging Face's tokenizer settings.

#include "learners/supervised/tokenizer_settings.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/log.h"
#include "core/config/enum_format.h"
#include "core/storage/json.h"
#include "core/storage/read_file.h"

namespace troop {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kSettingsBytesMax = std::size_t{1}
                                          << 20;  // bounds the read of a damaged file

// Special pieces of the two kinds of vocabulary (BERT and ALBERT).
constexpr std::array<std::string_view, 7> kSpecial = {"[PAD]",  "[UNK]", "[CLS]", "[SEP]",
                                                      "[MASK]", "<pad>", "<unk>"};

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
  for (const char* const key :
       {"never_split", "additional_special_tokens", "sp_model_kwargs", "extra_special_tokens",
        "auto_map", "word_tokenizer_type", "subword_tokenizer_type"}) {
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

// Classes of the package transformers that split text as BERT's or ALBERT's do.
Status CheckClass(const JsonValue& json) {
  const JsonValue* const given = json.Find("tokenizer_class");
  if (!IsGiven(given)) return Status::Ok();
  std::string_view name = given->string;
  // The fast classes give the same tokens.
  if (name.ends_with("Fast")) name.remove_suffix(4);
  for (const std::string_view known :
       {"BertTokenizer", "AlbertTokenizer", "DistilBertTokenizer", "ElectraTokenizer",
        "MobileBertTokenizer", "PreTrainedTokenizer", "TokenizersBackend"}) {
    if (name == known) return Status::Ok();
  }
  return InvalidArgument(
      "\"tokenizer_class\" is \"{}\": only BertTokenizer, AlbertTokenizer and equivalent "
      "tokenizers are supported",
      given->string);
}

// A token is a string, or an object whose "content" is the text.
std::string_view ContentOf(const JsonValue& token) {
  const JsonValue* const content = token.Find("content");
  return content != nullptr ? content->string : token.string;
}

// Names of the special tokens: either kind's is accepted.
Status CheckSpecialTokens(const JsonValue& json) {
  constexpr std::pair<const char*, std::array<std::string_view, 2>> kNames[] = {
      {"unk_token", {"[UNK]", "<unk>"}},
      {"cls_token", {"[CLS]", "[CLS]"}},
      {"sep_token", {"[SEP]", "[SEP]"}},
      {"mask_token", {"[MASK]", "[MASK]"}}};
  for (const auto& [key, supported] : kNames) {
    const JsonValue* const token = json.Find(key);
    if (!IsGiven(token)) continue;
    const std::string_view name = ContentOf(*token);
    if (name == supported[0] || name == supported[1]) continue;
    return InvalidArgument("\"{}\" is \"{}\": only {} is supported", key, name, supported[0]);
  }
  const JsonValue* const added = json.Find("added_tokens_decoder");
  if (!IsGiven(added)) return Status::Ok();
  if (added->kind != JsonValue::Kind::kObject)
    return DataLoss("\"added_tokens_decoder\" is not an object");
  for (const auto& [id, token] : added->object) {
    if (IsSpecial(ContentOf(token))) continue;
    return InvalidArgument("\"added_tokens_decoder\" has \"{}\": added tokens are not supported",
                           ContentOf(token));
  }
  return Status::Ok();
}

// Keys that do not affect tokens are ignored.
Result<TokenizerSettings> ParseSettings(const JsonValue& json) {
  TokenizerSettings settings;
  TROOP_RETURN_IF_ERROR(CheckFixed(json));
  TROOP_RETURN_IF_ERROR(CheckClass(json));
  TROOP_RETURN_IF_ERROR(CheckSpecialTokens(json));
  TROOP_ASSIGN_OR_RETURN(const bool lower, ReadFlag(json, "do_lower_case", true));
  settings.cased = !lower;
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
Status CheckAdded(const JsonValue& json) {
  for (const auto& [token, id] : json.object) {
    if (!IsSpecial(token)) {
      return InvalidArgument("the file has \"{}\": added tokens are not supported", token);
    }
  }
  return Status::Ok();
}

// Compares a config with the settings in `path`.
Status CheckAgainst(const DataConfig& data, const TokenizerSettings& settings,
                    const std::string& path) {
  if (data.cased != settings.cased) {
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

}  // namespace

// The other two files are checked even without a tokenizer_config.json.
Result<std::optional<TokenizerSettings>> ReadTokenizerSettings(const std::string& folder) {
  const std::string path = (fs::path(folder) / "tokenizer_config.json").string();
  for (const auto& [name, check] : {std::pair("special_tokens_map.json", &CheckSpecialTokens),
                                    std::pair("added_tokens.json", &CheckAdded)}) {
    const std::string other = (fs::path(folder) / name).string();
    TROOP_ASSIGN_OR_RETURN(const auto json, ReadDocument(other));
    if (json) TROOP_RETURN_IF_ERROR(check(*json).WithContext(other));
  }
  TROOP_ASSIGN_OR_RETURN(const auto json, ReadDocument(path));
  if (!json) return std::optional<TokenizerSettings>();
  Result<TokenizerSettings> settings = ParseSettings(*json);
  if (!settings.ok()) return settings.status().WithContext(path);
  return std::optional(*settings);
}

// Checks the vocabulary's folder, and that of the pretrained model.
Status CheckTokenizerSettings(const DataConfig& data, const std::string& pretrained) {
  std::vector<std::string> folders = {fs::path(data.vocabulary).parent_path().string()};
  if (!pretrained.empty()) folders.push_back(pretrained);
  for (const std::string& folder : folders) {
    TROOP_ASSIGN_OR_RETURN(const auto settings, ReadTokenizerSettings(folder));
    if (!settings) continue;
    const fs::path path = fs::path(folder) / "tokenizer_config.json";
    TROOP_RETURN_IF_ERROR(CheckAgainst(data, *settings, path.string()));
  }
  return Status::Ok();
}

}  // namespace troop
