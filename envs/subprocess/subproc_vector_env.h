#pragma once

#include <memory>
#include <string_view>

#include "envs/vector_env.h"

namespace troop {

// True if this environment runs in a worker process.
bool InProcess(std::string_view id, const EnvOptions& options);
// True if the environment is written in Python: "gymnasium:…", "python:…" and the like.
bool IsPythonEnvironment(std::string_view id);

// Creates environments in options.processes worker processes (protocol.h), so that a crash
// there does not affect the calling process. Blocks for the first start, at most
// options.start_timeout; later restarts proceed between Polls.
//
// Rows that end begin their next episode in the same round, with seeds that were sent ahead, or, as
// after a fault, in a second round. Seeds are requested in order of the index: equal seeds and
// actions give equal bytes with any number of processes. A worker that dies, hangs or violates the
// protocol is restarted, and each of its environments loses its episode. The first restart is
// immediate; later ones wait 0.05 s, doubling to 1 s, until one of its environments completes an
// episode. After the first death, one spare Python process with all modules loaded waits to replace
// the next worker that dies. After kStartsMax starts or resets in a row without a success, or if
// Python reports a permanent error, status() has the reason (kCancelled: no restart can help).
//
// Errors: kNotFound: no such interpreter or program; kFailedPrecondition: the reason that the
// worker reported; kInvalidArgument, kResourceExhausted, kUnavailable, kDeadlineExceeded.
inline constexpr int kStartsMax = 6;
Result<std::unique_ptr<VectorEnv>> MakeSubprocVectorEnv(std::string_view id,
                                                        const EnvOptions& options, int size,
                                                        EpisodeSeeder seeder);

}  // namespace troop
