#pragma once

#include <memory>
#include <string_view>

#include "envs/vector_env.h"

namespace troop {

// Whether this environment lives in a process of its own.
bool InProcess(std::string_view id, const EnvOptions& options);
// Whether Python plays it: "gymnasium:…", "python:…" and the like.
bool IsPythonEnvironment(std::string_view id);

// Environments in processes of their own (worker_protocol.h), spread over options.processes of
// them: whatever one does there, the process of the caller goes on. Waits at most
// options.start_timeout for the first start; all later ones go on between two Polls.
//
// Rows that end begin their next episode in the same round, with seeds that were given ahead, or,
// as after a fault, in a second one. Seeds are asked for in order of the index: equal seeds and
// actions give equal bytes with any number of processes. A process that dies, hangs or talks
// nonsense is started anew, and costs each of its environments the episode; at once the first time,
// then after 0.05 s, doubling to 5 s, until one of its environments ends a whole episode. From the
// first death on, one spare Python process with all modules loaded waits to take the place of the
// next that dies. After kStartsMax starts or resets without a good one between, or where Python
// says that it can't be had, status() says why (kCancelled: no restart cures it). Errors:
// kNotFound: no such interpreter or program; kFailedPrecondition: what the worker gave as the
// reason; kInvalidArgument, kResourceExhausted, kUnavailable, kDeadlineExceeded.
inline constexpr int kStartsMax = 6;
Result<std::unique_ptr<VectorEnv>> MakeProcessVectorEnv(std::string_view id,
                                                        const EnvOptions& options, int size,
                                                        EpisodeSeeder seeder);

}  // namespace troop
