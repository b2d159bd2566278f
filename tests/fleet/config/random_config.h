#pragma once

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "core/base/philox.h"
#include "fleet/config/config.h"
#include "fleet/config/config_keys.h"

namespace troop {

// Gives every key a random value that is legal by itself.
class Randomizer final : public ConfigVisitor {
 public:
  explicit Randomizer(std::uint64_t seed) : rng_({.run_seed = seed, .purpose = Purpose::kTest}) {}
  void Visit(const ConfigKeyInfo& key, std::int64_t& value) override {
    value = std::int64_t(Number(key.range, true));
  }
  void Visit(const ConfigKeyInfo& key, double& value) override {
    value = Number(key.range, key.whole);
  }
  void Visit(const ConfigKeyInfo&, bool& value) override { value = rng_.Below(2) == 1; }
  void Visit(const ConfigKeyInfo& key, std::string& value) override {
    if (!key.choices.empty()) {
      value = key.choices[rng_.Below(std::uint32_t(key.choices.size()))];
      return;
    }
    value.clear();
    constexpr std::array<std::string_view, 12> kPieces = {"a",    "b", "\"", "\\", "\n", "\t",
                                                          "\x01", " ", "#",  "'",  "é",  "="};
    for (int i = 0; i < 8; ++i) value += kPieces[rng_.Below(kPieces.size())];
  }
  void Visit(const ConfigKeyInfo&, ConfigList& list) override {
    list.Clear();
    for (std::uint32_t n = rng_.Below(4); n > 0; --n) {
      list.Append();
      list.VisitEntry(list.size() - 1, *this);
    }
  }
  void Visit(const ConfigKeyInfo&, std::vector<EnvOption>& options) override {
    options.clear();
    for (std::uint32_t n = rng_.Below(5), i = 0; i < n; ++i) {
      EnvOption& option = options.emplace_back();
      const ConfigKeyInfo any{};
      Visit(any, option.name);
      option.name = fmt::format("{}{}", i, option.name);  // sorted, none twice
      switch (rng_.Below(6)) {
        case 4:
          option.value = double(rng_.Below(3));  // and no integer afterwards
          break;
        case 5:
          option.value = EnvOption::Json{R"({"a": [1, 1.0, "\u0001é", true], "b c": {}})"};
          break;
        case 0:
          option.value = rng_.Below(2) == 1;
          break;
        case 1:
          option.value = std::int64_t(Number({}, true));
          break;
        case 2:
          option.value = Number({}, false);
          break;
        default:
          Visit(any, option.value.emplace<std::string>());
      }
    }
  }
  void Visit(const ConfigKeyInfo&, std::vector<std::string>& list) override {
    list.resize(rng_.Below(3));
    for (std::string& text : list) Visit(ConfigKeyInfo{}, text);
  }
  void Visit(const ConfigKeyInfo& key, std::vector<double>& list) override {
    list.resize(rng_.Below(3));
    for (double& value : list) Visit(key, value);
  }

