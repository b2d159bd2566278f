// `troop predict`: formats the answers of a TextPredictor as text or JSON lines.
#include "apps/commands/predict_command.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <iostream>
#include <memory>

#include "apps/commands/literal_arguments.h"
#include "apps/deploy/predict_images.h"
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

// Counts of inputs, with the unknown and the truncated ones.
std::string Remarks(const TextAnswer& answer, const TextPredictor& predictor) {
  // A linear model has no limit, and leaves unknown n-grams out.
  if (predictor.linear()) return fmt::format("{} features", answer.tokens);
  std::string out = fmt::format("{} tokens", answer.tokens);
  if (answer.unknown > 0) out += fmt::format(", {} of them unknown", answer.unknown);
  if (answer.cut > 0) out += fmt::format(", {} more truncated", answer.cut);
  return out;
}

// The human-readable line of one text.
std::string Line(const TextAnswer& answer, const TextPredictor& predictor) {
  if (answer.empty) return "no answer: the text is empty\n";
  if (!predictor.masked()) {
    if (answer.value) return fmt::format("{:.6g}; {}\n", *answer.value, Remarks(answer, predictor));
    if (predictor.problem() == ProblemType::kMultiLabel) {
      const std::vector<std::string> labels = answer.labels();
      return fmt::format("{} ({}); {}\n",
                         labels.empty() ? "none" : fmt::format("{}", fmt::join(labels, ", ")),
                         Join(answer.classes), Remarks(answer, predictor));
    }
    return fmt::format("{} ({}); {}\n", answer.best().name, Join(answer.classes),
                       Remarks(answer, predictor));
  }
  // A masked model answers only for [MASK], so a text without one has no answer.
  if (answer.masks.empty()) {
    return fmt::format(
        "no answer: this is a masked language model; mark the word to predict with {}; {}\n",
        predictor.mask(), Remarks(answer, predictor));
  }
  std::string out;
  for (const auto& words : answer.masks) out += (out.empty() ? "" : " | ") + Join(words);
  return fmt::format("{}; {}\n", out, Remarks(answer, predictor));
}

// One text as an object: classes of a classifier, words for each [MASK] of a masked model.
std::string JsonLine(const TextInput& input, const TextAnswer& answer,
                     const TextPredictor& predictor) {
  JsonObject json;
  json.Add("text", input.text);
  if (input.pair) json.Add("pair", *input.pair);
  AddTextAnswer(answer, predictor, &json);
  return json.str() + "\n";
}

// Flushed per text, so that a pipe can be used interactively.
Status WriteAnswer(TextPredictor* predictor, const TextInput& input, bool json, std::ostream& out) {
  TROOP_ASSIGN_OR_RETURN(const TextAnswer answer, predictor->Predict(input));
  out << (json ? JsonLine(input, answer, *predictor) : Line(answer, *predictor)) << std::flush;
  return {};
}

// Errors: flags of files and of texts together, or one of the two files alone.
Status CheckFlags(const PredictOptions& options) {
  const PredictFileOptions& file = options.file;
  if (!options.text_pair.empty() && options.texts.size() != 1) {
    return InvalidArgument(
        "--text-pair has {} texts to belong to, must be 1; for pairs of a file "
        "give --text-column twice",
        options.texts.size());
  }
  if (file.input.empty() != file.output.empty()) {
    return InvalidArgument("{} is missing: --input and --output are given together",
                           file.input.empty() ? "--input" : "--output");
  }
  if (file.input.empty() &&
      (!file.text_columns.empty() || !file.delimiter.empty() || file.threads != 0)) {
    return InvalidArgument(
        "--text-column, --delimiter and --threads have no effect without --input; omit them");
  }
  if (!file.input.empty() && (!options.texts.empty() || options.json))
    return InvalidArgument("--input: texts and --json have no effect with it; omit them");
  return {};
}

// The model of the command line. Files and texts are read only after it, since a wrong path is the
// more frequent error.
Result<std::unique_ptr<TextPredictor>> Load(const PredictOptions& options) {
  return TextPredictor::Load(options.path, ParseTrainingConfig,
                             options.best ? CheckpointChoice::kBest : CheckpointChoice::kNewest);
}

