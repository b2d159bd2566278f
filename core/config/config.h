#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "core/base/status.h"
#include "core/base/version.h"

namespace troop {

// One layer of network.layers.
struct LayerConfig {
  std::string type;          // "linear" | "conv2d"
  std::int64_t units = 0;    // linear
  std::int64_t filters = 0;  // conv2d
  std::int64_t kernel = 0;
  std::int64_t stride = 1;
  std::string activation = "relu";  // "relu" | "tanh" | "none"
  bool operator==(const LayerConfig&) const = default;
};

// One table of replay.tables: served by a stand-alone replay, or by the replay of a fleet in
// addition to its own.
struct ReplayTableConfig {
  std::string name;
  std::string observation = "f32[1]";  // type and shape of one frame, "u8[84, 84]"
  std::string action = "i32[]";
  std::string state;                // type and shape of the recurrent state of an item; empty: none
  std::string view = "transition";  // "transition" | "sequence"
  std::int64_t length = 1;
  std::int64_t stack = 1;
  std::int64_t burn_in = 0;
  std::string compression = "auto";
  std::int64_t capacity_items = 100000;
  std::int64_t min_items = 1;
  std::string sampler = "prioritized";
  std::string remover = "fifo";
  double alpha = 0.6;
  double evict_alpha = -0.4;
  double priority_epsilon = 1e-6;
  std::int64_t max_times_sampled = 0;
  std::int64_t max_policy_age = 0;
  double samples_per_insert = 0;
  double samples_per_insert_tolerance_rate = 0.1;
  bool operator==(const ReplayTableConfig&) const = default;
};

// One key of [env.options], passed to the environment unchanged.
struct EnvOption {
  // A list or a table as JSON text in the format of option_value.h; without null.
  struct Json {
    std::string text;
    bool operator==(const Json&) const = default;
  };
  std::string name;
  std::variant<bool, std::int64_t, double, std::string, Json> value;
  bool operator==(const EnvOption&) const = default;
};

// The configuration of a run, as plain values with their defaults. Key names are the paths of the
// members. schema.cc declares type, range and description of every key; the comments here
// are short reminders.
struct Config {
  std::int64_t version = kConfigVersion;
  std::string name = "run";
  std::int64_t seed = 1;

  // The budget of the run; it ends at the first limit that is reached.
  struct RunKeys {
    double total_steps = 50000;    // agent steps over all actors
    std::int64_t max_updates = 0;  // 0: no limit
    double epochs = 3;             // supervised: passes over the training examples
    bool operator==(const RunKeys&) const = default;
  } run;

  struct EnvKeys {
    std::string id = "CartPole-v1";
    std::int64_t max_episode_steps = -1;
    double sticky_actions = -1;
    bool difficulty_ramping = true;
    double reward_scale = 1;
    double reward_clip = 0;             // clips rewards to [-c, c] in the learner; 0: off
    std::int64_t action_repeat = 1;     // environment steps per agent step
    std::int64_t frame_stack = 1;       // consecutive observations in the network input
    std::int64_t noop_max = 0;          // maximum number of initial no-ops (Atari)
    std::string plugin;                 // shared library (envs/plugin/troop_env.h); empty: none
    std::vector<EnvOption> options;     // options of the plug-in or Python environment, by name
    std::vector<std::string> wrappers;  // Python: "module:callable", in order of application
    std::string python = "python3";     // interpreter of Python environments
    std::string isolation = "auto";     // "auto" | "process" | "none"
    std::int64_t processes = 1;         // processes that share the environments of an actor
    double start_timeout_s = 60;        // until a process is ready
    double step_timeout_s = 10;         // for one step of one environment
    std::int64_t faults_max = 100;      // per environment, without a complete episode in between
    bool operator==(const EnvKeys&) const = default;
  } env;

  struct NetworkKeys {
    std::vector<LayerConfig> layers;         // empty: two linear layers of 64
    std::vector<LayerConfig> critic_layers;  // dpg; empty: same as layers
    bool dueling = true;
    std::int64_t dueling_units = 0;  // hidden units of each dueling stream; 0: none
    bool normalize_observations = false;
    std::int64_t one_hot = 0;        // classes per observation element; 0: off
    std::string precision = "fp32";  // "fp32" | "bf16"
    bool operator==(const NetworkKeys&) const = default;
  } network;

