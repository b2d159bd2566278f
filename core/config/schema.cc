// Declares every config key: name, description, range and member. Keys of acting, replay, cluster
// engines and supervised mode are in config_schema_*.cc.
#include "core/config/schema.h"

#include <fmt/format.h>

#include <cmath>

namespace troop {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Keys without a section.
void VisitTop(Config& c, ConfigVisitor& v) {
  v.Visit({"version",
           "Version of the config keys; a version newer than this program supports is rejected.",
           Between(1, double(kConfigVersion))},
          c.version);
  v.Visit({"name", "Name of the run and of its folder in log.dir."}, c.name);
  v.Visit({"seed", "Seed from which every random stream of the run is derived.",
           Between(0, kConfigMany)},
          c.seed);
}

void VisitEnv(Config::EnvKeys& c, ConfigVisitor& v) {
  v.Visit({"env.id",
           "Name of the environment; an unknown name is reported with the list of known ones."},
          c.id);
  v.Visit({"env.max_episode_steps",
           "Agent steps after which an episode is truncated; 0 means no limit, -1 the "
           "environment's own.",
           Between(-1, kConfigMany)},
          c.max_episode_steps);
  v.Visit({"env.sticky_actions",
           "Probability that the previous action is repeated instead of the chosen one; -1 keeps "
           "the environment's own.",
           Between(-1, 1)},
          c.sticky_actions);
  v.Visit({"env.difficulty_ramping", "Increase the difficulty of MinAtar games over time."},
          c.difficulty_ramping);
  // Rewards and frames.
  v.Visit({"env.reward_scale", "Factor that the actor multiplies rewards by."}, c.reward_scale);
  v.Visit({"env.reward_clip",
           "Bound to which the learner clips rewards, [-x, x]; 0 disables clipping.", AtLeast(0)},
          c.reward_clip);
  v.Visit({"env.action_repeat",
           "Environment steps (Atari: frames) per agent step; the action is repeated.",
           Between(1, 1000)},
          c.action_repeat);
  v.Visit({"env.frame_stack",
           "Number of consecutive observations in the network input, zero-padded at the start of "
           "an episode.",
           Between(1, 64)},
          c.frame_stack);
  v.Visit({"env.noop_max",
           "Maximum number of no-op frames at the start of an episode, at least 1 (Atari only); 0 "
           "disables them.",
           Between(0, 10000)},
          c.noop_max);
  // Implementation of the environment.
  v.Visit({"env.plugin",
           "Shared library that implements the environment (docs/guide/environments.md); empty for "
           "built-in and Python environments."},
          c.plugin);
  v.Visit({"env.options",
           "Options passed unchanged to the environment: a plug-in's options, or keyword arguments "
           "in Python, where \"None\" means None."},
          c.options);
  v.Visit({"env.wrappers", "Python only: wrappers as \"module:callable\", applied in this order."},
          c.wrappers);
  v.Visit({"env.python",
           "Interpreter for Python environments; a name is looked up in PATH, a relative path "
           "starts at the config's folder."},
          c.python);
  // Isolation: separate processes, their limits, and tolerated faults.
  v.Visit({.name = "env.isolation",
           .doc = "Process that hosts the environments: a separate one, or the actor's; auto "
                  "isolates plug-ins and Python.",
           .choices = {"auto", "process", "none"}},
          c.isolation);
  v.Visit({"env.processes",
           "Processes that share the isolated environments of an actor; a crash ends the episodes "
           "of one process.",
           Between(1, 2048)},
          c.processes);
  v.Visit({"env.start_timeout_s", "Seconds that an isolated environment may take to start.",
           Between(0.1, 86400)},
          c.start_timeout_s);
  v.Visit({"env.step_timeout_s",
           "Seconds that an isolated environment may take for one step or reset before it counts "
           "as hung.",
           Between(0.01, 86400)},
          c.step_timeout_s);
  v.Visit({"env.faults_max",
           "Number of faults and non-finite values of one environment, without a complete episode "
           "in between, that ends the run.",
           Between(1, 1e6)},
          c.faults_max);
}

void VisitNetwork(Config::NetworkKeys& c, ConfigVisitor& v) {
  v.Visit({"network.layers",
           "Layers between observation and head (dpg: of the policy); empty means two linear "
           "layers of 64 units."},
          c.layers);
  v.Visit({"network.critic_layers",
           "dpg: layers of the critic, whose first linear layer also takes the action; empty means "
           "network.layers."},
          c.critic_layers);
  v.Visit({"network.dueling",
           "Separate streams for the state value and the action advantages (Wang et al. 2016)."},
          c.dueling);
  v.Visit({"network.dueling_units", "Hidden units of each dueling stream; 0 means no hidden layer.",
           Between(0, 1 << 20)},
          c.dueling_units);
  v.Visit({"network.normalize_observations",
           "Normalize each element of an observation by its running mean and standard deviation, "
           "clipped to [-10, 10]. The statistics come from sampled batches and are published with "
           "the weights. For vectors only; images are scaled already."},
          c.normalize_observations);
  v.Visit({"network.one_hot",
           "Number of classes for one-hot encoding integer observations (out-of-range values "
           "encode as zeros); 0 disables it. For vectors only.",
           Between(0, 1 << 16)},
          c.one_hot);
  v.Visit({.name = "network.precision",
           .doc = "Arithmetic of large layers; parameters are always fp32. \"tf32\" uses tensor "
                  "cores with a 10-bit mantissa on a GPU and is fp32 on the CPU.",
           .choices = {"fp32", "tf32", "bf16"}},
          c.precision);
}

void VisitFleet(Config::FleetKeys& c, ConfigVisitor& v) {
  v.Visit({.name = "fleet.mode",
           .doc = "\"processes\": one process per role; \"serial\": all roles in one thread, in a "
                  "fixed order (same seed, same bytes).",
           .choices = {"processes", "serial"}},
          c.mode);
  v.Visit({.name = "fleet.engine",
           .doc = "Launcher of the processes (`troop train --engine`): this machine's own, a Slurm "
                  "job, mpirun, or Kubernetes manifests.",
           .choices = {"local", "slurm", "mpi", "kubernetes"}},
          c.engine);
  v.Visit(
      {.name = "fleet.transport",
       .doc =
           "Transport between the processes of this machine: sockets in a private folder, or TCP.",
       .choices = {"ipc", "tcp"}},
      c.transport);
  v.Visit({"fleet.actors", "Number of actor processes.", Between(1, 100000)}, c.actors);
  v.Visit({"fleet.learners", "Number of learner processes; learner.sync sets how they synchronize.",
           Between(1, 256)},
          c.learners);
  // Failure detection and restarts.
  v.Visit({"fleet.dead_after_s", "Seconds without a heartbeat after which a role counts as dead.",
           Between(0.1, 3600)},
          c.dead_after_s);
  v.Visit({"fleet.hung_after_s", "Seconds without progress after which a live role is restarted.",
           Between(0.1, 86400)},
          c.hung_after_s);
  v.Visit({"fleet.restarts_max", "Consecutive failures of a role before the run is aborted.",
           Between(0, 1e6)},
          c.restarts_max);
  v.Visit({"fleet.restart_window_s",
           "Seconds of uptime after which the failure count of a role is reset.", Above(0)},
          c.restart_window_s);
  v.Visit(
      {"fleet.backoff_first_s",
       "Seconds before the first restart of a role; the wait doubles with each restart.", Above(0)},
      c.backoff_first_s);
  v.Visit({"fleet.backoff_max_s", "Maximum number of seconds before a restart.", Above(0)},
          c.backoff_max_s);
  v.Visit({"fleet.drain_s", "Seconds that roles have to shut down cleanly before they are killed.",
           Between(0, 3600)},
          c.drain_s);
  v.Visit(
      {"fleet.listen",
       "Listen address of the coordinator for roles on other machines (`troop join`): "
       "tcp://HOST:PORT with a HOST that they can reach; empty restricts the run to this machine."},
      c.listen);
  v.Visit({"fleet.listen_replay",
           "Listen address of replay shard 0; shard k uses port + k. Empty means the host of "
           "fleet.listen with free ports."},
          c.listen_replay);
  v.Visit({"fleet.listen_paramserver",
           "Listen address of parameter server 0; server k uses port + k. Empty means the host of "
           "fleet.listen with free ports."},
          c.listen_paramserver);
  VisitOthers(c, v);
}

void VisitSecurity(Config::SecurityKeys& c, ConfigVisitor& v) {
  v.Visit(
      {"security.keys",
       "Folder of the keys of all roles (`troop keygen`); encrypts all TCP traffic and admits only "
       "the keys in the folder's file `allowed`, each in its own role. Empty disables keys."},
      c.keys);
  v.Visit({"security.insecure",
           "Listen on other than loopback addresses without keys; any client that reaches the "
           "ports can then read and control the run."},
          c.insecure);
}

void VisitLearner(Config::LearnerKeys& c, ConfigVisitor& v) {
  v.Visit({.name = "learner.algorithm",
           .doc = "Learning algorithm: Ape-X DQN for discrete actions, Ape-X DPG for continuous "
                  "ones (Horgan et al. 2018); for text (data.reviews) a sentiment classifier, or "
                  "masked-LM pre-training (Devlin et al. 2019).",
           .choices = {"dqn", "dpg", "classifier", "masked_lm"}},
          c.algorithm);
  v.Visit({.name = "learner.total_steps",
           .doc = "Agent steps of the run over all actors, an exact budget. Supervised runs count "
                  "examples and derive it from learner.epochs.",
           .range = Between(1, kConfigMany),
           .whole = true},
          c.total_steps);
  v.Visit(
      {"learner.batch_size",
       "Items per update; supervised: examples per update, over all learners.", Between(1, 65536)},
      c.batch_size);
  // Values and targets.
  v.Visit({"learner.gamma", "Discount factor per agent step.", Between(0, 1)}, c.gamma);
  v.Visit({"learner.double_q",
           "Select the bootstrap action with the online network (van Hasselt et al. 2016)."},
          c.double_q);
  v.Visit({.name = "learner.loss",
           .doc = "Loss of the TD error: Huber (linear beyond 1), or half the squared error.",
           .choices = {"huber", "mse"}},
          c.loss);
  v.Visit({"learner.target_update_steps", "Updates between changes of the target network.",
           Between(1, kConfigMany)},
          c.target_update_steps);
  v.Visit({"learner.target_tau",
           "Fraction by which the target network moves toward the online network at each change; 1 "
           "copies it.",
           LeftOpen(0, 1)},
          c.target_tau);
  v.Visit({"learner.max_grad_norm",
           "Maximum norm of the gradient, which is scaled down to it; 0 disables clipping.",
           AtLeast(0)},
          c.max_grad_norm);
  // Value head, and the clipping of DPG's action gradient.
  v.Visit({.name = "learner.critic",
           .doc = "dqn and dpg: form of the value head: scalar mean; categorical (C51, Bellemare "
                  "et al. 2017; D4PG, Barth-Maron et al. 2018) with cross-entropy; or quantile "
                  "(QR-DQN, Dabney et al. 2018) with the Huber loss.",
           .choices = {"scalar", "categorical", "quantile"}},
          c.critic);
  v.Visit({"learner.atoms", "Number of atoms or quantiles of a value.", Between(2, 1001)}, c.atoms);
  v.Visit({"learner.v_min", "Lower end of the value support; smaller returns are clipped to it."},
          c.v_min);
  v.Visit({"learner.v_max", "Upper end of the value support; larger returns are clipped to it."},
          c.v_max);
  v.Visit(
      {"learner.action_gradient_clip",
       "dpg: bound of the value gradient in each action dimension, [-x, x]; 0 disables clipping.",
       AtLeast(0)},
      c.action_gradient_clip);
  // Flow of batches and weights.
  v.Visit({"learner.prefetch",
           "Batch requests in flight or queued; update jobs hold up to 32 more batches.",
           Between(1, 1024)},
          c.prefetch);
  v.Visit(
      {"learner.batches_per_request",
       "Batches per request; more cost less per batch but use older priorities.", Between(1, 64)},
      c.batches_per_request);
  v.Visit({"learner.publish_every_updates", "Updates between publications of the weights.",
           Between(1, kConfigMany)},
          c.publish_every_updates);
  v.Visit({"learner.max_updates", "Updates after which learning stops; 0 means no limit.",
           Between(0, kConfigMany)},
          c.max_updates);
  // Several learners or threads, and the device.
  v.Visit({.name = "learner.sync",
           .doc = "Synchronization of several learners. \"allreduce\": each update uses the mean "
                  "gradient of all learners. \"paramserver\": parameter shards apply the updates "
                  "(paramserver.mode).",
           .choices = {"allreduce", "paramserver"}},
          c.sync);
  v.Visit({"learner.nccl",
           "NCCL library for gradients of learners on GPUs, used where all learners have it; empty "
           "sends them through host memory."},
          c.nccl);
  v.Visit({"learner.agree_timeout_s",
           "Seconds for one collective operation of the learners; a slower learner is dropped from "
           "the group.",
           Between(0.1, 3600)},
          c.agree_timeout_s);
  v.Visit({"learner.hogwild_threads",
           "Threads of a learner that update shared weights without locks (Hogwild!, Recht et al. "
           "2011); above 1 runs are not reproducible.",
           Between(1, 256)},
          c.hogwild_threads);
  v.Visit({.name = "learner.device",
           .doc = "Device of the updates. \"auto\" selects a GPU if one exists and this build and "
                  "the configuration support it; the choice is logged.",
           .choices = {"auto", "cpu", "cuda"}},
          c.device);
  // Supervised mode.
  v.Visit({"learner.epochs", "Supervised: passes over the training examples.", LeftOpen(0, 1e6)},
          c.epochs);
  v.Visit({"learner.micro_batch",
           "Supervised: examples per forward and backward pass of a learner (gradient "
           "accumulation); 0 means all of its share of the batch.",
           Between(0, 65536)},
          c.micro_batch);
}

// Keys of paramserver.* that depend on paramserver.mode.
void VisitSync(Config::ParamServerKeys& c, ConfigVisitor& v) {
  v.Visit({.name = "paramserver.mode",
           .doc = "When gradients are applied: bsp, those of all learners together; k_of_n, the "
                  "first k; ssp, each at once with bounded staleness; async, each at once; "
                  "local_sgd averages the values of learners that step by plain SGD.",
           .choices = {"bsp", "k_of_n", "ssp", "async", "local_sgd"}},
          c.mode);
  v.Visit({"paramserver.k", "k_of_n: gradients to collect before each update.", Between(1, 100000)},
          c.k);
  v.Visit({"paramserver.cancel",
           "k_of_n: drop gradients of older versions (K-sync of Dutta et al. 2018)."},
          c.cancel);
  v.Visit({"paramserver.per_batch",
           "k_of_n: accept several of the k gradients from one learner (K-batch-sync and "
           "K-batch-async)."},
          c.per_batch);
  v.Visit({"paramserver.staleness",
           "ssp: pushes that a learner may be ahead of the slowest one (Ho et al. 2013); 0 is "
           "equivalent to bsp.",
           Between(0, kConfigMany)},
          c.staleness);
  v.Visit({"paramserver.damp_stale",
           "k_of_n, ssp, async: scale a gradient of staleness t by 1/t (Zhang et al. 2016)."},
          c.damp_stale);
  v.Visit({"paramserver.warm_start_updates",
           "async: version until which only the first learner works (Dean et al. 2012).",
           Between(0, kConfigMany)},
          c.warm_start_updates);
  v.Visit({"paramserver.hogwild_threads",
           "async: threads of a shard that apply pushes without locks (Hogwild!, Recht et al. "
           "2011); above 1 runs are not reproducible.",
           Between(1, 64)},
          c.hogwild_threads);
  v.Visit({"paramserver.fetch_every",
           "Updates of a learner between pulls (n_fetch); 0 means one pass over the examples "
           "(supervised only).",
           Between(0, kConfigMany)},
          c.fetch_every);
  v.Visit({"paramserver.push_every",
           "Updates of a learner whose gradients are pushed together (n_push; local_sgd: H); 0 "
           "means one pass over the examples (supervised only).",
           Between(0, kConfigMany)},
          c.push_every);
}

void VisitParamServer(Config::ParamServerKeys& c, ConfigVisitor& v) {
  v.Visit({"paramserver.shards",
           "Processes that share the parameters and their optimizer state, with learner.sync = "
           "\"paramserver\".",
           Between(1, 1024)},
          c.shards);
  v.Visit({.name = "paramserver.sharding",
           .doc = "Assignment of parameters to shards: in equal bytes, or by whole layers.",
           .choices = {"memory", "layer"}},
          c.sharding);
  VisitSync(c, v);
  // Filters of gradients.
  v.Visit({"paramserver.max_staleness",
           "Staleness in versions beyond which gradients are dropped (Nair et al. 2015); 0 "
           "disables it.",
           Between(0, kConfigMany)},
          c.max_staleness);
  v.Visit({"paramserver.outlier_sigmas",
           "Drop gradients whose loss exceeds the mean by this many standard deviations (Nair et "
           "al. 2015); 0 disables it.",
           AtLeast(0)},
          c.outlier_sigmas);
  v.Visit({"paramserver.outlier_norm_sigmas",
           "Drop gradients whose norm exceeds the mean by this many standard deviations, which "
           "detects faults in the backward pass; 0 disables it.",
           AtLeast(0)},
          c.outlier_norm_sigmas);
  // Compression.
  v.Visit({.name = "paramserver.codec",
           .doc = "Compression of pushed gradients; what is not sent is added to the next gradient "
                  "(error feedback).",
           .choices = {"none", "fp16", "bf16", "top_k", "strom"}},
          c.codec);
  v.Visit(
      {"paramserver.codec_keep", "top_k: fraction of the elements that is sent.", LeftOpen(0, 1)},
      c.codec_keep);
  v.Visit(
      {"paramserver.codec_threshold",
       "strom: magnitude from which an element is sent, as plus or minus this value (Strom 2015).",
       LeftOpen(0, 1e30)},
      c.codec_threshold);
  // Failover.
  v.Visit({"paramserver.backup",
           "Run a backup process for each shard, which takes over when the primary fails."},
          c.backup);
  v.Visit({"paramserver.lease_s",
           "Seconds that shards wait for a dead or hung learner, after fleet.dead_after_s.",
           Between(0, 3600)},
          c.lease_s);
}

void VisitOptimizer(Config::OptimizerKeys& c, ConfigVisitor& v) {
  v.Visit({.name = "optimizer.type",
           .doc = "Optimizer: Adam (Kingma & Ba 2015), RMSProp (Graves 2013), SGD, or AdaGrad "
                  "(Duchi et al. 2011).",
           .choices = {"adam", "rmsprop", "sgd", "adagrad"}},
          c.type);
  v.Visit({"optimizer.learning_rate", "Learning rate at the start.", Above(0)}, c.learning_rate);
  v.Visit({"optimizer.policy_learning_rate",
           "dpg: learning rate of the policy at the start; 0 means optimizer.learning_rate.",
           AtLeast(0)},
          c.policy_learning_rate);
  // Schedule of the learning rate.
  v.Visit({"optimizer.final_fraction",
           "Fraction of the learning rate at the end of the run, reached by linear decay; the last "
           "update is one decay step above it, so its rate is never 0.",
           Between(0, 1)},
          c.final_fraction);
  v.Visit({"optimizer.warmup",
           "Fraction of the run's updates (W) over which the learning rate rises linearly from 1/W "
           "of its value, before the decay.",
           RightOpen(0, 1)},
          c.warmup);
  // Parameters of single optimizers.
  v.Visit({"optimizer.beta1", "Adam: decay rate of the gradient mean.", RightOpen(0, 1)}, c.beta1);
  v.Visit({"optimizer.beta2", "Adam: decay rate of the squared-gradient mean.", RightOpen(0, 1)},
          c.beta2);
  v.Visit({"optimizer.decay", "RMSProp: decay rate of both means.", RightOpen(0, 1)}, c.decay);
  v.Visit({"optimizer.centered",
           "RMSProp: divide by the standard deviation of the gradient instead of its root mean "
           "square."},
          c.centered);
  v.Visit(
      {"optimizer.momentum", "SGD: momentum coefficient; 0 disables momentum.", RightOpen(0, 1)},
      c.momentum);
  v.Visit(
      {"optimizer.epsilon",
       "Term added to the divisor: outside the root for Adam and AdaGrad, inside it for RMSProp.",
       Above(0)},
      c.epsilon);
  v.Visit({"optimizer.weight_decay",
           "Decoupled weight decay per update, as a fraction of each weight times the learning "
           "rate (Adam only).",
           AtLeast(0)},
          c.weight_decay);
}

void VisitEvaluator(Config::EvaluatorKeys& c, ConfigVisitor& v) {
  v.Visit({"evaluator.enabled",
           "Run an evaluator role that measures the greedy return; supervised: the accuracy in %."},
          c.enabled);
  v.Visit(
      {"evaluator.every_s", "Seconds between the starts of consecutive evaluations.", AtLeast(0)},
      c.every_s);
  v.Visit({"evaluator.episodes", "Episodes (supervised: examples) per evaluation during training.",
           Between(1, 1e6)},
          c.episodes);
  v.Visit({"evaluator.final_episodes",
           "Episodes (supervised: test examples) of the final evaluation; -1 means 100 episodes, "
           "or all test examples.",
           Between(-1, 1e6)},
          c.final_episodes);
  v.Visit({"evaluator.epsilon", "Probability of a random action in evaluations.", Between(0, 1)},
          c.epsilon);
  v.Visit(
      {"evaluator.envs", "Environments of the evaluator that step together.", Between(1, 65536)},
      c.envs);
  v.Visit({"evaluator.max_episode_steps",
           "Agent steps after which an evaluation episode is truncated if the environment has no "
           "limit.",
           Between(1, kConfigMany)},
          c.max_episode_steps);
  v.Visit(
      {"evaluator.solved_return", "Mean return of an evaluation that ends the run; 0 disables it."},
      c.solved_return);
}

// Sections checkpoint and log.
void VisitOutput(Config& c, ConfigVisitor& v) {
  v.Visit({"checkpoint.every_s", "Seconds between checkpoints; 0 writes only one, at the end.",
           AtLeast(0)},
          c.checkpoint.every_s);
  v.Visit({"checkpoint.every_updates",
           "Serial mode: updates between restore points, from which a stopped or killed run "
           "resumes with identical bytes; the replay is then kept on disk. 0 disables them.",
           AtLeast(0)},
          c.checkpoint.every_updates);
  v.Visit(
      {"checkpoint.keep", "Number of checkpoints kept; older ones are deleted.", Between(1, 1e6)},
      c.checkpoint.keep);
  v.Visit({"log.dir", "Parent folder of the run folder."}, c.log.dir);
  v.Visit({"log.metrics_every_s", "Seconds between lines of metrics.", Between(0.01, 86400)},
          c.log.metrics_every_s);
  v.Visit({.name = "log.level",
           .doc = "Lowest level that is logged.",
           .choices = {"debug", "info", "warning", "error"}},
          c.log.level);
}

}  // namespace

