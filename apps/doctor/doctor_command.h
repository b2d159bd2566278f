#pragma once

#include <functional>
#include <string>
#include <vector>

#include "apps/command_line.h"
#include "apps/envtools/env_checker.h"
#include "fleet/config/config.h"

namespace troop {

// Options of `troop doctor`.
struct DoctorOptions {
  std::string config;                  // config file; empty: check only the machine
  std::vector<std::string> overrides;  // "key=value", applied to the config
  std::string coordinator;             // tcp://HOST:PORT of a run to join; empty: none
  std::string key;                     // key file for the coordinator; empty: none
  bool insecure = false;               // true if the coordinator is contacted without keys
};
// Callback that receives each verdict as soon as its check is done.
using ReportVerdict = std::function<void(const Verdict&)>;

// Checks this machine, a config and a coordinator by doing what the run will do: binding its ports,
// writing to its folder, reading its keys. Passes each verdict to `report` and returns all of them;
// the text of a failure says how to fix it. Leaves no files. Blocks until the environment has
// started, and for a few seconds if the coordinator or a name server does not answer.
std::vector<Verdict> Examine(const DoctorOptions& options, const ReportVerdict& report);
// `troop doctor`: prints the verdicts. Returns exit code 1 if a check failed.
int Doctor(const DoctorOptions& options);

// The separate checks of Examine. Each passes its verdicts to `report`. ExamineLimits assumes a
// single role if `config` is nullptr.
void ExamineProcessor(const ReportVerdict& report);
void ExamineMemory(const Config& config, const ReportVerdict& report);
void ExamineLimits(const Config* config, const ReportVerdict& report);
void ExamineDisk(const std::string& folder, const ReportVerdict& report);
void ExaminePorts(const Config& config, const ReportVerdict& report);
void ExamineKeys(const Config& config, const ReportVerdict& report);
void ExamineCoordinator(const DoctorOptions& options, const ReportVerdict& report);

// Memory that a new process can still allocate.
struct MemoryLeft {
  double bytes = 0;
  std::string what;  // the tightest limit: "of this machine", "of the control group /a"
};
// Returns the smallest of the machine's MemAvailable and the memory left in each enclosing control
// group (version 2). The parameters are the files to read, which tests replace.
MemoryLeft FindMemoryLeft(const std::string& meminfo = "/proc/meminfo",
                          const std::string& membership = "/proc/self/cgroup",
                          const std::string& groups = "/sys/fs/cgroup");

// Adds `troop doctor` to `app`.
void RegisterDoctor(CLI::App& app, ChosenCommand* chosen);

}  // namespace troop