 private:
  double Number(const ConfigRange& range, bool whole) {
    const double low = std::isfinite(range.low) ? range.low : -1e4;
    const double high = std::isfinite(range.high) ? range.high : std::max(low, 0.0) + 1e4;
    for (;;) {
      // Small and large magnitudes alike.
      double value = low + (high - low) * rng_.Uniform() * std::pow(10, -rng_.Uniform(0, 12));
      if (whole) value = std::floor(value);
      if (range.Contains(value)) return value;
    }
  }
  Rng rng_;
};

inline void RepairSupervised(Config* c) {
  ModelConfig& m = c->model;
  m.num_attention_heads = c->mesh.tp;
  m.hidden_size = 16 * m.num_attention_heads;
  m.embedding_size = HasEmbeddingSize(m.architecture) ? m.embedding_size : 0;
  m.layer_norm_eps = m.architecture == ModelArchitecture::kDistilBert ? 0 : m.layer_norm_eps;
  m.max_position_embeddings = std::max(m.max_position_embeddings, c->data.max_length + 2);
  c->data.word_dropout = 0, c->mesh.dp = 0, c->data.reviews += "r", c->data.vocabulary += "v";
  if (c->learner.algorithm != AlgorithmKind::kClassifier)
    m.problem_type = ProblemType::kSingleLabel, m.labels.clear();
  if (m.problem_type != ProblemType::kRegression || IsSupervised(*c)) m.output_bias = 0;
  if (m.problem_type == ProblemType::kRegression || m.labels.size() == 1) m.labels.clear();
  if (c->learner.algorithm != AlgorithmKind::kClassifier ||
      m.problem_type != ProblemType::kSingleLabel)
    c->learner.class_weights = ClassWeights::kNone;
  c->mesh.pp = 1, c->pipeline = PipelineConfig();  // of images only
  if (!IsSupervised(*c)) c->mesh.tp = 1, c->mesh.batch_shares.clear();
  c->mesh.batch_shares.resize(std::min<std::size_t>(1, c->mesh.batch_shares.size()));
  if (!IsSupervised(*c)) return;
  // Texts and labels: one source, and no classes.
  c->data.validation.clear(), c->data.test.clear(), c->data.label_column.clear();
  c->data.delimiter = ";", m.labels.clear(), m.problem_type = ProblemType::kSingleLabel;
  c->fleet.learners = c->mesh.tp;
  c->evaluator.stop_at_return = 0;           // needs one learner
  c->evaluator.early_stopping_patience = 0;  // needs one learner
  if (c->mesh.tp > 1)
    c->learner.sync = LearnerSync::kAllReduce, c->network.normalize_observations = false;
  if (m.architecture == ModelArchitecture::kLstm) m.architecture = ModelArchitecture::kAlbert;
}

// Texts in each run (image_keys_test.cc has the images), since most keys of the two exclude each
// other.
inline void RepairImages(Config* c) {
  if (!IsSupervised(*c)) return;
  const DataConfig fresh;
  DataConfig& d = c->data;
  d.images.clear(), d.image_mean.clear(), d.image_deviation.clear();
  d.image_resize = fresh.image_resize;
  d.image_channels = d.image_height = d.image_width = d.image_padding = 0;
  d.image_crop_height = d.image_crop_width = 0;
  d.image_flip = d.image_color_noise = 0, d.image_threads = fresh.image_threads;
  d.image_cache_mb = fresh.image_cache_mb;
  ModelConfig& m = c->model;
  m.image_height = m.image_width = m.image_channels = 0;
  m.classifier_units = ModelConfig().classifier_units;
  m.sync_batch_norm = false;
  if (ClassifiesImages(m.architecture)) m.architecture = ModelArchitecture::kBert;
}

// Texts of tokens in each run (linear_keys_test.cc has linear models), for the same reason.
inline void RepairLinear(Config* c) {
  if (!IsSupervised(*c)) return;
  c->features = NgramOptions();
  c->linear = LinearConfig();
  c->model.num_features = 0;
  if (IsLinearModel(*c)) c->model.architecture = ModelArchitecture::kBert;
}

// Replaces random values of the engine keys by valid ones.
inline void RepairEngines(Config* c) {
  SlurmConfig& s = c->slurm;
  s.partition = "long", s.account = "a-1", s.memory = "16G", s.time_limit = "1-02:30:00";
  for (std::string& option : s.options) option = "--qos=high";
  for (std::string& line : s.setup) line = "module load x";
  s.learner_node = std::min(s.learner_node, s.nodes - 1);
  s.replay_node = std::min(s.replay_node, s.nodes - 1);
  const KubernetesConfig fresh;
  const std::int64_t port = c->kubernetes.port;
  c->kubernetes = fresh;
  c->kubernetes.port = port, c->kubernetes.name_space = "team-7";
  c->fleet.external_roles.clear(), c->fleet.engine = LaunchEngine::kLocal;
}

// One learner that draws from one shard by itself, or none.
inline void RepairPlacement(Config* c) {
  if (c->learner.algorithm != AlgorithmKind::kDqn) c->replay.placement = ReplayPlacement::kHost;
  if (c->replay.placement == ReplayPlacement::kHost) return;
  c->env.normalize_rewards = false;
  c->fleet.learners = c->replay.shards = c->learner.hogwild_threads = 1;
  c->learner.sync = LearnerSync::kAllReduce;
  c->replay.sampler = SelectorKind::kPrioritized, c->replay.remover = RemoverKind::kFifo;
  c->replay.max_times_sampled = c->replay.max_policy_age = 0;
  if (c->learner.device == DeviceChoice::kCpu) c->learner.device = DeviceChoice::kAuto;
}

// A program that computes the updates of one learner, or none.
inline void RepairExternal(Config* c) {
  const bool external = c->learner.algorithm == AlgorithmKind::kExternal;
  if (external == c->learner.program_socket.empty())
    c->learner.program_socket = external ? "a b" : "";
  if (!external) return;
  c->fleet.learners = c->learner.hogwild_threads = 1;
  c->learner.sync = LearnerSync::kAllReduce, c->learner.device = DeviceChoice::kAuto;
  c->network.normalize_observations = false;
}

// Recorded episodes for behavior cloning, and for some other agents.
inline void RepairDemonstrations(Config* c) {
  const bool cloning = c->learner.algorithm == AlgorithmKind::kBehaviorCloning;
  if (IsSupervised(*c) || c->replay.placement == ReplayPlacement::kGpu)
    c->learner.demonstrations.clear();
  if (cloning && c->learner.demonstrations.empty()) c->learner.demonstrations = "some episodes";
  // Half of a batch has at least one row of each kind.
  if (c->learner.demonstrations.empty()) {
    c->learner.demonstration_share = LearnerConfig().demonstration_share;
    return;
  }
  c->learner.demonstration_share = cloning || c->learner.batch_size < 2 ? 1 : 0.5;
  if (IsOffline(*c)) c->env.normalize_rewards = false;
}

// Milestones that rise from the end of the warm-up, if the schedule has any.
inline void RepairSchedule(OptimizerConfig* o) {
  const bool steps = o->lr_schedule == LrSchedule::kStep;
  if (steps) o->final_lr_fraction = 1;
  if (steps && o->lr_milestones.empty()) o->lr_milestones.resize(1);
  if (!steps) o->lr_milestones.clear(), o->lr_milestone_factor = 0.1;
  for (std::size_t i = 0; i < o->lr_milestones.size(); ++i) {
    o->lr_milestones[i] = o->warmup_ratio + (1 - o->warmup_ratio) * double(i + 1) / 4;
  }
  if (o->lr_schedule == LrSchedule::kCosine && o->final_lr_fraction == 1) o->final_lr_fraction = 0;
}

// Clears the keys of a layer that its type does not have, and moves layers of images to the front.
inline void RepairLayers(std::vector<LayerConfig>* layers) {
  const LayerConfig plain;
  for (LayerConfig& layer : *layers) {
    const bool recurrent = IsRecurrent(layer.type);
    const bool linear = layer.type == LayerType::kLinear || recurrent;
    if (recurrent) layer.activation = plain.activation;
    layer.options.clear();
    const bool convolution = layer.type == LayerType::kConv2d;
    const bool pool = layer.type == LayerType::kMaxPool;
    const bool residual = layer.type == LayerType::kResidual;
    if (!linear) layer.units = plain.units;
    if (!convolution) layer.filters = plain.filters;
    if (!convolution && !pool) layer.stride = plain.stride, layer.padding = plain.padding;
    if (!convolution && !pool && !residual) layer.kernel = plain.kernel;
    // A window of at least twice the padding, without an activation; an odd kernel.
    if (pool) {
      layer.kernel = std::max<std::int64_t>(layer.kernel, 1);
      layer.padding = std::min(layer.padding, layer.kernel / 2);
      layer.activation = plain.activation;
    }
    if (residual) layer.kernel |= 1;
  }
  std::ranges::stable_partition(*layers, [](const LayerConfig& l) { return IsImageLayer(l.type); });
}

// Unrolls for the algorithms that learn from them, and from nothing else.
inline void RepairUnrolls(Config* c) {
  // Rollouts determine most other keys of actors and replay (unroll_keys_test.cc).
  c->learner.synchronous = false;
  c->learner.replayed_fraction = 0;
  c->learner.replayed_capacity = LearnerConfig().replayed_capacity;
  c->learner.rollout_epochs = LearnerConfig().rollout_epochs;
  c->learner.rollout_minibatches = LearnerConfig().rollout_minibatches;
  c->actor.refill_after_s = ActorConfig().refill_after_s;
  const Config plain;
  const bool unrolls = LearnsFromUnrolls(c->learner.algorithm);
  for (LayerConfig& layer : c->network.critic_layers)
    if (IsRecurrent(layer.type)) layer.type = LayerType::kLinear;
  for (LayerConfig& layer : c->network.layers) {
    if (!IsRecurrent(layer.type)) continue;
    if (!unrolls) layer.type = LayerType::kLinear;
    if (unrolls) c->actor.inference = InferencePlace::kLocal;
  }
  c->actor.unroll_length = unrolls ? std::max<std::int64_t>(1, c->actor.unroll_length) : 0;
  const bool r2d2 = c->learner.algorithm == AlgorithmKind::kR2d2;
  c->actor.unroll_overlap =
      r2d2 ? std::min(c->actor.unroll_overlap, c->actor.unroll_length - 1) : 0;
  if (!r2d2 || StateColumns(c->network.layers) == 0) {
    c->actor.burn_in = 0;
    c->learner.stored_state = true;
  }
  if (c->replay.max_times_sampled > 0) c->replay.max_times_sampled = 1000000000;
  if (!unrolls) return;
  c->learner.demonstrations.clear();
  if (r2d2) return;
  c->replay.max_times_sampled = 1000000000;
  c->actor.n_step = plain.actor.n_step;
  c->learner.target_update_every_updates = plain.learner.target_update_every_updates;
  c->learner.target_tau = plain.learner.target_tau;
  c->learner.double_q = plain.learner.double_q;
  if (!IsActorCritic(c->learner.algorithm)) return;
  c->learner.loss = plain.learner.loss;
  c->network.dueling_units = 0;
  c->actor.epsilon_steps = plain.actor.epsilon_steps;
  c->actor.epsilon_base = plain.actor.epsilon_base;
  c->actor.epsilon_alpha = plain.actor.epsilon_alpha;
  c->inference.device = DeviceChoice::kAuto;
}

// Noisy networks for dqn, without ε.
inline void RepairNoisy(Config* c) {
  if (c->learner.algorithm != AlgorithmKind::kDqn) c->network.noisy = false;
  if (!c->network.noisy) {
    c->network.noisy_sigma = NetworkConfig().noisy_sigma;
    return;
  }
  c->learner.hogwild_threads = 1;
  c->actor.epsilon_base = c->actor.epsilon_steps = 0;
  c->actor.epsilon_alpha = ActorConfig().epsilon_alpha;
}

// Sets keys that the algorithm or the critic does not have to their defaults.
inline void RepairKeysOfAlgorithms(Config* c) {
  const AlgorithmKind algorithm = c->learner.algorithm;
  if (algorithm == AlgorithmKind::kOwn || algorithm == AlgorithmKind::kExternal) return;
  const Config plain;
  LearnerConfig& l = c->learner;
  if (!HasPolicyNetwork(algorithm) || algorithm == AlgorithmKind::kSac) {
    c->actor.noise_sigma = plain.actor.noise_sigma;
    c->actor.noise_alpha = plain.actor.noise_alpha;
    l.action_gradient_clip = plain.learner.action_gradient_clip;
  }
  if (!IsOnPolicy(algorithm)) l.lambda = plain.learner.lambda;
  if (algorithm != AlgorithmKind::kR2d2) {
    l.value_rescaling = plain.learner.value_rescaling;
    l.priority_max_share = plain.learner.priority_max_share;
  }
  if (!IsActorCritic(algorithm)) {
    l.value_cost = plain.learner.value_cost;
    l.entropy_cost = plain.learner.entropy_cost;
    l.rho_bar = plain.learner.rho_bar;
    l.c_bar = plain.learner.c_bar;
  }
  l.c_bar = std::min(l.c_bar, l.rho_bar);
  if (algorithm != AlgorithmKind::kPpo) {
    l.ratio_clip = plain.learner.ratio_clip;
    l.normalize_advantages = plain.learner.normalize_advantages;
    l.value_clip = plain.learner.value_clip;
    l.target_kl = plain.learner.target_kl;
  }
  if (algorithm != AlgorithmKind::kTd3) {
    l.policy_delay = plain.learner.policy_delay;
    l.target_policy_noise = plain.learner.target_policy_noise;
    l.target_noise_clip = plain.learner.target_noise_clip;
  }
  if (algorithm != AlgorithmKind::kSac) {
    l.learn_temperature = plain.learner.learn_temperature;
    l.initial_temperature = plain.learner.initial_temperature;
    l.target_entropy = plain.learner.target_entropy;
  }
  if (!l.learn_temperature) l.target_entropy = plain.learner.target_entropy;
  if (l.critic != CriticKind::kCategorical)
    l.v_min = plain.learner.v_min, l.v_max = plain.learner.v_max;
  if (l.critic == CriticKind::kScalar) l.atoms = plain.learner.atoms;
}

// Makes a random configuration possible as a whole.
inline void Repair(Config* c) {
  RepairEngines(c);
  c->name = "run-7";
  RepairLayers(&c->network.layers);
  RepairLayers(&c->network.critic_layers);
  c->env.sticky_actions = -1;
  c->env.id = "ALE/" + c->env.id;
  c->env.difficulty_ramping = true;
  if (!c->env.plugin.empty()) c->env.wrappers.clear();
  if (!c->env.plugin.empty()) c->env.action_bound = 0;
  c->evaluator.env.id.clear();
  c->evaluator.env.sticky_actions = -2;
  c->evaluator.env.difficulty_ramping = EvaluationSwitch::kSame;
  if (!c->env.plugin.empty()) c->evaluator.env.wrappers.clear();
  c->replay.min_items = std::max(c->replay.min_items, c->learner.batch_size);
  c->actor.insert_copies = 1 + c->actor.insert_copies % 8;
  c->inference.max_batch_size = std::max(c->inference.max_batch_size, c->actor.envs);
  if (HasPolicyNetwork(c->learner.algorithm)) c->inference.device = DeviceChoice::kAuto;
  c->replay.capacity_items = std::max({c->replay.capacity_items, c->replay.min_items,
                                       4096 + 8 * c->actor.envs *
                                                  (c->actor.n_step + c->actor.unroll_length +
                                                   c->actor.burn_in + c->env.frame_stack)});
  c->replay.samples_per_insert = std::max(c->replay.samples_per_insert, 1e-3);
  c->replay.samples_per_insert_tolerance_rate = 1e6;
  c->replay.samples_per_insert =
      std::min(c->replay.samples_per_insert, 1e9 / double(c->replay.min_items));
  c->run.max_updates = std::max<std::int64_t>(1, c->run.max_updates);
  c->actor.insert_batch_size = 1;
  c->learner.batches_per_request = 1;
  c->run.total_steps =
      std::max({c->run.total_steps, c->actor.warmup_steps, double(c->replay.min_items)});
  if (c->fleet.learners > 1) c->network.normalize_observations = false;
  // Only linear models have L-BFGS.
  if (c->optimizer.type == OptimizerType::kLbfgs) c->optimizer.type = OptimizerType::kAdam;
  c->optimizer.history_size = OptimizerConfig().history_size;
  c->optimizer.tolerance_grad = OptimizerConfig().tolerance_grad;
  const bool rectified = c->optimizer.type == OptimizerType::kRAdam;
  const bool decays = c->optimizer.type == OptimizerType::kAdam || rectified ||
                      c->optimizer.type == OptimizerType::kSgd;
  if (!decays || c->network.normalize_observations) {
    c->optimizer.weight_decay = 0;
  }
  if (rectified) c->optimizer.beta2 = std::max(c->optimizer.beta2, 0.7);
  RepairSchedule(&c->optimizer);
  if (c->network.normalize_observations) c->network.one_hot = 0;
  if (c->optimizer.type != OptimizerType::kSgd) c->optimizer.momentum = 0;
  if (c->replay.sampler != SelectorKind::kPrioritized || c->replay.final_beta < c->replay.beta) {
    c->replay.final_beta = 0;
  }
  if (!c->network.dueling) c->network.dueling_units = 0;
  c->optimizer.policy_learning_rate = 0;
  const bool actor_critic = IsActorCritic(c->learner.algorithm);
  if (!actor_critic) c->network.initial_log_std = 0;
  if (!HasPolicyNetwork(c->learner.algorithm)) {
    if (!actor_critic) c->network.critic_layers.clear();
  } else {
    c->actor.epsilon_steps = 0;
  }
  if (c->learner.critic == CriticKind::kQuantile) c->learner.loss = TdLoss::kHuber;
  if (c->learner.algorithm != AlgorithmKind::kDpg && c->learner.algorithm != AlgorithmKind::kDqn)
    c->learner.critic = CriticKind::kScalar;
  c->learner.policy_delay = 1;
  c->learner.v_min = std::min(c->learner.v_min, c->learner.v_max - 1);
  RepairKeysOfAlgorithms(c);
  RepairNoisy(c);
  if (!c->evaluator.enabled) c->evaluator.stop_at_return = 0;
  if (!c->evaluator.enabled) c->evaluator.early_stopping_patience = 0;
  if (!c->evaluator.enabled) c->evaluator.keep_best = false;
  if (!c->evaluator.enabled || IsSupervised(*c)) c->evaluator.video_every = 0;
  if (!c->model.pretrained.empty()) c->learner.init_from = "";
  c->fleet.backoff_max_s = std::max(c->fleet.backoff_max_s, c->fleet.backoff_initial_s);
  c->fleet.stall_timeout_s = std::max(c->fleet.stall_timeout_s, c->fleet.heartbeat_timeout_s);
  c->fleet.mode = FleetMode::kProcesses, c->fleet.metrics_token = c->fleet.dashboard_token = "";
  c->fleet.listen = c->fleet.listen_replay = c->fleet.listen_paramserver = "";
  c->replay.persist = true;
  c->replay.shards = std::min({c->replay.shards, c->fleet.actors, c->replay.min_items});
  c->replay.scope = ReplayScope::kGlobal;
  RepairUnrolls(c);
  RepairPlacement(c);
  RepairExternal(c);
  c->learner.library.clear(), c->learner.options.clear();  // of own algorithms, never drawn
  RepairDemonstrations(c);
  if (c->network.normalize_observations) c->fleet.learners = 1;
  RepairImages(c);
  RepairLinear(c);
  RepairSupervised(c);
  const bool one = c->fleet.learners == 1 && !IsSupervised(*c);
  const bool threads = one && c->learner.sync == LearnerSync::kAllReduce &&
                       !c->network.normalize_observations && c->optimizer.policy_learning_rate == 0;
  if (!threads) c->learner.hogwild_threads = 1;
  ParamServerConfig& p = c->paramserver;
  if (!IsSupervised(*c)) {
    p.push_every = std::max<std::int64_t>(1, p.push_every);
    p.pull_every = std::max<std::int64_t>(1, p.pull_every);
  }
  if (p.mode != SyncMode::kKOfN) p.k = 1, p.cancel = p.per_batch = false;
  if (!p.per_batch) p.k = std::min(p.k, c->fleet.learners);
  if (p.mode != SyncMode::kSsp) p.staleness = 0;
  if (p.mode != SyncMode::kAsync) p.warm_start_updates = 0, p.pull_every = p.push_every;
  if (p.mode != SyncMode::kAsync || p.backup) p.hogwild_threads = 1;
  if (p.mode == SyncMode::kBsp || p.mode == SyncMode::kLocalSgd) p.staleness_discount = false;
  if (p.mode == SyncMode::kLocalSgd) {
    p.compression = GradientCodec::kNone;
    c->optimizer.type = OptimizerType::kSgd;
    c->optimizer.momentum = c->optimizer.weight_decay = 0;
  }
  for (std::size_t i = 0; i < c->replay.tables.size(); ++i) {
    ReplayTableConfig& table = c->replay.tables[i];
    table.name = "table-" + std::to_string(i);
    table.capacity_items = std::max(table.capacity_items, table.min_items);
    if (table.view == ViewKind::kTransition) table.burn_in = 0;
  }
  if (IsSupervised(*c)) c->evaluator.env = {};
}

}  // namespace troop
