#pragma once

#include <span>
#include <string>
#include <vector>

#include "core/base/status.h"
#include "core/storage/json.h"
#include "core/storage/storage.h"
#include "core/tensor/spec.h"
#include "fleet/config/config.h"
#include "fleet/run/serial_restore_point.h"

namespace troop {

// Provenance of a run: provenance.jsonl in its folder has one line for the start and one for each
// resume, with the program, its command line, the machine of the launcher, the packages, the
// environment and the digest of config.toml. It contains no environment variables, and no value of
// the command line whose name suggests a secret (WithoutSecrets).
inline constexpr char kProvenanceFile[] = "provenance.jsonl";

// The parts of an entry that depend on the run.
struct ProvenanceSource {
  const Config* config = nullptr;
  const EnvSpec* env = nullptr;         // TaskSpec of the config
  const RestorePoint* start = nullptr;  // of a resumed run; nullptr: a new run
};
// Describes this process, its machine and the run. Blocks: reads files below /proc, and for a
// Python environment runs its interpreter for a moment, at most 10 s.
JsonObject DescribeProvenance(const ProvenanceSource& source);

// Appends a line to the file, atomically: after a crash it has the old lines or all lines. Lines
// that it has are kept as they are, also damaged ones. Errors: kResourceExhausted if the file is
// larger than 128 MiB; those of Storage.
Status AppendProvenance(Storage* run, const JsonObject& entry);

// Replaces the value of each word "name=value" by "***" if the word contains, in any case, "token",
// "secret", "password", "passwd", "credential", "api_key", "apikey", "access_key" or "private_key".
std::vector<std::string> WithoutSecrets(std::vector<std::string> words);

// The versions of a Python interpreter and of the packages that its environment uses, as an object;
// a package that is not installed is omitted. `error` has the reason if it cannot be determined.
JsonObject PythonPackages(const std::string& python, const std::string& id);

}  // namespace troop
