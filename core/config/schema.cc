// Declares every config key: name, description, range and member. Keys of acting, replay, cluster
// engines, parameter server and supervised mode are in schema_*.cc.
#include "core/config/schema.h"

#include <fmt/format.h>

#include <cmath>

namespace troop {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Keys without a section.
void VisitTop(Config& c, ConfigVisitor& v) {
  v.Visit({"version",
           "Version of the config format; a version newer than the program supports is rejected.",
           Between(1, double(kConfigVersion))},
          c.version);
  v.Visit({"name", "Name of the run and of its folder in log.dir."}, c.name);
  v.Visit({"seed", "Seed from which every random stream of the run is derived.",
           Between(0, kConfigMany)},
          c.seed);
}

void VisitRun(Config::RunKeys& c, ConfigVisitor& v) {
  v.Visit({.name = "run.total_steps",
           .doc = "Exact number of agent steps of the run, over all actors. Supervised: number of "
                  "examples, derived from run.epochs.",
           .range = Between(1, kConfigMany),
           .whole = true},
          c.total_steps);
  v.Visit({"run.max_updates", "Updates after which learning stops; 0 means no limit.",
           Between(0, kConfigMany)},
          c.max_updates);
  v.Visit({"run.epochs", "Supervised: passes over the training examples.", LeftOpen(0, 1e6)},
          c.epochs);
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
  v.Visit({"env.reward_scale", "Factor by which the actor multiplies rewards."}, c.reward_scale);
  v.Visit({"env.reward_clip",
           "Bound x of the rewards, which the learner clips to [-x, x]; 0 disables clipping.",
           AtLeast(0)},
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
           "Atari only: maximum number of no-op frames at the start of an episode, drawn from 1 to "
           "this number; 0 disables them.",
           Between(0, 10000)},
          c.noop_max);
  // Implementation of the environment.
  v.Visit({"env.plugin",
           "Shared library that implements the environment (docs/guide/environments.md); empty for "
           "built-in and Python environments."},
          c.plugin);
  v.Visit({"env.options",
           "Options passed unchanged to the environment: those of a plug-in, or keyword arguments "
           "in Python, where the string \"None\" is passed as None."},
          c.options);
  v.Visit({"env.wrappers", "Python only: wrappers as \"module:callable\", applied in this order."},
          c.wrappers);
  v.Visit({"env.python",
           "Interpreter for Python environments; a name is looked up in PATH, and a relative path "
           "is resolved against the folder of the config."},
          c.python);
  // Isolation: separate processes, their limits, and tolerated faults.
  v.Visit({.name = "env.isolation",
           .doc = "Processes that host the environments. \"process\": separate ones; \"none\": the "
                  "actor's own; \"auto\": separate ones for plug-ins and Python only.",
           .choices = {"auto", "process", "none"}},
          c.isolation);
  v.Visit({"env.processes",
           "Number of processes among which the isolated environments of an actor are divided; a "
           "crash ends only the episodes of its process.",
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
           "Number of consecutive faults or non-finite values of an environment, without a "
           "complete episode in between, after which the run ends.",
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
           "and clip the result to [-10, 10]. The statistics come from sampled batches and are "
           "published with the weights. For vectors only; images are already scaled."},
          c.normalize_observations);
  v.Visit({"network.one_hot",
           "Number of classes for one-hot encoding integer observations (out-of-range values "
           "encode as zeros); 0 disables it. For vectors only.",
           Between(0, 1 << 16)},
          c.one_hot);
  v.Visit(
      {.name = "network.precision",
       .doc = "Precision of the arithmetic in large layers; parameters are always fp32. \"tf32\" "
              "uses tensor cores with a 10-bit mantissa on a GPU and is fp32 on the CPU.",
       .choices = {"fp32", "tf32", "bf16"}},
      c.precision);
}

