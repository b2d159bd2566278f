#pragma once

#include <cstdint>
#include <string>

#include "nn/model_config.h"
#include "nn/models/algorithm_kind.h"
#include "nn/models/critic_kind.h"
#include "nn/network_config.h"

namespace troop {

// All settings on which the model of a run depends: those of an agent's network, and those of a
// text model. Members have the names of their keys.
struct ModelSetup {
  AlgorithmKind algorithm = AlgorithmKind::kDqn;  // learner.algorithm
  std::string library;                            // learner.library
  // Agents.
  NetworkConfig network;
  std::int64_t frame_stack = 1;  // env.frame_stack
  // env.observation_clip. The environments apply it, not the network; a policy that leaves Troop
  // applies it itself (nn/export/policy_description.h).
  double observation_clip = 0;
  CriticKind critic = CriticKind::kScalar;  // learner.critic
  std::int64_t atoms = 51;                  // learner.atoms
  double v_min = -150, v_max = 150;
  double action_gradient_clip = 1;  // learner.action_gradient_clip
  double initial_temperature = 1;   // learner.initial_temperature
  // Text models (classifier, masked_lm).
  ModelConfig model;
  std::int64_t max_length = 256;  // data.max_length
};

// True for supervised runs, whose models classify texts or images.
inline bool IsSupervised(const ModelSetup& setup) { return IsSupervised(setup.algorithm); }

}  // namespace troop