void VisitConfig(Config& config, ConfigVisitor& visitor) {
  VisitTop(config, visitor);
  VisitEnv(config.env, visitor);
  VisitNetwork(config.network, visitor);
  VisitFleet(config.fleet, visitor);
  VisitSecurity(config.security, visitor);
  VisitCluster(config, visitor);
  VisitActing(config, visitor);
  VisitReplay(config.replay, visitor);
  VisitLearner(config.learner, visitor);
  VisitSupervised(config, visitor);
  VisitParamServer(config.paramserver, visitor);
  VisitOptimizer(config.optimizer, visitor);
  VisitEvaluator(config.evaluator, visitor);
  VisitOutput(config, visitor);
}

void VisitLayer(LayerConfig& layer, ConfigVisitor& v) {
  v.Visit({.name = "type",
           .doc = "Type of the layer; conv2d layers precede linear ones.",
           .choices = {"linear", "conv2d"}},
          layer.type);
  v.Visit({"units", "linear: number of outputs.", Between(1, 1 << 20)}, layer.units);
  v.Visit({"filters", "conv2d: number of output channels.", Between(1, 65536)}, layer.filters);
  v.Visit({"kernel", "conv2d: height and width of the filters in pixels.", Between(1, 1024)},
          layer.kernel);
  v.Visit({"stride", "conv2d: distance between outputs in pixels.", Between(1, 1024)},
          layer.stride);
  v.Visit({.name = "activation",
           .doc = "Activation function after the layer.",
           .choices = {"relu", "tanh", "none"}},
          layer.activation);
}

