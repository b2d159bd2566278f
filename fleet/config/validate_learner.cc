// Checks combinations of learning keys: parameter-server modes, Hogwild threads, DPG, supervised
// runs.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "fleet/config/validate.h"
#include "learners/external/own_algorithm.h"
#include "nn/layers/own_layer.h"

namespace troop {
namespace {

// Checks the keys of paramserver.mode: those of other modes, and the pushes of one update.
void CheckSync(const Config& c, Conflicts* out) {
  const ParamServerConfig& p = c.paramserver;
  const std::string mode = TomlString(EnumName(p.mode));
  const bool k_of_n = p.mode == SyncMode::kKOfN, local_sgd = p.mode == SyncMode::kLocalSgd;
  out->If(
      p.k > 1 && !k_of_n, {"paramserver.k", "paramserver.mode"},
      "is supported by paramserver.mode = \"k_of_n\" only, not by {}; set 1, or change the mode",
      mode);
  out->If(p.cancel && !k_of_n, {"paramserver.cancel", "paramserver.mode"},
          "is supported by paramserver.mode = \"k_of_n\" only, not by {}; set false, or change the "
          "mode",
          mode);
  out->If(p.per_batch && !k_of_n, {"paramserver.per_batch", "paramserver.mode"},
          "is supported by paramserver.mode = \"k_of_n\" only, not by {}; set false, or change the "
          "mode",
          mode);
  out->If(p.staleness > 0 && p.mode != SyncMode::kSsp,
          {"paramserver.staleness", "paramserver.mode"},
          "is supported by paramserver.mode = \"ssp\" only, not by {}; set 0, or change the mode",
          mode);
  out->If(p.warm_start_updates > 0 && p.mode != SyncMode::kAsync,
          {"paramserver.warm_start_updates", "paramserver.mode"},
          "is supported by paramserver.mode = \"async\" only, not by {}; set 0, or change the mode",
          mode);
  // In synchronous modes no gradient is stale.
  out->If(p.staleness_discount && (p.mode == SyncMode::kBsp || local_sgd),
          {"paramserver.staleness_discount", "paramserver.mode"},
          "no gradient is stale with {}; set false, or change the mode", mode);
  // More pushes than learners would never arrive, so no update would happen.
  out->If(k_of_n && !p.per_batch && c.mesh.tp == 1 && c.mesh.dp == 0 && p.k > c.fleet.learners,
          {"paramserver.k", "fleet.learners", "paramserver.per_batch"},
          "{} exceeds fleet.learners = {} with one push each; lower it, or set "
          "paramserver.per_batch = true",
          p.k, c.fleet.learners);
  // The learners of one tensor-parallel group count as one worker and push once.
  const std::int64_t workers =
      c.mesh.dp > 0 ? c.mesh.dp : c.fleet.learners / std::max<std::int64_t>(1, c.mesh.tp);
  const bool meshed =
      c.learner.sync == LearnerSync::kParamServer && (c.mesh.tp > 1 || c.mesh.dp > 0);
  out->If(
      k_of_n && !p.per_batch && meshed && p.k > workers,
      {"paramserver.k", "mesh.dp", "paramserver.per_batch"},
      "{} exceeds the {} workers with one push each; lower it, or set paramserver.per_batch = true",
      p.k, workers);
  out->If(!IsSupervised(c) && (p.push_every == 0 || p.pull_every == 0),
          {"paramserver.push_every", "paramserver.pull_every", "learner.algorithm"},
          "0 means one pass over the examples, but the run is not supervised; set at least 1");
  // In modes that wait for a push, the next gradient is computed at the version after it. A learner
  // that is too far ahead waits for its pull, and a push without a pull would be rejected and lost.
  const bool waits =
      p.mode == SyncMode::kBsp || p.mode == SyncMode::kSsp || local_sgd || (k_of_n && !p.per_batch);
  out->If(waits && p.pull_every != p.push_every && (local_sgd || p.pull_every > p.push_every),
          {"paramserver.pull_every", "paramserver.push_every", "paramserver.mode"},
          "{} differs from paramserver.push_every = {}, but in {} a pull follows each push; set "
          "them equal",
          p.pull_every, p.push_every, mode);
  out->If(local_sgd && p.compression != GradientCodec::kNone,
          {"paramserver.compression", "paramserver.mode"},
          "{} compresses gradients, but {} pushes values; set \"none\"",
          TomlString(EnumName(p.compression)), mode);
  // Averaging of values ignores the state of an optimizer, so that state must not exist.
  const bool averages = c.learner.sync == LearnerSync::kParamServer && local_sgd;
  out->If(
      averages && !IsLinearModel(c) && c.optimizer.type != OptimizerType::kSgd,
      {"optimizer.type", "paramserver.mode"},
      "{} requires plain SGD for the steps of a learner; set \"sgd\", and adapt the learning rate",
      mode);
  for (const auto& [key, value] : {std::pair{"optimizer.momentum", c.optimizer.momentum},
                                   {"optimizer.weight_decay", c.optimizer.weight_decay}}) {
    out->If(averages && c.optimizer.type == OptimizerType::kSgd && value > 0,
            {key, "paramserver.mode"}, "{} requires plain SGD for the steps of a learner; set 0",
            mode);
  }
}

// Checks threads of a shard, which make the order of updates nondeterministic.
void CheckShardThreads(const Config& c, Conflicts* out) {
  const std::int64_t threads = c.paramserver.hogwild_threads;
  if (threads == 1) return;
  out->If(c.paramserver.mode != SyncMode::kAsync,
          {"paramserver.hogwild_threads", "paramserver.mode"},
          "requires a mode in which each push is an update, \"async\", not {}; set 1, or change "
          "the mode",
          TomlString(EnumName(c.paramserver.mode)));
  out->If(c.paramserver.backup, {"paramserver.hogwild_threads", "paramserver.backup"},
          "{} threads apply updates in an order that a backup can't repeat; set 1, or "
          "paramserver.backup = false",
          threads);
  out->If(c.fleet.mode == FleetMode::kSerial, {"paramserver.hogwild_threads", "fleet.mode"},
          "{} threads are not deterministic, as serial mode requires; set 1, or fleet.mode = "
          "\"processes\"",
          threads);
}

// Checks threads of a learner, which share its weights and its optimizer.
void CheckHogwild(const Config& c, Conflicts* out) {
  if (c.learner.hogwild_threads == 1) return;
  out->If(c.fleet.learners > 1, {"learner.hogwild_threads", "fleet.learners"},
          "{} threads per learner are not supported with {} learners; set one of the two to 1",
          c.learner.hogwild_threads, c.fleet.learners);
  out->If(c.learner.sync == LearnerSync::kParamServer, {"learner.hogwild_threads", "learner.sync"},
          "parameter shards apply the updates; set 1, or learner.sync = \"allreduce\"");
  out->If(c.fleet.mode == FleetMode::kSerial, {"learner.hogwild_threads", "fleet.mode"},
          "{} threads are not deterministic, as serial mode requires; set 1, or fleet.mode = "
          "\"processes\"",
          c.learner.hogwild_threads);
  out->If(c.network.normalize_observations,
          {"learner.hogwild_threads", "network.normalize_observations"},
          "{} threads would each have separate statistics; set 1, or scale observations in the "
          "environment",
          c.learner.hogwild_threads);
  out->If(c.optimizer.policy_learning_rate > 0,
          {"learner.hogwild_threads", "optimizer.policy_learning_rate"},
          "Hogwild threads share one learning rate; set 1, or optimizer.policy_learning_rate = 0");
}

// Checks the keys of DPG, TD3 and SAC, and of the value head.
void CheckDpg(const Config& c, Conflicts* out) {
  const bool dpg = HasPolicyNetwork(c.learner.algorithm);
  const bool own = c.learner.algorithm == AlgorithmKind::kOwn;
  const bool external = own || c.learner.algorithm == AlgorithmKind::kExternal;
  const bool actor_critic = IsActorCritic(c.learner.algorithm);
  out->If(
      !dpg && !actor_critic && !external && !c.network.critic_layers.empty(),
      {"network.critic_layers", "learner.algorithm"},
      "only learner.algorithm = \"dpg\", \"td3\", \"sac\", \"vtrace\" or \"ppo\" has a critic or "
      "value network; omit it, or change the algorithm");
  // With discrete actions the network rejects it, when the environment is known.
  out->If(
      !actor_critic && !external && c.network.initial_log_std != NetworkConfig().initial_log_std,
      {"network.initial_log_std", "learner.algorithm"},
      "{} is supported by learner.algorithm = \"vtrace\" and \"ppo\" only; omit it, or change the "
      "algorithm",
      TomlNumber(c.network.initial_log_std));
  out->If(dpg && c.actor.epsilon_steps > 0, {"actor.epsilon_steps", "learner.algorithm"},
          "continuous actions use {} for exploration; set 0{}",
          c.learner.algorithm == AlgorithmKind::kSac ? "samples of the policy" : "noise",
          c.learner.algorithm == AlgorithmKind::kSac ? "" : ", and see actor.noise_sigma");
  out->If(!dpg && !own && c.optimizer.policy_learning_rate > 0,
          {"optimizer.policy_learning_rate", "learner.algorithm"},
          "only learner.algorithm = \"dpg\", \"td3\" or \"sac\" has a separate policy network; "
          "omit it, or change the algorithm");
  out->If(c.optimizer.policy_learning_rate > 0 && c.learner.sync == LearnerSync::kParamServer,
          {"optimizer.policy_learning_rate", "learner.sync"},
          "parameter shards use one learning rate; set 0, or learner.sync = \"allreduce\"");
  // The value head exists only for algorithms that learn values.
  const bool values = dpg || external || c.learner.algorithm == AlgorithmKind::kDqn;
  out->If(
      !values && c.learner.critic != CriticKind::kScalar, {"learner.critic", "learner.algorithm"},
      "only \"dqn\", \"dpg\", \"td3\" and \"sac\" learn values; omit it, or change the algorithm");
  // Quantile regression with the Huber loss: Dabney et al. 2018 (arXiv:1710.10044).
  out->If(c.learner.critic == CriticKind::kQuantile && c.learner.loss != TdLoss::kHuber,
          {"learner.critic", "learner.loss"},
          "quantiles require the Huber loss; set learner.loss = \"huber\"");
  // Range of the atoms of a distributional critic (Bellemare et al. 2017, C51).
  out->If(c.learner.v_min >= c.learner.v_max, {"learner.v_min", "learner.v_max"},
          "{} is not less than learner.v_max = {}; lower it", TomlNumber(c.learner.v_min),
          TomlNumber(c.learner.v_max));
}

// Checks keys that only some algorithms or critics have. Own algorithms and programs may use any.
void CheckKeysOfAlgorithms(const Config& c, Conflicts* out) {
  const AlgorithmKind algorithm = c.learner.algorithm;
  if (algorithm == AlgorithmKind::kOwn || algorithm == AlgorithmKind::kExternal) return;
  const LearnerConfig learner;
  const ActorConfig actor;
  // Blames a key that has another value than its default.
  const auto need = [&](bool used, const char* key, bool changed, std::string_view what) {
    const std::string other(what.substr(0, what.find(" =")));
    out->If(!used && changed, {key, other}, "is supported by {} only; omit it, or change {}", what,
            other);
  };
  const auto learner_key = [&](bool used, const char* key, auto LearnerConfig::*member,
                               std::string_view what) {
    need(used, key, c.learner.*member != learner.*member, what);
  };
  // The policy of SAC is stochastic: it needs no added noise, and its gradient is not clipped.
  constexpr std::string_view kPolicy = "learner.algorithm = \"dpg\" or \"td3\"";
  const bool policy = HasPolicyNetwork(algorithm) && algorithm != AlgorithmKind::kSac;
  need(policy, "actor.noise_sigma", c.actor.noise_sigma != actor.noise_sigma, kPolicy);
  need(policy, "actor.noise_alpha", c.actor.noise_alpha != actor.noise_alpha, kPolicy);
  learner_key(policy, "learner.action_gradient_clip", &LearnerConfig::action_gradient_clip,
              kPolicy);
  constexpr std::string_view kTd3 = "learner.algorithm = \"td3\"";
  const bool td3 = algorithm == AlgorithmKind::kTd3;
  constexpr std::string_view kUnrolls = "learner.algorithm = \"pqn\", \"vtrace\" or \"ppo\"";
  learner_key(IsOnPolicy(algorithm), "learner.lambda", &LearnerConfig::lambda, kUnrolls);
  constexpr std::string_view kR2d2 = "learner.algorithm = \"r2d2\"";
  const bool r2d2 = algorithm == AlgorithmKind::kR2d2;
  learner_key(r2d2, "learner.stored_state", &LearnerConfig::stored_state, kR2d2);
  learner_key(r2d2, "learner.value_rescaling", &LearnerConfig::value_rescaling, kR2d2);
  learner_key(r2d2, "learner.priority_max_share", &LearnerConfig::priority_max_share, kR2d2);
  constexpr std::string_view kActorCritic = "learner.algorithm = \"vtrace\" or \"ppo\"";
  const bool actor_critic = IsActorCritic(algorithm);
  learner_key(actor_critic, "learner.value_cost", &LearnerConfig::value_cost, kActorCritic);
  learner_key(actor_critic, "learner.entropy_cost", &LearnerConfig::entropy_cost, kActorCritic);
  learner_key(actor_critic, "learner.rho_bar", &LearnerConfig::rho_bar, kActorCritic);
  learner_key(actor_critic, "learner.c_bar", &LearnerConfig::c_bar, kActorCritic);
  constexpr std::string_view kPpo = "learner.algorithm = \"ppo\"";
  const bool ppo = algorithm == AlgorithmKind::kPpo;
  learner_key(ppo, "learner.ratio_clip", &LearnerConfig::ratio_clip, kPpo);
  learner_key(ppo, "learner.normalize_advantages", &LearnerConfig::normalize_advantages, kPpo);
  learner_key(ppo, "learner.value_clip", &LearnerConfig::value_clip, kPpo);
  learner_key(ppo, "learner.target_kl", &LearnerConfig::target_kl, kPpo);
  learner_key(td3, "learner.policy_delay", &LearnerConfig::policy_delay, kTd3);
  learner_key(td3, "learner.target_policy_noise", &LearnerConfig::target_policy_noise, kTd3);
  learner_key(td3, "learner.target_noise_clip", &LearnerConfig::target_noise_clip, kTd3);
  constexpr std::string_view kSac = "learner.algorithm = \"sac\"";
  const bool sac = algorithm == AlgorithmKind::kSac;
  learner_key(sac, "learner.learn_temperature", &LearnerConfig::learn_temperature, kSac);
  learner_key(sac, "learner.initial_temperature", &LearnerConfig::initial_temperature, kSac);
  learner_key(sac, "learner.target_entropy", &LearnerConfig::target_entropy, kSac);
  constexpr std::string_view kCategorical = "learner.critic = \"categorical\"";
  const bool categorical = c.learner.critic == CriticKind::kCategorical;
  learner_key(categorical, "learner.v_min", &LearnerConfig::v_min, kCategorical);
  learner_key(categorical, "learner.v_max", &LearnerConfig::v_max, kCategorical);
  learner_key(c.learner.critic != CriticKind::kScalar, "learner.atoms", &LearnerConfig::atoms,
              "learner.critic = \"categorical\" or \"quantile\"");
}

// Checks noisy networks, whose noise replaces ε. The defaults of ε's keys do not apply to them.
void CheckNoisy(const Config& c, Conflicts* out) {
  const NetworkConfig& n = c.network;
  out->If(!n.noisy && n.noisy_sigma != NetworkConfig().noisy_sigma,
          {"network.noisy_sigma", "network.noisy"},
          "{} has no effect without noisy layers; omit it, or set network.noisy = true",
          TomlNumber(n.noisy_sigma));
  if (!n.noisy) return;
  out->If(c.learner.algorithm != AlgorithmKind::kDqn, {"network.noisy", "learner.algorithm"},
          "is supported by learner.algorithm = \"dqn\" only, not by {}; set false, or change the "
          "algorithm",
          TomlString(AlgorithmName(c.learner)));
  // Threads that read the same weights would draw the same noise for different batches.
  out->If(
      c.learner.hogwild_threads > 1, {"network.noisy", "learner.hogwild_threads"},
      "Hogwild threads would share their noise; set learner.hogwild_threads = 1, or false here");
  const ActorConfig& a = c.actor;
  const ActorConfig plain;
  const auto greedy = [&](bool changed, const char* key, double value, std::string_view remedy) {
    out->If(changed, {key, "network.noisy"},
            "{} has no effect on network.noisy = true, whose noise explores in place of ε; {}",
            TomlNumber(value), remedy);
  };
  greedy(a.epsilon_base != plain.epsilon_base && a.epsilon_base != 0, "actor.epsilon_base",
         a.epsilon_base, "omit it, or set 0");
  greedy(a.epsilon_alpha != plain.epsilon_alpha, "actor.epsilon_alpha", a.epsilon_alpha, "omit it");
  greedy(a.epsilon_steps != 0, "actor.epsilon_steps", a.epsilon_steps, "omit it, or set 0");
}

// Checks TD3 and SAC where they are narrower than DPG.
void CheckTwinCritics(const Config& c, Conflicts* out) {
  const AlgorithmKind algorithm = c.learner.algorithm;
  out->If(HasTwinCritics(algorithm) && c.learner.critic != CriticKind::kScalar,
          {"learner.critic", "learner.algorithm"},
          "{} uses the smaller of two values, which distributions do not have; set \"scalar\", or "
          "learner.algorithm = \"dpg\"",
          EnumName(algorithm));
  out->If(algorithm == AlgorithmKind::kSac && !c.learner.learn_temperature &&
              c.learner.target_entropy != 0,
          {"learner.target_entropy", "learner.learn_temperature"},
          "has no effect on a fixed temperature; omit it, or set learner.learn_temperature = true");
  if (algorithm != AlgorithmKind::kTd3) return;
  // Shards and Hogwild threads step all parameters at each update.
  const bool delays = c.learner.policy_delay > 1;
  out->If(delays && c.learner.sync == LearnerSync::kParamServer,
          {"learner.policy_delay", "learner.sync"},
          "parameter shards update all weights at once; set 1, or learner.sync = \"allreduce\"");
  out->If(delays && c.learner.hogwild_threads > 1,
          {"learner.policy_delay", "learner.hogwild_threads"},
          "Hogwild threads update all weights at once; set 1, or learner.hogwild_threads = 1");
}

// Checks the names of own algorithms and layers. Those of a library are unknown until it is loaded,
// which the start of a run does (MakeOwnAlgorithm, MakeOwnLayer).
void CheckOwnNames(const Config& c, Conflicts* out) {
  const bool own = c.learner.algorithm == AlgorithmKind::kOwn;
  const bool no_library = c.learner.library.empty();
  const auto unknown = [&](const std::string& key, const std::string& name, auto built_in) {
    std::vector<std::string> names;
    for (const std::string_view one : built_in) {
      if (one != "own") names.push_back(TomlString(one));
    }
    out->If(true, {key}, "{} is unknown; use one of {}, or name its library in learner.library",
            TomlString(name), fmt::join(names, ", "));
  };
  if (own && no_library && !IsRegisteredAlgorithm(c.learner.own_algorithm))
    unknown("learner.algorithm", c.learner.own_algorithm, EnumNames(AlgorithmKind()));
  // Layers of both lists, by their place.
  bool own_layers = false;
  for (const auto& [list, layers] :
       {std::pair("network.layers", &c.network.layers),
        std::pair("network.critic_layers", &c.network.critic_layers)}) {
    for (std::size_t i = 0; i < layers->size(); ++i) {
      const LayerConfig& layer = (*layers)[i];
      if (layer.type != LayerType::kOwn) continue;
      own_layers = true;
      if (no_library && !IsRegisteredLayer(layer.own_type))
        unknown(fmt::format("{}[{}]", list, i), layer.own_type, EnumNames(LayerType()));
    }
  }
  out->If(!own && !c.learner.options.empty(), {"learner.options", "learner.algorithm"},
          "only own algorithms have options; omit them, or change the algorithm");
  out->If(!own && !own_layers && !no_library, {"learner.library", "learner.algorithm"},
          "no own algorithm and no own layer is used; omit it, or name one in learner.algorithm or "
          "network.layers");
  out->If(own_layers && c.network.precision == NetworkPrecision::kBf16,
          {"network.precision", "network.layers"}, "own layers compute in fp32; set \"fp32\"");
}

// Checks updates by another program: one learner, on the CPU, with the whole model.
void CheckExternal(const Config& c, Conflicts* out) {
  const bool external = c.learner.algorithm == AlgorithmKind::kExternal;
  out->If(
      !external && !c.learner.program_socket.empty(),
      {"learner.program_socket", "learner.algorithm"},
      "is supported by learner.algorithm = \"external\" only; omit it, or change the algorithm");
  if (!external) return;
  out->If(c.learner.program_socket.empty(), {"learner.program_socket", "learner.algorithm"},
          "is empty, but learner.algorithm = \"external\" needs a program that computes the "
          "updates; use troop.Learner, which sets it");
  // Blames the key that differs, and names the required value.
  const auto need = [&](bool good, const char* key, std::string_view value) {
    out->If(!good, {key, "learner.algorithm"},
            "learner.algorithm = \"external\" requires {} here; set it, or another algorithm",
            value);
  };
  need(c.fleet.learners == 1, "fleet.learners", "1");
  need(c.learner.sync == LearnerSync::kAllReduce, "learner.sync", "\"allreduce\"");
  need(c.learner.hogwild_threads == 1, "learner.hogwild_threads", "1");
  need(c.learner.device != DeviceChoice::kCuda, "learner.device", "\"auto\" or \"cpu\"");
  need(!c.network.normalize_observations, "network.normalize_observations", "false");
}

// Checks learning from recorded episodes.
void CheckDemonstrations(const Config& c, Conflicts* out) {
  const LearnerConfig& l = c.learner;
  const bool cloning = l.algorithm == AlgorithmKind::kBehaviorCloning;
  out->If(cloning && l.demonstrations.empty(), {"learner.demonstrations", "learner.algorithm"},
          "is empty, but learner.algorithm = \"behavior_cloning\" imitates recorded episodes; name "
          "a run with actor.record_episodes, or a folder of episodes");
  if (l.demonstrations.empty()) {
    out->If(!cloning && l.demonstration_share != LearnerConfig().demonstration_share,
            {"learner.demonstration_share", "learner.demonstrations"},
            "{} has no effect without learner.demonstrations; name recorded episodes there, or "
            "omit it",
            TomlNumber(l.demonstration_share));
    return;
  }
  out->If(
      cloning && l.demonstration_share < 1, {"learner.demonstration_share", "learner.algorithm"},
      "{} is below 1, but learner.algorithm = \"behavior_cloning\" learns from recorded episodes "
      "alone; set 1",
      TomlNumber(l.demonstration_share));
  out->If(IsSupervised(c), {"learner.demonstrations", "learner.algorithm"},
          "has no effect on text models; omit it, or change the algorithm");
  const std::int64_t rows = DemonstrationRows(l);
  out->If(rows == 0 || (rows == l.batch_size && l.demonstration_share < 1),
          {"learner.demonstration_share", "learner.batch_size"},
          "{} of {} rows rounds to {}; raise learner.batch_size, or set 1 to learn from "
          "demonstrations alone",
          TomlNumber(l.demonstration_share), l.batch_size, rows);
  out->If(c.replay.placement == ReplayPlacement::kGpu,
          {"replay.placement", "learner.demonstrations"},
          "\"gpu\" samples on the GPU, which has no demonstrations; set \"host\"");
  out->If(IsOffline(c) && c.env.normalize_rewards,
          {"env.normalize_rewards", "learner.demonstration_share"},
          "its statistics come from actors, which a run that learns from recorded episodes alone "
          "does not have; set false");
  out->If(IsOffline(c) && c.run.max_updates == 0,
          {"run.max_updates", "learner.demonstration_share"},
          "is 0, but a run that learns from recorded episodes alone ends with its updates; set "
          "their number");
}

}  // namespace

// Rules that apply to all kinds of runs.
void CheckConsistency(const Config& c, Conflicts* out) {
  CheckHogwild(c, out);
  CheckShardThreads(c, out);
  CheckSync(c, out);
  CheckDpg(c, out);
  CheckKeysOfAlgorithms(c, out);
  CheckTwinCritics(c, out);
  CheckNoisy(c, out);
  CheckExternal(c, out);
  CheckUnrolls(c, out);
  CheckOwnNames(c, out);
  CheckDemonstrations(c, out);
}

// Sizes of the model of a run without an environment.
void CheckModelSizes(const Config& c, Conflicts* out) {
  const std::int64_t positions = c.model.max_position_embeddings;
  out->If(c.data.max_length > TokensMax(c.model),
          {"data.max_length", "model.max_position_embeddings"},
          "{} exceeds model.max_position_embeddings = {}{}; lower it, or raise that",
          c.data.max_length, positions,
          TokensMax(c.model) < positions
              ? fmt::format(" - {}, for roberta", positions - TokensMax(c.model))
              : std::string());
  // Kernels process 16 values at a time.
  out->If(c.model.hidden_size % 16 != 0, {"model.hidden_size"},
          "{} is not a multiple of 16; round it up", c.model.hidden_size);
  out->If(c.model.hidden_size % c.model.num_attention_heads != 0,
          {"model.num_attention_heads", "model.hidden_size"},
          "{} does not divide model.hidden_size = {}; use a divisor", c.model.num_attention_heads,
          c.model.hidden_size);
  out->If(!HasEmbeddingSize(c.model.architecture) && c.model.embedding_size != 0 &&
              c.model.embedding_size != c.model.hidden_size,
          {"model.embedding_size", "model.architecture"},
          "\"{}\" requires an embedding of size model.hidden_size = {}; set 0",
          EnumName(c.model.architecture), c.model.hidden_size);
  // Each learner of a group computes whole attention heads.
  out->If(c.mesh.tp > c.model.num_attention_heads, {"mesh.tp", "model.num_attention_heads"},
          "{} tensor-parallel learners exceed {} attention heads; lower it", c.mesh.tp,
          c.model.num_attention_heads);
}

// Rules of the texts and labels of supervised runs.
void CheckTexts(const Config& c, Conflicts* out) {
  const bool masked = c.learner.algorithm == AlgorithmKind::kMaskedLm;
  const bool regression = c.model.problem_type == ProblemType::kRegression;
  out->If(c.data.text_columns.size() > 2, {"data.text_columns"},
          "has {} columns, at most 2 are supported; name one text or a pair",
          c.data.text_columns.size());
  out->If(c.data.delimiter.size() > 1, {"data.delimiter"},
          "{:?} has {} bytes, must be one character", c.data.delimiter, c.data.delimiter.size());
  out->If(!c.data.validation.empty() && c.data.validation_split > 0,
          {"data.validation_split", "data.validation"},
          "{} has no effect, as data.validation names the examples; omit one of the two",
          c.data.validation_split);
  out->If(!c.data.test.empty() && c.data.test_split > 0, {"data.test_split", "data.test"},
          "{} has no effect, as data.test names the examples; omit one of the two",
          c.data.test_split);
  // A masked LM uses no labels.
  out->If(masked && !c.data.label_column.empty(), {"data.label_column", "learner.algorithm"},
          "has no effect with learner.algorithm = \"masked_lm\"; omit it");
  out->If(masked && !c.model.labels.empty(), {"model.labels", "learner.algorithm"},
          "has no effect with learner.algorithm = \"masked_lm\"; omit it");
  out->If(masked && c.model.problem_type != ProblemType::kSingleLabel,
          {"model.problem_type", "learner.algorithm"},
          "{:?} has no effect with learner.algorithm = \"masked_lm\"; omit it",
          EnumName(c.model.problem_type));
  out->If(regression && !c.model.labels.empty(), {"model.labels", "model.problem_type"},
          "has {} classes, but a regression has none; omit it", c.model.labels.size());
  out->If(!regression && c.model.output_bias != 0, {"model.output_bias", "model.problem_type"},
          "{} applies only to \"regression\"; omit it", c.model.output_bias);
}

// Rules of runs without an environment.
void CheckSupervised(const Config& c, Conflicts* out) {
  // The sizes of a pre-trained model are not known yet: ResolveSupervised checks them.
  const bool images = ClassifiesImages(c.model.architecture), linear = IsLinearModel(c);
  if (c.model.pretrained.empty() && !images && !linear) CheckModelSizes(c, out);
  CheckImages(c, out);
  CheckLinear(c, out);
  const std::string algorithm = TomlString(EnumName(c.learner.algorithm));
  // Data and tokenizer.
  out->If(!images && c.data.reviews.empty(), {"data.reviews", "learner.algorithm"},
          "is empty, but learner.algorithm = {} needs training data; name a folder of classes, an "
          "archive of it, or a table",
          algorithm);
  out->If(!images && !linear && c.data.vocabulary.empty(), {"data.vocabulary", "learner.algorithm"},
          "is empty, but learner.algorithm = {} needs a vocabulary; name its file", algorithm);
  CheckTexts(c, out);
  out->If(c.evaluator.env != EvaluationEnvConfig{}, {"evaluator.env", "learner.algorithm"},
          "has no effect with learner.algorithm = {}, which has no environment; omit it",
          algorithm);
  out->If(c.data.word_dropout > 0 && c.learner.algorithm != AlgorithmKind::kClassifier,
          {"data.word_dropout", "learner.algorithm"},
          "is supported by the classifier only (learner.algorithm is {}); set 0", algorithm);
  // Class weights are of no use to labels and numbers, and a single class needs no model.
  const bool classifies = c.learner.algorithm == AlgorithmKind::kClassifier;
  const bool one_class = c.model.problem_type == ProblemType::kSingleLabel;
  out->If(one_class && c.model.labels.size() == 1, {"model.labels"},
          "has 1 name, must have at least 2 for \"single_label_classification\"; add one");
  out->If(c.learner.class_weights != ClassWeights::kNone && (!classifies || !one_class),
          {"learner.class_weights", "learner.algorithm", "model.problem_type"},
          "requires learner.algorithm = \"classifier\" with one class per text; set \"none\"");
  // Learners of a group would leave it after different updates.
  const std::int64_t learners =
      std::max(c.fleet.learners, std::max<std::int64_t>(1, c.mesh.dp) * c.mesh.tp * c.mesh.pp);
  out->If(c.evaluator.early_stopping_patience > 0 &&
              (learners > 1 || c.learner.sync != LearnerSync::kAllReduce),
          {"evaluator.early_stopping_patience", "fleet.learners", "learner.sync"},
          "is supported with one learner in supervised runs; set 0");
  out->If(c.evaluator.stop_at_return != 0 &&
              (learners > 1 || c.learner.sync != LearnerSync::kAllReduce),
          {"evaluator.stop_at_return", "fleet.learners", "learner.sync"},
          "is supported with one learner in supervised runs; set 0");
  // The LSTM baseline has no tensor parallelism, masked LM or pre-trained weights.
  const bool lstm = c.model.architecture == ModelArchitecture::kLstm;
  out->If(lstm && c.learner.algorithm != AlgorithmKind::kClassifier,
          {"model.architecture", "learner.algorithm"},
          "\"lstm\" does not support learner.algorithm = {}; use \"classifier\", or another family",
          algorithm);
  out->If(lstm && c.mesh.tp > 1, {"mesh.tp", "model.architecture"},
          "\"lstm\" does not support tensor parallelism; set 1, or use another family");
  out->If(lstm && !c.model.pretrained.empty(), {"model.pretrained", "model.architecture"},
          "\"lstm\" has no pre-trained format; omit it");
  out->If(lstm && c.model.hidden_act != HiddenActivation::kAuto,
          {"model.hidden_act", "model.architecture"},
          "\"lstm\" has no feed-forward layer; omit it");
  out->If(lstm && c.model.layer_norm_eps != 0, {"model.layer_norm_eps", "model.architecture"},
          "\"lstm\" has no layer norm; omit it");
  out->If(c.model.architecture == ModelArchitecture::kDistilBert && c.model.layer_norm_eps != 0 &&
              float(c.model.layer_norm_eps) != 1e-12f,
          {"model.layer_norm_eps", "model.architecture"},
          "{} differs from 1e-12, which \"distilbert\" always has; omit it",
          c.model.layer_norm_eps);
  const std::int64_t workers = CheckMesh(c, out);
  out->If(!c.mesh.batch_shares.empty() && std::int64_t(c.mesh.batch_shares.size()) != workers,
          {"mesh.batch_shares", "mesh.dp"}, "{} shares for {} workers; give one per worker",
          c.mesh.batch_shares.size(), workers);
  out->If(c.learner.hogwild_threads > 1 && !IsLinearModel(c),
          {"learner.hogwild_threads", "learner.algorithm"},
          "Hogwild threads are not supported by learner.algorithm = {}; set 1, and see mesh.dp",
          algorithm);
}

}  // namespace troop
