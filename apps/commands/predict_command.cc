// `troop predict`: formats the answers of a TextPredictor as text or JSON lines.
#include "apps/commands/predict_command.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdint>
#include <cstdio>
#include <iostream>
#include <memory>

#include "apps/commands/literal_arguments.h"
#include "apps/deploy/text_answer_json.h"
#include "core/base/log.h"
#include "core/storage/json.h"
#include "datasets/tokenizers/unicode.h"
#include "fleet/config/role_configs.h"
#include "fleet/launcher/exit_code.h"
#include "learners/supervised/text_predictor.h"

namespace troop {
namespace {

// "positive 0.9731, negative 0.0269".
std::string Join(const std::vector<Likely>& likely) {
  std::string out;
  for (const Likely& one : likely) {
    out += fmt::format("{}{} {:.4f}", out.empty() ? "" : ", ", one.name, one.probability);
  }
  return out;
}

// Token counts, with the unknown and the truncated ones.
std::string Remarks(const TextAnswer& answer) {
  std::string out = fmt::format("{} tokens", answer.tokens);
  if (answer.unknown > 0) out += fmt::format(", {} of them unknown", answer.unknown);
  if (answer.cut > 0) out += fmt::format(", {} more truncated", answer.cut);
  return out;
}

// The human-readable line of one text.
std::string Line(const TextAnswer& answer, bool masked) {
  if (answer.empty) return "no answer: the text is empty\n";
  if (!masked) {
    return fmt::format("{} ({}); {}\n", answer.best().name, Join(answer.classes), Remarks(answer));
  }
  // A masked model answers only for [MASK], so a text without one has no answer.
  if (answer.masks.empty()) {
    return fmt::format(
        "no answer: this is a masked language model; mark the word to predict with [MASK]; {}\n",
        Remarks(answer));
  }
  std::string out;
  for (const auto& words : answer.masks) out += (out.empty() ? "" : " | ") + Join(words);
  return fmt::format("{}; {}\n", out, Remarks(answer));
}

// One text as an object: classes of a classifier, words for each [MASK] of a masked model.
std::string JsonLine(std::string_view text, const TextAnswer& answer, bool masked) {
  JsonObject json;
  json.Add("text", text);
  AddTextAnswer(answer, masked, &json);
  return json.str() + "\n";
}

// Flushed per text, so that a pipe can be used interactively.
Status WriteAnswer(TextPredictor* predictor, std::string_view text, bool json, std::ostream& out) {
  TROOP_ASSIGN_OR_RETURN(const TextAnswer answer, predictor->Predict(text));
  const bool masked = predictor->masked();
  out << (json ? JsonLine(text, answer, masked) : Line(answer, masked)) << std::flush;
  return {};
}

}  // namespace

// Texts come from the command line, or line by line from `in`.
Status PredictTexts(const PredictOptions& options, std::istream& in, std::ostream& out) {
  TROOP_ASSIGN_OR_RETURN(
      const std::unique_ptr<TextPredictor> predictor,
      TextPredictor::Load(options.path, ParseTrainingConfig,
                          options.best ? CheckpointChoice::kBest : CheckpointChoice::kNewest));
  std::int64_t texts = 0, damaged = 0;
  // Invalid UTF-8 is not an error. Only the first such text is logged, the rest as a count.
  const auto answer = [&](const std::string& text) {
    ++texts;
    if (!IsUtf8(text) && ++damaged == 1) {
      LogWarning(
          "text {} is not UTF-8: invalid bytes are read as U+FFFD; convert it, for example with "
          "iconv -f latin1 -t utf-8",
          texts);
    }
    return WriteAnswer(predictor.get(), text, options.json, out);
  };
  for (const std::string& text : options.texts) TROOP_RETURN_IF_ERROR(answer(text));
  if (options.texts.empty()) {
    for (std::string line; std::getline(in, line);) {
      if (line.ends_with('\r')) line.pop_back();  // a Windows line ending
      TROOP_RETURN_IF_ERROR(answer(line));
    }
  }
  if (damaged > 1) LogWarning("{} of {} texts are not UTF-8", damaged, texts);
  return {};
}

// Errors of a text end the command; answers that were written before stay valid.
int Predict(const PredictOptions& options) {
  const Status status = PredictTexts(options, std::cin, std::cout);
  if (status.ok()) return kExitOk;
  fmt::print(stderr, "troop: {}\n", status.message());
  return ExitCodeFor(status);
}

// Paths and texts may contain brackets, as for tokenize.
void RegisterPredict(CLI::App& app, ChosenCommand* chosen) {
  const auto options = std::make_shared<PredictOptions>();
  CLI::App* predict = app.add_subcommand("predict", "classify texts with a trained model");
  predict
      ->add_option("checkpoint", options->path,
                   "run folder (newest checkpoint), checkpoint folder, or a folder of Hugging "
                   "Face files with the vocabulary")
      ->required();
  predict->add_option("text", options->texts,
                      "texts to classify (default: each line of standard input)");
  predict->add_flag("--best", options->best,
                    "use the best checkpoint of the run (evaluator.keep_best), not the newest");
  predict->add_flag("--json", options->json, "print one line of JSON per text");
  predict->callback([options, chosen] {
    UnescapeBrackets(&options->path);
    UnescapeAllBrackets(&options->texts);
    *chosen = [options] { return Predict(*options); };
  });
}

}  // namespace troop
