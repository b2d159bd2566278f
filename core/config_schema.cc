#include "core/config_schema.h"

#include <fmt/format.h>

#include <cmath>

namespace troop {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

void VisitTop(Config& c, ConfigVisitor& v) {
  v.Visit({"version", "Version of these keys: a newer one than this program knows is refused.",
           Between(1, double(kConfigVersion))},
          c.version);
  v.Visit({"name", "Name of the run, and of its folder below log.dir."}, c.name);
  v.Visit({"seed", "Every random stream of the run is derived from it.", Between(0, kConfigMany)},
          c.seed);
}

void VisitEnv(Config::EnvKeys& c, ConfigVisitor& v) {
  v.Visit(
      {"env.id", "Which environment to learn; an unknown name is answered with the known ones."},
      c.id);
  v.Visit({"env.max_episode_steps",
           "Agent steps after which an episode is truncated; 0: never, -1: the environment's own.",
           Between(-1, kConfigMany)},
          c.max_episode_steps);
  v.Visit({"env.sticky_actions",
           "Probability that the last action is repeated in place of the wanted one; -1: the "
           "environment's own.",
           Between(-1, 1)},
          c.sticky_actions);
  v.Visit({"env.difficulty_ramping", "Whether MinAtar games grow harder as they go on."},
          c.difficulty_ramping);
  v.Visit({"env.reward_scale", "Rewards are multiplied by it, in the actor."}, c.reward_scale);
  v.Visit({"env.reward_clip", "The learner clips rewards to [-x, x]; 0: not at all.", AtLeast(0)},
          c.reward_clip);
  v.Visit({"env.action_repeat",
           "Steps of the environment (Atari: frames) for which one action is held: one agent step.",
           Between(1, 1000)},
          c.action_repeat);
  v.Visit({"env.frame_stack",
           "Observations that the network sees at a time, zeros before an episode's start.",
           Between(1, 64)},
          c.frame_stack);
  v.Visit(
      {"env.noop_max", "An episode starts with 1 to this many no-op frames (Atari only); 0: none.",
       Between(0, 10000)},
      c.noop_max);
  v.Visit({"env.plugin",
           "Shared library with the environment (docs/guide/environments.md); empty: it is built "
           "in, or "
           "Python's."},
          c.plugin);
  v.Visit({"env.options",
           "Handed to the environment as they are: a plug-in's options, or keyword arguments in "
           "Python, where \"None\" is None."},
          c.options);
  v.Visit({"env.wrappers", "Python only: wrappers, as \"module:callable\", applied in this order."},
          c.wrappers);
  v.Visit(
      {"env.python",
       "The interpreter that plays Python environments: a name in PATH, or a path, which counts "
       "from the folder of the config."},
      c.python);
  v.Visit({.name = "env.isolation",
           .doc = "Where environments live: in a process of their own, or in the actor's; auto: "
                  "plug-ins and Python in their own.",
           .choices = {"auto", "process", "none"}},
          c.isolation);
  v.Visit({"env.processes",
           "Processes over which an actor's isolated environments are spread; a crash ends the "
           "episodes of one of them.",
           Between(1, 2048)},
          c.processes);
  v.Visit({"env.start_timeout_s", "Time that an isolated environment has to start.",
           Between(0.1, 86400)},
          c.start_timeout_s);
  v.Visit({"env.step_timeout_s",
           "Time that an isolated environment has for one step or reset, before it counts as hung.",
           Between(0.01, 86400)},
          c.step_timeout_s);
  v.Visit({"env.faults_max",
           "Faults and bad numbers of one environment, without a whole good episode between, that "
           "end the run.",
           Between(1, 1e6)},
          c.faults_max);
}

void VisitNetwork(Config::NetworkKeys& c, ConfigVisitor& v) {
  v.Visit({"network.layers",
           "The layers between observation and head (dpg: of the policy); empty: two linear layers "
           "of 64."},
          c.layers);
  v.Visit({"network.critic_layers",
           "dpg: the layers of the critic, whose first linear one also sees the action; empty: as "
           "layers."},
          c.critic_layers);
  v.Visit(
      {"network.dueling",
       "Separate streams for the state's value and the actions' advantages (Wang et al. 2016)."},
      c.dueling);
  v.Visit({"network.dueling_units", "Hidden units of each dueling stream; 0: no hidden layer.",
           Between(0, 1 << 20)},
          c.dueling_units);
  v.Visit({"network.normalize_observations",
           "Networks see observations less their mean and over their standard deviation, number by "
           "number, clipped to [-10, 10]: running statistics of what the learner draws, which "
           "travel with the weights. For vectors; pictures have a scale."},
          c.normalize_observations);
  v.Visit({"network.one_hot",
           "Each number of an observation is one of so many classes, 0 and up, and seen as that "
           "many zeros with a 1 (all zeros beyond); 0: numbers are numbers. For vectors.",
           Between(0, 1 << 16)},
          c.one_hot);
  v.Visit({.name = "network.precision",
           .doc = "Arithmetic of large layers; parameters are always fp32. \"tf32\": products of a "
                  "GPU's tensor cores, with 10 bits; on the CPU as \"fp32\".",
           .choices = {"fp32", "tf32", "bf16"}},
          c.precision);
}

void VisitFleet(Config::FleetKeys& c, ConfigVisitor& v) {
  v.Visit({.name = "fleet.mode",
           .doc = "A process per role, or all roles in one thread in a fixed order (same seed, "
                  "same bytes).",
           .choices = {"processes", "serial"}},
          c.mode);
  v.Visit({.name = "fleet.engine",
           .doc = "What starts the processes (`troop train --engine`): this machine's launcher, a "
                  "job of Slurm, mpirun, or manifests for Kubernetes.",
           .choices = {"local", "slurm", "mpi", "kubernetes"}},
          c.engine);
  v.Visit({.name = "fleet.transport",
           .doc = "How the processes of this machine talk: sockets in a private folder, or TCP.",
           .choices = {"ipc", "tcp"}},
          c.transport);
  v.Visit({"fleet.actors", "Actor processes.", Between(1, 100000)}, c.actors);
  v.Visit({"fleet.learners", "Learner processes. They agree on each update: learner.sync.",
           Between(1, 256)},
          c.learners);
  v.Visit({"fleet.dead_after_s", "A role that sends no heartbeat for so long counts as dead.",
           Between(0.1, 3600)},
          c.dead_after_s);
  v.Visit(
      {"fleet.hung_after_s", "A role that is alive but makes no progress for so long is restarted.",
       Between(0.1, 86400)},
      c.hung_after_s);
  v.Visit(
      {"fleet.restarts_max",
       "Failures of one role in a row that are forgiven; one more ends the run.", Between(0, 1e6)},
      c.restarts_max);
  v.Visit({"fleet.restart_window_s", "A role that worked for so long begins a new row of failures.",
           Above(0)},
          c.restart_window_s);
  v.Visit({"fleet.backoff_first_s",
           "Wait before the first restart of a role; it doubles each time.", Above(0)},
          c.backoff_first_s);
  v.Visit({"fleet.backoff_max_s", "Longest wait before a restart.", Above(0)}, c.backoff_max_s);
  v.Visit({"fleet.drain_s", "Time that roles have to end in order before they are killed.",
           Between(0, 3600)},
          c.drain_s);
  v.Visit({"fleet.listen",
           "Where the coordinator listens for roles of other machines (`troop join`): "
           "tcp://HOST:PORT, an address of this machine that they reach. Empty: for this machine "
           "alone."},
          c.listen);
  v.Visit({"fleet.listen_replay",
           "The same of replay shard 0; shard k has the port k higher. Empty: the host of "
           "fleet.listen, and any free ports."},
          c.listen_replay);
  v.Visit({"fleet.listen_paramserver", "The same of parameter servers."}, c.listen_paramserver);
  VisitOthers(c, v);
}

void VisitSecurity(Config::SecurityKeys& c, ConfigVisitor& v) {
  v.Visit({"security.keys",
           "Folder of keys (`troop keygen`), one a role. With keys all TCP of the fleet is "
           "encrypted, and only keys that the folder's file `allowed` names come in, each to do "
           "what its role does. Empty: none."},
          c.keys);
  v.Visit({"security.insecure",
           "Listen beyond this machine without keys: whoever reaches the ports can then read and "
           "steer the run."},
          c.insecure);
}

void VisitLearner(Config::LearnerKeys& c, ConfigVisitor& v) {
  v.Visit({.name = "learner.algorithm",
           .doc = "What is learned, and by which loss: Ape-X DQN for discrete actions, Ape-X DPG "
                  "for continuous ones (Horgan et al. 2018); of reviews (data.reviews) their "
                  "sentiment, or the words that are masked in them (Devlin et al. 2019).",
           .choices = {"dqn", "dpg", "classifier", "masked_lm"}},
          c.algorithm);
  v.Visit({.name = "learner.total_steps",
           .doc = "Agent steps of the run, over all actors; the budget is kept exactly. Supervised "
                  "runs count reviews, and get it from learner.epochs.",
           .range = Between(1, kConfigMany),
           .whole = true},
          c.total_steps);
  v.Visit(
      {"learner.batch_size", "Items of one update; supervised: reviews, which all learners share.",
       Between(1, 65536)},
      c.batch_size);
  v.Visit({"learner.gamma", "Discount of one agent step.", Between(0, 1)}, c.gamma);
  v.Visit({"learner.double_q",
           "Choose the bootstrap's action with the online network (van Hasselt et al. 2016)."},
          c.double_q);
  v.Visit({.name = "learner.loss",
           .doc = "Of the TD error: Huber (linear beyond 1), or half its square.",
           .choices = {"huber", "mse"}},
          c.loss);
  v.Visit({"learner.target_update_steps", "Updates between two changes of the target network.",
           Between(1, kConfigMany)},
          c.target_update_steps);
  v.Visit({"learner.target_tau",
           "How far the target network moves to the online one at each change; 1: a copy.",
           AboveUpTo(0, 1)},
          c.target_tau);
  v.Visit({"learner.max_grad_norm", "Longer gradients are scaled down to this length; 0: never.",
           AtLeast(0)},
          c.max_grad_norm);
  v.Visit({.name = "learner.critic",
           .doc = "dqn and dpg: what the network says of a value: its mean; the chances of atoms "
                  "(C51, Bellemare et al. 2017; D4PG, Barth-Maron et al. 2018), learned by their "
                  "cross-entropy; or quantiles (QR-DQN, Dabney et al. 2018), by the Huber loss.",
           .choices = {"scalar", "categorical", "quantile"}},
          c.critic);
  v.Visit({"learner.atoms", "Atoms or quantiles of a value.", Between(2, 1001)}, c.atoms);
  v.Visit({"learner.v_min", "Value of the first atom; less is taken for it."}, c.v_min);
  v.Visit({"learner.v_max", "Value of the last atom; more is taken for it."}, c.v_max);
  v.Visit({"learner.action_gradient_clip",
           "dpg: the value's gradient by each number of an action is clipped to [-x, x]; 0: not at "
           "all.",
           AtLeast(0)},
          c.action_gradient_clip);
  v.Visit({"learner.prefetch",
           "Requests for batches in flight or waiting; up to 32 batches more are in update jobs.",
           Between(1, 1024)},
          c.prefetch);
  v.Visit({"learner.batches_per_request",
           "Batches that one request brings: more cost less per batch but see older priorities.",
           Between(1, 64)},
          c.batches_per_request);
  v.Visit({"learner.publish_every_updates", "Updates between two publications of the weights.",
           Between(1, kConfigMany)},
          c.publish_every_updates);
  v.Visit({"learner.max_updates", "Stop learning after so many updates; 0: no limit.",
           Between(0, kConfigMany)},
          c.max_updates);
  v.Visit({.name = "learner.sync",
           .doc = "How learners agree. \"allreduce\": each update is the mean of all learners' "
                  "gradients. \"paramserver\": parameter shards make the updates "
                  "(paramserver.mode).",
           .choices = {"allreduce", "paramserver"}},
          c.sync);
  v.Visit({"learner.nccl",
           "The library by which learners on GPUs add up their gradients where all have it; empty: "
           "they go through the hosts' memory."},
          c.nccl);
  v.Visit({"learner.agree_timeout_s",
           "Seconds for one step of several learners; one that takes longer is left behind.",
           Between(0.1, 3600)},
          c.agree_timeout_s);
  v.Visit({"learner.hogwild_threads",
           "Threads of a learner that compute updates at once and step the same weights without "
           "locks (Hogwild!, Recht et al. 2011); above 1 no two runs give the same bytes.",
           Between(1, 256)},
          c.hogwild_threads);
  v.Visit({.name = "learner.device",
           .doc = "Where updates are computed. \"auto\": on a GPU, where there is one, this "
                  "program was built for it and has what the run asks for; it says which it is.",
           .choices = {"auto", "cpu", "cuda"}},
          c.device);
  v.Visit({"learner.epochs", "Supervised: passes over the training reviews.", AboveUpTo(0, 1e6)},
          c.epochs);
  v.Visit({"learner.micro_batch",
           "Supervised: reviews whose gradient a learner computes at a time; those of an update "
           "are added up (gradient accumulation). 0: all at once.",
           Between(0, 65536)},
          c.micro_batch);
}

void VisitSync(Config::ParamServerKeys& c, ConfigVisitor& v) {
  v.Visit({.name = "paramserver.mode",
           .doc = "When gradients are applied: all learners' together; the first k; each at once, "
                  "nobody far ahead; each at once; or learners' values are averaged (local_sgd, "
                  "whose learners step by plain SGD).",
           .choices = {"bsp", "k_of_n", "ssp", "async", "local_sgd"}},
          c.mode);
  v.Visit({"paramserver.k", "k_of_n: gradients that make an update.", Between(1, 100000)}, c.k);
  v.Visit({"paramserver.cancel",
           "k_of_n: drop gradients of older versions (K-sync of Dutta et al. 2018)."},
          c.cancel);
  v.Visit({"paramserver.per_batch",
           "k_of_n: a fast learner may give several of the k (K-batch-sync and -async)."},
          c.per_batch);
  v.Visit({"paramserver.staleness",
           "ssp: pushes that a learner may be ahead of the slowest; 0: as bsp (Ho et al. 2013).",
           Between(0, kConfigMany)},
          c.staleness);
  v.Visit({"paramserver.damp_stale",
           "A gradient t versions old counts 1/t (Zhang et al. 2016): k_of_n, ssp, async."},
          c.damp_stale);
  v.Visit({"paramserver.warm_start_updates",
           "async: until this version the first learner works alone (Dean et al. 2012).",
           Between(0, kConfigMany)},
          c.warm_start_updates);
  v.Visit({"paramserver.hogwild_threads",
           "async: threads of a shard that apply pushes at once, without locks (Hogwild!, Recht et "
           "al. 2011); above 1 no two runs give the same bytes.",
           Between(1, 64)},
          c.hogwild_threads);
  v.Visit({"paramserver.fetch_every",
           "Updates of a learner between two pulls (n_fetch); 0: as of push_every.",
           Between(0, kConfigMany)},
          c.fetch_every);
  v.Visit({"paramserver.push_every",
           "Updates of a learner whose gradients are pushed as one (n_push; local_sgd: H). "
           "Supervised, 0: those of a pass over the reviews.",
           Between(0, kConfigMany)},
          c.push_every);
}

void VisitParamServer(Config::ParamServerKeys& c, ConfigVisitor& v) {
  v.Visit({"paramserver.shards",
           "Processes that share the parameters, each with its part of the optimizer, where "
           "learner.sync = \"paramserver\".",
           Between(1, 1024)},
          c.shards);
  v.Visit({.name = "paramserver.sharding",
           .doc = "How parameters are dealt to shards: in equal bytes, or by whole layers.",
           .choices = {"memory", "layer"}},
          c.sharding);
  VisitSync(c, v);
  v.Visit({"paramserver.max_staleness",
           "Gradients computed more versions ago are dropped (Nair et al. 2015); 0: none is.",
           Between(0, kConfigMany)},
          c.max_staleness);
  v.Visit({"paramserver.outlier_sigmas",
           "Gradients whose loss is beyond mean + x standard deviations are dropped (Nair et al. "
           "2015); 0: none is.",
           AtLeast(0)},
          c.outlier_sigmas);
  v.Visit(
      {"paramserver.outlier_norm_sigmas",
       "The same of a gradient's norm: what goes wrong behind the loss is seen there.", AtLeast(0)},
      c.outlier_norm_sigmas);
  v.Visit({.name = "paramserver.codec",
           .doc = "How gradients are pushed; what is not sent is added to the next one.",
           .choices = {"none", "fp16", "bf16", "top_k", "strom"}},
          c.codec);
  v.Visit({"paramserver.codec_keep", "top_k: share of the elements that is sent.", AboveUpTo(0, 1)},
          c.codec_keep);
  v.Visit({"paramserver.codec_threshold",
           "strom: size from which an element is sent, as plus or minus this (Strom 2015).",
           AboveUpTo(0, 1e30)},
          c.codec_threshold);
  v.Visit({"paramserver.backup",
           "Each shard has a second process with the same state, which takes over when it dies."},
          c.backup);
  v.Visit({"paramserver.lease_s",
           "A learner that is dead or hangs is waited for so long, after fleet.dead_after_s.",
           Between(0, 3600)},
          c.lease_s);
}

void VisitOptimizer(Config::OptimizerKeys& c, ConfigVisitor& v) {
  v.Visit({.name = "optimizer.type",
           .doc = "Adam (Kingma & Ba 2015), RMSProp (Graves 2013), SGD, or AdaGrad (Duchi et al. "
                  "2011).",
           .choices = {"adam", "rmsprop", "sgd", "adagrad"}},
          c.type);
  v.Visit({"optimizer.learning_rate", "Step size at the start.", Above(0)}, c.learning_rate);
  v.Visit(
      {"optimizer.policy_learning_rate",
       "dpg: step size of the policy at the start; 0: the critic's, learning_rate.", AtLeast(0)},
      c.policy_learning_rate);
  v.Visit({"optimizer.final_fraction",
           "Share of the learning rate that is left at the run's end: it falls to it linearly. The "
           "last update has a step more than that, so never 0.",
           Between(0, 1)},
          c.final_fraction);
  v.Visit({"optimizer.warmup",
           "Share of the run's updates, W of them, in which the learning rate rises linearly, 1/W "
           "of it first, before it falls.",
           FromBelow(0, 1)},
          c.warmup);
  v.Visit({"optimizer.beta1", "Adam: decay of the gradient's mean.", FromBelow(0, 1)}, c.beta1);
  v.Visit({"optimizer.beta2", "Adam: decay of the squared gradient's mean.", FromBelow(0, 1)},
          c.beta2);
  v.Visit({"optimizer.decay", "RMSProp: decay of both means.", FromBelow(0, 1)}, c.decay);
  v.Visit({"optimizer.centered", "RMSProp: divide by the gradient's deviation, not its size."},
          c.centered);
  v.Visit({"optimizer.momentum", "SGD: share of the last step's direction that stays; 0: none.",
           FromBelow(0, 1)},
          c.momentum);
  v.Visit({"optimizer.epsilon",
           "Added to the divisor: Adam and AdaGrad outside the root, RMSProp inside it.", Above(0)},
          c.epsilon);
  v.Visit(
      {"optimizer.weight_decay",
       "Share of each weight, times the learning rate, removed per update (decoupled; Adam only).",
       AtLeast(0)},
      c.weight_decay);
}

void VisitEvaluator(Config::EvaluatorKeys& c, ConfigVisitor& v) {
  v.Visit({"evaluator.enabled",
           "Whether a role of its own measures the greedy return; supervised: the share of reviews "
           "that is told right, in %."},
          c.enabled);
  v.Visit({"evaluator.every_s", "Seconds between the starts of two evaluations.", AtLeast(0)},
          c.every_s);
  v.Visit({"evaluator.episodes", "Episodes (supervised: reviews) of one evaluation while training.",
           Between(1, 1e6)},
          c.episodes);
  v.Visit({"evaluator.final_episodes",
           "Episodes (supervised: test reviews) of the evaluation at the end; -1: 100 episodes, or "
           "all test reviews.",
           Between(-1, 1e6)},
          c.final_episodes);
  v.Visit({"evaluator.epsilon", "Share of random actions in evaluations.", Between(0, 1)},
          c.epsilon);
  v.Visit({"evaluator.envs", "Environments stepped together.", Between(1, 65536)}, c.envs);
  v.Visit({"evaluator.max_episode_steps",
           "Agent steps after which an evaluation's episode is truncated where env has no limit.",
           Between(1, kConfigMany)},
          c.max_episode_steps);
  v.Visit({"evaluator.solved_return",
           "End the run when an evaluation's mean return reaches it; 0: never."},
          c.solved_return);
}

void VisitOutput(Config& c, ConfigVisitor& v) {
  v.Visit({"checkpoint.every_s", "Seconds between two checkpoints; 0: only one, at the end.",
           AtLeast(0)},
          c.checkpoint.every_s);
  v.Visit({"checkpoint.every_updates",
           "Serial mode: updates between two restore points, from which a run that was stopped or "
           "killed goes on to the same bytes; the replay is kept on disk for them. 0: none.",
           AtLeast(0)},
          c.checkpoint.every_updates);
  v.Visit({"checkpoint.keep", "Checkpoints kept; older ones are removed.", Between(1, 1e6)},
          c.checkpoint.keep);
  v.Visit({"log.dir", "Folder that holds the folder of the run."}, c.log.dir);
  v.Visit({"log.metrics_every_s", "Seconds between two lines of metrics.", Between(0.01, 86400)},
          c.log.metrics_every_s);
  v.Visit({.name = "log.level",
           .doc = "The least important lines that are logged.",
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
           .doc = "Kind of the layer; conv2d layers come before linear ones.",
           .choices = {"linear", "conv2d"}},
          layer.type);
  v.Visit({"units", "linear: outputs.", Between(1, 1 << 20)}, layer.units);
  v.Visit({"filters", "conv2d: output channels.", Between(1, 65536)}, layer.filters);
  v.Visit({"kernel", "conv2d: height and width of the filters.", Between(1, 1024)}, layer.kernel);
  v.Visit({"stride", "conv2d: pixels between two outputs.", Between(1, 1024)}, layer.stride);
  v.Visit(
      {.name = "activation", .doc = "What follows the layer.", .choices = {"relu", "tanh", "none"}},
      layer.activation);
}

bool ConfigRange::Contains(double value) const {
  if (!std::isfinite(value)) return false;
  return (low_open ? value > low : value >= low) && (high_open ? value < high : value <= high);
}

std::string ConfigRange::ToString() const {
  if (low == -kInfinity && high == kInfinity) return "";
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
  return fmt::format("{}", value);  // the shortest text that reads back as the same number
}

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