  struct FleetKeys {
    std::string mode = "processes";  // "processes" | "serial"
    std::string engine = "local";    // "local" | "slurm" | "mpi" | "kubernetes"
    std::string transport = "ipc";   // "ipc" | "tcp"
    std::int64_t actors = 1;
    std::int64_t learners = 1;
    double heartbeat_timeout_s = 1.5;
    double stall_timeout_s = 30;
    std::int64_t restarts_max = 20;  // consecutive, per role
    double restart_window_s = 60;
    double backoff_initial_s = 0.1;
    double backoff_max_s = 10;
    double shutdown_grace_s = 5;
    std::string listen;              // tcp://host:port of the coordinator; empty: local only
    std::string listen_replay;       // empty: host of listen, free ports
    std::string listen_paramserver;  // the same
    std::string metrics;             // host:port of the metrics endpoint; empty: none
    std::string metrics_token;       // file with its token; empty: none
    std::vector<std::string> external_roles;  // join from other machines
    double join_timeout_s = 600;              // how long their slots may be empty
    std::int64_t actors_min = 0;  // minimum number of actors, or the run ends after join_timeout_s
    std::string dashboard;        // host:port of the web dashboard; empty: none
    std::string dashboard_token;  // file with its token; empty: no token
    bool operator==(const FleetKeys&) const = default;
  } fleet;

  struct SecurityKeys {
    std::string keys;       // folder of `troop keygen`; empty: no keys
    bool insecure = false;  // listen beyond this machine without keys
    bool operator==(const SecurityKeys&) const = default;
  } security;

  struct SlurmKeys {
    std::int64_t nodes = 1;
    std::string partition;           // empty: the cluster's own
    std::string account;             // the same
    std::string time_limit;          // format of sbatch --time; empty: limit of the partition
    std::int64_t cpus = 0;           // per node; 0: whole nodes
    std::string memory;              // per node, as in sbatch --mem; empty: default of the cluster
    std::int64_t gpus = 0;           // of each node
    std::int64_t learner_cpus = 1;   // CPUs reserved for a learner
    std::int64_t replay_cpus = 1;    // CPUs reserved for a replay
    std::int64_t learner_node = -1;  // node of learner 0; -1: automatic
    std::int64_t replay_node = -1;   // node of replay 0; -1: automatic
    std::int64_t signal_s = 60;      // seconds before the time limit; 0: no signal
    bool requeue = true;
    std::vector<std::string> options;  // more options of sbatch, "--qos=high"
    std::vector<std::string> setup;    // shell commands before the run, "module load ..."
    bool operator==(const SlurmKeys&) const = default;
  } slurm;

  struct KubernetesKeys {
    std::string image = "troop:latest";
    std::string name_space = "default";
    std::string claim;             // existing volume claim; empty: one is created
    std::string storage = "10Gi";  // size of a created claim
    std::string storage_class;     // the same; empty: the cluster's default
    std::string data_claim;        // existing volume claim with data; empty: none
    std::int64_t port = 7701;      // port of the coordinator
    std::int64_t actors_per_pod = 1;
    double coordinator_cpu = 1, replay_cpu = 1, paramserver_cpu = 1;  // cores
    double learner_cpu = 2, actor_cpu = 1, evaluator_cpu = 1, inference_cpu = 2;
    std::string coordinator_memory = "2Gi", replay_memory = "4Gi", paramserver_memory = "2Gi";
    std::string learner_memory = "4Gi", actor_memory = "1Gi", evaluator_memory = "1Gi";
    std::string inference_memory = "2Gi";
    std::int64_t learner_gpus = 0;
    std::string shared_memory = "256Mi";  // size of /dev/shm per pod
    double termination_grace_s = 120;     // from SIGTERM to SIGKILL; must suffice for a checkpoint
    bool jobset = false;                  // a JobSet instead of Jobs and a Service
    bool operator==(const KubernetesKeys&) const = default;
  } kubernetes;

  struct ActorKeys {
    std::int64_t envs = 8;  // environments per actor
    double epsilon_base = 0.4;
    double epsilon_alpha = 7;
    double epsilon_steps = 0;  // agent steps (fleet) of annealing; 0: ε_i per environment
    double epsilon_initial = 1;
    double epsilon_final = 0.1;
    double noise_sigma = 0.3;  // dpg: in halves of the action range
    double noise_alpha = 0;    // dpg; 0: same noise for all environments
    std::int64_t n_step = 3;
    std::int64_t weight_sync_steps = 100;  // agent steps per environment between weight updates
    std::int64_t insert_batch_size = 50;
    std::int64_t max_inflight_inserts = 4;
    std::int64_t lease_steps = 1000;  // agent steps granted at a time
    double warmup_steps = 0;          // agent steps (fleet) of uniform random actions at the start
    std::int64_t insert_copies = 1;   // copies of each item in the replay
    std::string inference = "local";  // "local" | "server"
    bool operator==(const ActorKeys&) const = default;
  } actor;

