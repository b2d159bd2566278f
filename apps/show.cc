#include "apps/show.h"

#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <thread>

#include "actors/evaluator_node.h"
#include "apps/picture.h"
#include "apps/run_folder.h"
#include "apps/train.h"
#include "core/json.h"
#include "learners/checkpoint.h"
#include "net/codec.h"

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
  if (!is_checkpoint && !fs::exists(path / "checkpoints")) {
    return NotFound("{}: neither a checkpoint (no manifest.json) nor a run (no checkpoints/)",
                    path.string());
  }
  const fs::path folder = is_checkpoint && !path.has_filename() ? path.parent_path() : path;
  const fs::path root = is_checkpoint ? folder.parent_path() : folder;
  TROOP_ASSIGN_OR_RETURN(const auto storage, MakeDiskStorage(root.string()));
  Loaded loaded;
  std::string name = folder.filename().string();
  if (!is_checkpoint) {
    TROOP_ASSIGN_OR_RETURN(name, NewestCheckpoint(storage.get()));
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
  return Evaluation::Make(loaded.config, episodes, kEvalRound, loaded.state.updates,
                          loaded.weights());
}

// Two pixels a character: the upper half block in the colour of the one, on the colour of the
// other.
std::string HalfBlocks(const Environment::Picture& picture, int columns) {
  std::string out;
  const int step = std::max(1, (picture.width + columns - 1) / columns);
  const auto pixel = [&picture](int x, int y) {
    const auto* p = &picture.rgb[std::size_t(3 * (y * picture.width + x))];
    return fmt::format("{};{};{}", p[0], p[1], p[2]);
  };
  for (int y = 0; y + step < picture.height; y += 2 * step) {
    for (int x = 0; x < picture.width; x += step) {
      out += fmt::format("\x1b[38;2;{}m\x1b[48;2;{}m▀", pixel(x, y), pixel(x, y + step));
    }
    out += "\x1b[0m\n";
  }
  return out;
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
    fmt::print("wrote {} ({} frames)\n", file, frames.size());
  }
  return kExitOk;
}

}  // namespace

int Evaluate(const ShowOptions& options) {
  const Result<Loaded> loaded = Load(options);
  if (!loaded.ok()) return Complain(loaded.status());
  const std::int64_t episodes = options.episodes.value_or(100);
  if (episodes < 1) return Complain(InvalidArgument("--episodes {}: at least 1", episodes));
  Result<std::unique_ptr<Evaluation>> evaluation = Begin(*loaded, episodes);
  if (!evaluation.ok()) return Complain(evaluation.status());
  while (!(*evaluation)->Advance(1000)) {
  }
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
  fmt::print("{} with {} ({} updates, {} agent steps), ε = {}\n", loaded->config.env.id,
             loaded->path, loaded->state.updates, loaded->state.steps,
             loaded->config.evaluator.epsilon);
  fmt::print("return {:.2f} ± {:.2f} over {} episodes (min {:.2f}, max {:.2f}), length {:.1f}\n",
             r.return_mean, r.return_std, r.episodes, r.return_min, r.return_max, r.length_mean);
  return kExitOk;
}

int Play(const ShowOptions& options) {
  Result<Loaded> loaded = Load(options);
  if (!loaded.ok()) return Complain(loaded.status());
  loaded->config.evaluator.envs = 1;
  Result<std::unique_ptr<Evaluation>> evaluation =
      Begin(*loaded, std::max<std::int64_t>(1, options.episodes.value_or(1)));
  if (!evaluation.ok()) return Complain(evaluation.status());
  const bool to_file = !options.gif.empty() || !options.png.empty();
  if (options.frames_per_s <= 0) return Complain(InvalidArgument("--fps must be above 0"));
  std::vector<Environment::Picture> frames;
  constexpr std::size_t kFramesMax = 3000;  // of a file: about a minute and a half
  const auto frame_time = std::chrono::duration<double>(1 / options.frames_per_s);
  for (bool over = false; !over;) {
    Environment::Picture picture = (*evaluation)->envs().Render(0);
    if (picture.rgb.empty()) {
      return Complain(InvalidArgument("{} has no picture to show", loaded->config.env.id));
    }
    if (!to_file) {
      fmt::print("\x1b[H\x1b[2J{}", HalfBlocks(picture, 100));
      std::fflush(stdout);
      std::this_thread::sleep_for(frame_time);
    } else if (frames.size() < kFramesMax) {
      frames.push_back(std::move(picture));
    }
    over = (*evaluation)->Advance(1);
  }
  const EvaluationReport r = (*evaluation)->Report();
  fmt::print("return {:.2f} over {} episodes, length {:.1f}\n", r.return_mean, r.episodes,
             r.length_mean);
  return to_file ? WritePictures(options, frames) : int(kExitOk);
}

