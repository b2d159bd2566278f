#pragma once

#include <string>

#include "core/config.h"
#include "core/status.h"

namespace troop {

// All that can be checked of a config before a run: resolves it (ResolveSupervised), raises the
// limit of open files, then CheckProcesses, CheckMachine and CheckInputs. Failures are reported
// together; where the data are at fault, those that do not depend on them. `dry_run`: leaves
// nothing behind, no tokens of the data either. Messages as of WithPlaces.
Status CheckStart(Config* config, bool dry_run);

// The lines of a failure that begin with a key, with the place where the config gives it:
// "run.toml:2: env.id: …".
Status WithPlaces(const Config& config, const Status& status);

// Whether the files and folders that a config names are what a run needs, before anything is
// started or written: tokens, keys and their list, the weights of model.pretrained, the folder of
// the runs, the folder of the sockets (TMPDIR). All failures are reported, a line each, with the
// code of the first. Blocks on the disk. Data and environment are ResolveSupervised's and
// CheckMachine's. REQUIRES: a resolved config (ResolveSupervised).
Status CheckInputs(const Config& config);

// The part of it that concerns security.keys: each role's key is there, and is allowed.
Status CheckKeys(const Config& config);
// The part of it that concerns log.dir: the folder is there or can be made, and can be written.
Status CheckRunsFolder(const Config& config);
// The part of it that concerns a file with a token; empty: there is none. `key`: of the config.
Status CheckToken(const char* key, const std::string& file);

}  // namespace troop
