#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/base/status.h"
#include "core/tensor/spec.h"

namespace troop {

// The specification of the environment of a run, for roles that do not create an environment.
struct EnvSpecBody {
  std::string id, observation;  // "CartPole-v1", "f32[4]"
  float observation_scale = 1;
  std::int64_t actions = 0;      // number of discrete actions; 0: continuous
  std::vector<float> low, high;  // bounds of continuous actions
  std::int64_t max_episode_steps = 0;
  std::string code;  // EnvSpec::code
  template <class A>
  void serialize(A& a) {
    a(id, observation, observation_scale, actions, low, high, max_episode_steps, code);
  }
};
EnvSpecBody ToBody(const EnvSpec& spec);
Result<EnvSpec> FromBody(const EnvSpecBody& body);  // errors: see ParseTensorSpec and CheckEnvSpec

}  // namespace troop