// Non-finite values are never valid, even in an unbounded range.
bool ConfigRange::Contains(double value) const {
  if (!std::isfinite(value)) return false;
  return (low_open ? value > low : value >= low) && (high_open ? value < high : value <= high);
}

std::string ConfigRange::ToString() const {
  if (low == -kInfinity && high == kInfinity) return "";
  // The technical limit kConfigMany is not shown.
  if (high == kInfinity || high == kConfigMany) {
    return fmt::format("{} {}", low_open ? ">" : ">=", TomlNumber(low));
  }
  return fmt::format("{}{}, {}{}", low_open ? "(" : "[", TomlNumber(low), TomlNumber(high),
                     high_open ? ")" : "]");
}

std::string ConfigKeyInfo::RangeText() const {
  if (choices.empty()) return range.ToString();
  std::string text = "one of ";
  if (choices.size() == 1) text = "only ";
  for (std::size_t i = 0; i < choices.size(); ++i) {
    text += fmt::format("{}\"{}\"", i > 0 ? ", " : "", choices[i]);
  }
  return text;
}

std::string TomlNumber(double value) {
  const bool whole = value == std::floor(value) && std::abs(value) <= kConfigMany;
  if (whole) return fmt::format("{:.0f}", value);
  return fmt::format("{}", value);  // the shortest text that parses to the same value
}

// A TOML basic string, with escapes for quotes, backslashes and control characters.
std::string TomlString(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) {
      out += fmt::format("\\u{:04X}", static_cast<unsigned char>(c));
    } else {
      out += c;
    }
  }
  return out + '"';
}

}  // namespace troop
