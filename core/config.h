#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "core/status.h"
#include "core/version.h"

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

// One table of replay.tables: what a stand-alone replay serves, or a fleet's replay beside its own.
struct ReplayTableConfig {
  std::string name;
  std::string observation = "f32[1]";  // of one frame: type and shape, as "u8[84, 84]"
  std::string action = "i32[]";
  std::string state;                // recurrent state of an item; empty: none
  std::string view = "transition";  // "transition" | "sequence"
  std::int64_t length = 1;
  std::int64_t stack = 1;
  std::int64_t burn_in = 0;
  std::string codec = "auto";
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
  double ratio_error = 0.1;
  bool operator==(const ReplayTableConfig&) const = default;
};

// One key of [env.options], handed to the environment as it is.
struct EnvOption {
  // A list or a table, of what option_value.h writes; no null.
  struct Json {
    std::string text;
    bool operator==(const Json&) const = default;
  };
  std::string name;
  std::variant<bool, std::int64_t, double, std::string, Json> value;
  bool operator==(const EnvOption&) const = default;
};

// The whole configuration of a run, as plain values with their defaults. Types, ranges and the
// documentation of every key are in config_schema.cc. Key names are the paths of the members.
struct Config {
  std::int64_t version = kConfigVersion;
  std::string name = "run";
  std::int64_t seed = 1;

  struct EnvKeys {
    std::string id = "CartPole-v1";
    std::int64_t max_episode_steps = -1;
    double sticky_actions = -1;
    bool difficulty_ramping = true;
    double reward_scale = 1;
    double reward_clip = 0;          // 0: none; else rewards are clipped to [-c, c] by the learner
    std::int64_t action_repeat = 1;  // environment steps per agent step
    std::int64_t frame_stack = 1;    // observations that the network sees at a time
    std::int64_t noop_max = 0;       // no-ops that start an episode, at most (Atari)
    std::string plugin;              // a shared library (envs/plugin/troop_env.h); empty: none
    std::vector<EnvOption> options;  // of the plug-in's or Python's own, by name
    std::vector<std::string> wrappers;  // Python: "module:callable", applied in this order
    std::string python = "python3";     // the interpreter of Python environments
    std::string isolation = "auto";     // "auto" | "process" | "none"
    std::int64_t processes = 1;         // over which the environments of an actor are spread
    double start_timeout_s = 60;        // for a process until it is ready
    double step_timeout_s = 10;         // for one step of one environment in a process
    std::int64_t faults_max = 100;      // of one environment, without a whole good episode between
    bool operator==(const EnvKeys&) const = default;
  } env;

  struct NetworkKeys {
    std::vector<LayerConfig> layers;         // empty: two linear layers of 64
    std::vector<LayerConfig> critic_layers;  // dpg; empty: as layers
    bool dueling = true;
    std::int64_t dueling_units = 0;  // hidden units of each dueling stream; 0: none
    bool normalize_observations = false;
    std::int64_t one_hot = 0;        // classes of each number of an observation; 0: numbers
    std::string precision = "fp32";  // "fp32" | "bf16"
    bool operator==(const NetworkKeys&) const = default;
  } network;

  struct FleetKeys {
    std::string mode = "processes";  // "processes" | "serial"
    std::string engine = "local";    // "local" | "slurm" | "mpi" | "kubernetes"
    std::string transport = "ipc";   // "ipc" | "tcp"
    std::int64_t actors = 1;
    std::int64_t learners = 1;
    double dead_after_s = 1.5;
    double hung_after_s = 30;
    std::int64_t restarts_max = 20;  // of one role in a row
    double restart_window_s = 60;
    double backoff_first_s = 0.1;
    double backoff_max_s = 10;
    double drain_s = 5;
    std::string listen;                  // tcp://host:port of the coordinator; empty: this machine
    std::string listen_replay;           // empty: the host of listen, and free ports
    std::string listen_paramserver;      // the same
    std::string metrics;                 // host:port of the coordinator's metrics; empty: none
    std::string metrics_token;           // file of the token that they want; empty: none
    std::vector<std::string> elsewhere;  // roles that this launcher does not start: they join
    double join_wait_s = 600;            // how long such a seat may be empty
    std::int64_t actors_min = 0;         // so many must play, or the run ends after join_wait_s
    std::string dashboard;               // host:port of the run's web page; empty: none
    std::string dashboard_token;         // file of the token that it wants; empty: none
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
    std::string time_limit;          // as sbatch --time; empty: the partition's
    std::int64_t cpus = 0;           // of each node; 0: whole nodes
    std::string memory;              // of each node, as sbatch --mem; empty: the cluster's own
    std::int64_t gpus = 0;           // of each node
    std::int64_t learner_cpus = 1;   // that placing leaves to a learner
    std::int64_t replay_cpus = 1;    // that placing leaves to a replay
    std::int64_t learner_node = -1;  // of learner 0, from 0; -1: where it fits
    std::int64_t replay_node = -1;   // of replay 0; the same
    std::int64_t signal_s = 60;      // before the time limit; 0: no signal
    bool requeue = true;
    std::vector<std::string> options;  // more of sbatch, "--qos=high"
    std::vector<std::string> setup;    // lines of shell before the run, "module load ..."
    bool operator==(const SlurmKeys&) const = default;
  } slurm;