  struct InferenceKeys {
    std::int64_t servers = 1;
    std::int64_t max_batch_size = 256;  // observations per batch
    double batch_timeout_s = 0.002;     // wait for an incomplete batch
    double weight_sync_s = 0.1;         // between weight updates
    std::string device = "auto";        // "auto" | "cpu" | "cuda"
    bool operator==(const InferenceKeys&) const = default;
  } inference;

  struct ReplayKeys {
    std::int64_t capacity_items = 100000;
    std::int64_t min_items = 1000;  // items before sampling starts
    double alpha = 0.6;
    double beta = 0.4;
    double final_beta = 0;           // value at the last update, reached linearly; 0: constant
    double priority_epsilon = 1e-6;  // added to |TD|
    std::int64_t trim_every_updates = 100;
    double samples_per_insert = 8;  // 0: no limit
    double samples_per_insert_tolerance_rate =
        0.1;                         // error buffer as a fraction of samples_per_insert * min_items
    double memory_bytes_max = 0;     // 0: three quarters of this machine's memory
    std::int64_t shards = 1;         // replay processes
    std::string scope = "global";    // "global" | "local"
    std::string placement = "host";  // "host" | "gpu"
    std::string compression = "auto";  // "auto" | "none" | "lz4" | "zstd"
    std::string sampler = "prioritized";
    std::string remover = "fifo";
    double evict_alpha = -0.4;                    // remover = "prioritized": its exponent
    std::int64_t max_times_sampled = 0;           // 0: no limit
    std::int64_t max_policy_age = 0;              // updates; 0: no limit
    std::int64_t decode_threads = 0;              // additional threads of the learner
    bool persist = false;                         // store the replay on disk
    std::string durability = "memory";            // "memory" | "disk"
    bool spill_to_disk = false;                   // free the memory of old segments
    std::string listen = "tcp://127.0.0.1:7700";  // listen address of a stand-alone replay
    std::string dir = "replay";                   // folder of a stand-alone replay
    std::vector<ReplayTableConfig> tables;
    bool operator==(const ReplayKeys&) const = default;
  } replay;

  struct LearnerKeys {
    std::string algorithm = "dqn";  // "dqn" | "dpg" | "classifier" | "masked_lm"
    std::int64_t batch_size = 64;
    double gamma = 0.99;
    bool double_q = true;
    std::string loss = "huber";                      // "huber" | "mse"
    std::int64_t target_update_every_updates = 500;  // updates between target copies
    double target_tau = 1;                           // 1: copy
    double max_grad_norm = 10;                       // 0: no clip
    std::string critic = "scalar";                   // "scalar" | "categorical" | "quantile"
    std::int64_t atoms = 51;                         // number of atoms or quantiles
    double v_min = -150, v_max = 150;                // categorical
    double action_gradient_clip = 1;                 // dpg; 0: no clip
    std::int64_t prefetch = 4;                       // sample requests in flight
    std::int64_t batches_per_request = 1;
    std::int64_t publish_every_updates = 20;
    std::string sync = "allreduce";             // "allreduce" | "paramserver"
    std::string nccl_library = "libnccl.so.2";  // "": reduce gradients through host memory
    double allreduce_timeout_s = 10;            // per collective operation
    std::int64_t hogwild_threads = 1;
    std::string device = "auto";
    std::int64_t micro_batch_size = 0;  // supervised: examples per pass; 0: all of a batch
    bool operator==(const LearnerKeys&) const = default;
  } learner;

  struct DataKeys {
    std::string reviews;     // aclImdb as a folder or archive, or a CSV
    std::string unlabeled;   // additional examples for masked_lm; empty: none
    std::string vocabulary;  // WordPiece file, or a SentencePiece .model
    bool cased = false;
    std::int64_t max_length = 256;          // maximum tokens per example
    std::string truncation_side = "right";  // side of truncation: "right" | "left"
    double word_dropout = 0;                // classifier: fraction of tokens masked in training
    double validation_split = 0;            // fraction of the training examples kept for validation
    std::string cache = ".tokens";          // folder of tokenized data in log.dir; empty: none
    bool operator==(const DataKeys&) const = default;
  } data;

