#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "actors/actor_config.h"
#include "actors/evaluator_config.h"
#include "actors/inference/inference_config.h"
#include "core/base/status.h"
#include "core/base/version.h"
#include "core/config/env_option.h"
#include "datasets/data_config.h"
#include "datasets/sparse/ngram_vectorizer.h"
#include "envs/env_config.h"
#include "fleet/config/sections/fleet_config.h"
#include "fleet/config/sections/kubernetes_config.h"
#include "fleet/config/sections/log_config.h"
#include "fleet/config/sections/security_config.h"
#include "fleet/config/sections/slurm_config.h"
#include "learners/learner_config.h"
#include "nn/model_config.h"
#include "nn/network_config.h"
#include "nn/optimizer_config.h"
#include "nn/sparse/linear_config.h"
#include "paramserver/paramserver_config.h"
#include "replay/replay_config.h"

namespace troop {

// The configuration of a run, as plain values with their defaults. Key names are the paths of the
// members. Each section is a struct of the folder that uses it, whose VisitKeys declares type,
// range and description of every key.
struct Config {
  std::int64_t version = kConfigVersion;
  std::string name = "run";
  std::int64_t seed = 1;

  BudgetConfig run;
  EnvConfig env;
  NetworkConfig network;
  FleetConfig fleet;
  SecurityConfig security;
  SlurmConfig slurm;
  KubernetesConfig kubernetes;
  ActorConfig actor;
  InferenceConfig inference;
  ReplayConfig replay;
  LearnerConfig learner;
  DataConfig data;
  NgramOptions features;
  ModelConfig model;
  LinearConfig linear;
  MeshConfig mesh;
  PipelineConfig pipeline;
  ParamServerConfig paramserver;
  OptimizerConfig optimizer;
  EvaluatorConfig evaluator;
  CheckpointConfig checkpoint;
  LogConfig log;
  // Defined in config.cc: inline in every file that copies a Config they took a tenth of its
  // compile time.
  Config();
  ~Config();
  Config(const Config& other);
  Config(Config&& other) noexcept;
  Config& operator=(const Config& other);
  Config& operator=(Config&& other) noexcept;
  // Not a key: identity of the data of a supervised run (ReviewData::Identity). The coordinator
  // sends it to its roles, which reject other data. Empty if unknown.
  std::string data_identity;
  // Not a key: the custom code of the environment of a run (EnvSpec::code).
  std::string env_code;
  // Not a key, and not compared: where keys were given, "run.toml:3" or "command line: …".
  struct Places {
    std::map<std::string, std::string> of;
    bool operator==(const Places&) const { return true; }
  } places;

  bool operator==(const Config& other) const;
};

// True for supervised runs (classifier, masked_lm), which have learners, a parameter server and an
// evaluator, but no environment, actors or replay.
bool IsSupervised(const Config& config);
// True for supervised runs of linear models.
bool IsLinearModel(const Config& config);
// True for runs that learn from recorded episodes alone (learner.demonstration_share = 1).
bool IsOffline(const Config& config);
// True for runs with actors and replay: all but supervised and offline runs.
bool HasActors(const Config& config);
// Number of episodes of the final evaluation: evaluator.final_episodes; if that is -1, 100
// episodes, or all test examples of a supervised run.
std::int64_t FinalEpisodes(const Config& config);
// Number of inference servers of the run; 0 if actors evaluate the policy themselves.
std::int64_t InferenceServersOf(const Config& config);

// Description of one key, for documentation and error messages.
struct ConfigKey {
  std::string name;           // "replay.alpha"
  std::string type;           // "integer", "number", "boolean", "string", "list of layers"
  std::string default_value;  // as TOML
  std::string range;          // "[0, 1]", "> 0", "one of \"ipc\", \"tcp\""; may be empty
  std::string doc;
};
std::vector<ConfigKey> ConfigKeys();

// Parses a file and overrides `key=value` (the value as TOML; a bare word is a string; the last
// value of a key takes effect). Errors: kInvalidArgument with ALL problems, one line each,
// "file:line: key: problem and remedy": unknown keys with the nearest valid one, wrong types,
// values out of range, invalid combinations. LoadConfigFile also returns kNotFound if the file
// can't be read, and makes relative paths absolute (config_paths.h).
Result<Config> ParseConfig(std::string_view toml_text, std::string_view file_name,
                           std::span<const std::string> overrides);
Result<Config> LoadConfigFile(const std::string& path, std::span<const std::string> overrides);

// Returns TOML with all keys; ParseConfig(ToToml(c)) == c.
std::string ToToml(const Config& config);
// Returns the content of docs/reference/config.md.
std::string ConfigMarkdown();

}  // namespace troop