// The summary is on standard error, like the progress.
Status PredictWholeFile(const PredictOptions& options) {
  TROOP_ASSIGN_OR_RETURN(const auto predictor, Load(options));
  TROOP_ASSIGN_OR_RETURN(const PredictFileSummary made, PredictFile(*predictor, options.file));
  if (made.damaged > 0) {
    LogWarning("{} of {} texts are not UTF-8: invalid bytes are read as U+FFFD", made.damaged,
               made.texts);
  }
  // An empty file takes no time.
  const double seconds = std::max(made.seconds, 1e-9);
  fmt::print(stderr,
             "{} texts, {} tokens in {:.1f} s: {:.0f} texts/s, {:.0f} tokens/s; {} truncated, {} "
             "empty\n",
             made.texts, made.tokens, made.seconds, double(made.texts) / seconds,
             double(made.tokens) / seconds, made.truncated, made.empty);
  return {};
}

}  // namespace

// Texts come from the command line, or line by line from `in`.
Status PredictTexts(const PredictOptions& options, std::istream& in, std::ostream& out) {
  if (IsImageRun(options.path)) {
    if (!options.text_pair.empty())
      return InvalidArgument("--text-pair: {} classifies images; omit it", options.path);
    return PredictImages(options.path,
                         options.best ? CheckpointChoice::kBest : CheckpointChoice::kNewest,
                         options.texts, options.json, out);
  }
  TROOP_ASSIGN_OR_RETURN(const std::unique_ptr<TextPredictor> predictor, Load(options));
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
    TextInput input{text};
    if (!options.text_pair.empty()) input.pair = options.text_pair;
    return WriteAnswer(predictor.get(), input, options.json, out);
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
  Status status = CheckFlags(options);
  if (status.ok()) {
    status = options.file.input.empty() ? PredictTexts(options, std::cin, std::cout)
                                        : PredictWholeFile(options);
  }
  if (status.ok()) return kExitOk;
  fmt::print(stderr, "troop: {}\n", status.message());
  return ExitCodeFor(status);
}

// Paths and texts may contain brackets, as for tokenize.
void RegisterPredict(CLI::App& app, ChosenCommand* chosen) {
  const auto options = std::make_shared<PredictOptions>();
  CLI::App* predict =
      app.add_subcommand("predict", "classify texts or images with a trained model");
  predict
      ->add_option("checkpoint", options->path,
                   "run folder (newest checkpoint), checkpoint folder, or a folder of Hugging "
                   "Face files with the vocabulary")
      ->required();
  predict->add_option("text", options->texts,
                      "texts to classify (default: each line of standard input), or image files");
  predict->add_flag("--best", options->best,
                    "use the best checkpoint of the run (evaluator.keep_best), not the newest");
  predict->add_flag("--json", options->json, "print one line of JSON per text");
  predict->add_option("--text-pair", options->text_pair,
                      "second text, for a model of pairs of texts");
  predict->add_option(
      "--input", options->file.input,
      "predict the texts of this file: .csv, .tsv, .jsonl, or one text per line; also .gz "
      "and .xz");
  predict->add_option("--output", options->file.output,
                      "write the answers to this file: .csv or .jsonl");
  predict->add_option("--text-column", options->file.text_columns,
                      "name of the column of the texts (default: data.text_columns of the run, or "
                      "a known name such as text); give it twice for pairs");
  predict->add_option("--delimiter", options->file.delimiter,
                      "character between the fields of a .csv or .tsv (default: data.delimiter of "
                      "the run, or a comma or a tab by the name)");
  predict
      ->add_option("--threads", options->file.threads,
                   "number of threads for --input (default: one per core)")
      ->check(CLI::Range(1, 1024));
  predict->callback([options, chosen] {
    UnescapeBrackets(&options->path);
    UnescapeAllBrackets(&options->texts);
    UnescapeBrackets(&options->text_pair);
    UnescapeBrackets(&options->file.input);
    UnescapeBrackets(&options->file.output);
    UnescapeAllBrackets(&options->file.text_columns);
    UnescapeBrackets(&options->file.delimiter);
    *chosen = [options] { return Predict(*options); };
  });
}

}  // namespace troop
