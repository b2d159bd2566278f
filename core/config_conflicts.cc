#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <utility>

#include "core/config_schema.h"

namespace troop {
namespace {

class Conflicts {
 public:
  template <class... Args>
  void If(bool wrong, std::vector<std::string> keys, fmt::format_string<Args...> format,
          Args&&... args) {
    if (wrong)
      found_.push_back({std::move(keys), fmt::format(format, std::forward<Args>(args)...)});
  }
  std::vector<ConfigConflict> Take() { return std::move(found_); }

 private:
  std::vector<ConfigConflict> found_;
};

bool IsFolderName(const std::string& name) {
  return !name.empty() && name[0] != '.' && name[0] != '-' && name.size() <= 100 &&
         std::ranges::all_of(name, [](unsigned char c) {
           return std::isalnum(c) || c == '_' || c == '-' || c == '.';
         });
}

void CheckNames(const Config& c, Conflicts* out) {
  out->If(
      !IsFolderName(c.name), {"name"},
      "{} can't name a folder; use at most 100 letters, digits, '-', '_' and '.', and begin with "
      "a letter or digit",
      TomlString(c.name));
  out->If(c.env.id.empty(), {"env.id"},
          "is empty; name an environment, for example \"CartPole-v1\"");
  out->If(c.log.dir.empty(), {"log.dir"}, "is empty; name a folder, for example \"runs\"");
}

void CheckEnv(const Config& c, Conflicts* out) {
  out->If(c.env.sticky_actions < 0 && c.env.sticky_actions != -1, {"env.sticky_actions"},
          "{} is neither a probability nor -1 (the environment's own)",
          TomlNumber(c.env.sticky_actions));
  out->If(c.env.reward_scale == 0, {"env.reward_scale"},
          "is 0, which leaves nothing to learn; leave it out, or give another number");
  out->If(c.env.noop_max != 0 && !c.env.id.starts_with("ALE/"), {"env.noop_max", "env.id"},
          "only Atari games (\"ALE/...\") have it, {} is none; set 0", TomlString(c.env.id));
}

void CheckLayer(const LayerConfig& layer, const std::string& key, bool after_linear,
                Conflicts* out) {
  const LayerConfig plain;
  if (layer.type == "conv2d") {
    out->If(layer.filters == 0, {key}, "a conv2d layer needs filters; add filters = 32");
    out->If(layer.kernel == 0, {key}, "a conv2d layer needs a kernel; add kernel = 3");
    out->If(layer.units != 0, {key}, "a conv2d layer has no units; use filters");
    out->If(after_linear, {key},
            "a conv2d layer can't follow a linear one, which has no picture; move it before");
  } else if (layer.type == "linear") {
    out->If(layer.units == 0, {key}, "a linear layer needs units; add units = 64");
    out->If(layer.filters != plain.filters || layer.kernel != plain.kernel ||
                layer.stride != plain.stride,
            {key}, "a linear layer has no filters, kernel or stride; remove them");
  }
}

void CheckLayers(const std::vector<LayerConfig>& layers, const std::string& key, Conflicts* out) {
  bool linear = false;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    CheckLayer(layers[i], fmt::format("{}[{}]", key, i), linear, out);
    linear |= layers[i].type == "linear";
  }
  out->If(layers.size() > 64, {key}, "{} layers; at most 64 are possible", layers.size());
}

void CheckNetwork(const Config& c, Conflicts* out) {
  CheckLayers(c.network.layers, "network.layers", out);
  CheckLayers(c.network.critic_layers, "network.critic_layers", out);
  out->If(c.network.normalize_observations && c.optimizer.weight_decay > 0,
          {"network.normalize_observations", "optimizer.weight_decay"},
          "the decay would shrink the statistics, too; set one of them to its default");
  out->If(c.network.normalize_observations && c.network.one_hot > 0,
          {"network.normalize_observations", "network.one_hot"},
          "classes have no mean; set one of the two");
  out->If(c.network.dueling_units > 0 && !c.network.dueling,
          {"network.dueling_units", "network.dueling"},
          "{} units of streams that network.dueling = false turns off; set one of the two",
          c.network.dueling_units);
}

void CheckReplay(const Config& c, Conflicts* out) {
  const std::int64_t capacity = c.replay.capacity_items, batch = c.learner.batch_size;
  out->If(batch > capacity, {"learner.batch_size", "replay.capacity_items"},
          "{} is more than replay.capacity_items = {}; lower one or raise the other", batch,
          capacity);
  out->If(c.replay.min_items > capacity, {"replay.min_items", "replay.capacity_items"},
          "{} is more than replay.capacity_items = {}, so no batch would ever be drawn; lower it",
          c.replay.min_items, capacity);
  out->If(c.replay.min_items < batch && batch <= capacity,
          {"replay.min_items", "learner.batch_size"},
          "{} is less than learner.batch_size = {}; raise it to at least {}", c.replay.min_items,
          batch, batch);
  out->If(
      c.replay.min_items > c.learner.total_steps, {"replay.min_items", "learner.total_steps"},
      "{} items need as many steps, but the run has only learner.total_steps = {}; nothing would "
      "be learned: lower it",
      c.replay.min_items, TomlNumber(c.learner.total_steps));
  // An episode's end makes up to n_step items at once in each environment.
  const std::int64_t ends = c.actor.envs * c.actor.n_step;
  const std::int64_t pushed = c.actor.push_items + ends;
  out->If(c.actor.push_items + ends * c.actor.copies > capacity,
          {"replay.capacity_items", "actor.push_items", "actor.envs"},
          "{} is less than an actor may push at once: actor.push_items + actor.envs x actor.n_step "
          "x actor.copies = {}; raise it, or lower those",
          capacity, c.actor.push_items + ends * c.actor.copies);
  // A frame log takes at least 4096 frames, and half of what it takes in one push.
  const std::int64_t frames = pushed + ends;
  const std::int64_t frames_max = std::max<std::int64_t>(capacity, 4096) / 2;
  out->If(pushed <= capacity && frames > frames_max,
          {"actor.push_items", "replay.capacity_items", "actor.envs"},
          "{} makes pushes of up to {} frames, of which the replay takes {}; raise "
          "replay.capacity_items to {}, or lower this",
          c.actor.push_items, frames, frames_max, 2 * frames);
}

void CheckInference(const Config& c, Conflicts* out) {
  out->If(InferenceServersOf(c) > 0 && c.actor.envs > c.inference.batch_max,
          {"inference.batch_max", "actor.envs"},
          "{} is less than actor.envs = {}, which an actor asks about at once; raise it to {}",
          c.inference.batch_max, c.actor.envs, c.actor.envs);
  out->If(c.inference.device == "cuda" && c.learner.algorithm == "dpg",
          {"inference.device", "learner.algorithm"},
          "the policy of learner.algorithm = \"dpg\" is computed on the CPU alone; set \"auto\"");
}

// Its learner draws, so nobody else may; and it knows of items that left by their age alone.
void CheckPlacement(const Config& c, Conflicts* out) {
  if (c.replay.placement != "gpu") return;
  const auto need = [&](bool good, const char* key, std::string_view value) {
    out->If(!good, {key, "replay.placement"},
            "replay.placement = \"gpu\" needs {} here; set it, or replay.placement = \"host\"",
            value);
  };
  need(c.learner.algorithm == "dqn", "learner.algorithm", "\"dqn\"");
  need(c.learner.device != "cpu", "learner.device", "\"cuda\" or \"auto\"");
  need(c.fleet.learners == 1, "fleet.learners", "1");
  need(c.learner.sync == "allreduce", "learner.sync", "\"allreduce\"");
  need(c.learner.hogwild_threads == 1, "learner.hogwild_threads", "1");
  need(c.replay.shards == 1, "replay.shards", "1");
  need(c.replay.sampler == "prioritized", "replay.sampler", "\"prioritized\"");
  need(c.replay.remover == "fifo", "replay.remover", "\"fifo\"");
  need(c.replay.max_times_sampled == 0, "replay.max_times_sampled", "0");
  need(c.replay.max_policy_age == 0, "replay.max_policy_age", "0");
}

void CheckShards(const Config& c, Conflicts* out) {
  const std::int64_t shards = c.replay.shards, envs = c.fleet.actors * c.actor.envs;
  out->If(shards > envs, {"replay.shards", "fleet.actors", "actor.envs"},
          "{} shards for {} environments: some would stay empty; have fewer", shards, envs);
  out->If(shards > c.replay.min_items, {"replay.shards", "replay.min_items"},
          "{} shards share replay.min_items = {}; have fewer", shards, c.replay.min_items);
  const bool local = c.replay.scope == "local";
  out->If(local && shards != c.fleet.learners, {"replay.shards", "fleet.learners", "replay.scope"},
          "replay.scope = \"local\" gives each of {} learners a shard of its own, not {}; make "
          "them equal, or the scope \"global\"",
          c.fleet.learners, shards);
  out->If(local && c.fleet.actors % c.fleet.learners != 0,
          {"fleet.actors", "fleet.learners", "replay.scope"},
          "{} actors can't be dealt evenly to {} learners, as replay.scope = \"local\" does; make "
          "it a multiple",
          c.fleet.actors, c.fleet.learners);
  out->If(c.replay.ack == "disk" && !c.replay.persist, {"replay.ack", "replay.persist"},
          "\"disk\" needs replay.persist = true; set it, or \"memory\" here");
  out->If(c.replay.spill && !c.replay.persist, {"replay.spill", "replay.persist"},
          "needs files to spill to; set replay.persist = true");
  for (std::size_t i = 0; i < c.replay.tables.size(); ++i) {
    const ReplayTableConfig& table = c.replay.tables[i];
    const std::string key = fmt::format("replay.tables[{}]", i);
    out->If(!IsFolderName(table.name) || table.name == "experience", {key},
            "{} can't name a table; use letters, digits, '-', '_' and '.', and not the run's own "
            "\"experience\"",
            TomlString(table.name));
    out->If(table.min_items > table.capacity_items, {key},
            "min_items = {} is more than capacity_items = {}; lower it", table.min_items,
            table.capacity_items);
    out->If(table.view == "transition" && table.burn_in > 0, {key},
            "a transition has no burn-in; set view = \"sequence\", or burn_in = 0");
    for (std::size_t j = 0; j < i; ++j) {
      out->If(c.replay.tables[j].name == table.name, {key}, "another table is called {} too",
              TomlString(table.name));
    }
  }
}

void CheckSync(const Config& c, Conflicts* out) {
  const Config::ParamServerKeys& p = c.paramserver;
  const std::string mode = TomlString(p.mode);
  const bool k_of_n = p.mode == "k_of_n", local_sgd = p.mode == "local_sgd";
  out->If(p.k > 1 && !k_of_n, {"paramserver.k", "paramserver.mode"},
          "only paramserver.mode = \"k_of_n\" has it, not {}; set 1, or change the mode", mode);
  out->If(p.cancel && !k_of_n, {"paramserver.cancel", "paramserver.mode"},
          "only paramserver.mode = \"k_of_n\" has it, not {}; set false, or change the mode", mode);
  out->If(p.per_batch && !k_of_n, {"paramserver.per_batch", "paramserver.mode"},
          "only paramserver.mode = \"k_of_n\" has it, not {}; set false, or change the mode", mode);
  out->If(p.staleness > 0 && p.mode != "ssp", {"paramserver.staleness", "paramserver.mode"},
          "only paramserver.mode = \"ssp\" has it, not {}; set 0, or change the mode", mode);
  out->If(p.warm_start_updates > 0 && p.mode != "async",
          {"paramserver.warm_start_updates", "paramserver.mode"},
          "only paramserver.mode = \"async\" has it, not {}; set 0, or change the mode", mode);
  out->If(p.damp_stale && (p.mode == "bsp" || local_sgd),
          {"paramserver.damp_stale", "paramserver.mode"},
          "nothing is stale in {}; set false, or change the mode", mode);
  out->If(k_of_n && !p.per_batch && c.mesh.tp == 1 && c.mesh.dp == 0 && p.k > c.fleet.learners,
          {"paramserver.k", "fleet.learners", "paramserver.per_batch"},
          "{} of fleet.learners = {}, one push each; lower it, or set paramserver.per_batch = true",
          p.k, c.fleet.learners);
  // A model in parts pushes once.
  const std::int64_t workers =
      c.mesh.dp > 0 ? c.mesh.dp : c.fleet.learners / std::max<std::int64_t>(1, c.mesh.tp);
  const bool meshed = c.learner.sync == "paramserver" && (c.mesh.tp > 1 || c.mesh.dp > 0);
  out->If(k_of_n && !p.per_batch && meshed && p.k > workers,
          {"paramserver.k", "mesh.dp", "paramserver.per_batch"},
          "{} of {} workers, one push each; lower it, or set paramserver.per_batch = true", p.k,
          workers);
  out->If(!IsSupervised(c) && (p.push_every == 0 || p.fetch_every == 0),
          {"paramserver.push_every", "paramserver.fetch_every", "learner.algorithm"},
          "0 is a pass over reviews, and there are none; set at least 1");
  // Where a push is waited for, the version after it is what the next one is computed at; and who
  // is too far ahead waits for its pull: a push without one would be refused, and lost.
  const bool waits = p.mode == "bsp" || p.mode == "ssp" || local_sgd || (k_of_n && !p.per_batch);
  out->If(waits && p.fetch_every != p.push_every && (local_sgd || p.fetch_every > p.push_every),
          {"paramserver.fetch_every", "paramserver.push_every", "paramserver.mode"},
          "{} with paramserver.push_every = {}: in {} a pull follows each push; make them the same",
          p.fetch_every, p.push_every, mode);
  out->If(local_sgd && p.codec != "none", {"paramserver.codec", "paramserver.mode"},
          "{} is for gradients, {} pushes values; set \"none\"", TomlString(p.codec), mode);
  const bool averages = c.learner.sync == "paramserver" && local_sgd;
  out->If(averages && c.optimizer.type != "sgd", {"optimizer.type", "paramserver.mode"},
          "in {} a learner's own steps are plain SGD's; set \"sgd\", and a learning rate for it",
          mode);
  out->If(averages && c.optimizer.type == "sgd" && c.optimizer.momentum > 0,
          {"optimizer.momentum", "paramserver.mode"},
          "in {} a learner's own steps are plain SGD's; set 0", mode);
}

void CheckShardThreads(const Config& c, Conflicts* out) {
  const std::int64_t threads = c.paramserver.hogwild_threads;
  if (threads == 1) return;
  out->If(
      c.paramserver.mode != "async", {"paramserver.hogwild_threads", "paramserver.mode"},
      "only where each push is an update by itself, \"async\", not {}; set 1, or change the mode",
      TomlString(c.paramserver.mode));
  out->If(c.paramserver.backup, {"paramserver.hogwild_threads", "paramserver.backup"},
          "{} threads make updates in no order that a backup could repeat; set 1, or false there",
          threads);
  out->If(c.fleet.mode == "serial", {"paramserver.hogwild_threads", "fleet.mode"},
          "{} threads at once give other bytes each time; set 1, or fleet.mode = \"processes\"",
          threads);
}

void CheckHogwild(const Config& c, Conflicts* out) {
  if (c.learner.hogwild_threads == 1) return;
  out->If(c.fleet.learners > 1, {"learner.hogwild_threads", "fleet.learners"},
          "{} threads of one learner; {} learners agree in another way: set one of the two to 1",
          c.learner.hogwild_threads, c.fleet.learners);
  out->If(c.learner.sync == "paramserver", {"learner.hogwild_threads", "learner.sync"},
          "the parameter shards step the weights; set 1, or learner.sync = \"allreduce\"");
  out->If(c.fleet.mode == "serial", {"learner.hogwild_threads", "fleet.mode"},
          "{} threads at once give other bytes each time; set 1, or fleet.mode = \"processes\"",
          c.learner.hogwild_threads);
  out->If(c.network.normalize_observations,
          {"learner.hogwild_threads", "network.normalize_observations"},
          "{} threads would each have statistics of their own; set 1, or scale observations in the "
          "environment",
          c.learner.hogwild_threads);
  out->If(c.optimizer.policy_learning_rate > 0,
          {"learner.hogwild_threads", "optimizer.policy_learning_rate"},
          "threads on the same weights have one learning rate; set 1, or 0 there");
}

void CheckDpg(const Config& c, Conflicts* out) {
  const bool dpg = c.learner.algorithm == "dpg";
  out->If(!dpg && !c.network.critic_layers.empty(), {"network.critic_layers", "learner.algorithm"},
          "only learner.algorithm = \"dpg\" has a critic; leave them out, or change that");
  out->If(dpg && c.actor.epsilon_steps > 0, {"actor.epsilon_steps", "learner.algorithm"},
          "continuous actions explore with noise; set 0, and see actor.noise_sigma");
  out->If(!dpg && c.optimizer.policy_learning_rate > 0,
          {"optimizer.policy_learning_rate", "learner.algorithm"},
          "only learner.algorithm = \"dpg\" has a policy of its own; leave it out, or change that");
  out->If(c.optimizer.policy_learning_rate > 0 && c.learner.sync == "paramserver",
          {"optimizer.policy_learning_rate", "learner.sync"},
          "the parameter shards' optimizer has one learning rate; set 0, or learner.sync = "
          "\"allreduce\"");
  const bool values = dpg || c.learner.algorithm == "dqn";
  out->If(!values && c.learner.critic != "scalar", {"learner.critic", "learner.algorithm"},
          "only \"dqn\" and \"dpg\" learn values; leave it out, or change that");
  out->If(c.learner.critic == "quantile" && c.learner.loss != "huber",
          {"learner.critic", "learner.loss"},
          "quantiles are learned by the Huber loss; set learner.loss = \"huber\"");
  out->If(c.learner.v_min >= c.learner.v_max, {"learner.v_min", "learner.v_max"},
          "{} is not below learner.v_max = {}; lower it", TomlNumber(c.learner.v_min),
          TomlNumber(c.learner.v_max));
}

void CheckListen(const Config& c, Conflicts* out) {
  out->If(!c.fleet.listen.empty() && c.fleet.mode == "serial", {"fleet.listen", "fleet.mode"},
          "nobody can join a run in one thread; leave it out, or fleet.mode = \"processes\"");
  for (const auto& [key, value] : {std::pair("fleet.listen_replay", &c.fleet.listen_replay),
                                   {"fleet.listen_paramserver", &c.fleet.listen_paramserver}}) {
    out->If(!value->empty() && c.fleet.listen.empty(), {key, "fleet.listen"},
            "is of no use while the coordinator listens for this machine alone; set fleet.listen");
  }
  constexpr std::string_view kJoin[] = {"actor",   "replay",    "paramserver",
                                        "learner", "evaluator", "inference"};
  for (const std::string& role : c.fleet.elsewhere) {
    out->If(std::ranges::find(kJoin, role) == std::end(kJoin), {"fleet.elsewhere"},
            "{} is no role that joins: actor, replay, paramserver, learner, evaluator, inference",
            TomlString(role));
  }
  const bool alone = c.fleet.listen.empty() && c.fleet.engine != "kubernetes";
  out->If(!c.fleet.elsewhere.empty() && alone, {"fleet.elsewhere", "fleet.listen"},
          "waits for roles of other machines, but the coordinator listens for this one alone; set "
          "fleet.listen");
  for (const auto& [key, value] : {std::pair("fleet.listen", &c.fleet.listen),
                                   {"fleet.listen_replay", &c.fleet.listen_replay},
                                   {"fleet.listen_paramserver", &c.fleet.listen_paramserver}}) {
    const bool any = value->starts_with("tcp://*") || value->starts_with("tcp://0.0.0.0:") ||
                     value->starts_with("tcp://[::]:");
    out->If(
        !value->empty() && (!value->starts_with("tcp://") || any), {key},
        "{} is no address that other machines could be told; use tcp://HOST:PORT with a name or "
        "address of this machine",
        TomlString(*value));
  }
  out->If(!c.fleet.metrics_token.empty() && c.fleet.metrics.empty(),
          {"fleet.metrics_token", "fleet.metrics"},
          "is of no use while no metrics are told; set fleet.metrics");
}

// At most `size_max` bytes of letters, digits and `also`, with a letter or a digit at both ends.
bool IsWord(std::string_view text, std::string_view also, std::size_t size_max) {
  const auto plain = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0; };
  return !text.empty() && text.size() <= size_max && plain(text.front()) && plain(text.back()) &&
         std::ranges::all_of(text, [&](char c) { return plain(c) || also.find(c) != also.npos; });
}

