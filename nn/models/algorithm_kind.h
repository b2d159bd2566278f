#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "core/config/enum_names.h"

namespace troop {

// The learning algorithms.
enum class AlgorithmKind : std::uint8_t {
  kDqn,              // Ape-X DQN (Horgan et al. 2018)
  kDpg,              // Ape-X DPG (Horgan et al. 2018)
  kTd3,              // twin delayed DPG (Fujimoto et al. 2018)
  kSac,              // soft actor-critic (Haarnoja et al. 2018)
  kR2d2,             // recurrent replay distributed DQN (Kapturowski et al. 2019)
  kPqn,              // parallelized Q-network (Gallici et al. 2024)
  kVtrace,           // IMPALA: actor-critic with V-trace (Espeholt et al. 2018)
  kPpo,              // proximal policy optimization (Schulman et al. 2017)
  kClassifier,       // supervised: classification of texts
  kMaskedLm,         // supervised: masked-LM pre-training (Devlin et al. 2019)
  kExternal,         // another program computes the updates of an agent
  kBehaviorCloning,  // an agent that imitates recorded episodes (learner.demonstrations)
  kOwn,              // an agent's algorithm that an extension registers under another name
};
constexpr auto EnumNames(AlgorithmKind) {
  return std::to_array<std::string_view>({"dqn", "dpg", "td3", "sac", "r2d2", "pqn", "vtrace",
                                          "ppo", "classifier", "masked_lm", "external",
                                          "behavior_cloning", "own"});
}
// True for the algorithms of continuous actions, which train a policy and critics.
constexpr bool HasPolicyNetwork(AlgorithmKind kind) {
  return kind == AlgorithmKind::kDpg || kind == AlgorithmKind::kTd3 || kind == AlgorithmKind::kSac;
}
// True for those of them that learn from the smaller value of two critics.
constexpr bool HasTwinCritics(AlgorithmKind kind) {
  return kind == AlgorithmKind::kTd3 || kind == AlgorithmKind::kSac;
}
// True for the algorithms that train a stochastic policy and its value from the actors' actions and
// their log-probabilities.
constexpr bool IsActorCritic(AlgorithmKind kind) {
  return kind == AlgorithmKind::kVtrace || kind == AlgorithmKind::kPpo;
}
// Numbers per step that the items of an algorithm carry: the log-probability of the action, and
// with learner.value_clip or learner.synchronous PPO's value of the observation, each of all steps
// in turn.
constexpr std::int64_t NumbersPerStep(AlgorithmKind kind, double value_clip, bool synchronous) {
  if (!IsActorCritic(kind)) return 0;
  return kind == AlgorithmKind::kPpo && (value_clip > 0 || synchronous) ? 2 : 1;
}
// True for the algorithms that learn from unrolls (actor.unroll_length) instead of transitions.
constexpr bool LearnsFromUnrolls(AlgorithmKind kind) {
  return kind == AlgorithmKind::kR2d2 || kind == AlgorithmKind::kPqn || IsActorCritic(kind);
}
// True for those of them whose experience must be new; the others replay it.
constexpr bool IsOnPolicy(AlgorithmKind kind) {
  return kind == AlgorithmKind::kPqn || IsActorCritic(kind);
}
// True for supervised runs, which have learners, a parameter server and an evaluator, but no
// environment, actors or replay.
constexpr bool IsSupervised(AlgorithmKind kind) {
  return kind == AlgorithmKind::kClassifier || kind == AlgorithmKind::kMaskedLm;
}

}  // namespace troop
