#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "nn/model_config.h"
#include "nn/network_config.h"

namespace troop {

// All settings on which the model of a run depends: those of an agent's network, and those of a
// text model. Members have the names of their keys.
struct ModelSetup {
  std::string algorithm = "dqn";  // learner.algorithm
  // Agents (dqn, dpg).
  NetworkConfig network;
  std::int64_t frame_stack = 1;   // env.frame_stack
  std::string critic = "scalar";  // learner.critic
  std::int64_t atoms = 51;        // learner.atoms
  double v_min = -150, v_max = 150;
  double action_gradient_clip = 1;  // learner.action_gradient_clip
  // Text models (classifier, masked_lm).
  ModelConfig model;
  std::int64_t max_length = 256;  // data.max_length
};

// True for the algorithms of supervised runs (classifier, masked_lm). Their models are text models;
// those of all other algorithms are the networks of agents.
inline bool IsTextAlgorithm(std::string_view algorithm) {
  return algorithm == "classifier" || algorithm == "masked_lm";
}
inline bool IsTextModel(const ModelSetup& setup) { return IsTextAlgorithm(setup.algorithm); }

}  // namespace troop