bool IsNumber(std::string_view text, std::size_t digits_max) {
  return !text.empty() && text.size() <= digits_max &&
         std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; });
}

// [days-]hours[:minutes[:seconds]], or minutes[:seconds], or hours:minutes:seconds (sbatch(1)).
bool IsTimeLimit(std::string_view text) {
  const std::size_t dash = text.find('-');
  if (dash != text.npos && !IsNumber(text.substr(0, dash), 4)) return false;
  if (dash != text.npos) text.remove_prefix(dash + 1);
  std::size_t digits_max = dash == text.npos ? 6 : 2;
  for (int parts = 1; parts <= 3; ++parts, digits_max = 2) {
    const std::size_t colon = text.find(':');
    if (!IsNumber(text.substr(0, colon), digits_max)) return false;
    if (colon == text.npos) return true;
    text.remove_prefix(colon + 1);
  }
  return false;
}

void CheckSlurm(const Config& c, Conflicts* out) {
  const auto& s = c.slurm;
  for (const auto& [key, value] : {std::pair("slurm.partition", &s.partition),
                                   {"slurm.account", &s.account},
                                   {"slurm.memory", &s.memory}}) {
    const bool word = std::ranges::all_of(*value, [](unsigned char x) {
      return std::isalnum(x) || x == '_' || x == '-' || x == '.' || x == ',';
    });
    out->If(!word, {key}, "{} is no word that sbatch takes; use letters, digits, '-', '_' and '.'",
            TomlString(*value));
  }
  out->If(!s.time_limit.empty() && !IsTimeLimit(s.time_limit), {"slurm.time_limit"},
          "{} is no time limit; use minutes, HH:MM:SS or D-HH:MM:SS", TomlString(s.time_limit));
  for (const std::string& option : s.options) {
    out->If(!option.starts_with("-") || option.find('\n') != std::string::npos, {"slurm.options"},
            "{} is no option of sbatch; begin it with \"--\", one a string", TomlString(option));
  }
  for (const auto& [key, node] :
       {std::pair("slurm.learner_node", s.learner_node), {"slurm.replay_node", s.replay_node}}) {
    out->If(node >= s.nodes, {key, "slurm.nodes"},
            "{} is no node of slurm.nodes = {}; they begin at 0", node, s.nodes);
  }
}

