// Implements FindConflicts, with the rules that concern names, environments, networks, replay and
// addresses. The rules of synchronization, supervised mode and cluster engines have their own
// files.
#include "fleet/config/validate.h"
#include "actors/insert_bounds.h"

#include <algorithm>
#include <cctype>
#include <utility>

namespace troop {
namespace {

// Names become folder names and command-line words, so dots and dashes may not come first.
bool IsFolderName(const std::string& name) {
  return !name.empty() && name[0] != '.' && name[0] != '-' && name.size() <= 100 &&
         std::ranges::all_of(name, [](unsigned char c) {
           return std::isalnum(c) || c == '_' || c == '-' || c == '.';
         });
}

// Checks the names that become folders, and the environment.
void CheckNames(const Config& c, Conflicts* out) {
  out->If(!IsFolderName(c.name), {"name"},
          "{} is not a valid folder name; use at most 100 letters, digits, '-', '_' and '.', and "
          "begin with a letter or digit",
          TomlString(c.name));
  out->If(c.env.id.empty(), {"env.id"},
          "is empty; name an environment, for example \"CartPole-v1\"");
  out->If(c.log.dir.empty(), {"log.dir"}, "is empty; name a folder, for example \"runs\"");
}

// Checks options that only some kinds of environments support.
void CheckEnv(const Config& c, Conflicts* out) {
  out->If(c.env.sticky_actions < 0 && c.env.sticky_actions != -1, {"env.sticky_actions"},
          "{} is neither a probability nor -1 (the environment's own setting)",
          TomlNumber(c.env.sticky_actions));
  out->If(c.env.reward_scale == 0, {"env.reward_scale"},
          "is 0, so every reward would be 0; omit it, or use another value");
  out->If(c.env.noop_max != 0 && !c.env.id.starts_with("ALE/"), {"env.noop_max", "env.id"},
          "is supported for Atari games (\"ALE/...\") only, not for {}; set 0",
          TomlString(c.env.id));
  out->If(!c.env.difficulty_ramping && !c.env.id.starts_with("MinAtar/"),
          {"env.difficulty_ramping", "env.id"},
          "is supported for MinAtar games only, not for {}; omit it", TomlString(c.env.id));
  out->If(!c.env.plugin.empty() && !c.env.wrappers.empty(), {"env.wrappers", "env.plugin"},
          "apply to Python environments only, not to a plug-in; omit them");
  out->If(
      !c.env.plugin.empty() && c.env.action_bound != 0, {"env.action_bound", "env.plugin"},
      "applies to Python environments only, not to a plug-in, which declares its bounds; omit it");
  out->If(c.env.id.starts_with("envpool:") && c.fleet.mode == FleetMode::kSerial,
          {"fleet.mode", "env.id"},
          "\"serial\" guarantees identical bytes for the same seed, but EnvPool takes one seed per "
          "pool; use \"processes\", or \"gymnasium:...\" or \"ALE/...\"");
}

// Checks the differences of evaluation episodes, as CheckEnv does those of training.
void CheckEvaluationEnv(const Config& c, Conflicts* out) {
  const EvaluationEnvConfig& differences = c.evaluator.env;
  const EnvConfig env = EvaluationEnv(c.env, differences);
  out->If(differences.sticky_actions < 0 && differences.sticky_actions != -1 &&
              differences.sticky_actions != -2,
          {"evaluator.env.sticky_actions"},
          "{} is neither a probability nor -1 (the environment's own setting) nor -2 "
          "(env.sticky_actions)",
          TomlNumber(differences.sticky_actions));
  out->If(differences.noop_max > 0 && !env.id.starts_with("ALE/"),
          {"evaluator.env.noop_max", "evaluator.env.id", "env.id"},
          "is supported for Atari games (\"ALE/...\") only, not for {}; omit it",
          TomlString(env.id));
  out->If(
      differences.difficulty_ramping != EvaluationSwitch::kSame && !env.id.starts_with("MinAtar/"),
      {"evaluator.env.difficulty_ramping", "evaluator.env.id", "env.id"},
      "is supported for MinAtar games only, not for {}; omit it", TomlString(env.id));
  out->If(!env.plugin.empty() && !env.wrappers.empty() && c.env.wrappers.empty(),
          {"evaluator.env.wrappers", "env.plugin"},
          "apply to Python environments only, not to a plug-in; omit them");
  out->If(
      env.id.starts_with("envpool:") && !c.env.id.starts_with("envpool:") &&
          c.fleet.mode == FleetMode::kSerial,
      {"evaluator.env.id", "fleet.mode"},
      "{} takes one seed per pool, but \"serial\" guarantees identical bytes for the same seed; "
      "use fleet.mode = \"processes\", or another environment",
      TomlString(env.id));
}

// Checks the keys of one layer. `after_linear`: a previous layer is linear, so its output is flat.
void CheckLayer(const LayerConfig& layer, const std::string& key, bool after_linear,
                Conflicts* out) {
  const LayerConfig plain;
  out->If(layer.type != LayerType::kOwn && !layer.options.empty(), {key},
          "only own layers have options; remove them");
  out->If(
      layer.padding != 0 && layer.type != LayerType::kConv2d && layer.type != LayerType::kMaxPool,
      {key}, "only conv2d and max_pool layers have padding; remove it");
  // Common to all layers that take images.
  if (IsImageLayer(layer.type)) {
    const std::string_view type = EnumName(layer.type);
    out->If(layer.kernel == 0, {key}, "a {} layer needs a kernel; add kernel = 3", type);
    out->If(after_linear, {key},
            "a {} layer can't follow a linear or recurrent layer, whose output is not an image; "
            "move it before them",
            type);
  }
  if (layer.type == LayerType::kConv2d) {
    out->If(layer.filters == 0, {key}, "a conv2d layer needs filters; add filters = 32");
    out->If(layer.units != 0, {key}, "a conv2d layer has no units; use filters");
  } else if (layer.type == LayerType::kMaxPool) {
    out->If(layer.units != 0 || layer.filters != 0, {key},
            "a max_pool layer keeps the channels; remove units and filters");
    out->If(layer.activation != plain.activation && layer.activation != Activation::kNone, {key},
            "a max_pool layer has no activation; remove activation");
    out->If(2 * layer.padding > layer.kernel, {key},
            "padding = {} is more than half of kernel = {}; use a smaller one", layer.padding,
            layer.kernel);
  } else if (layer.type == LayerType::kResidual) {
    out->If(layer.units != 0 || layer.filters != 0 || layer.stride != plain.stride, {key},
            "a residual layer keeps the shape; remove units, filters and stride");
    out->If(layer.kernel % 2 == 0 && layer.kernel != 0, {key},
            "a residual layer needs an odd kernel, not {}", layer.kernel);
  } else if (layer.type == LayerType::kLayerNorm) {
    out->If(layer.units != 0 || layer.filters != plain.filters || layer.kernel != plain.kernel ||
                layer.stride != plain.stride,
            {key}, "a layer_norm layer keeps the shape; remove units, filters, kernel and stride");
  } else if (layer.type == LayerType::kLinear || IsRecurrent(layer.type)) {
    const std::string type =
        fmt::format("{} {}", layer.type == LayerType::kLstm ? "an" : "a", EnumName(layer.type));
    out->If(layer.units == 0, {key}, "{} layer needs units; add units = 64", type);
    out->If(layer.filters != plain.filters || layer.kernel != plain.kernel ||
                layer.stride != plain.stride,
            {key}, "{} layer has no filters, kernel or stride; remove them", type);
    out->If(IsRecurrent(layer.type) && layer.activation != plain.activation, {key},
            "{} layer has its own activations; remove activation", type);
  }
}

// Checks a list of layers in order; 64 layers are far above any useful network here.
void CheckLayers(const std::vector<LayerConfig>& layers, const std::string& key, Conflicts* out) {
  bool linear = false;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    CheckLayer(layers[i], fmt::format("{}[{}]", key, i), linear, out);
    // Everything after the first linear or recurrent layer is flat.
    linear |= layers[i].type == LayerType::kLinear || IsRecurrent(layers[i].type);
  }
  out->If(layers.size() > 64, {key}, "{} layers, at most 64 are supported; remove some",
          layers.size());
}

// Checks the layers, and options that exclude each other.
void CheckNetwork(const Config& c, Conflicts* out) {
  CheckLayers(c.network.layers, "network.layers", out);
  CheckLayers(c.network.critic_layers, "network.critic_layers", out);
  out->If(
      StateColumns(c.network.layers) > 0 && !LearnsFromUnrolls(c.learner.algorithm),
      {"network.layers", "learner.algorithm"},
      "lstm and gru layers are supported by learner.algorithm = \"r2d2\", \"pqn\", \"vtrace\" and "
      "\"ppo\" only; use "
      "env.frame_stack, or change the algorithm");
  out->If(StateColumns(c.network.critic_layers) > 0, {"network.critic_layers"},
          "networks of critics and values have no recurrent layers; use linear ones");
  // The statistics are stored with the parameters, so weight decay would apply to them.
  out->If(c.network.normalize_observations && c.optimizer.weight_decay > 0,
          {"network.normalize_observations", "optimizer.weight_decay"},
          "weight decay would shrink the observation statistics too; set one of the two to its "
          "default");
  out->If(c.network.normalize_observations && c.network.one_hot > 0,
          {"network.normalize_observations", "network.one_hot"},
          "one-hot classes have no mean to normalize by; set one of the two to its default");
  out->If(c.network.dueling_units > 0 && !c.network.dueling,
          {"network.dueling_units", "network.dueling"},
          "is {}, but network.dueling = false disables the dueling streams; set 0, or "
          "network.dueling = true",
          c.network.dueling_units);
}

// Checks that the rate limiter can count the samples, and that its error buffer is useful.
void CheckRatio(const Config& c, Conflicts* out) {
  constexpr double kSamplesMax = 9007199254740992;  // 2^53: the rate limiter counts in doubles
  const double ratio = c.replay.samples_per_insert,
               error = c.replay.samples_per_insert_tolerance_rate;
  const auto items = double(c.replay.min_items);
  const double samples = ratio * items * (1 + error);
  out->If(samples > kSamplesMax, {"replay.samples_per_insert", "replay.min_items"},
          "{} x replay.min_items ({}) x (1 + replay.samples_per_insert_tolerance_rate ({})) "
          "exceeds 2^53 samples; lower one of them",
          TomlNumber(ratio), c.replay.min_items, TomlNumber(error));
  // At the end of a run the learner makes all updates that the error buffer permits. A buffer
  // larger than the run would let it ignore the ratio.
  const bool endless = ratio > 0 && c.run.max_updates == 0 && error * items > c.run.total_steps &&
                       samples <= kSamplesMax;
  out->If(endless,
          {"replay.samples_per_insert_tolerance_rate", "replay.min_items", "run.total_steps"},
          "{} x replay.min_items ({}) is an error buffer of more items than the run has steps "
          "(run.total_steps = {}), so the ratio would have no effect; lower either factor, or set "
          "replay.samples_per_insert = 0 to disable the rate limiter",
          TomlNumber(error), c.replay.min_items, TomlNumber(c.run.total_steps));
}

// Checks sizes: of batches, of the table, and of the inserts of an actor.
void CheckReplay(const Config& c, Conflicts* out) {
  CheckRatio(c, out);
  // Synchronous learning takes its unrolls one by one.
  const std::int64_t capacity = c.replay.capacity_items,
                     batch = c.learner.synchronous ? 1 : c.learner.batch_size;
  out->If(batch > capacity, {"learner.batch_size", "replay.capacity_items"},
          "{} exceeds replay.capacity_items = {}; lower it, or raise the capacity", batch,
          capacity);
  out->If(c.replay.min_items > capacity, {"replay.min_items", "replay.capacity_items"},
          "{} exceeds replay.capacity_items = {}, so no batch would ever be sampled; lower it",
          c.replay.min_items, capacity);
  out->If(c.replay.min_items < batch && batch <= capacity,
          {"replay.min_items", "learner.batch_size"},
          "{} is less than learner.batch_size = {}; raise it to at least {}", c.replay.min_items,
          batch, batch);
  out->If(c.replay.min_items > c.run.total_steps, {"replay.min_items", "run.total_steps"},
          "{} exceeds run.total_steps = {}, so no batch would ever be sampled; lower it",
          c.replay.min_items, TomlNumber(c.run.total_steps));
  // Each item would be evicted before the learner has sampled as often as the ratio demands, so
  // that both sides would wait forever.
  const auto times = double(c.replay.max_times_sampled);
  out->If(
      times > 0 && c.replay.samples_per_insert > times,
      {"replay.samples_per_insert", "replay.max_times_sampled"},
      "{} exceeds replay.max_times_sampled = {}, at which an item is evicted; lower it, or raise "
      "that",
      TomlNumber(c.replay.samples_per_insert), c.replay.max_times_sampled);
  const InsertBounds insert = InsertBoundsOf(c.actor);
  out->If(insert.items_max > capacity,
          {"replay.capacity_items", "actor.insert_batch_size", "actor.envs"},
          "{} is less than the largest insert of an actor, {} items (actor.insert_batch_size - 1 + "
          "actor.envs x {} x actor.insert_copies); raise it, or lower those",
          capacity, insert.items_max, c.actor.unroll_length > 0 ? "2" : "(actor.n_step + 1)");
  // The frame log holds at least 4096 frames and accepts at most half of its capacity in one
  // insert, with each stream's newest frames, to which later items may refer.
  const std::int64_t steps = std::max(c.actor.n_step, c.actor.unroll_length + c.actor.burn_in);
  const std::int64_t frames = insert.frames_max + c.actor.envs * (steps + c.env.frame_stack);
  const std::int64_t held = capacity * (c.actor.unroll_length + 1);  // at least
  const std::int64_t frames_max = std::max<std::int64_t>(held, 4096) / 2;
  out->If(insert.items_max <= capacity && frames > frames_max,
          {"actor.insert_batch_size", "replay.capacity_items", "actor.envs"},
          "{} leads to inserts of up to {} frames, but the replay accepts {}; raise "
          "replay.capacity_items to {}, or lower this",
          c.actor.insert_batch_size, frames, frames_max,
          (2 * frames + c.actor.unroll_length) / (c.actor.unroll_length + 1));
}

// Checks the inference servers against the requests of the actors.
void CheckInference(const Config& c, Conflicts* out) {
  out->If(InferenceServersOf(c) > 0 && c.actor.envs > c.inference.max_batch_size,
          {"inference.max_batch_size", "actor.envs"},
          "{} is less than actor.envs = {}, the number of observations per request of an actor; "
          "raise it to {}",
          c.inference.max_batch_size, c.actor.envs, c.actor.envs);
  out->If(
      InferenceServersOf(c) > 0 && StateColumns(c.network.layers) > 0,
      {"actor.inference", "network.layers"},
      "inference servers keep no recurrent states, which lstm and gru layers have; set \"local\"");
  const bool on_cpu = HasPolicyNetwork(c.learner.algorithm) || IsActorCritic(c.learner.algorithm);
  out->If(c.inference.device == DeviceChoice::kCuda && on_cpu,
          {"inference.device", "learner.algorithm"},
          "the policy of learner.algorithm = \"{}\" runs on the CPU only; set \"auto\"",
          EnumName(c.learner.algorithm));
}

// With GPU replay only the one learner samples from the table. Its replica tracks evictions by age
// only, so removers and limits that evict by other criteria are excluded.
void CheckPlacement(const Config& c, Conflicts* out) {
  if (c.replay.placement != ReplayPlacement::kGpu) return;
  // Blames the key that differs, and names the required value.
  const auto need = [&](bool good, const char* key, std::string_view value) {
    out->If(!good, {key, "replay.placement"},
            "replay.placement = \"gpu\" requires {} here; set it, or replay.placement = \"host\"",
            value);
  };
  need(c.learner.algorithm == AlgorithmKind::kDqn, "learner.algorithm", "\"dqn\"");
  need(c.learner.device != DeviceChoice::kCpu, "learner.device", "\"cuda\" or \"auto\"");
  need(c.fleet.learners == 1, "fleet.learners", "1");
  need(c.learner.sync == LearnerSync::kAllReduce, "learner.sync", "\"allreduce\"");
  need(c.learner.hogwild_threads == 1, "learner.hogwild_threads", "1");
  need(c.replay.shards == 1, "replay.shards", "1");
  need(c.replay.sampler == SelectorKind::kPrioritized, "replay.sampler", "\"prioritized\"");
  need(c.replay.remover == RemoverKind::kFifo, "replay.remover", "\"fifo\"");
  need(c.replay.max_times_sampled == 0, "replay.max_times_sampled", "0");
  need(c.replay.max_policy_age == 0, "replay.max_policy_age", "0");
  // The rewards of the replica are in GPU memory, where they are not divided.
  need(!c.env.normalize_rewards, "env.normalize_rewards", "false");
}

// Checks replay shards, prioritized sampling, persistence and the additional tables.
void CheckShards(const Config& c, Conflicts* out) {
  const std::int64_t shards = c.replay.shards, envs = c.fleet.actors * c.actor.envs;
  out->If(shards > envs, {"replay.shards", "fleet.actors", "actor.envs"},
          "{} shards for {} environments would leave some shards empty; use fewer", shards, envs);
  out->If(shards > c.replay.min_items, {"replay.shards", "replay.min_items"},
          "{} shards exceed replay.min_items = {}; use fewer", shards, c.replay.min_items);
  // Local scope pairs learners and shards.
  const bool local = c.replay.scope == ReplayScope::kLocal;
  out->If(local && shards != c.fleet.learners, {"replay.shards", "fleet.learners", "replay.scope"},
          "replay.scope = \"local\" requires one shard per learner: {} learners, but {} shards; "
          "set equal numbers, or replay.scope = \"global\"",
          c.fleet.learners, shards);
  out->If(local && c.fleet.actors % c.fleet.learners != 0,
          {"fleet.actors", "fleet.learners", "replay.scope"},
          "{} actors can't be divided evenly among {} learners, as replay.scope = \"local\" "
          "requires; use a multiple",
          c.fleet.actors, c.fleet.learners);
  // Prioritized sampling.
  const double last_beta = c.replay.final_beta;
  out->If(last_beta > 0 && last_beta < c.replay.beta, {"replay.final_beta", "replay.beta"},
          "{} is less than replay.beta = {}, the start of the linear rise; raise it, or set 0 for "
          "a constant exponent",
          TomlNumber(last_beta), TomlNumber(c.replay.beta));
  out->If(last_beta > 0 && c.replay.sampler != SelectorKind::kPrioritized,
          {"replay.final_beta", "replay.sampler"},
          "only replay.sampler = \"prioritized\" has importance weights, not {}; set 0, or change "
          "the sampler",
          TomlString(EnumName(c.replay.sampler)));
  // Persistence.
  out->If(c.replay.durability == Durability::kDisk && !c.replay.persist,
          {"replay.durability", "replay.persist"},
          "\"disk\" requires replay.persist = true; set that, or \"memory\" here");
  out->If(c.replay.spill_to_disk && !c.replay.persist, {"replay.spill_to_disk", "replay.persist"},
          "requires files to spill to; set replay.persist = true");
  for (std::size_t i = 0; i < c.replay.tables.size(); ++i) {
    const ReplayTableConfig& table = c.replay.tables[i];
    const std::string key = fmt::format("replay.tables[{}]", i);
    out->If(!IsFolderName(table.name) || table.name == "experience", {key},
            "{} is not a valid table name; use letters, digits, '-', '_' and '.', but not "
            "\"experience\" (the run's own table)",
            TomlString(table.name));
    out->If(table.min_items > table.capacity_items, {key},
            "min_items = {} exceeds capacity_items = {}; lower it", table.min_items,
            table.capacity_items);
    out->If(table.view == ViewKind::kTransition && table.burn_in > 0, {key},
            "a transition has no burn-in; set view = \"sequence\", or burn_in = 0");
    // Names must be unique.
    for (std::size_t j = 0; j < i; ++j) {
      out->If(c.replay.tables[j].name == table.name, {key},
              "the table name {} is used twice; rename one of them", TomlString(table.name));
    }
  }
}

// Checks the listen addresses and the external roles that need them.
void CheckListen(const Config& c, Conflicts* out) {
  out->If(!c.fleet.listen.empty() && c.fleet.mode == FleetMode::kSerial,
          {"fleet.listen", "fleet.mode"},
          "no role can join a serial run; omit it, or set fleet.mode = \"processes\"");
  for (const auto& [key, value] : {std::pair("fleet.listen_replay", &c.fleet.listen_replay),
                                   {"fleet.listen_paramserver", &c.fleet.listen_paramserver}}) {
    out->If(!value->empty() && c.fleet.listen.empty(), {key, "fleet.listen"},
            "has no effect without a listen address of the coordinator; set fleet.listen");
  }
  // Roles that can join from another machine; the coordinator is where they connect.
  constexpr std::string_view kJoin[] = {"actor",   "replay",    "paramserver",
                                        "learner", "evaluator", "inference"};
  for (const std::string& role : c.fleet.external_roles) {
    out->If(std::ranges::find(kJoin, role) == std::end(kJoin), {"fleet.external_roles"},
            "{} is not an external role; use actor, replay, paramserver, learner, evaluator or "
            "inference",
            TomlString(role));
  }
  // With Kubernetes the coordinator listens on its pod's address without a key.
  const bool alone = c.fleet.listen.empty() && c.fleet.engine != LaunchEngine::kKubernetes;
  out->If(!c.fleet.external_roles.empty() && alone, {"fleet.external_roles", "fleet.listen"},
          "requires a listen address of the coordinator for external roles; set fleet.listen");
  for (const auto& [key, value] : {std::pair("fleet.listen", &c.fleet.listen),
                                   {"fleet.listen_replay", &c.fleet.listen_replay},
                                   {"fleet.listen_paramserver", &c.fleet.listen_paramserver}}) {
    // Wildcard addresses can't be passed to other machines.
    const bool any = value->starts_with("tcp://*") || value->starts_with("tcp://0.0.0.0:") ||
                     value->starts_with("tcp://[::]:");
    out->If(!value->empty() && (!value->starts_with("tcp://") || any), {key},
            "{} is not an address that other machines can reach; use tcp://HOST:PORT with a name "
            "or address of this machine",
            TomlString(*value));
  }
  out->If(!c.fleet.metrics_token.empty() && c.fleet.metrics.empty(),
          {"fleet.metrics_token", "fleet.metrics"},
          "has no effect without a metrics endpoint; set fleet.metrics");
}

// Checks the schedule of the learning rate: each key belongs to some of the schedules.
void CheckSchedule(const OptimizerConfig& o, Conflicts* out) {
  const bool steps = o.lr_schedule == LrSchedule::kStep;
  const std::vector<double>& at = o.lr_milestones;
  out->If(steps && at.empty(), {"optimizer.lr_milestones", "optimizer.lr_schedule"},
          "the step schedule needs at least one; set such as [0.33, 0.67], or another schedule");
  out->If(!steps && !at.empty(), {"optimizer.lr_milestones", "optimizer.lr_schedule"},
          "has no effect with optimizer.lr_schedule = {}; set \"step\", or remove the key",
          TomlString(EnumName(o.lr_schedule)));
  out->If(!steps && o.lr_milestone_factor != OptimizerConfig().lr_milestone_factor,
          {"optimizer.lr_milestone_factor", "optimizer.lr_schedule"},
          "has no effect with optimizer.lr_schedule = {}; set \"step\", or remove the key",
          TomlString(EnumName(o.lr_schedule)));
  out->If(steps && o.final_lr_fraction != 1,
          {"optimizer.final_lr_fraction", "optimizer.lr_schedule"},
          "has no effect with optimizer.lr_schedule = \"step\"; remove the key");
  out->If(o.lr_schedule == LrSchedule::kCosine && o.final_lr_fraction == 1,
          {"optimizer.lr_schedule", "optimizer.final_lr_fraction"},
          "the learning rate would stay constant; set optimizer.final_lr_fraction below 1, such "
          "as 0");
  double before = o.warmup_ratio;
  for (std::size_t i = 0; steps && i < at.size(); ++i) {
    const bool after = i == 0 ? at[i] >= before && at[i] > 0 : at[i] > before;
    out->If(!(after && at[i] < 1), {"optimizer.lr_milestones", "optimizer.warmup_ratio"},
            "{} is not a fraction of the run below 1 and after {} (the {}); list rising fractions",
            TomlNumber(at[i]), TomlNumber(before),
            i == 0 ? "end of the warm-up" : "milestone before it");
    before = at[i];
  }
}

// Checks the remaining rules: budgets, optimizer, evaluator, timeouts and modes.
void CheckRun(const Config& c, Conflicts* out) {
  out->If(HasActors(c) && c.actor.warmup_steps > c.run.total_steps,
          {"actor.warmup_steps", "run.total_steps"},
          "{} exceeds run.total_steps = {}, so all actions would be random; lower it",
          TomlNumber(c.actor.warmup_steps), TomlNumber(c.run.total_steps));
  CheckSchedule(c.optimizer, out);
  const bool rectified = c.optimizer.type == OptimizerType::kRAdam;
  out->If(
      c.optimizer.weight_decay > 0 && c.optimizer.type != OptimizerType::kAdam && !rectified &&
          c.optimizer.type != OptimizerType::kSgd,
      {"optimizer.weight_decay", "optimizer.type"},
      "is supported by optimizer.type = \"adam\", \"radam\" and \"sgd\" only; set 0, or change the "
      "type");
  out->If(rectified && 3 * c.optimizer.beta2 <= 2, {"optimizer.beta2", "optimizer.type"},
          "{} is at most 2/3, so RAdam would never divide by the root of the squared gradients; "
          "raise it, such as to 0.999, or set optimizer.type = \"sgd\"",
          TomlNumber(c.optimizer.beta2));
  out->If(c.optimizer.momentum > 0 && c.optimizer.type != OptimizerType::kSgd,
          {"optimizer.momentum", "optimizer.type"},
          "is supported by optimizer.type = \"sgd\" only; set 0, or change the type");
  out->If(c.evaluator.stop_at_return != 0 && !c.evaluator.enabled,
          {"evaluator.stop_at_return", "evaluator.enabled"},
          "{} can't be reached without evaluations; set evaluator.enabled = true, or 0 here",
          TomlNumber(c.evaluator.stop_at_return));
  out->If(c.evaluator.early_stopping_patience != 0 && !c.evaluator.enabled,
          {"evaluator.early_stopping_patience", "evaluator.enabled"},
          "{} can't be reached without evaluations; set evaluator.enabled = true, or 0 here",
          c.evaluator.early_stopping_patience);
  out->If(!c.learner.init_from.empty() && !c.model.pretrained.empty(),
          {"learner.init_from", "model.pretrained"},
          "and model.pretrained both set the first weights; omit one of the two");
  out->If(c.evaluator.video_every > 0 && (!c.evaluator.enabled || IsSupervised(c)),
          {"evaluator.video_every", "evaluator.enabled"},
          "is {}, but only evaluations that play episodes have videos; set 0",
          c.evaluator.video_every);
  out->If(c.evaluator.keep_best && !c.evaluator.enabled,
          {"evaluator.keep_best", "evaluator.enabled"},
          "has no effect without evaluations; set evaluator.enabled = true, or false here");
  out->If(c.fleet.backoff_initial_s > c.fleet.backoff_max_s,
          {"fleet.backoff_initial_s", "fleet.backoff_max_s"},
          "{} exceeds fleet.backoff_max_s = {}; lower it", TomlNumber(c.fleet.backoff_initial_s),
          TomlNumber(c.fleet.backoff_max_s));
  out->If(c.fleet.stall_timeout_s < c.fleet.heartbeat_timeout_s,
          {"fleet.stall_timeout_s", "fleet.heartbeat_timeout_s"},
          "{} is less than fleet.heartbeat_timeout_s = {}; raise it",
          TomlNumber(c.fleet.stall_timeout_s), TomlNumber(c.fleet.heartbeat_timeout_s));
  out->If(c.fleet.learners > 1 && c.network.normalize_observations,
          {"fleet.learners", "network.normalize_observations"},
          "{} learners would each have separate statistics; use one learner, or set it to false "
          "and scale observations in the environment",
          c.fleet.learners);
  out->If(c.fleet.mode == FleetMode::kSerial && c.fleet.actors > 256,
          {"fleet.actors", "fleet.mode"},
          "{} actors exceed the limit of fleet.mode = \"serial\" (256); raise actor.envs instead",
          c.fleet.actors);
}

}  // namespace

