// Implements `troop predict` for image files.
#include "apps/deploy/predict_images.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <ostream>

#include "apps/deploy/loaded_checkpoint.h"
#include "core/storage/json.h"
#include "core/storage/read_file.h"
#include "datasets/images/image.h"
#include "fleet/config/config_migration.h"
#include "fleet/config/role_configs.h"
#include "learners/images/image_predictor.h"

namespace troop {
namespace {

namespace fs = std::filesystem;

// The top-5 accuracy refers to as many.
constexpr std::size_t kClassesShown = 5;

// All classes of one file as an object.
std::string JsonLine(const std::string& file, const std::vector<Likely>& classes) {
  JsonObject probabilities;
  for (const Likely& one : classes) probabilities.Add(one.name, one.probability);
  JsonObject json;
  json.Add("image", file).Add("label", classes[0].name).Add("probabilities", probabilities);
  return json.str() + "\n";
}

// "digit.png: 3 (3 0.9731, 8 0.0201)".
std::string Line(const std::string& file, const std::vector<Likely>& classes) {
  std::string likely;
  for (std::size_t i = 0; i < std::min(kClassesShown, classes.size()); ++i) {
    likely +=
        fmt::format("{}{} {:.4f}", i == 0 ? "" : ", ", classes[i].name, classes[i].probability);
  }
  return fmt::format("{}: {} ({})\n", file, classes[0].name, likely);
}

}  // namespace

// The path is RUN, RUN/best or RUN/checkpoints/<updates>. Anything else is left to other readers.
bool IsImageRun(const std::string& path) {
  std::error_code error;
  fs::path folder = fs::absolute(path, error).lexically_normal();
  if (!folder.has_filename()) folder = folder.parent_path();
  // A checkpoint is at most two levels below its run.
  for (int level = 0; level < 3; ++level, folder = folder.parent_path()) {
    const fs::path config = folder / "config.toml";
    if (!fs::is_regular_file(config, error)) continue;
    const Result<Config> saved = LoadSavedConfigFile(config.string(), {});
    return saved.ok() && IsSupervised(*saved) && ClassifiesImages(saved->model.architecture);
  }
  return false;
}

// The weights are read once; a damaged file ends the command.
Status PredictImages(const std::string& path, CheckpointChoice choice,
                     const std::vector<std::string>& files, bool json, std::ostream& out) {
  if (files.empty())
    return InvalidArgument("{}: an image classifier; name PNG or JPEG files to classify", path);
  TROOP_ASSIGN_OR_RETURN(const LoadedCheckpoint loaded, LoadCheckpoint(path, choice));
  auto predictor = ImagePredictor::Make(TrainingConfigOf(loaded.config), loaded.weights());
  if (!predictor.ok()) return predictor.status().WithContext(loaded.path);
  // Flushed per file; lines that were written before an error stay valid.
  for (const std::string& file : files) {
    TROOP_ASSIGN_OR_RETURN(const std::string bytes, ReadFile(file, kImageFileBytesMax));
    const auto classes = (*predictor)->Predict(bytes);
    if (!classes.ok()) return classes.status().WithContext(file);
    out << (json ? JsonLine(file, *classes) : Line(file, *classes)) << std::flush;
  }
  return Status::Ok();
}

}  // namespace troop