void CheckEngine(const Config& c, Conflicts* out) {
  const std::string engine = TomlString(c.fleet.engine);
  out->If(c.fleet.engine != "local" && c.fleet.mode == "serial", {"fleet.engine", "fleet.mode"},
          "{} starts processes; leave it out, or fleet.mode = \"processes\"", engine);
}

bool HasCapitals(std::string_view text) {
  return std::ranges::any_of(text, [](char c) { return c >= 'A' && c <= 'Z'; });
}

// A label of DNS (RFC 1123), as Kubernetes wants names of what others look up.
bool IsLabel(std::string_view text, std::size_t size_max) {
  return IsWord(text, "-", size_max) && !HasCapitals(text);
}

// Such as "4Gi".
bool IsQuantity(std::string_view text) {
  constexpr std::string_view kUnits[] = {"Ki", "Mi", "Gi", "Ti"};
  return text.size() > 2 && text.front() != '0' && IsNumber(text.substr(0, text.size() - 2), 12) &&
         std::ranges::find(kUnits, text.substr(text.size() - 2)) != std::end(kUnits);
}

void CheckKubernetes(const Config& c, Conflicts* out) {
  const auto& k = c.kubernetes;
  for (const auto& [key, value] : {std::pair("kubernetes.storage", &k.storage),
                                   {"kubernetes.shared_memory", &k.shared_memory},
                                   {"kubernetes.coordinator_memory", &k.coordinator_memory},
                                   {"kubernetes.replay_memory", &k.replay_memory},
                                   {"kubernetes.paramserver_memory", &k.paramserver_memory},
                                   {"kubernetes.learner_memory", &k.learner_memory},
                                   {"kubernetes.actor_memory", &k.actor_memory},
                                   {"kubernetes.evaluator_memory", &k.evaluator_memory},
                                   {"kubernetes.inference_memory", &k.inference_memory}}) {
    out->If(!IsQuantity(*value), {key},
            "{} is no quantity; use a whole number with Ki, Mi, Gi or Ti, such as \"4Gi\"",
            TomlString(*value));
  }
  out->If(!IsLabel(k.name_space, 63), {"kubernetes.namespace"},
          "{} is no name for a namespace; use small letters, digits and '-'",
          TomlString(k.name_space));
  for (const auto& [key, value] : {std::pair("kubernetes.claim", &k.claim),
                                   {"kubernetes.data_claim", &k.data_claim},
                                   {"kubernetes.storage_class", &k.storage_class}}) {
    out->If(!value->empty() && (!IsWord(*value, "-.", 253) || HasCapitals(*value)), {key},
            "{} is no name of Kubernetes; use small letters, digits, '-' and '.'",
            TomlString(*value));
  }
  out->If(!IsWord(k.image, "-._/:@", 512), {"kubernetes.image"},
          "{} is no name of an image; use [REGISTRY/]NAME[:TAG]", TomlString(k.image));
  if (c.fleet.engine != "kubernetes") return;
  out->If(!c.fleet.listen.empty(), {"fleet.listen", "fleet.engine"},
          "the coordinator listens at its pod's own address; leave it out");
  out->If(c.fleet.actors % k.actors_per_pod != 0, {"kubernetes.actors_per_pod", "fleet.actors"},
          "{} does not divide fleet.actors = {}: pods are all alike", k.actors_per_pod,
          c.fleet.actors);
}