// Supervised algorithms learn from a data set; they have neither actors nor replay.
bool IsSupervised(const Config& config) { return IsSupervised(config.learner.algorithm); }

// The architecture has no meaning in other runs.
bool IsLinearModel(const Config& config) {
  return IsSupervised(config) && config.model.architecture == ModelArchitecture::kLinear;
}

bool IsOffline(const Config& config) { return IsOffline(config.learner); }

bool HasActors(const Config& config) { return !IsSupervised(config) && !IsOffline(config); }

// Negative values mean the default, which depends on the kind of run.
std::int64_t FinalEpisodes(const Config& config) {
  return FinalEpisodes(config.evaluator, IsSupervised(config));
}

// 0 if the actors compute their actions themselves.
std::int64_t InferenceServersOf(const Config& config) {
  const bool served = config.actor.inference == InferencePlace::kServer && HasActors(config);
  return served ? config.inference.servers : 0;
}

// The order of checks is the order of messages. All rules run, so all conflicts are reported at
// once.
std::vector<ConfigConflict> FindConflicts(const Config& config) {
  Conflicts conflicts;
  CheckNames(config, &conflicts);
  CheckEnv(config, &conflicts);
  CheckEvaluationEnv(config, &conflicts);
  CheckNetwork(config, &conflicts);
  // Supervised runs have no replay and no actors, so those keys are not checked.
  if (IsSupervised(config)) {
    CheckSupervised(config, &conflicts);
  } else {
    CheckReplay(config, &conflicts);
    CheckInference(config, &conflicts);
    CheckShards(config, &conflicts);
    CheckPlacement(config, &conflicts);
    const MeshConfig& mesh = config.mesh;
    conflicts.If(mesh.dp > 1 || mesh.tp > 1 || mesh.pp > 1,
                 {mesh.pp > 1   ? "mesh.pp"
                  : mesh.tp > 1 ? "mesh.tp"
                                : "mesh.dp"},
                 "is supported in supervised runs only; omit it, and see fleet.learners");
    conflicts.If(!mesh.batch_shares.empty(), {"mesh.batch_shares"},
                 "is supported in supervised runs only; omit it");
    conflicts.If(config.learner.class_weights != ClassWeights::kNone, {"learner.class_weights"},
                 "is supported in supervised runs only; omit it");
  }
  CheckConsistency(config, &conflicts);
  CheckListen(config, &conflicts);
  CheckCluster(config, &conflicts);
  CheckRun(config, &conflicts);
  return conflicts.Take();
}

}  // namespace troop
