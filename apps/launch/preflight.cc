// Checks before a run starts; each collects all failures instead of stopping at the first.
#include "apps/launch/preflight.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "apps/monitor/http_server.h"
#include "core/base/failures.h"
#include "fleet/config/resolve_supervised.h"
#include "fleet/config/role_configs.h"
#include "fleet/launcher/endpoints.h"
#include "fleet/launcher/resource_estimate.h"
#include "fleet/run/task_info.h"
#include "fleet/serial/serial_fleet.h"
#include "learners/external/own_algorithm.h"
#include "learners/node/batch_source.h"
#include "learners/node/warm_start.h"
#include "learners/supervised/supervised.h"
#include "net/security/keys.h"

namespace troop {
namespace {

namespace fs = std::filesystem;

// Checks that the allow list has the role's key, under that role.
Status CheckAllowed(const KeyRing& ring, AllowList* allowed) {
  const auto entry = allowed->Find(ring.public_key);
  if (!entry.ok()) {
    return entry.status().WithContext(fmt::format("the key of the role {}", RoleName(ring.role)));
  }
  if (entry->role == ring.role) return Status::Ok();
  return InvalidArgument("{} lists the key of the role {} as one of the role {}; fix that line",
                         allowed->path(), RoleName(ring.role), RoleName(entry->role));
}

}  // namespace

std::string DescribeKernels(CpuLevel level) {
  const std::string kernels = fmt::format("{} kernels", CpuLevelName(level));
  if (level != CpuLevel::kPlain) return kernels;
  return kernels +
         ": this processor has no AVX2 with FMA and BMI2, so training is several times slower";
}

// Besides the roles that this launcher starts, the coordinator and the tools (`status`) need keys.
Status CheckKeys(const Config& config) {
  const std::string& folder = config.security.keys;
  if (folder.empty()) return Status::Ok();
  AllowList allowed((fs::path(folder) / "allowed").string());
  std::vector<Role> roles{Role::kCoordinator, Role::kTool};
  for (const FleetRole& role : RolesOf(config)) {
    if (std::ranges::find(roles, role.role) == roles.end()) roles.push_back(role.role);
  }
  Failures failures;
  for (const Role role : roles) {
    const auto ring = KeysFor(config, role);
    failures.Add(ring.status());
    // The coordinator opens no connections, so its key needs no entry.
    if (ring.ok() && role != Role::kCoordinator) failures.Add(CheckAllowed(**ring, &allowed));
  }
  return failures.status();
}

// Reads the token file as the server will; an empty path means no token.
Status CheckToken(const char* key, const std::string& file) {
  return file.empty() ? Status::Ok() : ReadToken(file).status().WithContext(key);
}

// The folder itself may be missing: a run creates it, so only permissions are checked.
Status CheckRunsFolder(const Config& config) {
  // The nearest existing ancestor decides.
  std::error_code error;
  fs::path at = fs::absolute(config.log.dir, error).lexically_normal();
  while (!fs::exists(at, error) && at.has_parent_path() && at != at.parent_path()) {
    at = at.parent_path();
  }
  if (!fs::is_directory(at, error)) {
    return InvalidArgument("log.dir is \"{}\": {} is a file, not a folder", config.log.dir,
                           at.string());
  }
  if (access(at.c_str(), W_OK | X_OK) == 0) return Status::Ok();
  return InvalidArgument(
      "log.dir is \"{}\": {} is not writable: {}; change its permissions, or log.dir",
      config.log.dir, at.string(), strerror(errno));
}

namespace {

// Files and folders that do not depend on the data.
void CheckPlaces(const Config& config, Failures* failures) {
  const auto& fleet = config.fleet;
  failures->Add(CheckToken("fleet.metrics_token", fleet.metrics_token));
  failures->Add(CheckToken("fleet.dashboard_token", fleet.dashboard_token));
  const bool insecure = config.security.insecure;
  if (!fleet.metrics.empty()) {
    failures->Add(CheckHttpAddress(fleet.metrics, !fleet.metrics_token.empty(), insecure,
                                   {"fleet.metrics", "fleet.metrics_token"}));
  }
  if (!fleet.dashboard.empty()) {
    failures->Add(CheckHttpAddress(fleet.dashboard, !fleet.dashboard_token.empty(), insecure,
                                   {"fleet.dashboard", "fleet.dashboard_token"}));
  }
  failures->Add(CheckKeys(config).WithContext("security.keys"));
  failures->Add(CheckRunsFolder(config));
  failures->Add(Endpoints::Check(config));
}

// Called when the data set can't be loaded: reports further problems with its files.
void CheckData(const Config& config, Failures* failures) {
  const DataConfig& data = config.data;
  std::error_code error;
  for (const auto& [key, path] : {std::pair("data.reviews", &data.reviews),
                                  {"data.images", &data.images},
                                  {"data.unlabeled", &data.unlabeled},
                                  {"data.vocabulary", &data.vocabulary}}) {
    // A path that an earlier message names is not reported twice.
    if (path->empty() || fs::exists(*path, error) || failures->Names(*path)) continue;
    failures->Add(NotFound("{}: {} does not exist", key, *path));
  }
  failures->Add(CheckPretrainedFiles(TrainingConfigOf(config)));
}

// Makes an own algorithm once, so that the errors of its factory are reported before a run starts.
Status CheckOwn(const Config& config) {
  if (config.learner.algorithm != AlgorithmKind::kOwn) return Status::Ok();
  TROOP_ASSIGN_OR_RETURN(const EnvSpec env, TaskSpec(config));
  return MakeOwnAlgorithm(TrainingConfigOf(config), env).status();
}

// Reads the recorded episodes as the learners will, so that a damaged or unsuitable file is
// reported before a role starts.
Status CheckDemonstrations(const Config& config) {
  if (config.learner.demonstrations.empty()) return Status::Ok();
  // CheckMachine reports episodes that do not fit into memory.
  if (!CheckDemonstrationMemory(config).ok()) return Status::Ok();
  TROOP_ASSIGN_OR_RETURN(const EnvSpec env, TaskSpec(config));
  return LoadDemonstrations(TrainingConfigOf(config), env).status();
}

}  // namespace

// Also reads model.pretrained completely: its tensors must fit the model.
Status CheckInputs(const Config& config) {
  Failures failures;
  CheckPlaces(config, &failures);
  failures.Add(CheckFirstWeights(TrainingConfigOf(config)));
  failures.Add(CheckOwn(config));
  failures.Add(CheckDemonstrations(config));
  return failures.status();
}

// Example: "env.id: message" becomes "run.toml:2: env.id: message".
Status WithPlaces(const Config& config, const Status& status) {
  if (status.ok()) return status;
  std::string text;
  std::istringstream lines(status.message());
  for (std::string line; std::getline(lines, line);) {
    // Messages begin with the key that they concern.
    const std::string key = line.substr(0, line.find_first_of(" :,="));
    const auto given = config.places.of.find(key);
    if (!text.empty()) text += '\n';
    if (given != config.places.of.end()) {
      const bool named = given->second.starts_with("command line: " + key + "=");
      text += given->second + ": ";
      if (named && line.starts_with(key + ": ")) line.erase(0, key.size() + 2);
    }
    text += line;
  }
  return Status(status.code(), text);
}

namespace {

// A dry run resolves the config without the token cache, so that none is written.
Status CheckResolvable(Config* config, bool dry_run) {
  const std::string cache = config->data.cache;
  if (dry_run) config->data.cache.clear();
  const Status resolved = ResolveSupervised(config);
  // The caller's config must keep the path, which the run uses later.
  config->data.cache = cache;
  Failures failures;
  failures.Add(resolved);
  failures.Add(RaiseOpenFiles(*config));
  failures.Add(CheckProcesses(*config));
  if (resolved.ok()) {
    failures.Add(CheckMachine(*config));
    failures.Add(CheckInputs(*config));
    return failures.status();
  }
  // The model's sizes are unknown here, so its files are only checked for being readable.
  CheckPlaces(*config, &failures);
  CheckData(*config, &failures);
  return failures.status();
}

}  // namespace

// The roles read the path in their own working directories.
Status CheckInitFrom(Config* config) {
  std::string& path = config->learner.init_from;
  if (path.empty()) return Status::Ok();
  std::error_code error;
  path = fs::absolute(path, error).lexically_normal().string();
  const auto spec = TaskSpec(*config);
  if (!spec.ok()) return spec.status();
  return WithPlaces(*config, CheckWarmStart(TrainingConfigOf(*config), *spec));
}

// Adds the places last, so that all checks can use plain messages.
Status CheckStart(Config* config, bool dry_run) {
  const Status status = CheckResolvable(config, dry_run);
  return WithPlaces(*config, status);
}

}  // namespace troop