void CheckRun(const Config& c, Conflicts* out) {
  out->If(!IsSupervised(c) && c.actor.warmup_steps > c.learner.total_steps,
          {"actor.warmup_steps", "learner.total_steps"},
          "{} is more than learner.total_steps = {}: the run would act at random only; lower it",
          TomlNumber(c.actor.warmup_steps), TomlNumber(c.learner.total_steps));
  out->If(c.optimizer.weight_decay > 0 && c.optimizer.type != "adam",
          {"optimizer.weight_decay", "optimizer.type"},
          "only optimizer.type = \"adam\" has it; set 0, or change the type");
  out->If(c.optimizer.momentum > 0 && c.optimizer.type != "sgd",
          {"optimizer.momentum", "optimizer.type"},
          "only optimizer.type = \"sgd\" has it; set 0, or change the type");
  out->If(c.evaluator.solved_return != 0 && !c.evaluator.enabled,
          {"evaluator.solved_return", "evaluator.enabled"},
          "{} can't be reached without evaluations; set evaluator.enabled = true, or 0 here",
          TomlNumber(c.evaluator.solved_return));
  out->If(c.fleet.backoff_first_s > c.fleet.backoff_max_s,
          {"fleet.backoff_first_s", "fleet.backoff_max_s"},
          "{} is more than fleet.backoff_max_s = {}; lower it", TomlNumber(c.fleet.backoff_first_s),
          TomlNumber(c.fleet.backoff_max_s));
  out->If(c.fleet.hung_after_s < c.fleet.dead_after_s, {"fleet.hung_after_s", "fleet.dead_after_s"},
          "{} is less than fleet.dead_after_s = {}; raise it", TomlNumber(c.fleet.hung_after_s),
          TomlNumber(c.fleet.dead_after_s));
  out->If(c.fleet.learners > 1 && c.network.normalize_observations,
          {"fleet.learners", "network.normalize_observations"},
          "{} learners would each have statistics of their own; have one learner, or set it to "
          "false and scale observations in the environment",
          c.fleet.learners);
  out->If(c.fleet.mode == "serial" && c.fleet.actors > 256, {"fleet.actors", "fleet.mode"},
          "{} actors in one thread; fleet.mode = \"serial\" takes at most 256: raise actor.envs "
          "instead",
          c.fleet.actors);
}