  struct KubernetesKeys {
    std::string image = "troop:latest";
    std::string name_space = "default";
    std::string claim;             // a volume that is there; empty: one is asked for
    std::string storage = "10Gi";  // of a claim of its own
    std::string storage_class;     // the same; empty: the cluster's default
    std::string data_claim;        // a volume with data; empty: none
    std::int64_t port = 7701;      // of the coordinator
    std::int64_t actors_per_pod = 1;
    double coordinator_cpu = 1, replay_cpu = 1, paramserver_cpu = 1;  // cores
    double learner_cpu = 2, actor_cpu = 1, evaluator_cpu = 1, inference_cpu = 2;
    std::string coordinator_memory = "2Gi", replay_memory = "4Gi", paramserver_memory = "2Gi";
    std::string learner_memory = "4Gi", actor_memory = "1Gi", evaluator_memory = "1Gi";
    std::string inference_memory = "2Gi";
    std::int64_t learner_gpus = 0;
    std::string shared_memory = "256Mi";  // of each pod's /dev/shm
    double grace_s = 120;                 // from SIGTERM to SIGKILL: a checkpoint has to fit
    bool jobset = false;                  // a JobSet in place of Jobs and a Service
    bool operator==(const KubernetesKeys&) const = default;
  } kubernetes;

  struct ActorKeys {
    std::int64_t envs = 8;  // environments per actor
    double epsilon_base = 0.4;
    double epsilon_alpha = 7;
    double epsilon_steps = 0;  // agent steps (fleet) of annealing; 0: the ladder
    double epsilon_from = 1;
    double epsilon_to = 0.1;
    double noise_sigma = 0.3;  // dpg: of actions, in halves of their range
    double noise_alpha = 0;    // dpg: 0: the same for all environments
    std::int64_t n_step = 3;
    std::int64_t refresh_steps = 100;  // agent steps of one environment between weight pulls
    std::int64_t push_items = 50;
    std::int64_t push_window = 4;
    std::int64_t lease_steps = 1000;  // agent steps leased at once
    double warmup_steps = 0;          // agent steps (fleet) of uniform random actions first
    std::int64_t copies = 1;          // of each item in the replay
    std::string inference = "local";  // "local" | "server"
    bool operator==(const ActorKeys&) const = default;
  } actor;

  struct InferenceKeys {
    std::int64_t servers = 1;
    std::int64_t batch_max = 256;  // observations of a batch
    double wait_s = 0.002;         // of the first of a batch for others
    double refresh_s = 0.1;        // between weight pulls
    std::string device = "auto";   // "auto" | "cpu" | "cuda"
    bool operator==(const InferenceKeys&) const = default;
  } inference;

