#pragma once

#include "core/config.h"
#include "core/spec.h"
#include "core/status.h"
#include "learners/checkpoint.h"
#include "net/message.h"

namespace troop {

// Bytes of one process of a role: weights, gradients, optimizer, network buffers, batches; without
// the program itself.
struct ProcessBytes {
  double actor = 0, learner = 0, paramserver = 0, evaluator = 0, inference = 0;
};
// What a run will take on this machine.
struct RunNeeds {
  EnvSpec env;
  std::int64_t parameters = 0;  // without the flat buffer's padding
  ProcessBytes processes;
  double replay_bytes = 0, replay_bytes_max = 0;
  std::string shards;  // of learner.sync = "paramserver": how the parameters are dealt
};
// Errors: the environment or the network can't be made.
Result<RunNeeds> PredictNeeds(const Config& config);
// Of a run that learns reviews: what a learner with `module`, the model or its part of one, takes,
// and the other processes. Not in it: the reviews. Errors: as of Module::MakePlan.
Result<ProcessBytes> PredictSupervised(const Config& config, const Module& module);
// What a process of a role takes of it; `shards`: of the replay.
double BytesOfRole(const RunNeeds& needs, Role role, std::int64_t shards);
// Cores that this process may run on.
int CoresHere();
// Open files that a process of a run with so many roles needs at most: the coordinator has a
// connection and a log of each.
std::int64_t OpenFilesOf(std::int64_t roles);
// Raises this process's soft limit of open files to that. Errors: kInvalidArgument where fewer are
// allowed than are certainly needed.
Status RaiseOpenFiles(const Config& config);
// Whether this machine holds the processes of a local run at all. Errors: kInvalidArgument.
Status CheckProcesses(const Config& config);
// Problems that only this machine can show: memory, environment. Before any process starts.
Status CheckMachine(const Config& config);
// The same of a replay alone that takes so many bytes when full.
Status CheckReplayMemory(const Config& config, double bytes);
// Topology, endpoints, predicted memory: --dry-run.
Result<std::string> DescribeRun(const Config& config);

// Refuses to go on from a checkpoint that another network, optimizer or algorithm has made. Errors:
// kInvalidArgument with what to do. `path`: how to call the checkpoint.
Status CheckResume(const Config& config, const CheckpointState& checkpoint,
                   const std::string& path);

}  // namespace troop
