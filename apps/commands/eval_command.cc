// `troop eval` and `troop play`: load a checkpoint and evaluate or render its policy.
#include "apps/commands/eval_command.h"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <thread>

#include "actors/evaluator_node.h"
#include "apps/deploy/loaded_checkpoint.h"
#include "apps/deploy/text_scores_report.h"
#include "core/base/counted.h"
#include "core/base/phase_progress.h"
#include "core/graphics/animation.h"
#include "core/graphics/plot/line_plot.h"
#include "core/graphics/plot/matrix_plot.h"
#include "core/storage/json.h"
#include "fleet/config/role_configs.h"
#include "fleet/launcher/exit_code.h"
#include "fleet/launcher/progress_display.h"
#include "fleet/launcher/terminal_size.h"
#include "fleet/run/task_info.h"
#include "learners/checkpoint.h"
#include "learners/images/image_dataset.h"
#include "learners/images/image_evaluator.h"
#include "learners/linear/linear_data.h"
#include "learners/linear/linear_evaluator.h"
#include "learners/supervised/text_evaluator.h"
#include "learners/supervised/text_predictor.h"
#include "replay/episodes/episode.h"

namespace troop {
namespace {

namespace fs = std::filesystem;

// The checkpoint of the command line, with its config changed by the flags.
Result<LoadedCheckpoint> Load(const EvalOptions& options) {
  TROOP_ASSIGN_OR_RETURN(LoadedCheckpoint loaded,
                         LoadCheckpoint(options.path, options.best ? CheckpointChoice::kBest
                                                                   : CheckpointChoice::kNewest));
  if (options.epsilon) loaded.config.evaluator.epsilon = *options.epsilon;
  if (options.seed && IsSupervised(loaded.config)) {
    return InvalidArgument(
        "--seed: the seed of a supervised run chooses its test examples; omit it");
  }
  if (options.seed) {  // also over a seed of [evaluator.env]
    loaded.config.seed = *options.seed;
    loaded.config.evaluator.env.seed = -1;
  }
  return loaded;
}

// The environment that is played.
std::string EvaluatedId(const LoadedCheckpoint& loaded) {
  return EvaluationEnv(loaded.config.env, loaded.config.evaluator.env).id;
}

// Prints an error and returns its exit code.
int ReportError(const Status& status) {
  fmt::print(stderr, "troop: {}\n", status.message());
  return ExitCodeFor(status);
}

constexpr std::uint64_t kEvalRound = (std::uint64_t{1} << 43) + 1;  // its seeds are used by no run

// Limit of all episodes of --record together, so that a mistake in --episodes does not fill the
// disk.
constexpr std::size_t kRecordBytesMax = 16 * kEpisodeBytesMax;

// Starts an evaluation like the final one of a run, but with other seeds. record: for its episodes;
// nullptr: they are not recorded.
Result<std::unique_ptr<EpisodeEvaluator>> Begin(const LoadedCheckpoint& loaded,
                                                std::int64_t episodes, Storage* record) {
  EpisodeEvaluator::Options options{.episodes = episodes,
                                    .round = kEvalRound,
                                    .version = std::uint64_t(loaded.state.updates),
                                    .wait = true};
  if (record != nullptr) {
    options.record = {.writer = {.storage = record,
                                 .folder = "",
                                 .name = "evaluation",
                                 .bytes_max = kRecordBytesMax},
                      .agent_steps = loaded.state.steps};
  }
  return EpisodeEvaluator::Make(ActingConfigOf(loaded.config), options, loaded.weights());
}

// Opens the folder of --record, where readers (FindEpisodeFiles) must find these episodes and no
// others; nullptr without --record.
Result<std::unique_ptr<Storage>> OpenRecord(const std::string& path) {
  if (path.empty()) return std::unique_ptr<Storage>();
  std::error_code error;
  if (FindEpisodeFiles(path).ok() || fs::exists(fs::path(path) / kEpisodeFolder, error)) {
    return AlreadyExists("--record: {} has recorded episodes or is a file; give a new folder",
                         path);
  }
  Result<std::unique_ptr<Storage>> folder = MakeDiskStorage(path);
  if (!folder.ok()) return folder.status().WithContext("--record");
  return folder;
}

// A GIF stores the delay between frames in 16 bits, in units of 0.01 s.
constexpr double kFramesPerSecondMin = 0.01, kFramesPerSecondMax = 100;

// Validates the option ranges; NaN is outside all of them.
Status CheckOptions(const EvalOptions& options) {
  if (options.epsilon && !(*options.epsilon >= 0 && *options.epsilon <= 1)) {
    return InvalidArgument("--epsilon is {}, must be from 0 to 1", *options.epsilon);
  }
  const double fps = options.frames_per_s;
  if (!(fps >= kFramesPerSecondMin && fps <= kFramesPerSecondMax)) {
    return InvalidArgument("--fps is {}, must be from {} to {} frames per second", fps,
                           kFramesPerSecondMin, kFramesPerSecondMax);
  }
  return Status::Ok();
}

// Writes the GIF and the PNG strip, each atomically.
int WritePictures(const EvalOptions& options, const std::vector<Environment::Picture>& frames) {
  // Both may be requested: they show the same frames.
  for (const auto& [file, gif] : {std::pair{options.gif, true}, std::pair{options.png, false}}) {
    if (file.empty()) continue;
    const fs::path path = fs::absolute(file);
    const Result<std::unique_ptr<Storage>> folder = MakeDiskStorage(path.parent_path().string());
    const Buffer bytes = gif ? AnimatedGif(frames, options.frames_per_s) : PngStrip(frames);
    const Status written = folder.ok()
                               ? (*folder)->WriteAtomic(path.filename().string(), bytes.bytes())
                               : folder.status();
    if (!written.ok()) return ReportError(written);
    fmt::print("wrote {} ({} frames)\n", file,
               gif ? frames.size() : std::min(frames.size(), kStripFramesMax));
  }
  return kExitOk;
}

// Draws --confusion. Errors: kInvalidArgument: another extension, or a model without classes.
Status DrawConfusion(const TextScores& scores, const std::vector<std::string>& names,
                     const EvalOptions& options) {
  const fs::path path = fs::absolute(options.confusion).lexically_normal();
  if (scores.confusion.empty()) {
    return InvalidArgument(
        "--confusion: the model does not predict one of several classes on the CPU, so it has no "
        "confusion matrix; omit it");
  }
  const MatrixPlot plot = ConfusionPlot(scores, names);
  TROOP_ASSIGN_OR_RETURN(const auto folder, MakeDiskStorage(path.parent_path().string()));
  if (path.extension() == ".svg") {
    TROOP_ASSIGN_OR_RETURN(const std::string text, SvgMatrixPlot(plot));
    return folder->WriteAtomic(path.filename().string(), std::as_bytes(std::span(text)));
  }
  TROOP_ASSIGN_OR_RETURN(const Buffer picture, DrawMatrixPlot(plot));
  return folder->WriteAtomic(path.filename().string(), picture.bytes());
}

// Flags of the picture that are wrong whatever the result is.
Status CheckConfusionFlag(const std::string& file) {
  if (file.empty()) return Status::Ok();
  const std::string kind = fs::path(file).extension().string();
  if (kind != ".png" && kind != ".svg")
    return InvalidArgument("--confusion: {} must end in .png or .svg", file);
  return CheckPlots();
}

// The final evaluation of a run, which takes test examples, of `examples` in total. Errors:
// kInvalidArgument: there are none, or --episodes is below 1.
Result<EvaluationRequest> TrialOf(const LoadedCheckpoint& loaded, const EvalOptions& options,
                                  std::int64_t examples) {
  if (examples == 0) {
    const bool images = ClassifiesImages(loaded.config.model.architecture);
    return InvalidArgument("{}: {} has no test examples, and the run held out none; set {}",
                           images ? "data.images" : "data.reviews", SourceOfExamples(loaded.config),
                           images ? "data.test_split" : "data.test or data.test_split");
  }
  const std::int64_t wanted = options.episodes.value_or(examples);
  if (wanted < 1) return InvalidArgument("--episodes is {}, must be at least 1", wanted);
  return EvaluationRequest{
      .episodes = wanted, .version = std::uint64_t(loaded.state.updates), .final = true};
}

// The results of a trial that are printed. top5: in %; nullopt for texts.
struct TrialResult {
  EvaluationReport report;
  TextScores scores;
  std::optional<double> top5;
};

// Advances in slices, to show progress in between. Judge: an evaluator of examples.
template <class Judge>
Result<TrialResult> RunTrial(Judge* judge, std::int64_t examples) {
  PhaseProgress progress("evaluating", "examples", examples);
  while (judge->Advance(1) != Evaluator::State::kOver) progress.Show(judge->judged());
  TROOP_RETURN_IF_ERROR(judge->error());
  TrialResult result{.report = judge->Report(),
                     .scores = judge->Scores(judge->affordable_resamples())};
  if constexpr (requires { judge->top5(); }) result.top5 = 100 * judge->top5();
  return result;
}

// Evaluates a text model or an image classifier on test examples, evenly spread.
Result<TrialResult> JudgeExamples(const LoadedCheckpoint& loaded, const EvalOptions& options) {
  const TrainingConfig config = TrainingConfigOf(loaded.config);
  TROOP_RETURN_IF_ERROR(CheckConfusionFlag(options.confusion));
  // Both kinds of examples have the same measures; images have the top-5 accuracy, too.
  if (ClassifiesImages(config)) {
    TROOP_ASSIGN_OR_RETURN(const auto data, LoadImageData(config));
    TROOP_ASSIGN_OR_RETURN(const EvaluationRequest trial,
                           TrialOf(loaded, options, data->test.size()));
    auto judge = ImageEvaluator::Make(config, data, trial, loaded.weights());
    if (!judge.ok()) return judge.status().WithContext(loaded.path);
    return RunTrial(judge->get(), trial.episodes);
  }
  // The rows of a linear model are made from the same texts, or are those of svmlight files.
  if (IsLinearModel(config)) {
    TROOP_ASSIGN_OR_RETURN(const auto data, LoadLinearData(config));
    TROOP_ASSIGN_OR_RETURN(const EvaluationRequest trial,
                           TrialOf(loaded, options, data->test.size()));
    auto judge = LinearEvaluator::Make(config, config.linear.loss, data, trial, loaded.weights());
    if (!judge.ok()) return judge.status().WithContext(loaded.path);
    return RunTrial(judge->get(), trial.episodes);
  }
  TROOP_ASSIGN_OR_RETURN(const auto data, LoadReviewData(config));
  TROOP_ASSIGN_OR_RETURN(const EvaluationRequest trial,
                         TrialOf(loaded, options, data->test.size()));
  auto judge = TextEvaluator::Make(config, data, trial, loaded.weights());
  if (!judge.ok()) return judge.status().WithContext(loaded.path);
  return RunTrial(judge->get(), trial.episodes);
}

// Prints the scores of a supervised model on its test examples, or on --episodes of them.
int EvaluateExamples(const LoadedCheckpoint& loaded, const EvalOptions& options) {
  const Result<TrialResult> trial = JudgeExamples(loaded, options);
  if (!trial.ok()) return ReportError(trial.status());
  const auto& [r, scores, top5] = *trial;
  const ModelConfig& model = loaded.config.model;
  const std::vector<std::string> names = NamesOfClasses(model);
  const ScoreLabels words = GetScoreLabels(loaded.config);
  const bool regression = model.problem_type == ProblemType::kRegression;
  const std::string& source = SourceOfExamples(loaded.config);
  if (!options.confusion.empty()) {
    const Status drawn = DrawConfusion(scores, names, options);
    if (!drawn.ok()) return ReportError(drawn);
  }
  if (options.json) {
    const std::string score = regression ? "pearson_percent" : "accuracy_percent";
    JsonObject json;
    json.Add("checkpoint", loaded.path)
        .Add(ClassifiesImages(model.architecture) ? "images" : "reviews", source)
        .Add("evaluated", r.episodes)
        .Add(score, r.return_mean)
        .Add(score + "_error", r.return_std)
        .Add(score + "_low", r.return_min)
        .Add(score + "_high", r.return_max)
        .Add(LossName(loaded.config, "_"), r.loss);
    if (top5) json.Add("top5_accuracy_percent", *top5);
    if (scores.examples > 0) AddTextScores(scores, names, &json);
    fmt::print("{}\n", json.str());
    return kExitOk;
  }
  fmt::print(
      "{} with {} ({} updates, {} examples)\n{:.2f} {}{}{}, of {} {}; mean {} "
      "{:.4f}\n",
      source, loaded.path, loaded.state.updates, loaded.state.steps, r.return_mean, words.score,
      SpreadText(true, r), top5 ? fmt::format(", {:.2f} % top-5 accuracy", *top5) : "", r.episodes,
      words.units, LossName(loaded.config, " "), r.loss);
  if (scores.examples > 0) fmt::print("\n{}", TextScoresTables(scores, names));
  return kExitOk;
}

// The flags that eval and play have in common. episodes: help text of --episodes.
void AddEpisodeFlags(CLI::App* command, EvalOptions* options, const char* episodes) {
  command
      ->add_option("checkpoint", options->path,
                   "run folder (newest checkpoint), or checkpoint folder")
      ->required();
  command->add_flag("--best", options->best,
                    "use the best checkpoint of the run (evaluator.keep_best), not the newest");
  command->add_option("--episodes", options->episodes, episodes);
  command->add_option("--epsilon", options->epsilon,
                      "probability of a random action (evaluator.epsilon)");
  command->add_option("--seed", options->seed, "seed of the episodes (default: seed of the run)");
}

// Prints the result, as text or as one line of JSON. recorded: nullptr without --record.
void PrintReport(const LoadedCheckpoint& loaded, const EvaluationReport& r,
                 const EvalOptions& options, const EpisodeWriter* recorded) {
  if (recorded != nullptr && recorded->bytes_removed() > 0) {
    fmt::print(stderr,
               "troop: {} bytes of the oldest episodes were deleted, as only {} bytes are kept; "
               "use fewer --episodes\n",
               recorded->bytes_removed(), kRecordBytesMax);
  }
  if (options.json) {
    JsonObject out;
    out.Add("checkpoint", loaded.path)
        .Add("env", EvaluatedId(loaded))
        .Add("episodes", r.episodes)
        .Add("epsilon", loaded.config.evaluator.epsilon)
        .Add("return_mean", r.return_mean)
        .Add("return_std", r.return_std)
        .Add("return_min", r.return_min)
        .Add("return_max", r.return_max)
        .Add("length_mean", r.length_mean);
    if (recorded != nullptr) {
      out.Add("record", options.record).Add("recorded_episodes", recorded->episodes());
    }
    fmt::print("{}\n", out.str());
    return;
  }
  fmt::print("{} with {} ({}, {}), ε = {}\n", EvaluatedId(loaded), loaded.path,
             Counted(std::int64_t(loaded.state.updates), "update"),
             Counted(loaded.state.steps, IsOffline(loaded.config) ? "sample" : "agent step"),
             loaded.config.evaluator.epsilon);
  fmt::print("return {}, length {:.1f}\n", ReturnText(r), r.length_mean);
  if (recorded != nullptr) {
    fmt::print("recorded {} in {}\n", Counted(recorded->episodes(), "episode"), options.record);
  }
}

}  // namespace

// Supervised runs are evaluated on examples, all others on episodes.
int Evaluate(const EvalOptions& options) {
  if (const Status able = CheckOptions(options); !able.ok()) return ReportError(able);
  const Result<LoadedCheckpoint> loaded = Load(options);
  if (!loaded.ok()) return ReportError(loaded.status());
  if (IsSupervised(loaded->config)) {
    if (options.record.empty()) return EvaluateExamples(*loaded, options);
    return ReportError(InvalidArgument("--record: {}: a supervised model has no episodes to record",
                                       loaded->path));
  }
  if (!options.confusion.empty()) {
    return ReportError(
        InvalidArgument("--confusion: {}: an agent has no classes; omit it", loaded->path));
  }
  const std::int64_t episodes = options.episodes.value_or(100);
  if (episodes < 1)
    return ReportError(InvalidArgument("--episodes is {}, must be at least 1", episodes));
  const Result<std::unique_ptr<Storage>> record = OpenRecord(options.record);
  if (!record.ok()) return ReportError(record.status());
  Result<std::unique_ptr<EpisodeEvaluator>> evaluation = Begin(*loaded, episodes, record->get());
  if (!evaluation.ok()) return ReportError(evaluation.status());
  PhaseProgress progress("evaluating", "episodes", episodes);
  while ((*evaluation)->Advance(100) != EpisodeEvaluator::State::kOver) {
    progress.Show(std::int64_t((*evaluation)->returns().size()));
  }
  const Status& failure = (*evaluation)->error();
  if (!failure.ok()) return ReportError(failure);
  const EpisodeWriter* const recorded = *record ? &(*evaluation)->recorded() : nullptr;
  PrintReport(*loaded, (*evaluation)->Report(), options, recorded);
  return kExitOk;
}

// Renders episodes of one environment, to the terminal or to files; with neither it prints only
// the result.
int Play(const EvalOptions& options) {
  if (const Status able = CheckOptions(options); !able.ok()) return ReportError(able);
  Result<LoadedCheckpoint> loaded = Load(options);
  if (!loaded.ok()) return ReportError(loaded.status());
  if (IsSupervised(loaded->config)) {
    return ReportError(InvalidArgument(
        "{}: a supervised model has no episodes to play; use troop predict or troop eval",
        loaded->path));
  }
  // One environment, so that its episodes are rendered one after another.
  loaded->config.evaluator.envs = 1;
  Result<std::unique_ptr<EpisodeEvaluator>> evaluation =
      Begin(*loaded, std::max<std::int64_t>(1, options.episodes.value_or(1)), nullptr);
  if (!evaluation.ok()) return ReportError(evaluation.status());
  const bool to_file = !options.gif.empty() || !options.png.empty();
  // Escape codes and half blocks are only for a terminal; a pipe gets the result line alone.
  const bool draws = to_file || isatty(STDOUT_FILENO) == 1;
  if (!draws) {
    fmt::print(
        stderr,
        "troop: standard output is not a terminal, so nothing is drawn; use --gif or --png\n");
  }
  (*evaluation)->Advance(0);  // resets the environments, so that there is a frame to draw
  std::vector<Environment::Picture> frames;
  constexpr std::size_t kFramesMax = 3000;  // per file: 100 s at 30 frames/s
  const auto frame_time = std::chrono::duration<double>(1 / options.frames_per_s);
  // Each frame goes to the terminal at the frame rate, or is kept for the files.
  for (bool over = false; !over;) {
    if (!draws) {
      over = (*evaluation)->Advance(1000) == EpisodeEvaluator::State::kOver;
      continue;
    }
    Environment::Picture picture = (*evaluation)->envs().Render(0);
    // Found at the first frame, before anything is drawn.
    if (picture.rgb.empty()) {
      return ReportError(InvalidArgument("{} cannot be rendered", EvaluatedId(*loaded)));
    }
    if (!to_file) {
      const TerminalSize terminal = SizeOfTerminal(STDOUT_FILENO);
      // The last row is for the cursor.
      fmt::print("\x1b[H\x1b[2J{}", HalfBlocks(picture, terminal.columns, terminal.rows - 1));
      std::fflush(stdout);
      std::this_thread::sleep_for(frame_time);
    } else if (frames.size() < kFramesMax) {
      frames.push_back(std::move(picture));
    }
    over = (*evaluation)->Advance(1) == EpisodeEvaluator::State::kOver;
  }
  if (!(*evaluation)->error().ok()) return ReportError((*evaluation)->error());
  const EvaluationReport r = (*evaluation)->Report();
  fmt::print("return {} over {}, length {:.1f}\n", ScoreText(r.return_mean),
             Counted(r.episodes, "episode"), r.length_mean);
  return to_file ? WritePictures(options, frames) : int(kExitOk);
}

void RegisterEval(CLI::App& app, ChosenCommand* chosen) {
  const auto options = std::make_shared<EvalOptions>();
  CLI::App* eval =
      app.add_subcommand("eval", "evaluate a checkpoint (episode return, or accuracy)");
  AddEpisodeFlags(eval, options.get(),
                  "number of episodes (100), or of test examples of a supervised model (all)");
  eval->add_flag("--json", options->json, "print one line of JSON");
  eval->add_option("--record", options->record, "write the episodes to this new folder");
  eval->add_option("--confusion", options->confusion,
                   "draw the confusion matrix of a supervised model to this .png or .svg file");
  eval->callback([options, chosen] { *chosen = [options] { return Evaluate(*options); }; });
}

void RegisterPlay(CLI::App& app, ChosenCommand* chosen) {
  const auto options = std::make_shared<EvalOptions>();
  CLI::App* play = app.add_subcommand("play",
                                      "render episodes of a checkpoint, in the terminal or to "
                                      "a file");
  AddEpisodeFlags(play, options.get(), "number of episodes (1)");
  play->add_option("--gif", options->gif, "write an animated GIF to this file");
  play->add_option("--png", options->png, "write a strip of frames to this file");
  play->add_option("--fps", options->frames_per_s, "frames per second (30)");
  play->callback([options, chosen] { *chosen = [options] { return Play(*options); }; });
}

}  // namespace troop
