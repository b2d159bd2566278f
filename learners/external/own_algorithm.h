#pragma once

#include <functional>
#include <memory>
#include <string>

#include "core/config/option_reader.h"
#include "learners/algorithm.h"

namespace troop {

// Arguments of the factory of an own algorithm.
struct OwnAlgorithmRequest {
  const TrainingConfig& config;  // all settings of the learners; the factory decides which apply
  const EnvSpec& env;            // observation: the network's input, without the batch
  // The network of the config (nn/models/model.h); with continuous actions a PolicyCritic
  // (nn/models/policy_critic.h). TrainState (learners/train_state.h) holds its weights.
  std::unique_ptr<Module> network;
  OptionReader& options;  // learner.options
};

// Makes an algorithm that fulfills the contract of Algorithm (learners/algorithm.h). Its State has
// a tensor "value", f32[P], the weights that actors and checkpoints get. Such an algorithm
// - runs with several learners that all-reduce their gradients as it is;
// - supports parameter shards and Hogwild threads if it returns an external_optimizer();
// - throws no exceptions after it was made: they end the learner.
using AlgorithmFactory = std::function<Result<std::unique_ptr<Algorithm>>(OwnAlgorithmRequest)>;

// Registers an algorithm, so that learner.algorithm = "name" makes it. Call it before the run
// starts, in TROOP_EXTENSION (nn/extension.h) or in main. Thread safe. Errors:
// FactoryRegistry::Add.
Status RegisterAlgorithm(const std::string& name, AlgorithmFactory factory);
// True for a registered name.
bool IsRegisteredAlgorithm(const std::string& name);

// Checks that the algorithm of a config with learner.algorithm of kind kOwn exists, after its
// library was loaded. Errors: those of LoadExtension; kInvalidArgument: an unknown name, with the
// known ones.
Status CheckOwnAlgorithm(const LearnerConfig& config);
// Makes it. Errors: those of CheckOwnAlgorithm, of MakeNetwork and of the factory;
// kInvalidArgument: an option that the factory did not read, or learner.device = "cuda" for an
// algorithm that does not use a GPU.
Result<std::unique_ptr<Algorithm>> MakeOwnAlgorithm(const TrainingConfig& config,
                                                    const EnvSpec& env);

}  // namespace troop
