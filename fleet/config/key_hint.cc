// Implements the remedies for unknown config keys: names in other libraries, or the nearest key.
#include "fleet/config/key_hint.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "core/base/edit_distance.h"

namespace troop {
namespace {

// Names in lower case with underscores, as LeafOf normalizes them; sorted.
// Sources: Stable-Baselines3, RLlib, the Trainer of Hugging Face, and others.
constexpr KeyAlias kOtherNames[] = {
    {"adam_epsilon", "optimizer.epsilon"},
    {"batch_size_per_device", "learner.batch_size"},
    {"bf16", "network.precision"},
    {"buffer_size", "replay.capacity_items"},
    {"burn_in_length", "actor.burn_in"},
    {"capacity", "replay.capacity_items"},
    {"checkpoint_freq", "checkpoint.every_updates"},
    {"checkpoint_frequency", "checkpoint.every_updates"},
    {"discount", "learner.gamma"},
    {"discount_factor", "learner.gamma"},
    {"env_config", "env.options"},
    {"env_kwargs", "env.options"},
    {"env_name", "env.id"},
    {"environment", "env.id"},
    {"eps", "actor.epsilon_base"},
    {"eval_episodes", "evaluator.episodes"},
    {"eval_freq", "evaluator.every_s"},
    {"evaluation_duration", "evaluator.episodes"},
    {"evaluation_interval", "evaluator.every_s"},
    {"exploration_final_eps", "actor.epsilon_final"},
    {"exploration_fraction", "actor.epsilon_steps"},
    {"exploration_initial_eps", "actor.epsilon_initial"},
    {"fcnet_hiddens", "network.layers"},
    {"final_epsilon", "actor.epsilon_final"},
    {"fp16", "network.precision"},
    {"frame_skip", "env.action_repeat"},
    {"frameskip", "env.action_repeat"},
    {"framestack", "env.frame_stack"},
    {"gae_lambda", "learner.lambda"},
    {"grad_clip", "learner.max_grad_norm"},
    {"gradient_accumulation_steps", "learner.micro_batch_size"},
    {"gradient_clip", "learner.max_grad_norm"},
    {"hidden_sizes", "network.layers"},
    {"initial_epsilon", "actor.epsilon_initial"},
    {"learning_starts", "replay.min_items"},
    {"logdir", "log.dir"},
    {"lr", "optimizer.learning_rate"},
    {"max_seq_length", "data.max_length"},
    {"max_size", "replay.capacity_items"},
    {"max_steps", "run.total_steps"},
    {"min_replay_size", "replay.min_items"},
    {"minibatch_size", "learner.batch_size"},
    {"model_name_or_path", "model.pretrained"},
    {"n_envs", "actor.envs"},
    {"n_eval_episodes", "evaluator.episodes"},
    {"n_steps", "actor.n_step"},
    {"net_arch", "network.layers"},
    {"num_actors", "fleet.actors"},
    {"num_env_runners", "fleet.actors"},
    {"num_envs", "actor.envs"},
    {"num_envs_per_env_runner", "actor.envs"},
    {"num_gpus", "learner.device"},
    {"num_learners", "fleet.learners"},
    {"num_steps", "actor.unroll_length"},
    {"num_steps_sampled_before_learning_starts", "replay.min_items"},
    {"num_train_epochs", "run.epochs"},
    {"num_workers", "fleet.actors"},
    {"output_dir", "log.dir"},
    {"per_device_train_batch_size", "learner.batch_size"},
    {"polyak", "learner.target_tau"},
    {"prioritized_replay_alpha", "replay.alpha"},
    {"prioritized_replay_beta", "replay.beta"},
    {"prioritized_replay_beta0", "replay.beta"},
    {"prioritized_replay_eps", "replay.priority_epsilon"},
    {"replay_ratio", "replay.samples_per_insert"},
    {"rollout_fragment_length", "actor.insert_batch_size"},
    {"save_freq", "checkpoint.every_updates"},
    {"save_steps", "checkpoint.every_updates"},
    {"seed_everything", "seed"},
    {"sequence_length", "actor.unroll_length"},
    {"sgd_batchsize", "learner.batch_size"},
    {"sgd_minibatch_size", "learner.batch_size"},
    {"sgd_stepsize", "optimizer.learning_rate"},
    {"sigma0", "network.noisy_sigma"},
    {"target_network_update_freq", "learner.target_update_every_updates"},
    {"target_update_interval", "learner.target_update_every_updates"},
    {"target_update_period", "learner.target_update_every_updates"},
    {"tau", "learner.target_tau"},
    {"td_lambda", "learner.lambda"},
    {"tensorboard_log", "log.dir"},
    {"timesteps_per_batch", "learner.batch_size"},
    {"total_timesteps", "run.total_steps"},
    {"trace_length", "actor.unroll_length"},
    {"train_batch_size", "learner.batch_size"},
    {"use_gpu", "learner.device"},
    {"verbose", "log.level"},
};

// Normalizes a name: without its section, lower case, underscores.
std::string LeafOf(std::string_view key) {
  std::string leaf(key.substr(key.rfind('.') + 1));
  for (char& c : leaf) c = c == '-' ? '_' : char(std::tolower(static_cast<unsigned char>(c)));
  return leaf;
}

// Suggests the nearest name, or how to list all names. Nearest returns an empty word if no
// candidate is similar enough to be a misspelling.
std::string Hint(std::string_view what, std::string_view word,
                 std::span<const std::string> candidates) {
  const std::string nearest = Nearest(word, candidates);
  if (nearest.empty()) return fmt::format("unknown {}; `troop config` lists all", what);
  return fmt::format("unknown {}; the nearest is {}", what, nearest);
}

}  // namespace

std::span<const KeyAlias> KeyAliases() { return kOtherNames; }

// Empty for a name that no other library uses.
std::string_view FindKeyAlias(std::string_view word) {
  const std::string leaf = LeafOf(word);
  // A linear search: hints are made only for errors.
  const auto* const found = std::ranges::find(kOtherNames, leaf, &KeyAlias::name);
  return found == std::end(kOtherNames) ? std::string_view() : found->key;
}

// A name of another library takes precedence over a near key.
std::string UnknownKeyHint(std::string_view key, std::span<const std::string> keys) {
  const std::string_view here = FindKeyAlias(key);
  // `keys` may be those of a layer or table, in which the alias does not apply.
  if (std::ranges::find(keys, here) != keys.end()) {
    return fmt::format("unknown key; its name here is {}", here);
  }
  return Hint("key", key, keys);
}

// Sections have no aliases.
std::string UnknownSectionHint(std::string_view section, std::span<const std::string> sections) {
  return Hint("section", section, sections);
}

}  // namespace troop
