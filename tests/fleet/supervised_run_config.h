#pragma once

#include <string>

#include "fleet/config/config.h"
#include "tests/learners/supervised_fixture.h"

namespace troop::test {

// The config of a run with the settings of SupervisedConfig.
inline Config SupervisedRunConfig(const std::string& family) {
  const TrainingConfig training = SupervisedConfig(family);
  Config config;
  config.run = training.run;
  config.learner = training.learner;
  config.optimizer = training.optimizer;
  config.data = training.data;
  config.model = training.model;
  config.evaluator.enabled = training.evaluator_enabled;
  return config;
}

}  // namespace troop::test