  struct ReplayKeys {
    std::int64_t capacity_items = 100000;
    std::int64_t min_items = 1000;  // no sampling before
    double alpha = 0.6;
    double beta = 0.4;
    double final_beta = 0;           // at the last update, linearly; 0: beta throughout
    double priority_epsilon = 1e-6;  // added to |TD|
    std::int64_t trim_every_updates = 100;
    double samples_per_insert = 8;   // 0: no limit
    double ratio_error = 0.1;        // band, as a fraction of samples_per_insert * min_items
    double memory_bytes_max = 0;     // 0: three quarters of this machine's memory
    std::int64_t shards = 1;         // replay processes
    std::string scope = "global";    // "global" | "local"
    std::string placement = "host";  // "host" | "gpu"
    std::string codec = "auto";      // "auto" | "none" | "lz4" | "zstd"
    std::string sampler = "prioritized";
    std::string remover = "fifo";
    double evict_alpha = -0.4;                    // remover = "prioritized": its exponent
    std::int64_t max_times_sampled = 0;           // 0: no limit
    std::int64_t max_policy_age = 0;              // updates; 0: no limit
    std::int64_t decode_threads = 0;              // of the learner, beside its own
    bool persist = false;                         // the replay is on disk too, and comes back
    std::string ack = "memory";                   // "memory" | "disk"
    bool spill = false;                           // old segments' memory goes to their files
    std::string listen = "tcp://127.0.0.1:7700";  // of a stand-alone replay
    std::string dir = "replay";                   // of a stand-alone replay's files
    std::vector<ReplayTableConfig> tables;
    bool operator==(const ReplayKeys&) const = default;
  } replay;

  struct LearnerKeys {
    std::string algorithm = "dqn";  // "dqn" | "dpg" | "classifier" | "masked_lm"
    double total_steps = 50000;     // agent steps over all actors
    std::int64_t batch_size = 64;
    double gamma = 0.99;
    bool double_q = true;
    std::string loss = "huber";              // "huber" | "mse"
    std::int64_t target_update_steps = 500;  // updates between target copies
    double target_tau = 1;                   // 1: hard copy
    double max_grad_norm = 10;               // 0: no clip
    std::string critic = "scalar";           // "scalar" | "categorical" | "quantile"
    std::int64_t atoms = 51;                 // or quantiles
    double v_min = -150, v_max = 150;        // categorical
    double action_gradient_clip = 1;         // dpg; 0: no clip
    std::int64_t prefetch = 4;               // sample requests in flight
    std::int64_t batches_per_request = 1;
    std::int64_t publish_every_updates = 20;
    std::int64_t max_updates = 0;       // 0: as many as the replay ratio gives
    std::string sync = "allreduce";     // "allreduce" | "paramserver"
    std::string nccl = "libnccl.so.2";  // "": gradients go through the host's memory
    double agree_timeout_s = 10;        // for one step of several learners
    std::int64_t hogwild_threads = 1;
    std::string device = "auto";
    double epochs = 3;             // supervised: passes over the training reviews
    std::int64_t micro_batch = 0;  // supervised: reviews computed at a time; 0: all of a batch
    bool operator==(const LearnerKeys&) const = default;
  } learner;

  struct DataKeys {
    std::string reviews;     // aclImdb as a folder or an archive, or a CSV
    std::string unlabelled;  // more reviews for masked_lm; empty: those of `reviews`
    std::string vocabulary;  // of WordPieces, or a SentencePiece .model
    bool cased = false;
    std::int64_t tokens_max = 256;          // of a review
    std::string truncation_side = "right";  // where longer ones are cut off: "right" | "left"
    double word_dropout = 0;                // classifier: share of tokens that training hides
    double holdout = 0;             // share of the training reviews that is kept for evaluations
    std::string cache = ".tokens";  // folder of token files, below log.dir; empty: none
    bool operator==(const DataKeys&) const = default;
  } data;

  struct ModelKeys {
    std::string family = "bert";  // "bert" | "albert" | "lstm"
    std::string pretrained;       // folder with weights to begin with; empty: fresh ones
    std::int64_t vocabulary = 0;  // 0: as data.vocabulary has
    std::int64_t hidden = 128;
    std::int64_t embedding = 0;  // albert, lstm; 0: as hidden
    std::int64_t layers = 2;
    std::int64_t heads = 2;
    std::int64_t intermediate = 0;  // 0: four times hidden
    std::int64_t positions = 512;
    std::string position_init = "normal";  // "normal" | "sinusoids"
    double dropout = 0.1, attention_dropout = 0.1, classifier_dropout = 0.1;
    bool recompute = false;
    bool operator==(const ModelKeys&) const = default;
  } model;

