#pragma once

#include <string>

#include "core/base/status.h"
#include "fleet/config/config.h"
#include "kernels/simd/cpu_features.h"

namespace troop {

// Checks a config before a run: resolves it (ResolveSupervised), raises the limit of open files,
// then runs CheckProcesses, CheckMachine and CheckInputs. Reports all failures together; if the
// data set is invalid, only those that do not depend on it. `dry_run`: writes no files, not even
// the token cache. Messages are those of WithPlaces.
Status CheckStart(Config* config, bool dry_run);

// Makes learner.init_from absolute and checks that its weights fit (CheckWarmStart). For a new run
// only: a resumed one does not read it. Messages are those of WithPlaces. REQUIRES: CheckStart.
Status CheckInitFrom(Config* config);

// Prefixes each line that begins with a config key with the place where that key is set:
// "run.toml:2: env.id: …".
Status WithPlaces(const Config& config, const Status& status);

// Checks the files and folders that a config names, before anything is started or written: tokens,
// keys and the allow list, weights of model.pretrained, the folder of the runs, the socket folder
// (TMPDIR). Reports all failures, one line each, with the code of the first. Blocks on the disk.
// Data and environment are checked by ResolveSupervised and CheckMachine.
// REQUIRES: a resolved config (ResolveSupervised).
Status CheckInputs(const Config& config);

// Describes the kernels of a processor's level: "avx2 kernels"; for kPlain also which instruction
// sets the processor lacks, and the effect.
std::string DescribeKernels(CpuLevel level);

// Checks security.keys: each role's key exists and is in the allow list.
Status CheckKeys(const Config& config);
// Checks log.dir: the folder exists or can be created, and is writable.
Status CheckRunsFolder(const Config& config);
// Checks a token file; an empty path passes. `key`: the config key, for the message.
Status CheckToken(const char* key, const std::string& file);

}  // namespace troop
