#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/base/status.h"
#include "core/tensor/spec.h"

namespace troop {

// ObservationPart.
struct ObservationPartBody {
  std::string name, shape;  // "image", "f32[84, 84, 3]", with the type of the observation
  float scale = 1;
  bool action_mask = false;
  template <class A>
  void serialize(A& a) {
    a(name, shape, scale, action_mask);
  }
};

// The specification of the environment of a run, for roles that do not create an environment.
struct EnvSpecBody {
  std::string id, observation;  // "CartPole-v1", "f32[4]"
  float observation_scale = 1;
  std::int64_t actions = 0;      // number of discrete actions; 0: continuous
  std::vector<float> low, high;  // bounds of continuous actions
  bool integers = false;         // ActionSpec::integers
  std::int64_t max_episode_steps = 0;
  std::string code;  // EnvSpec::code
  std::vector<ObservationPartBody> parts;
  template <class A>
  void serialize(A& a) {
    a(id, observation, observation_scale, actions, low, high, integers, max_episode_steps, code,
      parts);
  }
};
EnvSpecBody ToBody(const EnvSpec& spec);
Result<EnvSpec> FromBody(const EnvSpecBody& body);  // errors: see ParseTensorSpec and CheckEnvSpec

}  // namespace troop
