#include "apps/show.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <thread>

#include "actors/evaluator_node.h"
#include "apps/counted.h"
#include "apps/picture.h"
#include "apps/problem.h"
#include "apps/progress.h"
#include "apps/run_folder.h"
#include "apps/terminal.h"
#include "apps/train.h"
#include "core/json.h"
#include "core/phase_progress.h"
#include "learners/checkpoint.h"
#include "learners/review_trial.h"

namespace troop {
namespace {

namespace fs = std::filesystem;

struct Loaded {
  std::string path;  // of the checkpoint
  CheckpointState state;
  Config config;
  std::span<const float> weights() const { return state.state.tensors.at("value").as<float>(); }
};

// A checkpoint folder has a manifest; anything else is taken for a run.
Result<Loaded> Load(const ShowOptions& options) {
  const fs::path path = fs::absolute(options.path).lexically_normal();
  const bool is_checkpoint = fs::exists(path / "manifest.json");
  if (!is_checkpoint && !fs::exists(path / "checkpoints") && !fs::exists(path / "config.toml")) {
    return NotFound("{}: neither a checkpoint (no manifest.json) nor a run (no checkpoints/)",
                    path.string());
  }
  const fs::path folder = is_checkpoint && !path.has_filename() ? path.parent_path() : path;
  const fs::path root = is_checkpoint ? folder.parent_path() : folder;
  TROOP_ASSIGN_OR_RETURN(const auto storage, MakeDiskStorage(root.string()));
  Loaded loaded;
  std::string name = folder.filename().string();
  if (!is_checkpoint) {
    Result<std::string> newest = NewestCheckpoint(storage.get());
    if (!newest.ok()) return newest.status().WithContext(root.string());
    name = *newest;
  }
  loaded.path = (root / name).string();
  TROOP_ASSIGN_OR_RETURN(loaded.state, ReadCheckpoint(storage.get(), name));
  const auto value = loaded.state.state.tensors.find("value");
  if (value == loaded.state.state.tensors.end() || value->second.dtype() != DType::kF32) {
    return DataLoss("{} holds no weights", loaded.path);
  }
  TROOP_ASSIGN_OR_RETURN(loaded.config,
                         ParseConfig(loaded.state.config_toml, loaded.path + "/state.json", {}));
  if (options.epsilon) loaded.config.evaluator.epsilon = *options.epsilon;
  if (options.seed) loaded.config.seed = *options.seed;
  return loaded;
}

int Complain(const Status& status) {
  fmt::print(stderr, "troop: {}\n", status.message());
  return ExitCodeFor(status);
}

constexpr std::uint64_t kEvalRound =
    (std::uint64_t{1} << 43) + 1;  // seeds that no run evaluates with

// As the final evaluation of a run, with other seeds.
Result<std::unique_ptr<Evaluation>> Begin(const Loaded& loaded, std::int64_t episodes) {
  return Evaluation::Make(loaded.config,
                          {.episodes = episodes,
                           .round = kEvalRound,
                           .version = std::uint64_t(loaded.state.updates),
                           .wait = true},
                          loaded.weights());
}

// GIFs hold hundredths of a second in 16 bits between frames.
constexpr double kFramesPerSecondMin = 0.01, kFramesPerSecondMax = 100;

// What the options say of themselves. NaN is in no range.
Status CheckOptions(const ShowOptions& options) {
  if (options.epsilon && !(*options.epsilon >= 0 && *options.epsilon <= 1)) {
    return InvalidArgument("--epsilon {}: a share of actions, from 0 to 1", *options.epsilon);
  }
  const double fps = options.frames_per_s;
  if (!(fps >= kFramesPerSecondMin && fps <= kFramesPerSecondMax)) {
    return InvalidArgument("--fps {}: from {} to {} frames per second", fps, kFramesPerSecondMin,
                           kFramesPerSecondMax);
  }
  return Status::Ok();
}

int WritePictures(const ShowOptions& options, const std::vector<Environment::Picture>& frames) {
  for (const auto& [file, gif] : {std::pair{options.gif, true}, std::pair{options.png, false}}) {
    if (file.empty()) continue;
    const fs::path path = fs::absolute(file);
    const Result<std::unique_ptr<Storage>> folder = MakeDiskStorage(path.parent_path().string());
    const Buffer bytes = gif ? AnimatedGif(frames, options.frames_per_s) : PngStrip(frames);
    const Status written = folder.ok()
                               ? (*folder)->WriteAtomic(path.filename().string(), bytes.bytes())
                               : folder.status();
    if (!written.ok()) return Complain(written);
    fmt::print("wrote {} ({} frames)\n", file,
               gif ? frames.size() : std::min(frames.size(), kStripFramesMax));
  }
  return kExitOk;
}

// How much a model of text tells right of the test reviews, or of --episodes of them.
int EvaluateReviews(const Loaded& loaded, const ShowOptions& options) {
  const auto data = LoadReviewData(loaded.config);
  if (!data.ok()) return Complain(data.status());
  const std::int64_t reviews = (*data)->test.size();
  if (reviews == 0) {
    return Complain(InvalidArgument("data.reviews: {} has no test reviews, and none were held out",
                                    loaded.config.data.reviews));
  }
  const TrialOptions trial{.episodes = options.episodes.value_or(reviews),
                           .version = std::uint64_t(loaded.state.updates),
                           .final = true};
  if (trial.episodes < 1)
    return Complain(InvalidArgument("--episodes {}: at least 1", trial.episodes));
  auto judge = ReviewTrial::Make(loaded.config, *data, trial, loaded.weights());
  if (!judge.ok()) return Complain(judge.status().WithContext(loaded.path));
  PhaseProgress progress("evaluating", "reviews", trial.episodes);
  while ((*judge)->Advance(1) != WeightsTrial::State::kOver) progress.Show((*judge)->judged());
  if (!(*judge)->error().ok()) return Complain((*judge)->error());
  const EvaluationReport r = (*judge)->Report();
  const ScoreWords words = ScoreWordsOf(loaded.config);
  if (options.json) {
    fmt::print("{}\n", JsonObject()
                           .Add("checkpoint", std::string_view(loaded.path))
                           .Add("reviews", std::string_view(loaded.config.data.reviews))
                           .Add("judged", r.episodes)
                           .Add("right_percent", r.return_mean)
                           .Add("right_percent_error", r.return_std)
                           .Add("right_percent_low", r.return_min)
                           .Add("right_percent_high", r.return_max)
                           .Add("cross_entropy", r.loss)
                           .str());
    return kExitOk;
  }
  fmt::print(
      "{} with {} ({} updates, {} reviews)\n{:.2f} {}{}, of {} {}; mean cross entropy "
      "{:.4f}\n",
      loaded.config.data.reviews, loaded.path, loaded.state.updates, loaded.state.steps,
      r.return_mean, words.score, SpreadText(true, r), r.episodes, words.units, r.loss);
  return kExitOk;
}

}  // namespace

int Evaluate(const ShowOptions& options) {
  if (const Status able = CheckOptions(options); !able.ok()) return Complain(able);
  const Result<Loaded> loaded = Load(options);
  if (!loaded.ok()) return Complain(loaded.status());
  if (IsSupervised(loaded->config)) return EvaluateReviews(*loaded, options);
  const std::int64_t episodes = options.episodes.value_or(100);
  if (episodes < 1) return Complain(InvalidArgument("--episodes {}: at least 1", episodes));
  Result<std::unique_ptr<Evaluation>> evaluation = Begin(*loaded, episodes);
  if (!evaluation.ok()) return Complain(evaluation.status());
  PhaseProgress progress("evaluating", "episodes", episodes);
  while ((*evaluation)->Advance(100) != Evaluation::State::kOver) {
    progress.Show(std::int64_t((*evaluation)->returns().size()));
  }
  if (!(*evaluation)->error().ok()) return Complain((*evaluation)->error());
  const EvaluationReport r = (*evaluation)->Report();
  if (options.json) {
    fmt::print("{}\n", JsonObject()
                           .Add("checkpoint", std::string_view(loaded->path))
                           .Add("env", std::string_view(loaded->config.env.id))
                           .Add("episodes", r.episodes)
                           .Add("epsilon", loaded->config.evaluator.epsilon)
                           .Add("return_mean", r.return_mean)
                           .Add("return_std", r.return_std)
                           .Add("return_min", r.return_min)
                           .Add("return_max", r.return_max)
                           .Add("length_mean", r.length_mean)
                           .str());
    return kExitOk;
  }
  fmt::print("{} with {} ({}, {}), ε = {}\n", loaded->config.env.id, loaded->path,
             Counted(std::int64_t(loaded->state.updates), "update"),
             Counted(loaded->state.steps, "agent step"), loaded->config.evaluator.epsilon);
  fmt::print("return {}, length {:.1f}\n", ReturnText(r), r.length_mean);
  return kExitOk;
}

int Play(const ShowOptions& options) {
  if (const Status able = CheckOptions(options); !able.ok()) return Complain(able);
  Result<Loaded> loaded = Load(options);
  if (!loaded.ok()) return Complain(loaded.status());
  if (IsSupervised(loaded->config)) {
    return Complain(InvalidArgument("{}: a model of text plays nothing; see troop predict and eval",
                                    loaded->path));
  }
  loaded->config.evaluator.envs = 1;
  Result<std::unique_ptr<Evaluation>> evaluation =
      Begin(*loaded, std::max<std::int64_t>(1, options.episodes.value_or(1)));
  if (!evaluation.ok()) return Complain(evaluation.status());
  const bool to_file = !options.gif.empty() || !options.png.empty();
  // Escape codes and half blocks are for a terminal: into a pipe goes the result alone.
  const bool draws = to_file || isatty(STDOUT_FILENO) == 1;
  if (!draws) {
    fmt::print(stderr, "troop: standard output is no terminal: nothing is drawn (--gif, --png)\n");
  }
  (*evaluation)->Advance(0);  // until the episodes have begun: before, there is nothing to draw
  std::vector<Environment::Picture> frames;
  constexpr std::size_t kFramesMax = 3000;  // of a file: about a minute and a half
  const auto frame_time = std::chrono::duration<double>(1 / options.frames_per_s);
  for (bool over = false; !over;) {
    if (!draws) {
      over = (*evaluation)->Advance(1000) == Evaluation::State::kOver;
      continue;
    }
    Environment::Picture picture = (*evaluation)->envs().Render(0);
    if (picture.rgb.empty()) {
      return Complain(InvalidArgument("{} has no picture to show", loaded->config.env.id));
    }
    if (!to_file) {
      const TerminalSize terminal = SizeOfTerminal(STDOUT_FILENO);
      // The last row is the cursor's.
      fmt::print("\x1b[H\x1b[2J{}", HalfBlocks(picture, terminal.columns, terminal.rows - 1));
      std::fflush(stdout);
      std::this_thread::sleep_for(frame_time);
    } else if (frames.size() < kFramesMax) {
      frames.push_back(std::move(picture));
    }
    over = (*evaluation)->Advance(1) == Evaluation::State::kOver;
  }
  if (!(*evaluation)->error().ok()) return Complain((*evaluation)->error());
  const EvaluationReport r = (*evaluation)->Report();
  fmt::print("return {} over {}, length {:.1f}\n", ScoreText(r.return_mean),
             Counted(r.episodes, "episode"), r.length_mean);
  return to_file ? WritePictures(options, frames) : int(kExitOk);
}

}  // namespace troop