namespace {

// Asks the coordinator of a live run. Errors: kUnavailable.
Result<std::string> AskCoordinator(const std::string& endpoint) {
  TROOP_ASSIGN_OR_RETURN(const auto network, MakeZmqNetwork());
  TROOP_ASSIGN_OR_RETURN(
      const auto channel,
      network->Connect(endpoint, {.origin = {.role = Role::kTool,
                                             .index = getpid(),
                                             .incarnation = std::uint64_t(1e6 * WallSeconds())}}));
  const SystemClock clock;
  Message question{.type = MessageType::kStatus};
  TROOP_ASSIGN_OR_RETURN(const Ticket ticket, channel->Send(question, clock.Now() + Seconds(2)));
  for (;;) {
    network->Pump(clock.Now());
    if (auto answer = channel->Poll(ticket)) {
      if (!answer->ok()) return answer->status();
      TROOP_ASSIGN_OR_RETURN(StatusReply reply, DecodeBody<StatusReply>((*answer)->body));
      return std::move(reply.json);
    }
    network->Wait(clock.Now(), clock.Now() + Milliseconds(100));
  }
}

void PrintStatus(const JsonValue& view) {
  const auto number = [](const JsonValue& v, std::string_view key) {
    const JsonValue* n = v.Find(key);
    return n == nullptr ? 0.0 : n->number;
  };
  fmt::print("{}: {:.0f} of {:.0f} agent steps",
             view.String("phase").ok() ? *view.String("phase") : "?", number(view, "steps"),
             number(view, "steps_total"));
  if (view.Find("return_mean") != nullptr) {
    fmt::print(", return {:.2f}", number(view, "return_mean"));
  }
  fmt::print("\n");
  const JsonValue* members = view.Find("members");
  if (members == nullptr) return;
  for (const JsonValue& m : members->array) {
    const Result<std::string> role = m.String("role");
    fmt::print("  {:<14} process {:<8.0f} incarnation {:<4.0f} last heard {:.1f} s ago\n",
               role.ok() ? *role : "?", number(m, "process"), number(m, "incarnation"),
               number(m, "silent_s"));
  }
}

}  // namespace

int ShowStatus(const ShowOptions& options) {
  const std::string root = fs::absolute(options.path).lexically_normal().string();
  if (!fs::exists(fs::path(root) / "config.toml")) {
    return Complain(NotFound("{}: no run here (no config.toml)", root));
  }
  const Result<std::unique_ptr<Storage>> storage = MakeDiskStorage(root);
  if (!storage.ok()) return Complain(storage.status());
  if (const auto result = (*storage)->Read("result.json", 1 << 20); result.ok()) {
    if (!options.json) fmt::print("the run has ended:\n");
    fmt::print("{}", result->text());
    return kExitOk;
  }
  const auto run = (*storage)->Read("run.json", 1 << 20);
  if (!run.ok()) return Complain(run.status());
  const Result<JsonValue> info = ParseJson(run->text());
  const Result<std::string> endpoint =
      info.ok() ? info->String("coordinator") : Result<std::string>(info.status());
  if (!endpoint.ok()) return Complain(endpoint.status());
  const Result<std::string> json = AskCoordinator(*endpoint);
  if (!json.ok()) {
    return Complain(
        Unavailable("{} has no result and its coordinator at {} does not answer ({}): it "
                    "was killed; go on with `troop resume {}`",
                    root, *endpoint, json.status().message(), options.path));
  }
  if (options.json) {
    fmt::print("{}\n", *json);
  } else if (const Result<JsonValue> view = ParseJson(*json); view.ok()) {
    PrintStatus(*view);
  }
  return kExitOk;
}

}  // namespace troop
