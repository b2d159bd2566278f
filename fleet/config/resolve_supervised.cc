// Implements the settings of a supervised config that depend on data, mesh and working directory.

#include "fleet/config/resolve_supervised.h"

#include <algorithm>
#include <filesystem>
#include <string>
#include <system_error>

#include "fleet/config/role_configs.h"
#include "learners/supervised/dataset.h"

namespace troop {
namespace {

namespace fs = std::filesystem;

// Makes a path independent of the working directory, for roles that start elsewhere.
Status Absolute(std::string* path) {
  if (path->empty()) return Status::Ok();
  std::error_code error;
  const fs::path absolute = fs::absolute(*path, error);
  if (error) return InvalidArgument("{}: {}", *path, error.message());
  *path = absolute.lexically_normal().string();
  return Status::Ok();
}

}  // namespace

// After an error the mesh and the paths may be set already.
Status ResolveSupervised(Config* config) {
  TROOP_RETURN_IF_ERROR(Absolute(&config->learner.demonstrations));
  if (IsOffline(*config)) {
    config->run.total_steps = double(config->run.max_updates) * double(config->learner.batch_size);
  }
  if (!IsSupervised(*config)) return Status::Ok();
  // Step 1: the mesh, from the number of learners if it is not given.
  MeshConfig& mesh = config->mesh;
  if (mesh.dp == 0) mesh.dp = std::max<std::int64_t>(1, config->fleet.learners / mesh.tp);
  config->fleet.learners = mesh.dp * mesh.tp;
  // Step 2: absolute paths.
  for (std::string* path :
       {&config->data.reviews, &config->data.unlabeled, &config->data.vocabulary,
        &config->model.pretrained, &config->log.dir}) {
    TROOP_RETURN_IF_ERROR(Absolute(path));
  }
  // Step 3: the settings that follow from the data present now.
  TROOP_ASSIGN_OR_RETURN(const DataSettings settings,
                         DeriveDataSettings(TrainingConfigOf(*config)));
  config->data_identity = settings.data_identity;
  config->model.vocab_size = settings.vocab_size;
  config->paramserver.push_every = settings.push_every;
  config->paramserver.pull_every = settings.pull_every;
  config->run.max_updates = settings.max_updates;
  config->run.total_steps = settings.total_steps;
  return Status::Ok();
}

}  // namespace troop
