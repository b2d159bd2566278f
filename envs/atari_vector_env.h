#pragma once

#include <memory>
#include <string_view>

#include "envs/vector_env.h"

namespace troop {

// Whether this is an Atari game that is played here, with the standard preprocessing:
// "ALE/Pong-v5".
bool IsAtariEnvironment(std::string_view id);

// Atari games in processes of their own (python/troop_env/ale.py), which give two raw frames a
// step; the brighter of their pixels and the smaller picture are made here (atari_preprocess.h), so
// that no frame is copied in Python. Observations: [84, 84] u8 grey, or what the option screen_size
// says. Errors: as MakeProcessVectorEnv; kInvalidArgument for a screen_size that is too large.
Result<std::unique_ptr<VectorEnv>> MakeAtariVectorEnv(std::string_view id,
                                                      const EnvOptions& options, int size,
                                                      EpisodeSeeder seeder);

}  // namespace troop
