#pragma once

#include "core/base/status.h"
#include "core/tensor/spec.h"
#include "fleet/config/config.h"
#include "learners/checkpoint.h"
#include "net/message.h"

namespace troop {

// Memory in bytes of one process of each role: weights, gradients, optimizer, network buffers,
// batches and recorded episodes. The program itself is not included.
struct ProcessBytes {
  double actor = 0, learner = 0, paramserver = 0, evaluator = 0, inference = 0;
};
// Predicted size and memory of a run.
struct ResourceEstimate {
  EnvSpec env;
  std::int64_t parameters = 0;  // without the padding of the flat buffer
  ProcessBytes processes;
  double replay_bytes = 0, replay_bytes_max = 0;
  std::string shards;  // with learner.sync = "paramserver": the shard map as text
};
// Errors: the environment or the network cannot be created.
// Builds the environment and the network, and predicts the memory of all roles.
Result<ResourceEstimate> EstimateResources(const Config& config);
// Memory of a supervised run's processes. `module`: the model, or one rank's slice of it. The
// reviews are not included. Errors: those of Module::MakePlan.
Result<ProcessBytes> PredictSupervised(const Config& config, const Module& module);
// Memory in bytes of one process of a role. `shards`: number of replay shards.
double BytesOfRole(const ResourceEstimate& needs, Role role, std::int64_t shards);
// Number of cores that this process may run on.
int CoresHere();
// Upper bound on the open files of a process in a run with this many roles: the launcher has a
// connection and a log for each.
std::int64_t OpenFilesOf(std::int64_t roles);
// Raises this process's soft limit of open files to OpenFilesOf. Errors: kInvalidArgument: the hard
// limit is below what the run certainly needs.
Status RaiseOpenFiles(const Config& config);
// Checks that memory and process limits allow a local run's processes. Errors: kInvalidArgument.
Status CheckProcesses(const Config& config);
// Checks memory, GPU and environment on this machine, before any process starts.
Status CheckMachine(const Config& config);
// Checks the recorded episodes (learner.demonstrations), which each learner holds in memory,
// against three quarters of this machine's memory. Errors: kInvalidArgument.
Status CheckDemonstrationMemory(const Config& config);
// Checks a replay that needs `bytes` when full against the memory limit. Errors: kInvalidArgument.
Status CheckReplayMemory(const Config& config, double bytes);
// Text for --dry-run: topology, endpoints and predicted memory.
Result<std::string> DescribeRun(const Config& config);

// Checks that network, optimizer and algorithm of the config match those of the checkpoint. Errors:
// kInvalidArgument, with the remedy. `path`: the checkpoint's name for the message.
Status CheckResume(const Config& config, const CheckpointState& checkpoint,
                   const std::string& path);

}  // namespace troop