// Of runs that learn reviews.
void CheckSupervised(const Config& c, Conflicts* out) {
  const std::string algorithm = TomlString(c.learner.algorithm);
  out->If(c.data.reviews.empty(), {"data.reviews", "learner.algorithm"},
          "is empty, but learner.algorithm = {} learns reviews; name the folder or archive of "
          "aclImdb, or a CSV",
          algorithm);
  out->If(c.data.vocabulary.empty(), {"data.vocabulary", "learner.algorithm"},
          "is empty, but learner.algorithm = {} learns reviews; name a vocabulary", algorithm);
  out->If(c.data.tokens_max > c.model.positions, {"data.tokens_max", "model.positions"},
          "{} is more than model.positions = {}; lower it, or raise that", c.data.tokens_max,
          c.model.positions);
  out->If(c.model.hidden % 16 != 0, {"model.hidden"}, "{} is no multiple of 16", c.model.hidden);
  out->If(c.model.hidden % c.model.heads != 0, {"model.heads", "model.hidden"},
          "{} heads can't share model.hidden = {} evenly", c.model.heads, c.model.hidden);
  out->If(c.data.word_dropout > 0 && c.learner.algorithm != "classifier",
          {"data.word_dropout", "learner.algorithm"},
          "hides words from a classifier; learner.algorithm = {} masks those that it learns",
          algorithm);
  const bool lstm = c.model.family == "lstm";
  out->If(lstm && c.learner.algorithm != "classifier", {"model.family", "learner.algorithm"},
          "\"lstm\" has no learner.algorithm = {}; take \"classifier\", or another family",
          algorithm);
  out->If(lstm && c.mesh.tp > 1, {"mesh.tp", "model.family"},
          "\"lstm\" can't be cut into parts; set 1, or take another family");
  out->If(lstm && !c.model.pretrained.empty(), {"model.pretrained", "model.family"},
          "there is no such file of an \"lstm\"; leave it out");
  out->If(c.model.family == "bert" && c.model.embedding != 0 && c.model.embedding != c.model.hidden,
          {"model.embedding", "model.family"},
          "only \"albert\" has another one than model.hidden = {}; set 0", c.model.hidden);
  out->If(c.mesh.dp > 0 && c.fleet.learners > 1 && c.mesh.dp * c.mesh.tp != c.fleet.learners,
          {"mesh.dp", "mesh.tp", "fleet.learners"},
          "{} x mesh.tp = {} are not fleet.learners = {}; leave that one out", c.mesh.dp, c.mesh.tp,
          c.fleet.learners);
  out->If(c.mesh.dp == 0 && c.fleet.learners > 1 && c.fleet.learners % c.mesh.tp != 0,
          {"mesh.tp", "fleet.learners"}, "{} learners are no multiple of it; set mesh.dp instead",
          c.fleet.learners);
  out->If(c.mesh.dp * c.mesh.tp > 256, {"mesh.dp", "mesh.tp"},
          "{} x {} learners; at most 256 are possible", c.mesh.dp, c.mesh.tp);
  const std::int64_t workers =
      c.mesh.dp > 0 ? c.mesh.dp : std::max<std::int64_t>(1, c.fleet.learners / c.mesh.tp);
  out->If(!c.mesh.shares.empty() && std::int64_t(c.mesh.shares.size()) != workers,
          {"mesh.shares", "mesh.dp"}, "{} shares of {} workers; give one a worker",
          c.mesh.shares.size(), workers);
  out->If(c.learner.hogwild_threads > 1, {"learner.hogwild_threads", "learner.algorithm"},
          "learner.algorithm = {} has none; set 1, and see mesh.dp", algorithm);
  out->If(c.fleet.mode == "serial" && c.mesh.tp > 1, {"mesh.tp", "fleet.mode"},
          "learners that share a product wait for each other, and here one thread plays all; set "
          "1, or fleet.mode = \"processes\"");
  out->If(c.mesh.tp > c.model.heads, {"mesh.tp", "model.heads"},
          "{} learners can't share {} heads; lower it", c.mesh.tp, c.model.heads);
}

}  // namespace

