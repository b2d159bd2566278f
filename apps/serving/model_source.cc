// Implements the choice and the reload of a run's checkpoints.
#include "apps/serving/model_source.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "apps/serving/served_policy.h"
#include "apps/serving/served_text.h"
#include "fleet/config/role_configs.h"
#include "learners/supervised/text_predictor.h"

namespace troop {

namespace fs = std::filesystem;

ModelSource::ModelSource(Options options, ServingMetrics* metrics)
    : options_(std::move(options)), metrics_(metrics) {}

// A cheap sign of change: the last name in checkpoints/, or best/, with the time of its manifest,
// which is written last. Empty: none yet, or between two renames of best/.
std::string ModelSource::NewestMark() const {
  const fs::path run = options_.path;
  std::error_code error;
  std::string newest;
  if (options_.best) {
    newest = kBestFolder;
  } else {
    for (fs::directory_iterator it(run / "checkpoints", error), end; !error && it != end;
         it.increment(error)) {
      // A folder with an extension is not complete.
      if (!it->path().has_extension()) newest = std::max(newest, it->path().filename().string());
    }
    newest = newest.empty() ? newest : "checkpoints/" + newest;
  }
  if (newest.empty()) return newest;
  const auto written = fs::last_write_time(run / newest / "manifest.json", error);
  if (error) return "";
  return fmt::format("{} {}", newest, written.time_since_epoch().count());
}

// Environment and sessions are made with the first checkpoint and kept for the others.
Result<std::shared_ptr<ServedModel>> ModelSource::LoadPolicy(const LoadedCheckpoint& loaded) {
  if (!env_) {
    TROOP_ASSIGN_OR_RETURN(env_, EnvSpecOf(loaded));
  }
  // Members are set one by one: GCC 12 warns of an initializer list that may fail in its middle.
  ServedPolicy::Source source;
  TROOP_ASSIGN_OR_RETURN(source.policy, PolicyOf(loaded, *env_));
  source.checkpoint = loaded.path;
  source.environment = env_->id;
  source.updates = loaded.state.updates;
  if (!sessions_) {
    const PolicySignature signature(source.policy.description);
    sessions_ = std::make_unique<SessionTable>(
        SessionTable::Options{.sessions_max = options_.sessions_max,
                              .idle = options_.session_idle,
                              .frame_bytes = signature.frame_bytes(),
                              .stack_bytes = signature.stack_bytes(),
                              .state_size = std::size_t(signature.state)});
  }
  // All models of this source share the sessions: frames do not depend on weights.
  const PolicyServing serving{
      .rows_max = options_.rows_max, .sessions = sessions_.get(), .metrics = metrics_};
  TROOP_ASSIGN_OR_RETURN(auto served, ServedPolicy::Make(std::move(source), serving));
  return std::shared_ptr<ServedModel>(std::move(served));
}

// The predictor reads the files of the checkpoint itself.
Result<std::shared_ptr<ServedModel>> ModelSource::LoadText(const std::string& path,
                                                           CheckpointChoice choice,
                                                           std::uint64_t updates) {
  TROOP_ASSIGN_OR_RETURN(std::unique_ptr<TextPredictor> predictor,
                         TextPredictor::Load(path, ParseTrainingConfig, choice));
  const ServedText::Source source{
      .checkpoint = path, .updates = updates, .rows_max = options_.rows_max};
  return std::shared_ptr<ServedModel>(std::make_shared<ServedText>(std::move(predictor), source));
}

// The mark is taken first: a checkpoint that is written meanwhile is loaded at the next Poll.
Result<std::shared_ptr<ServedModel>> ModelSource::Load() {
  const CheckpointChoice choice =
      options_.best ? CheckpointChoice::kBest : CheckpointChoice::kNewest;
  // A folder of Hugging Face files has config.json, a run config.toml.
  if (fs::exists(fs::path(options_.path) / "config.json"))
    return LoadText(options_.path, choice, 0);
  const std::string mark = NewestMark();
  TROOP_ASSIGN_OR_RETURN(const LoadedCheckpoint loaded, LoadCheckpoint(options_.path, choice));
  TROOP_ASSIGN_OR_RETURN(
      std::shared_ptr<ServedModel> model,
      IsSupervised(loaded.config)
          ? LoadText(loaded.path, CheckpointChoice::kNewest, loaded.state.updates)
          : LoadPolicy(loaded));
  mark_ = mark;
  return model;
}

// No mark: the checkpoint is just being replaced.
Result<std::shared_ptr<ServedModel>> ModelSource::Poll() {
  const std::string mark = NewestMark();
  if (mark.empty() || mark == mark_) return std::shared_ptr<ServedModel>();
  return Load();
}

}  // namespace troop
