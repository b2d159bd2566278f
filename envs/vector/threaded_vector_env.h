#pragma once

#include <memory>
#include <string_view>

#include "envs/vector_env.h"

namespace troop {

// Creates a vector of native environments that steps in `threads` threads: each steps a contiguous
// range of the environments. The same bytes as MakeVectorEnv, whatever the number of threads. With
// one thread it is that vector itself; with more, each thread copies its rows to the joined batch.
//
// Threads: the vector has one owner thread, which steps the first range; the others wait between
// steps and are joined by the destructor. The seeder is called from all of them, at the same time
// for different indices only. After fork, the child's first call starts new threads.
// Cost: two wake-ups per step, a few microseconds; useful where a step takes far longer than that.
// Errors: those of MakeVectorEnv; kInvalidArgument: threads is not in [1, size] or above 1024; the
// environment is not a native one.
Result<std::unique_ptr<VectorEnv>> MakeThreadedVectorEnv(std::string_view id,
                                                         const EnvOptions& options, int size,
                                                         int threads, const EpisodeSeeder& seeder);

}  // namespace troop
