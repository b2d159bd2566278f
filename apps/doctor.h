#pragma once

#include <functional>
#include <string>
#include <vector>

#include "apps/env_check.h"
#include "core/config.h"

namespace troop {

struct DoctorOptions {
  std::string config;  // a file; empty: the machine alone
  std::vector<std::string> overrides;
  std::string coordinator;  // tcp://HOST:PORT of a run to join; empty: none
  std::string key;          // file of the key for it; empty: none
  bool insecure = false;
};
using Told = std::function<void(const Verdict&)>;

// Looks at this machine, a config and a coordinator before a run, by trying what the run will do:
// binding its ports, writing to its folder, reading its keys. Tells a verdict an item as soon as it
// is there; what fails says what to mend. Leaves nothing behind. Blocks, for seconds at most where
// the coordinator or a name server is silent, and for as long as an environment takes to start.
std::vector<Verdict> Examine(const DoctorOptions& options, const Told& told);
// `troop doctor`: prints them; exit code 1 when one failed.
int Doctor(const DoctorOptions& options);

// The parts of Examine.
void ExamineMemory(const Config& config, const Told& told);
void ExamineLimits(const Config* config, const Told& told);
void ExamineDisk(const std::string& folder, const Told& told);
void ExaminePorts(const Config& config, const Told& told);
void ExamineKeys(const Config& config, const Told& told);
void ExamineGpu(const Told& told);
void ExamineCoordinator(const DoctorOptions& options, const Told& told);

// Bytes that a new process may still take: of the machine (MemAvailable), and of every control
// group (version 2) around this one; `what` is the tightest of them.
struct MemoryLeft {
  double bytes = 0;
  std::string what;
};
MemoryLeft FindMemoryLeft(const std::string& meminfo = "/proc/meminfo",
                          const std::string& membership = "/proc/self/cgroup",
                          const std::string& groups = "/sys/fs/cgroup");

}  // namespace troop