  struct ModelKeys {
    std::string architecture = "bert";  // "bert" | "albert" | "lstm"
    std::string pretrained;             // folder with initial weights; empty: random
    std::int64_t vocab_size = 0;        // 0: size of data.vocabulary
    std::int64_t hidden_size = 128;
    std::int64_t embedding_size = 0;  // albert, lstm; 0: same as hidden
    std::int64_t num_hidden_layers = 2;
    std::int64_t num_attention_heads = 2;
    std::int64_t intermediate_size = 0;  // 0: 4 * hidden
    std::int64_t max_position_embeddings = 512;
    std::string position_init = "normal";  // "normal" | "sinusoids"
    double dropout = 0.1, attention_dropout = 0.1, classifier_dropout = 0.1;
    bool gradient_checkpointing = false;
    bool operator==(const ModelKeys&) const = default;
  } model;

  struct MeshKeys {
    std::int64_t dp = 0;  // 0: fleet.learners / tp
    std::int64_t tp = 1;
    std::vector<double> batch_shares;  // relative batch shares of the workers; empty: equal
    bool operator==(const MeshKeys&) const = default;
  } mesh;

  struct ParamServerKeys {
    std::int64_t shards = 1;          // processes that share the parameters
    std::string sharding = "memory";  // "memory" | "layer"
    std::string mode = "bsp";         // "bsp" | "k_of_n" | "ssp" | "async" | "local_sgd"
    std::int64_t k = 1;               // k_of_n
    bool cancel = false;              // k_of_n
    bool per_batch = false;           // k_of_n
    std::int64_t staleness = 0;       // ssp
    bool staleness_discount = false;
    std::int64_t warm_start_updates = 0;  // async
    std::int64_t hogwild_threads = 1;     // async: threads of a shard
    std::int64_t pull_every = 1;          // updates between pulls
    std::int64_t push_every = 1;
    std::int64_t max_staleness = 0;    // drops older gradients; 0: off
    double outlier_sigmas = 0;         // drops gradients with outlying loss; 0: off
    double outlier_norm_sigmas = 0;    // drops gradients with outlying norm; 0: off
    std::string compression = "none";  // "none" | "fp16" | "bf16" | "top_k" | "strom"
    double topk_ratio = 0.01;          // top_k
    double strom_threshold = 1;        // strom
    bool backup = false;               // a backup process per shard
    double lease_s = 2;                // in addition to fleet.heartbeat_timeout_s
    bool operator==(const ParamServerKeys&) const = default;
  } paramserver;

  struct OptimizerKeys {
    std::string type = "adam";  // "adam" | "rmsprop" | "sgd" | "adagrad"
    double learning_rate = 1e-3;
    double policy_learning_rate = 0;  // dpg; 0: same as learning_rate
    double final_lr_fraction = 1;     // final fraction of the learning rate, reached linearly
    double warmup_ratio = 0;          // fraction of the run in which the learning rate rises
    double beta1 = 0.9, beta2 = 0.999;
    double decay = 0.95;   // rmsprop
    bool centered = true;  // rmsprop
    double momentum = 0;   // sgd
    double epsilon = 1e-8;
    double weight_decay = 0;  // decoupled (AdamW)
    bool operator==(const OptimizerKeys&) const = default;
  } optimizer;

  struct EvaluatorKeys {
    bool enabled = true;
    double every_s = 5;  // between evaluations during training
    std::int64_t episodes = 10;
    std::int64_t final_episodes = -1;  // see FinalEpisodes
    double epsilon = 0;
    std::int64_t envs = 10;
    std::int64_t max_episode_steps = 108000;  // if the environment has no limit
    double stop_at_return = 0;                // mean return that ends the run; 0: off
    bool operator==(const EvaluatorKeys&) const = default;
  } evaluator;

  struct CheckpointKeys {
    double every_s = 60;
    std::int64_t every_updates = 5000;  // serial mode: between restore points
    std::int64_t keep = 3;
    bool operator==(const CheckpointKeys&) const = default;
  } checkpoint;

  struct LogKeys {
    std::string dir = "runs";
    double metrics_every_s = 1;
    std::string level = "info";
    bool operator==(const LogKeys&) const = default;
  } log;
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