  struct MeshKeys {
    std::int64_t dp = 0;  // 0: as many as there are learners
    std::int64_t tp = 1;
    std::vector<double> shares;  // of each batch, one a worker; empty: equal ones
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
    bool damp_stale = false;
    std::int64_t warm_start_updates = 0;  // async
    std::int64_t hogwild_threads = 1;     // async; of a shard
    std::int64_t fetch_every = 1;         // updates of a learner between pulls
    std::int64_t push_every = 1;
    std::int64_t max_staleness = 0;  // older gradients are dropped; 0: none is
    double outlier_sigmas = 0;       // gradients of outlying losses are dropped; 0: none is
    double outlier_norm_sigmas = 0;  // and those of outlying norms
    std::string codec = "none";      // "none" | "fp16" | "bf16" | "top_k" | "strom"
    double codec_keep = 0.01;        // top_k
    double codec_threshold = 1;      // strom
    bool backup = false;             // each shard has a second process that can take over
    double lease_s = 2;              // beyond fleet.dead_after_s
    bool operator==(const ParamServerKeys&) const = default;
  } paramserver;

  struct OptimizerKeys {
    std::string type = "adam";  // "adam" | "rmsprop" | "sgd" | "adagrad"
    double learning_rate = 1e-3;
    double policy_learning_rate = 0;  // dpg; 0: as learning_rate
    double final_fraction = 1;        // of the learning rate, linearly, at the run's end
    double warmup = 0;                // share of the run in which the learning rate rises
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
    double every_s = 5;  // between evaluations while training
    std::int64_t episodes = 10;
    std::int64_t final_episodes = -1;  // FinalEpisodes
    double epsilon = 0;
    std::int64_t envs = 10;
    std::int64_t max_episode_steps = 108000;  // where the environment sets no limit
    double solved_return = 0;  // stop the run when an evaluation reaches it; 0: never
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
  // Compiled once: in every file that copies a Config they were a tenth of its compile time.
  Config();
  ~Config();
  Config(const Config& other);
  Config(Config&& other) noexcept;
  Config& operator=(const Config& other);
  Config& operator=(Config&& other) noexcept;
  // No key: what a supervised run's data are (ReviewData::Identity), as the coordinator sends it to
  // its roles, which refuse others. Empty: unknown.
  std::string data_identity;
  // Likewise the custom code of a run's environment (EnvSpec::code).
  std::string env_code;
  // No key either, and not compared: where keys were given, "run.toml:3" or "command line: …".
  struct Places {
    std::map<std::string, std::string> of;
    bool operator==(const Places&) const { return true; }
  } places;

  bool operator==(const Config& other) const;
};

// Whether reviews are learned (classifier, masked_lm) and no environment is played: a run of such a
// config has learners, a parameter server and an evaluator, neither actors nor replay.
bool IsSupervised(const Config& config);
// Of the evaluation at the end: evaluator.final_episodes, and where that is -1 a hundred episodes,
// or as many test reviews as there may be.
std::int64_t FinalEpisodes(const Config& config);
// Processes that choose actions for actors that ask for it; 0: none does.
std::int64_t InferenceServersOf(const Config& config);

// One key, for documentation and error messages.
struct ConfigKey {
  std::string name;           // "replay.alpha"
  std::string type;           // "integer", "number", "boolean", "string", "list of layers"
  std::string default_value;  // as TOML
  std::string range;          // "[0, 1]", "> 0", "one of \"ipc\", \"tcp\""; may be empty
  std::string doc;
};
std::vector<ConfigKey> ConfigKeys();

// A file plus overrides `key=value` (value as TOML; a bare word is a string; the last one wins).
// Errors: kInvalidArgument with ALL problems found, one line each, "file:line: key: what is wrong,
// and what to do": unknown keys with the nearest valid one, wrong types, values out of range,
// impossible combinations. kNotFound when the file can't be read. A file also has its relative
// paths made absolute (config_paths.h).
Result<Config> ParseConfig(std::string_view toml_text, std::string_view file_name,
                           std::span<const std::string> overrides);
Result<Config> LoadConfigFile(const std::string& path, std::span<const std::string> overrides);

// Complete TOML of all keys; ParseConfig(ToToml(c)) == c.
std::string ToToml(const Config& config);
// docs/reference/config.md, generated.
std::string ConfigMarkdown();

}  // namespace troop