void VisitFleet(Config::FleetKeys& c, ConfigVisitor& v) {
  v.Visit({.name = "fleet.mode",
           .doc = "\"processes\": one process per role; \"serial\": all roles in one thread, in a "
                  "fixed order, so that runs with the same seed are bit-identical.",
           .choices = {"processes", "serial"}},
          c.mode);
  v.Visit({.name = "fleet.engine",
           .doc = "Launcher of the processes (`troop train --engine`). \"local\": this command; "
                  "\"slurm\": a Slurm job; \"mpi\": mpirun; \"kubernetes\": manifests to apply.",
           .choices = {"local", "slurm", "mpi", "kubernetes"}},
          c.engine);
  v.Visit({.name = "fleet.transport",
           .doc = "Transport between the processes of this machine: Unix-domain sockets in a "
                  "private folder, or TCP.",
           .choices = {"ipc", "tcp"}},
          c.transport);
  v.Visit({"fleet.actors", "Number of actor processes.", Between(1, 100000)}, c.actors);
  v.Visit({"fleet.learners", "Number of learner processes; learner.sync sets how they synchronize.",
           Between(1, 256)},
          c.learners);
  // Failure detection and restarts.
  v.Visit({"fleet.heartbeat_timeout_s",
           "Seconds without a heartbeat after which a role counts as dead.", Between(0.1, 3600)},
          c.heartbeat_timeout_s);
  v.Visit({"fleet.stall_timeout_s",
           "Seconds without progress after which a live role is restarted.", Between(0.1, 86400)},
          c.stall_timeout_s);
  v.Visit(
      {"fleet.restarts_max",
       "Maximum number of consecutive restarts of a failing role; one more failure aborts the run.",
       Between(0, 1e6)},
      c.restarts_max);
  v.Visit({"fleet.restart_window_s",
           "Seconds of uptime after which the failure count of a role is reset.", Above(0)},
          c.restart_window_s);
  v.Visit(
      {"fleet.backoff_initial_s",
       "Seconds before the first restart of a role; the wait doubles with each restart.", Above(0)},
      c.backoff_initial_s);
  v.Visit({"fleet.backoff_max_s", "Maximum number of seconds before a restart.", Above(0)},
          c.backoff_max_s);
  v.Visit({"fleet.shutdown_grace_s",
           "Time limit in seconds for a clean shutdown of the roles, after which they are killed.",
           Between(0, 3600)},
          c.shutdown_grace_s);
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
  v.Visit({"security.keys",
           "Folder with the keys of all roles (`troop keygen`). If set, all TCP traffic is "
           "encrypted, and only keys listed in its file `allowed` are admitted, each only for its "
           "role. Empty disables keys."},
          c.keys);
  v.Visit({"security.insecure",
           "Allow listening on non-loopback addresses without keys; any client that reaches the "
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
  v.Visit({"learner.target_update_every_updates", "Updates between changes of the target network.",
           Between(1, kConfigMany)},
          c.target_update_every_updates);
  v.Visit({"learner.target_tau",
           "Fraction by which the target network moves toward the online network at each change; 1 "
           "copies it.",
           LeftOpen(0, 1)},
          c.target_tau);
  v.Visit({"learner.max_grad_norm",
           "Maximum gradient norm; larger gradients are scaled down to it. 0 disables clipping.",
           AtLeast(0)},
          c.max_grad_norm);
  // Value head, and the clipping of DPG's action gradient.
  v.Visit({.name = "learner.critic",
           .doc = "dqn and dpg: form of the value head: scalar mean; categorical (C51, Bellemare "
                  "et al. 2017; D4PG, Barth-Maron et al. 2018) with cross-entropy; or quantile "
                  "(QR-DQN, Dabney et al. 2018) with the Huber loss.",
           .choices = {"scalar", "categorical", "quantile"}},
          c.critic);
  v.Visit(
      {"learner.atoms", "Number of atoms (categorical) or quantiles (quantile) per value estimate.",
       Between(2, 1001)},
      c.atoms);
  v.Visit({"learner.v_min",
           "categorical: lower end of the value support; smaller returns are clipped to it."},
          c.v_min);
  v.Visit({"learner.v_max",
           "categorical: upper end of the value support; larger returns are clipped to it."},
          c.v_max);
  v.Visit({"learner.action_gradient_clip",
           "dpg: bound x to which each component of the gradient of the value with respect to the "
           "action is clipped, [-x, x]; 0 disables clipping.",
           AtLeast(0)},
          c.action_gradient_clip);
  // Flow of batches and weights.
  v.Visit({"learner.prefetch",
           "Maximum number of batch requests that are in flight or not yet consumed; the current "
           "update job holds up to 32 more batches.",
           Between(1, 1024)},
          c.prefetch);
  v.Visit({"learner.batches_per_request",
           "Batches per request; larger values reduce the cost per batch but use older priorities.",
           Between(1, 64)},
          c.batches_per_request);
  v.Visit({"learner.publish_every_updates", "Updates between publications of the weights.",
           Between(1, kConfigMany)},
          c.publish_every_updates);
  // Several learners or threads, and the device.
  v.Visit({.name = "learner.sync",
           .doc = "Synchronization of several learners. \"allreduce\": each update uses the mean "
                  "gradient of all learners. \"paramserver\": parameter shards apply the updates "
                  "(paramserver.mode).",
           .choices = {"allreduce", "paramserver"}},
          c.sync);
  v.Visit({"learner.nccl_library",
           "NCCL library that sums the gradients of learners on GPUs, used if all learners can "
           "load it; empty sums them in host memory."},
          c.nccl_library);
  v.Visit({"learner.allreduce_timeout_s",
           "Time limit in seconds for a collective operation of the learners; a learner that "
           "exceeds it is dropped from the group.",
           Between(0.1, 3600)},
          c.allreduce_timeout_s);
  v.Visit({"learner.hogwild_threads",
           "Threads of a learner that update shared weights without locks (Hogwild!, Recht et al. "
           "2011); with more than 1, runs are not reproducible.",
           Between(1, 256)},
          c.hogwild_threads);
  v.Visit({.name = "learner.device",
           .doc = "Device of the updates. \"auto\" selects a GPU if one exists and this build and "
                  "the configuration support it; the choice is logged.",
           .choices = {"auto", "cpu", "cuda"}},
          c.device);
  // Supervised mode.
  v.Visit({"learner.micro_batch_size",
           "Supervised: examples per forward and backward pass of a learner (gradient "
           "accumulation); 0 means the learner's whole share of the batch.",
           Between(0, 65536)},
          c.micro_batch_size);
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
  v.Visit({"optimizer.final_lr_fraction",
           "Learning rate at the end of the linear decay, as a fraction of the initial one; the "
           "last update is one step before that end, so its rate is never 0.",
           Between(0, 1)},
          c.final_lr_fraction);
  v.Visit({"optimizer.warmup_ratio",
           "Fraction of the updates of the run in which the learning rate rises linearly to its "
           "full value; the decay starts after them.",
           RightOpen(0, 1)},
          c.warmup_ratio);
  // Parameters of single optimizers.
  v.Visit({"optimizer.beta1", "Adam: decay rate of the gradient mean.", RightOpen(0, 1)}, c.beta1);
  v.Visit({"optimizer.beta2", "Adam: decay rate of the squared-gradient mean.", RightOpen(0, 1)},
          c.beta2);
  v.Visit({"optimizer.decay",
           "RMSProp: decay rate of the running means of the gradient and of its square.",
           RightOpen(0, 1)},
          c.decay);
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
           "Adam: coefficient of decoupled weight decay; each update multiplies the weights by 1 - "
           "learning rate · this value.",
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
  v.Visit({"evaluator.stop_at_return",
           "Mean return of an evaluation at which the run ends; 0 disables it."},
          c.stop_at_return);
}

// Sections checkpoint and log.
void VisitOutput(Config& c, ConfigVisitor& v) {
  v.Visit({"checkpoint.every_s", "Seconds between checkpoints; 0 writes only one, at the end.",
           AtLeast(0)},
          c.checkpoint.every_s);
  v.Visit({"checkpoint.every_updates",
           "Serial mode: updates between restore points, from which a stopped or killed run "
           "resumes bit-identically; the replay is then kept on disk. 0 disables restore points.",
           AtLeast(0)},
          c.checkpoint.every_updates);
  v.Visit(
      {"checkpoint.keep", "Number of checkpoints kept; older ones are deleted.", Between(1, 1e6)},
      c.checkpoint.keep);
  v.Visit({"log.dir", "Parent folder of the run folder."}, c.log.dir);
  v.Visit({"log.metrics_every_s", "Seconds between lines of metrics.jsonl.", Between(0.01, 86400)},
          c.log.metrics_every_s);
  v.Visit({.name = "log.level",
           .doc = "Lowest level that is logged.",
           .choices = {"debug", "info", "warning", "error"}},
          c.log.level);
}

}  // namespace

void VisitConfig(Config& config, ConfigVisitor& visitor) {
  VisitTop(config, visitor);
  VisitRun(config.run, visitor);
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
