#pragma once

#include <memory>
#include <string_view>

#include "envs/vector_env.h"

namespace troop {

// True if this is an Atari game that Troop plays with the standard preprocessing: "ALE/Pong-v5".
bool IsAtariEnvironment(std::string_view id);

// Creates Atari games in worker processes (python/troop_env/ale.py), which write two raw frames per
// step. The pixel-wise maximum and the resize are computed in this process (preprocessing.h), so
// that Python copies no frame. Observations: [84, 84] u8 gray, or the side that the option
// screen_size gives. Errors: those of MakeSubprocVectorEnv; kInvalidArgument for a screen_size that
// is too large.
Result<std::unique_ptr<VectorEnv>> MakeAtariVectorEnv(std::string_view id,
                                                      const EnvOptions& options, int size,
                                                      EpisodeSeeder seeder);

}  // namespace troop