bool IsSupervised(const Config& config) {
  return config.learner.algorithm == "classifier" || config.learner.algorithm == "masked_lm";
}

std::int64_t InferenceServersOf(const Config& config) {
  const bool served = config.actor.inference == "server" && !IsSupervised(config);
  return served ? config.inference.servers : 0;
}

std::vector<ConfigConflict> FindConflicts(const Config& config) {
  Conflicts conflicts;
  CheckNames(config, &conflicts);
  CheckEnv(config, &conflicts);
  CheckNetwork(config, &conflicts);
  if (IsSupervised(config)) {
    CheckSupervised(config, &conflicts);
  } else {
    CheckReplay(config, &conflicts);
    CheckInference(config, &conflicts);
    CheckShards(config, &conflicts);
    CheckPlacement(config, &conflicts);
    const Config::MeshKeys& mesh = config.mesh;
    conflicts.If(mesh.dp > 1 || mesh.tp > 1, {mesh.tp > 1 ? "mesh.tp" : "mesh.dp"},
                 "only learners of reviews stand in a mesh; leave it out, and see fleet.learners");
    conflicts.If(!mesh.shares.empty(), {"mesh.shares"},
                 "only learners of reviews share batches; leave it out");
  }
  CheckHogwild(config, &conflicts);
  CheckShardThreads(config, &conflicts);
  CheckSync(config, &conflicts);
  CheckDpg(config, &conflicts);
  CheckListen(config, &conflicts);
  CheckEngine(config, &conflicts);
  CheckSlurm(config, &conflicts);
  CheckKubernetes(config, &conflicts);
  CheckRun(config, &conflicts);
  return conflicts.Take();
}

}  // namespace troop
