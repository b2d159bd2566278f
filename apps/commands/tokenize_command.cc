// `troop tokenize`: prints the pieces and the token ids of texts.
#include "apps/commands/tokenize_command.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <memory>

#include "apps/commands/literal_arguments.h"
#include "core/storage/json.h"
#include "datasets/tokenizers/tokenizer.h"
#include "fleet/launcher/exit_code.h"
#include "learners/supervised/tokenizer_settings.h"

namespace troop {
namespace {

constexpr std::size_t kTextBytesMax = std::size_t{1} << 30;  // positions in a text are 32 bits wide

// Two lines: the pieces, then their ids.
std::string PiecesLine(const Tokenizer& tokenizer, const std::vector<TokenId>& ids) {
  std::string pieces, numbers;
  for (const TokenId id : ids) {
    const std::string_view space = pieces.empty() ? "" : " ";
    pieces += fmt::format("{}{}", space, tokenizer.piece(id));
    numbers += fmt::format("{}{}", space, id);
  }
  return pieces + "\n" + numbers + "\n";
}

// One object: text, pieces and ids.
std::string JsonLine(const Tokenizer& tokenizer, std::string_view text,
                     const std::vector<TokenId>& ids) {
  JsonArray pieces;
  for (const TokenId id : ids) pieces.Add(tokenizer.piece(id));
  return JsonObject().Add("text", text).Add("pieces", pieces).Add("ids", JsonArray::Of(ids)).str() +
         "\n";
}

// Tokenizes one text, with the special tokens at both ends, and flushes its line.
Status WriteTokens(const Tokenizer& tokenizer, std::string_view text, bool json,
                   std::ostream& out) {
  if (text.size() > kTextBytesMax) {
    return InvalidArgument("a text has {} bytes, must have at most {}; split it", text.size(),
                           kTextBytesMax);
  }
  const std::vector<TokenId> ids = EncodeWithSpecialTokens(tokenizer, text, kTextBytesMax + 2);
  out << (json ? JsonLine(tokenizer, text, ids) : PiecesLine(tokenizer, ids)) << std::flush;
  return {};
}

// Checks --cased against tokenizer_config.json next to the vocabulary, if there is one.
Status CheckSettings(const TokenizeOptions& options) {
  const std::string folder = std::filesystem::path(options.vocabulary).parent_path().string();
  const VocabularyKind kind = VocabularyKindOf(options.vocabulary);
  TROOP_ASSIGN_OR_RETURN(const auto settings, ReadTokenizerSettings(folder, kind));
  if (!settings || settings->cased == options.cased || !HasCaseOption(kind)) return Status::Ok();
  return InvalidArgument(
      "{}: \"do_lower_case\" is {} in tokenizer_config.json next to it; {} --cased",
      options.vocabulary, !settings->cased, settings->cased ? "add" : "omit");
}

}  // namespace

// The vocabulary is loaded before any input is read, so that its errors come first.
Status TokenizeTexts(const TokenizeOptions& options, std::istream& in, std::ostream& out) {
  TROOP_ASSIGN_OR_RETURN(const std::unique_ptr<Tokenizer> tokenizer,
                         OpenVocabulary(options.vocabulary, options.cased));
  TROOP_RETURN_IF_ERROR(CheckSettings(options));
  for (const std::string& text : options.texts) {
    TROOP_RETURN_IF_ERROR(WriteTokens(*tokenizer, text, options.json, out));
  }
  if (!options.texts.empty()) return {};
  // One line is one text. Lines are answered as they arrive, so that a pipe works.
  for (std::string line; std::getline(in, line);) {
    TROOP_RETURN_IF_ERROR(WriteTokens(*tokenizer, line, options.json, out));
  }
  return {};
}

int Tokenize(const TokenizeOptions& options) {
  const Status status = TokenizeTexts(options, std::cin, std::cout);
  if (status.ok()) return kExitOk;
  fmt::print(stderr, "troop: {}\n", status.message());
  return ExitCodeFor(status);
}

// Texts may begin with a bracket, which CLI11 would split into a list (literal_arguments.h).
void RegisterTokenize(CLI::App& app, ChosenCommand* chosen) {
  const auto options = std::make_shared<TokenizeOptions>();
  CLI::App* tokenize = app.add_subcommand("tokenize", "tokenize text");
  tokenize->add_option("text", options->texts,
                       "texts to tokenize (default: each line of standard input)");
  tokenize
      ->add_option(
          "--vocab", options->vocabulary,
          "vocab.txt (BERT, one piece per line), SentencePiece .model (ALBERT), vocab.json with "
          "merges.txt (RoBERTa) or tokenizer.json")
      ->required();
  tokenize->add_flag("--cased", options->cased,
                     "keep capitals and accents, for a cased vocabulary");
  tokenize->add_flag("--json", options->json, "print one line of JSON per text");
  tokenize->callback([options, chosen] {
    UnescapeAllBrackets(&options->texts);
    *chosen = [options] { return Tokenize(*options); };
  });
}

}  // namespace troop
