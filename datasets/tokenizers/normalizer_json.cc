// Reads the "normalizer" and "pre_tokenizer" of a tokenizer.json.

#include "datasets/tokenizers/normalizer_json.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

namespace troop {
namespace {

using Kind = NormalizerStep::Kind;

// Decodes RFC 4648, section 4, with padding.
Result<std::string> DecodeBase64(std::string_view text) {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  while (text.ends_with('=')) text.remove_suffix(1);
  std::array<std::int8_t, 256> value;
  value.fill(-1);
  for (std::size_t i = 0; i < kDigits.size(); ++i) {
    value[static_cast<unsigned char>(kDigits[i])] = std::int8_t(i);
  }
  std::string bytes;
  // Four digits give three bytes; `held` bits wait for the next digit.
  std::uint32_t bits = 0;
  int held = 0;
  for (const char c : text) {
    const std::int8_t digit = value[static_cast<unsigned char>(c)];
    if (digit < 0) return DataLoss("\"precompiled_charsmap\" is not base64");
    bits = bits << 6 | std::uint32_t(digit);
    held += 6;
    if (held < 8) continue;
    held -= 8;
    bytes.push_back(static_cast<char>(bits >> held));
  }
  return bytes;
}

// Pattern and content of a Replace step.
Result<NormalizerStep> ParseReplace(const JsonValue& json) {
  NormalizerStep step{.kind = Kind::kReplace};
  TROOP_ASSIGN_OR_RETURN(step.content, json.String("content"));
  const JsonValue* const pattern = json.Find("pattern");
  if (pattern == nullptr) return DataLoss("\"Replace\" has no \"pattern\"");
  if (const JsonValue* const regex = pattern->Find("Regex")) {
    // The only expression in the published files of the supported models.
    if (regex->string != " {2,}") {
      return InvalidArgument(
          "the normalizer Replace has the regular expression {:?}: only \" {{2,}}\" and plain "
          "strings are supported",
          regex->string);
    }
    step.kind = Kind::kCollapseSpaces;
    return step;
  }
  TROOP_ASSIGN_OR_RETURN(step.pattern, pattern->String("String"));
  if (step.pattern.empty()) return InvalidArgument("the normalizer Replace has an empty pattern");
  return step;
}

// A character map in base 64, as in a SentencePiece model.
Result<NormalizerStep> ParsePrecompiled(const JsonValue& json) {
  NormalizerStep step{.kind = Kind::kPrecompiled};
  TROOP_ASSIGN_OR_RETURN(const std::string text, json.String("precompiled_charsmap"));
  TROOP_ASSIGN_OR_RETURN(const std::string bytes, DecodeBase64(text));
  TROOP_ASSIGN_OR_RETURN(Charsmap map, Charsmap::Make(bytes));
  step.charsmap = std::make_shared<const Charsmap>(std::move(map));
  return step;
}

// Any other step would change tokens, so it is an error.
Result<NormalizerStep> ParseStep(const JsonValue& json) {
  const std::string_view type = TypeOf(json);
  constexpr std::pair<std::string_view, Kind> kPlain[] = {{"NFC", Kind::kNfc},
                                                          {"NFD", Kind::kNfd},
                                                          {"NFKC", Kind::kNfkc},
                                                          {"NFKD", Kind::kNfkd},
                                                          {"Lowercase", Kind::kLowercase},
                                                          {"StripAccents", Kind::kStripAccents}};
  for (const auto& [name, kind] : kPlain) {
    if (type == name) return NormalizerStep{.kind = kind};
  }
  if (type == "Replace") return ParseReplace(json);
  if (type == "Precompiled") return ParsePrecompiled(json);
  if (type == "Strip") {
    NormalizerStep step{.kind = Kind::kStrip};
    TROOP_ASSIGN_OR_RETURN(step.left, json.BooleanOr("strip_left", true));
    TROOP_ASSIGN_OR_RETURN(step.right, json.BooleanOr("strip_right", true));
    return step;
  }
  return InvalidArgument("the normalizer {:?} is not supported: it changes the tokens", type);
}

// Steps that make a text longer multiply: a few dozens of them would exhaust the memory.
Status CheckGrowth(const std::vector<NormalizerStep>& steps) {
  constexpr double kGrowthMax = 64;  // the published files need 3: a space becomes U+2581
  double growth = 1;
  int maps = 0;
  for (const NormalizerStep& step : steps) {
    maps += step.kind == Kind::kPrecompiled;
    const double pattern = step.kind == Kind::kReplace ? double(step.pattern.size()) : 2;
    growth *= std::max(1.0, double(step.content.size()) / pattern);
  }
  if (growth <= kGrowthMax && maps <= 1) return Status::Ok();
  return InvalidArgument(
      "the normalizer may make texts {} times longer with {} character maps, must be at most {} "
      "times with 1 map",
      growth, maps, kGrowthMax);
}

// By default accents are stripped if text is lowercased.
Result<BertNormalizer> ParseBert(const JsonValue& json) {
  for (const char* const key : {"clean_text", "handle_chinese_chars"}) {
    TROOP_ASSIGN_OR_RETURN(const bool value, json.BooleanOr(key, true));
    if (!value) {
      return InvalidArgument("the normalizer BertNormalizer has {:?} false: only true is supported",
                             key);
    }
  }
  BertNormalizer bert;
  TROOP_ASSIGN_OR_RETURN(bert.lowercase, json.BooleanOr("lowercase", true));
  bert.strip_accents = bert.lowercase;
  if (!IsSet(json.Find("strip_accents"))) return bert;
  TROOP_ASSIGN_OR_RETURN(bert.strip_accents, json.BooleanOr("strip_accents", true));
  return bert;
}

// white_space: WhitespaceSplit comes first.
Result<JsonPreTokenizer::Metaspace> ParseMetaspace(const JsonValue& json, bool white_space) {
  TROOP_ASSIGN_OR_RETURN(const std::string symbol, json.StringOr("replacement", "\u2581"));
  if (symbol != "\u2581") {
    return InvalidArgument(
        "the pre-tokenizer Metaspace has \"replacement\" {:?}: only {:?} is "
        "supported",
        symbol, "\u2581");
  }
  // U+2581 before the first word only is equal to all words where a text is one word.
  JsonPreTokenizer::Metaspace metaspace;
  // Files before tokenizers 0.15 have a flag instead of the scheme.
  TROOP_ASSIGN_OR_RETURN(const bool prefix, json.BooleanOr("add_prefix_space", true));
  TROOP_ASSIGN_OR_RETURN(const std::string scheme,
                         json.StringOr("prepend_scheme", prefix ? "always" : "never"));
  if (scheme != "always" && scheme != "never" && (scheme != "first" || white_space)) {
    return InvalidArgument(
        "the pre-tokenizer Metaspace has \"prepend_scheme\" {:?}: only \"always\", \"never\" and, "
        "without WhitespaceSplit, \"first\" are supported",
        scheme);
  }
  metaspace.prepend = scheme != "never";
  metaspace.first_only = scheme == "first";
  TROOP_ASSIGN_OR_RETURN(metaspace.split, json.BooleanOr("split", true));
  return metaspace;
}

// Other settings of ByteLevel move offsets only.
// ByteLevel's add_prefix_space.
Result<bool> ParseByteLevel(const JsonValue& json) {
  TROOP_ASSIGN_OR_RETURN(const bool regex, json.BooleanOr("use_regex", true));
  if (!regex) {
    return InvalidArgument(
        "the pre-tokenizer ByteLevel has \"use_regex\" false: only GPT-2's expression is "
        "supported");
  }
  return json.BooleanOr("add_prefix_space", true);
}

}  // namespace

bool IsSet(const JsonValue* value) {
  return value != nullptr && value->kind != JsonValue::Kind::kNull;
}

std::string_view TypeOf(const JsonValue& step) {
  const JsonValue* const type = step.Find("type");
  return type == nullptr ? std::string_view() : std::string_view(type->string);
}

std::vector<const JsonValue*> StepsOf(const JsonValue* json, std::string_view key) {
  if (!IsSet(json)) return {};
  if (TypeOf(*json) != "Sequence") return {json};
  std::vector<const JsonValue*> steps;
  const JsonValue* const list = json->Find(key);
  if (list == nullptr) return steps;
  // The parser limits the depth of the document, and with it that of this recursion.
  for (const JsonValue& step : list->array) {
    const auto inner = StepsOf(&step, key);
    steps.insert(steps.end(), inner.begin(), inner.end());
  }
  return steps;
}

// Compared with do_lower_case of tokenizer_config.json.
bool JsonNormalizer::lowercases() const {
  if (bert) return bert->lowercase;
  return std::ranges::any_of(steps, [](const auto& s) { return s.kind == Kind::kLowercase; });
}

// BertNormalizer is a model's only step; in a list it is an unknown one.
Result<JsonNormalizer> ParseNormalizer(const JsonValue* json) {
  JsonNormalizer normalizer;
  const auto steps = StepsOf(json, "normalizers");
  for (const JsonValue* const step : steps) {
    if (TypeOf(*step) == "BertNormalizer" && steps.size() == 1) {
      TROOP_ASSIGN_OR_RETURN(normalizer.bert, ParseBert(*step));
      continue;
    }
    TROOP_ASSIGN_OR_RETURN(NormalizerStep parsed, ParseStep(*step));
    normalizer.steps.push_back(std::move(parsed));
  }
  TROOP_RETURN_IF_ERROR(CheckGrowth(normalizer.steps));
  return normalizer;
}

// Each step may occur once, in the order in which the models apply them.
Result<JsonPreTokenizer> ParsePreTokenizer(const JsonValue* json) {
  JsonPreTokenizer found;
  const auto steps = StepsOf(json, "pretokenizers");
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const std::string_view type = TypeOf(*steps[i]);
    // Orders that no published model has are not supported.
    const bool last = i + 1 == steps.size();
    if (type == "BertPreTokenizer" && steps.size() == 1) {
      found.bert = true;
    } else if (type == "WhitespaceSplit" && i == 0 && !last) {
      found.white_space = true;
    } else if (type == "Metaspace" && last) {
      TROOP_ASSIGN_OR_RETURN(found.metaspace, ParseMetaspace(*steps[i], found.white_space));
    } else if (type == "ByteLevel" && steps.size() == 1) {
      TROOP_ASSIGN_OR_RETURN(found.byte_level, ParseByteLevel(*steps[i]));
    } else {
      return InvalidArgument(
          "the pre-tokenizer {:?} is not supported in this place: it changes the tokens", type);
    }
  }
  return found;
}

}  // namespace troop
